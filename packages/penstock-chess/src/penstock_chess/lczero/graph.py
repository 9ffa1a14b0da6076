"""The stages of a configuration wired by name, and the branches that lead from files to each output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.errors import PlanError, closest
from penstock_chess.lczero.config import (
    ChunkRescorerConfig,
    ChunkSourceLoaderConfig,
    ChunkSourceSplitterConfig,
    ChunkUnpackerConfig,
    ChunkValidatorConfig,
    DataLoaderConfig,
    FilePathProviderConfig,
    JoinPositionsConfig,
    QueueConfig,
    ShufflingChunkPoolConfig,
    ShufflingFrameSamplerConfig,
    SimpleChunkExtractorConfig,
    StageConfig,
    StageOptions,
    TensorGeneratorConfig,
)

# What each kind of stage takes and gives.
FLOW: dict[str, tuple[str, str]] = {
    "file_path_provider": ("", "Files"),
    "chunk_source_loader": ("Files", "Sources"),
    "chunk_source_splitter": ("Sources", "Sources"),
    "shuffling_chunk_pool": ("Sources", "Chunks"),
    "simple_chunk_extractor": ("Sources", "Chunks"),
    "chunk_validator": ("Chunks", "Chunks"),
    "chunk_rescorer": ("Chunks", "Chunks"),
    "chunk_unpacker": ("Chunks", "Frames"),
    "shuffling_frame_sampler": ("Frames", "Frames"),
    "join_positions": ("Frames", "Frames"),
    "tensor_generator": ("Frames", "Tensors"),
}


@dataclass(frozen=True)
class Feed:
    """One way from a directory to positions: the stages on it, `part` of its splitter, and the names by kind."""

    provider: FilePathProviderConfig
    loader: ChunkSourceLoaderConfig
    pool: ShufflingChunkPoolConfig | SimpleChunkExtractorConfig
    unpacker: ChunkUnpackerConfig
    rescorer: ChunkRescorerConfig | None = None
    validator: ChunkValidatorConfig | None = None
    splitter: ChunkSourceSplitterConfig | None = None
    part: int = 0
    names: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Branch:
    """All stages that lead to one output: one feed or joined feeds; optional `sampler` and `join`; `tensors`."""

    alias: str
    feeds: tuple[Feed, ...]
    tensors: TensorGeneratorConfig
    sampler: ShufflingFrameSamplerConfig | None = None
    join: JoinPositionsConfig | None = None
    names: Mapping[str, str] = field(default_factory=dict[str, str])


class Graph:
    """Stages of one or several configurations; stages that do not fit are an error when they are added."""

    def __init__(self, config: DataLoaderConfig) -> None:
        self._stages: dict[str, StageConfig] = {}
        self._outputs: dict[str, str] = {}
        self.add(config)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The names of the outputs, in their order."""
        return tuple(self._outputs)

    @property
    def queues(self) -> dict[str, list[QueueConfig]]:
        """The outputs of each stage by its name, in the order of the configuration."""
        return {name: _queues(stage) for name, stage in self._stages.items()}

    def add(self, config: DataLoaderConfig) -> None:
        """Append stages and outputs of another configuration."""
        stages, outputs = dict(self._stages), dict(self._outputs)
        for stage in config.stage:
            _check_stage(stage, stages)
            stages[stage.name] = stage
        for stage in config.stage:
            _check_inputs(stage, stages)
        for output in config.output:
            alias, colon, name = output.partition(":")
            alias, name = (alias, name) if colon else ("", output)
            if alias in outputs:
                raise PlanError(f"expected outputs of different aliases, got {alias!r} twice")
            if _gives(name, stages, "an output") != "Tensors":
                raise PlanError(f"expected a tensor_generator for output {output!r}, got a {stages[_stage(name)].kind}")
            outputs[alias] = name
        self._stages, self._outputs = stages, outputs

    def branches(self) -> tuple[Branch, ...]:
        """Return the branch of stages that leads to each output."""
        if not self._outputs:
            raise PlanError('expected at least one output, got none; add output: "NAME" of a tensor_generator')
        used: dict[str, str] = {}
        branches = tuple(self._branch(alias, name, used) for alias, name in self._outputs.items())
        reached = {_stage(name) for name in used}
        if idle := [name for name in self._stages if name not in reached]:
            raise PlanError(f"expected every stage to lead to an output, got stages that do not: {idle}")
        return branches

    def _branch(self, alias: str, output: str, used: dict[str, str]) -> Branch:
        stage = self._claim(output, f"output {alias!r}", used)
        assert stage.tensor_generator is not None, "checked when it was added"
        names = {"tensor_generator": stage.name}
        above, sampler = self._above(stage, used), None
        if above.kind == "shuffling_frame_sampler":
            names["shuffling_frame_sampler"], sampler = above.name, above.shuffling_frame_sampler
            above = self._above(above, used)
        if above.join_positions is not None:
            names["join_positions"] = above.name
            feeds = self._joined(above, used)
        else:
            feeds = (self._feed(above, used),)
        return Branch(alias, feeds, stage.tensor_generator, sampler, above.join_positions, names)

    def _joined(self, join: StageConfig, used: dict[str, str]) -> tuple[Feed, ...]:
        """Return the feeds of a join. Cached positions of a pool are in the feed of its unpacker."""
        above = [(name, self._claim(name, join.name, used)) for name in join.input]
        feeds = [self._feed(stage, used) for _, stage in above if stage.kind != "shuffling_chunk_pool"]
        cached = [stage.name for _, stage in above if stage.kind == "shuffling_chunk_pool"]
        pools = {feed.names["shuffling_chunk_pool"] for feed in feeds if "shuffling_chunk_pool" in feed.names}
        if alone := sorted(set(cached) - pools):
            raise PlanError(f"expected join {join.name!r} to have the unpackers of the pools {alone} as well")
        if not feeds:
            raise PlanError(f"expected join {join.name!r} to have inputs, got none")
        weights = join.join_positions.weight if join.join_positions is not None else ()
        if weights and len(weights) != len(feeds):
            raise PlanError(
                f"expected a weight of join {join.name!r} for each of {len(feeds)} unpackers, got {weights}"
            )
        return tuple(feeds)

    def _feed(self, stage: StageConfig, used: dict[str, str]) -> Feed:
        """Return the feed that ends at an unpacker."""
        if stage.chunk_unpacker is None:
            raise PlanError(
                f"expected a chunk_unpacker before the sampler, got {stage.name!r} ({stage.kind}); positions are taken "
                "from chunks, then joined, then shuffled once"
            )
        unpacker = stage.chunk_unpacker
        names = {stage.kind: stage.name}
        part = 0
        options: dict[str, StageOptions] = {}
        while stage.input:
            above = stage.input[0]
            stage = self._claim(above, stage.name, used)
            if stage.kind in options:
                raise PlanError(f"expected one {stage.kind} on the way to {names['chunk_unpacker']!r}, got several")
            names[stage.kind], options[stage.kind] = stage.name, stage.options
            if stage.chunk_source_splitter is not None:
                part = [queue.name for queue in _queues(stage)].index(above.partition(".")[2])
        self._check_cache(names, used)
        return Feed(
            options["file_path_provider"],  # pyright: ignore[reportArgumentType]  of the kind by which it is kept
            options["chunk_source_loader"],  # pyright: ignore[reportArgumentType]
            options.get("shuffling_chunk_pool") or options["simple_chunk_extractor"],  # pyright: ignore[reportArgumentType]
            unpacker,
            options.get("chunk_rescorer"),  # pyright: ignore[reportArgumentType]
            options.get("chunk_validator"),  # pyright: ignore[reportArgumentType]
            options.get("chunk_source_splitter"),  # pyright: ignore[reportArgumentType]
            part,
            names,
        )

    def _check_cache(self, names: Mapping[str, str], used: dict[str, str]) -> None:
        """Positions that are kept go from an unpacker back to its own pool."""
        pool = self._stages.get(names.get("shuffling_chunk_pool", ""))
        unpacker = self._stages[names["chunk_unpacker"]]
        back = pool.input[1] if pool is not None and len(pool.input) == 2 else None
        options = unpacker.chunk_unpacker
        wants = options is not None and options.prefetch_output is not None
        if (back is not None) != wants or (back is not None and _stage(back) != unpacker.name):
            raise PlanError(
                f"expected the prefetch_output of {unpacker.name!r} to be the second input of its pool, and of no "
                f"other stage, got {back!r}"
            )
        if back is not None:
            used[back] = names["shuffling_chunk_pool"]

    def _above(self, stage: StageConfig, used: dict[str, str]) -> StageConfig:
        return self._claim(stage.input[0], stage.name, used)

    def _claim(self, name: str, reader: str, used: dict[str, str]) -> StageConfig:
        """Return the stage of an input. Files and sources go to every reader; any other output has one reader."""
        stage = self._stages[_stage(name)]
        taken = used.setdefault(name, reader)
        if taken != reader and FLOW[stage.kind][1] not in ("Files", "Sources"):
            raise PlanError(f"expected one reader of {name!r}, got {taken!r} and {reader!r}")
        return stage


