"""The configuration of Leela Chess Zero's loader: a frozen dataclass a message, with its field names and defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

OverflowBehavior = Literal["BLOCK", "DROP_NEW", "KEEP_NEWEST"]
FrameFormat = Literal["V6TrainingData", "V7TrainingData"]


def natural(default: int) -> Any:
    return field(default=default, metadata={"least": 0})


@dataclass(frozen=True)
class QueueConfig:
    """The queue behind a stage. `name` tells the outputs of a stage apart."""

    name: str = ""
    queue_capacity: int = natural(4)
    overflow_behavior: OverflowBehavior = "BLOCK"


@dataclass(frozen=True)
class FilePathProviderConfig:
    """Finds files below `directory`."""

    directory: str = ""
    output: QueueConfig = QueueConfig()


@dataclass(frozen=True)
class ChunkSourceLoaderConfig:
    """Opens files. `frame_format` is accepted and checked: every record says itself what version it is."""

    threads: int = natural(1)
    output: QueueConfig = QueueConfig()
    frame_format: FrameFormat = "V6TrainingData"


@dataclass(frozen=True)
class PositionSamplingConfig:
    """Weights of positions, by how far search and network differ."""

    diff_focus_q_weight: float | None = None
    diff_focus_pol_scale: float | None = None
    diff_focus_alpha: float = 1.0
    diff_focus_beta: float = 0.0
    diff_focus_gamma: float = 1.0
    diff_focus_tau: float = 1.0
    default_weight: float = 1.0


@dataclass(frozen=True)
class ShufflingChunkPoolConfig:
    """Draws chunks of the newest `chunk_pool_size`."""

    chunk_pool_size: int = natural(100_000)
    source_ingestion_threads: int = natural(1)
    chunk_loading_threads: int = natural(4)
    output: QueueConfig = QueueConfig()
    hanse_sampling_threshold: int = natural(0)
    hanse_sampling_gamma: float = 1.0
    position_sampling: PositionSamplingConfig | None = None
    cachehit_output: QueueConfig | None = None
    position_cache_size: int = natural(0)
    caching_threads: int = natural(1)


@dataclass(frozen=True)
class ChunkRescorerConfig:
    """Rescores the frames of a chunk."""

    threads: int = natural(1)
    output: QueueConfig = QueueConfig()
    syzygy_paths: str = ""
    dist_temp: float = 1.0
    dist_offset: float = 0.0
    dtz_boost: float = 0.0
    new_input_format: int = -1
    deblunder_threshold: float | None = None
    deblunder_width: float | None = None
    gaviota_paths: str = ""
    st_q_theta: float = 0.8333333333


@dataclass(frozen=True)
class ChunkUnpackerConfig:
    """Takes positions of chunks, by rate or, where `position_count` is given, by count."""

    threads: int = natural(1)
    position_sampling_rate: float | None = None
    position_count: int | None = field(default=None, metadata={"least": 1})
    output: QueueConfig = QueueConfig()
    prefetch_count: int | None = field(default=None, metadata={"least": 1})
    prefetch_output: QueueConfig | None = None
    position_sampling: PositionSamplingConfig | None = None


@dataclass(frozen=True)
class ShufflingFrameSamplerConfig:
    """Shuffles positions through a reservoir, `reservoir_size_per_thread` times `threads` in all."""

    threads: int = natural(1)
    reservoir_size_per_thread: int = field(default=1_000_000, metadata={"least": 1})
    output: QueueConfig = QueueConfig()


@dataclass(frozen=True)
class TensorGeneratorConfig:
    """Batches of tensors."""

    threads: int = natural(1)
    batch_size: int = field(default=1024, metadata={"least": 1})
    output: QueueConfig = QueueConfig()


@dataclass(frozen=True)
class ChunkSourceSplitterConfig:
    """Divides chunks among outputs, by a hash, in the proportion of `weight`."""

    output: tuple[QueueConfig, ...] = ()
    weight: tuple[int, ...] = field(default=(), metadata={"least": 0})


@dataclass(frozen=True)
class SimpleChunkExtractorConfig:
    """All chunks of one source after the other."""

    output: QueueConfig = QueueConfig()


@dataclass(frozen=True)
class JoinPositionsConfig:
    """Joins streams of positions, each having its share of them exactly. `weight` is an extension: one for each
    unpacker, in their order; equal shares without.
    """

    output: QueueConfig = QueueConfig()
    weight: tuple[int, ...] = field(default=(), metadata={"least": 0})


@dataclass(frozen=True)
class ChunkValidatorConfig:
    """Lets chunks through that can be games. An extension: the original's document names the stage, its code has none.
    `fault` are the faults to look for, by the names of `penstock_chess.validate.Fault`; without any, those for
    which the rescorer fails a chunk.
    """

    threads: int = natural(1)
    output: QueueConfig = QueueConfig()
    fault: tuple[str, ...] = ()


StageOptions = (
    FilePathProviderConfig
    | ChunkSourceLoaderConfig
    | ShufflingChunkPoolConfig
    | ChunkUnpackerConfig
    | ShufflingFrameSamplerConfig
    | TensorGeneratorConfig
    | ChunkRescorerConfig
    | ChunkSourceSplitterConfig
    | SimpleChunkExtractorConfig
    | JoinPositionsConfig
    | ChunkValidatorConfig
)


@dataclass(frozen=True)
class StageConfig:
    """One stage: its `name`, where its `input` comes from (`stage` or `stage.output`), and the options of its kind."""

    name: str = ""
    input: tuple[str, ...] = ()
    file_path_provider: FilePathProviderConfig | None = None
    chunk_source_loader: ChunkSourceLoaderConfig | None = None
    shuffling_chunk_pool: ShufflingChunkPoolConfig | None = None
    chunk_unpacker: ChunkUnpackerConfig | None = None
    shuffling_frame_sampler: ShufflingFrameSamplerConfig | None = None
    tensor_generator: TensorGeneratorConfig | None = None
    chunk_rescorer: ChunkRescorerConfig | None = None
    chunk_source_splitter: ChunkSourceSplitterConfig | None = None
    simple_chunk_extractor: SimpleChunkExtractorConfig | None = None
    join_positions: JoinPositionsConfig | None = None
    chunk_validator: ChunkValidatorConfig | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds with options; a stage has exactly one."""
        return tuple(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def kind(self) -> str:
        return self.kinds[0]

    @property
    def options(self) -> StageOptions:
        return getattr(self, self.kind)


KINDS = tuple(name for name in StageConfig.__dataclass_fields__ if name not in ("name", "input"))


@dataclass(frozen=True)
class DataLoaderConfig:
    """All stages and the outputs: `output` is `stage`, `stage.output`, or either behind `alias:`."""

    stage: tuple[StageConfig, ...] = ()
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShufflingChunkPoolControlRequest:
    """Request to chunk pools: set or reset the anchor, or without a field only read it."""

    reset_chunk_anchor: bool = False
    set_chunk_anchor: str | None = None


@dataclass(frozen=True)
class StageControlRequest:
    """A message to all stages."""

    chunk_pool_request: ShufflingChunkPoolControlRequest | None = None


@dataclass(frozen=True)
class ShufflingChunkPoolControlResponse:
    """The anchor of a pool, and how many chunks came after it."""

    chunk_anchor: str = ""
    chunks_since_anchor: int = 0


@dataclass(frozen=True)
class StageControlResponse:
    """Answer of a stage."""

    chunk_pool_response: ShufflingChunkPoolControlResponse
