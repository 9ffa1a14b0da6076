"""Live data: read datasets that grow during training, in an order fixed by one seed and a journal.

The package exports the stages; each module is imported at the first use of its names.

>>> from penstock_live import ChunkSourceLoader, ChunkSourceSplitter, FilePathProvider, LiveOptions, LivePipeline
>>> LiveOptions(window=250_000, count=1).window
250000
"""

from __future__ import annotations

from typing import Any, cast

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = cast("tuple[Any, Any, list[str]]", lazy_loader.attach_stub(__name__, __file__))
