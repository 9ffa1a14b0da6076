"""Compatibility layer for Leela Chess Zero's training data loader: its configuration and its interface.

`make_dataloader(config)` takes the original's configuration, as text, dict or message, and returns a loader of batches
from penstock's live stages. `docs/lczero.md` maps the settings and lists differences.
"""

from __future__ import annotations

from penstock_chess.lczero.binding import load_config
from penstock_chess.lczero.config import (
    ChunkRescorerConfig,
    ChunkSourceLoaderConfig,
    ChunkSourceSplitterConfig,
    ChunkUnpackerConfig,
    ChunkValidatorConfig,
    DataLoaderConfig,
    FilePathProviderConfig,
    JoinPositionsConfig,
    PositionSamplingConfig,
    QueueConfig,
    ShufflingChunkPoolConfig,
    ShufflingChunkPoolControlRequest,
    ShufflingChunkPoolControlResponse,
    ShufflingFrameSamplerConfig,
    SimpleChunkExtractorConfig,
    StageConfig,
    StageControlRequest,
    StageControlResponse,
    TensorGeneratorConfig,
)
from penstock_chess.lczero.loader import DataLoader, TensorBase, make_dataloader

__all__ = [
    "ChunkRescorerConfig",
    "ChunkSourceLoaderConfig",
    "ChunkSourceSplitterConfig",
    "ChunkUnpackerConfig",
    "ChunkValidatorConfig",
    "DataLoader",
    "DataLoaderConfig",
    "FilePathProviderConfig",
    "JoinPositionsConfig",
    "PositionSamplingConfig",
    "QueueConfig",
    "ShufflingChunkPoolConfig",
    "ShufflingChunkPoolControlRequest",
    "ShufflingChunkPoolControlResponse",
    "ShufflingFrameSamplerConfig",
    "SimpleChunkExtractorConfig",
    "StageConfig",
    "StageControlRequest",
    "StageControlResponse",
    "TensorBase",
    "TensorGeneratorConfig",
    "load_config",
    "make_dataloader",
]