def _stage(name: str) -> str:
    return name.partition(".")[0]


def _check_stage(stage: StageConfig, stages: Mapping[str, StageConfig]) -> None:
    if not stage.name or "." in stage.name or ":" in stage.name:
        raise PlanError(f"expected a name without '.' and ':' for every stage, got {stage.name!r} ({stage.kinds})")
    if stage.name in stages:
        raise PlanError(f"expected stages of different names, got {stage.name!r} twice")
    if len(stage.kinds) != 1:
        raise PlanError(f"expected options of exactly one kind for stage {stage.name!r}, got {list(stage.kinds)}")
    splitter = stage.chunk_source_splitter
    names = [queue.name for queue in _queues(stage)]
    if splitter is not None and (not splitter.output or len(splitter.output) != len(splitter.weight)):
        counts = f"{len(splitter.output)} outputs and {len(splitter.weight)} weights"
        raise PlanError(f"expected a weight for each output of splitter {stage.name!r}, got {counts}")
    if len(set(names)) < len(names):
        raise PlanError(f"expected outputs of different names for stage {stage.name!r}, got {names}")


def _check_inputs(stage: StageConfig, stages: Mapping[str, StageConfig]) -> None:
    wanted = FLOW[stage.kind][0]
    pool = stage.shuffling_chunk_pool
    counts = {"file_path_provider": (0, 0), "join_positions": (1, len(stage.input))}
    counts["shuffling_chunk_pool"] = (2, 2) if pool is not None and pool.cachehit_output is not None else (1, 1)
    least, most = counts.get(stage.kind, (1, 1))
    if not least <= len(stage.input) <= most:
        raise PlanError(
            f"expected {least} input{'s' * (least != 1)} for stage {stage.name!r} ({stage.kind}), got "
            f"{list(stage.input)}"
        )
    for i, name in enumerate(stage.input):
        outputs = _gives(name, stages, f"stage {stage.name!r}")
        needed = "Requests" if i == 1 and stage.kind == "shuffling_chunk_pool" else wanted
        if outputs != needed:
            raise PlanError(f"expected {needed} for stage {stage.name!r} ({stage.kind}), got {outputs} of {name!r}")


