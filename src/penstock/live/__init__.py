"""Live data: read datasets that grow during training, in an order fixed by one seed and a journal.

The package exports the stages; each module is imported at the first use of its names.

>>> from penstock.live import ChunkSourceLoader, ChunkSourceSplitter, FilePathProvider, LiveOptions, LivePipeline
>>> LiveOptions(window=250_000, count=1).window
250000
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.live.chunk_sources import ChunkSourceLoader, Inlet
    from penstock.live.chunk_stages import ChunkStages
    from penstock.live.directory import FilePathProvider
    from penstock.live.endpoint import MetricsEndpoint
    from penstock.live.extractor import SimpleChunkExtractor
    from penstock.live.hanse import HanseSampling
    from penstock.live.hooks import ChunkFunctions, Rejected
    from penstock.live.join import JoinPositions
    from penstock.live.journal import Journal, read_journal
    from penstock.live.options import LiveOptions, Stream
    from penstock.live.pipeline import LivePipeline
    from penstock.live.pool import ShufflingChunkPool
    from penstock.live.position_store import PositionStore
    from penstock.live.sampler import ShufflingFrameSampler
    from penstock.live.source_chunks import EpisodeInlet
    from penstock.live.splitter import ChunkSourceSplitter
    from penstock.live.stream_shuffler import StreamShuffler
    from penstock.live.tensors import TensorGenerator
    from penstock.live.unpacker import ChunkUnpacker

__all__ = [
    "ChunkFunctions",
    "ChunkSourceLoader",
    "ChunkSourceSplitter",
    "ChunkStages",
    "ChunkUnpacker",
    "EpisodeInlet",
    "FilePathProvider",
    "HanseSampling",
    "Inlet",
    "JoinPositions",
    "Journal",
    "LiveOptions",
    "LivePipeline",
    "MetricsEndpoint",
    "PositionStore",
    "Rejected",
    "ShufflingChunkPool",
    "ShufflingFrameSampler",
    "SimpleChunkExtractor",
    "Stream",
    "StreamShuffler",
    "TensorGenerator",
    "read_journal",
]

# The module of each, in this package.
_HOME = {
    "ChunkFunctions": "hooks",
    "ChunkSourceLoader": "chunk_sources",
    "ChunkSourceSplitter": "splitter",
    "ChunkStages": "chunk_stages",
    "ChunkUnpacker": "unpacker",
    "EpisodeInlet": "source_chunks",
    "FilePathProvider": "directory",
    "HanseSampling": "hanse",
    "Inlet": "chunk_sources",
    "JoinPositions": "join",
    "Journal": "journal",
    "LiveOptions": "options",
    "LivePipeline": "pipeline",
    "MetricsEndpoint": "endpoint",
    "PositionStore": "position_store",
    "Rejected": "hooks",
    "ShufflingChunkPool": "pool",
    "ShufflingFrameSampler": "sampler",
    "SimpleChunkExtractor": "extractor",
    "Stream": "options",
    "StreamShuffler": "stream_shuffler",
    "TensorGenerator": "tensors",
    "read_journal": "journal",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock.live' has no attribute {name!r}")
    value = globals()[name] = pkgutil.resolve_name(f"penstock.live.{_HOME[name]}:{name}")
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
