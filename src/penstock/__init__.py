"""The data layer for learning from sequential experience: open, record, plan, fetch, resume.

Importing this package loads nothing else: each name below is fetched from its own module when it is first used.

>>> import penstock
>>> penstock.Columns({"rewards": [1.0, 2.0]})
Columns(rewards: float64[2])
"""

from __future__ import annotations

from typing import Any, cast

import lazy_loader

__version__ = "0.1.0"

_load, __dir__, __all__ = cast("tuple[Any, Any, list[str]]", lazy_loader.attach_stub(__name__, __file__))


def __getattr__(name: str) -> Any:
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        missing: Any = _load("MissingExtraError")
        raise missing("gymnasium is not installed; install it with: pip install 'penstock[gymnasium]'") from error