def _gives(name: str, stages: Mapping[str, StageConfig], reader: str) -> str:
    """Return the type of an output's items."""
    stage = stages.get(_stage(name))
    if stage is None:
        raise PlanError(f"expected a stage for {reader} to read{_near(_stage(name), stages)}, got {name!r}")
    output = name.partition(".")[2]
    names = [queue.name for queue in _queues(stage)]
    if output not in names:
        raise PlanError(f"expected one of the outputs {names} of stage {stage.name!r}, got {output!r} for {reader}")
    if stage.chunk_unpacker is not None and names.index(output) == 1:
        return "Requests"
    if stage.shuffling_chunk_pool is not None and names.index(output) == 1:
        return "Frames"
    return FLOW[stage.kind][1]


def _queues(stage: StageConfig) -> list[QueueConfig]:
    """The outputs of a stage, the second of a pool and an unpacker being for positions that are kept."""
    options = stage.options
    if isinstance(options, ChunkSourceSplitterConfig):
        return list(options.output)
    extra: Iterable[QueueConfig | None] = ()
    if isinstance(options, ShufflingChunkPoolConfig):
        extra = (options.cachehit_output,)
    if isinstance(options, ChunkUnpackerConfig):
        extra = (options.prefetch_output,)
    return [options.output, *(queue for queue in extra if queue is not None)]


def _near(name: str, stages: Mapping[str, StageConfig]) -> str:
    similar = closest(name, stages)
    return f" among {list(stages)}" if similar is None else f", as {similar!r}"
