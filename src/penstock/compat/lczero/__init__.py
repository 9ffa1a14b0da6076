"""The door for programs written for Leela Chess Zero's training data loader: its configuration, its interface.

`make_dataloader(config)` takes the original's configuration, as text, dict or message, and gives batches from
penstock's live stages. What maps to what, and what differs, is in `docs/compat/lczero.md`.
"""

from __future__ import annotations

from penstock.compat.lczero.binding import load_config
from penstock.compat.lczero.config import (
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
from penstock.compat.lczero.loader import DataLoader, make_dataloader
from penstock.compat.lczero.tensors import TensorBase

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
