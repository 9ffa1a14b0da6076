"""From the branches of a configuration to pipelines of penstock's live stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, Literal

from penstock.errors import PlanError
from penstock.flow.limits import cores
from penstock.flow.queue import Overflow
from penstock_chess.lczero.config import (
    ChunkRescorerConfig,
    ChunkValidatorConfig,
    PositionSamplingConfig,
    ShufflingChunkPoolConfig,
    StageOptions,
)
from penstock_chess.lczero.graph import Branch, Feed
from penstock_chess.live import DiffFocus, chess_hooks, chess_inlet
from penstock_chess.rescore import Rescorer
from penstock_chess.tensors import ChessTensors
from penstock_chess.validate import REFERENCE, Fault
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.hooks import ChunkFunctions
from penstock_live.journal import Journal, read_journal
from penstock_live.pipeline import LiveOptions, LivePipeline, Stream
from penstock_live.splitter import ChunkSourceSplitter, SplitPart

AUTO = 4  # default maximum of reading threads and of decoding threads
THREADS = ("threads", "chunk_loading_threads", "caching_threads")  # fields that say how many threads read and decode
ROW_BYTES = 512  # of a position that is kept, with what keeping it costs
OVERFLOW: dict[str, Overflow] = {"DROP_NEW": "drop_new", "KEEP_NEWEST": "keep_newest"}
INPUT_FORMATS = {1, 2, 3, 4, 5, 132, 133}


class Assembly:
    """Makes the pipelines of branches. Those of one `chunk_source_loader` share it: it finds and opens files once.

    `journal` is the folder where moves of the windows are written, a file for each pool; `replay` one to repeat.
    """

    def __init__(
        self,
        *,
        seed: int,
        follow: bool | Literal["manual"],
        passes: int | None,
        journal: Path | None,
        replay: Path | None,
        tensors: ChessTensors | None,
        max_lost: float | None,
    ) -> None:
        self._run: dict[str, Any] = {"seed": seed, "follow": follow, "passes": passes, "max_lost": max_lost}
        self._journal = journal
        self._replay = replay
        self._tensors = tensors or ChessTensors()
        self._inlet_threads: dict[str, int] = {}
        self._inlets: dict[str, ChunkSourceLoader] = {}
        self._splitters: dict[str, ChunkSourceSplitter] = {}

    def pipelines(self, branches: Sequence[Branch]) -> dict[str, LivePipeline]:
        if self._journal is not None:
            self._journal.mkdir(parents=True, exist_ok=True)
        for feed in (feed for branch in branches for feed in branch.feeds):
            name = feed.names["chunk_source_loader"]
            pool = feed.pool.source_ingestion_threads if isinstance(feed.pool, ShufflingChunkPoolConfig) else 1
            self._inlet_threads[name] = max(self._inlet_threads.get(name, 1), feed.loader.threads, pool)
        hooks = {id(feed): _hooks(feed) for branch in branches for feed in branch.feeds}
        looked_at = {
            feed.names["chunk_source_loader"]
            for branch in branches
            for feed in branch.feeds
            if hooks[id(feed)].transform is not None or hooks[id(feed)].weights is not None
        }
        pipelines: dict[str, LivePipeline] = {}
        for branch in branches:
            streams = [self._stream(branch, i, hooks[id(feed)], looked_at) for i, feed in enumerate(branch.feeds)]
            pipelines[branch.alias] = LivePipeline(streams, self._options(branch), decode=self._tensors.decode)
        return pipelines

    def _options(self, branch: Branch) -> LiveOptions:
        sampler = branch.sampler
        return LiveOptions(
            reservoir=0 if sampler is None else sampler.reservoir_size_per_thread * max(sampler.threads, 1),
            batch_size=branch.tensors.batch_size,
            prefetch=max(branch.tensors.output.queue_capacity, 1),
            overflow=_overflow(branch),
            threads=_threads(branch),
            **self._run,
        )

    def _stream(self, branch: Branch, place: int, hooks: ChunkFunctions, looked_at: Set[str]) -> Stream:
        feed = branch.feeds[place]
        _check(feed)
        pool, unpacker = feed.pool, feed.unpacker
        own: dict[str, Any] = {"in_turn": True}
        if isinstance(pool, ShufflingChunkPoolConfig):
            own = {
                "window": pool.chunk_pool_size,
                "hanse_gamma": pool.hanse_sampling_gamma if pool.hanse_sampling_threshold else None,
                "ahead": unpacker.prefetch_count or 0,
                "store_bytes": max(pool.position_cache_size, 1) * ROW_BYTES,
            }
        weights = () if branch.join is None else branch.join.weight
        return Stream(
            self._inlet(feed, as_stored=feed.names["chunk_source_loader"] not in looked_at),
            weights[place] if weights else 1,
            feed.names["chunk_unpacker"],
            rate=unpacker.position_sampling_rate,
            count=unpacker.position_count,
            hooks=hooks,
            journal=None if self._journal is None else Journal(self._journal / _file_of(branch, feed)),
            replay=None if self._replay is None else read_journal(self._replay / _file_of(branch, feed)),
            **own,
        )

    def _inlet(self, feed: Feed, *, as_stored: bool) -> ChunkSourceLoader | SplitPart:
        name, watch = feed.names["chunk_source_loader"], "off" if self._run["follow"] is False else "auto"
        if name not in self._inlets:
            self._inlets[name] = chess_inlet(
                feed.provider.directory, watch=watch, as_stored=as_stored, threads=self._inlet_threads[name]
            )
        if feed.splitter is None:
            return self._inlets[name]
        splitter = self._splitters.setdefault(
            feed.names["chunk_source_splitter"], ChunkSourceSplitter(feed.splitter.weight)
        )
        return SplitPart(self._inlets[name], splitter, feed.part)


def _file_of(branch: Branch, feed: Feed) -> str:
    """The journal of a pool."""
    name = branch.alias or "output"
    return f"{name}.{feed.names['chunk_unpacker']}.journal" if len(branch.feeds) > 1 else f"{name}.journal"


def _check(feed: Feed) -> None:
    """Raise `PlanError` for options that have no meaning together."""
    unpacker, name = feed.unpacker, feed.names["chunk_unpacker"]
    if (unpacker.position_sampling_rate is None) == (unpacker.position_count is None):
        raise PlanError(f"expected position_sampling_rate or position_count of stage {name!r}, one of both")
    if (unpacker.prefetch_count is None) != (unpacker.prefetch_output is None):
        raise PlanError(f"expected both of prefetch_count and prefetch_output of {name!r}")
    pool = feed.pool
    if isinstance(pool, ShufflingChunkPoolConfig) and unpacker.prefetch_count and not pool.position_cache_size:
        name = feed.names["shuffling_chunk_pool"]
        raise PlanError(f"expected a position_cache_size of stage {name!r}, which is to keep positions, got none")


def _hooks(feed: Feed) -> ChunkFunctions:
    validate = False if feed.validator is None else _faults(feed.validator)
    rescorer = None if feed.rescorer is None else _rescorer(feed.rescorer)
    return chess_hooks(rescorer=rescorer, validate=validate, weights=_weights(feed))


def _faults(config: ChunkValidatorConfig) -> Set[Fault]:
    try:
        return {Fault(name) for name in config.fault} or REFERENCE
    except ValueError as error:
        raise PlanError(f"expected faults among {[str(fault) for fault in Fault]}, got {config.fault}") from error


def _threads(branch: Branch) -> int:
    """Return the number of reading threads, and also of decoding threads.

    It is the number of processors, at most 4, or a larger number that a stage sets. Defaults of stages do not count.
    """
    asked = [min(AUTO, cores())]
    for options in [branch.tensors, *(options for feed in branch.feeds for options in _of_chunks(feed))]:
        for field in dataclasses.fields(options):
            value = getattr(options, field.name)
            if field.name in THREADS and value != field.default:
                asked.append(value)
    return max(asked)


def _of_chunks(feed: Feed) -> list[StageOptions]:
    """The stages of a feed whose work the reading threads do."""
    stages = (feed.pool, feed.validator, feed.rescorer, feed.unpacker)
    return [stage for stage in stages if stage is not None]


def _overflow(branch: Branch) -> Overflow:
    """Return the overflow policy of the output. If a queue after the pool drops, the output drops.

    Queues before a pool never fill.
    """
    queues = [branch.tensors.output]
    queues += [stage.output for stage in (branch.sampler, branch.join) if stage is not None]
    for feed in branch.feeds:
        stages = (feed.pool, feed.validator, feed.rescorer, feed.unpacker)
        queues += [stage.output for stage in stages if stage is not None]
    behaviors = {queue.overflow_behavior for queue in queues} - {"BLOCK"}
    if len(behaviors) > 1:
        raise PlanError(f"expected one way of dropping on the way to output {branch.alias!r}, got {sorted(behaviors)}")
    return OVERFLOW[behaviors.pop()] if behaviors else "block"


def _weights(feed: Feed) -> DiffFocus | None:
    """Return the weights of positions, which pool and unpacker share."""
    pool, unpacker = feed.pool, feed.unpacker
    # As in the original, some weights have no effect: a pool weighs with hanse sampling, an unpacker with a count.
    taking = _diff_focus(unpacker.position_sampling)
    drawing = _diff_focus(pool.position_sampling) if isinstance(pool, ShufflingChunkPoolConfig) else None
    if not isinstance(pool, ShufflingChunkPoolConfig) or not pool.hanse_sampling_threshold:
        return taking if unpacker.position_count is not None else None
    if unpacker.position_count is not None and drawing != taking:
        raise PlanError(f"expected the same position_sampling of pool and unpacker, got {drawing} and {taking}")
    return drawing


def _diff_focus(config: PositionSamplingConfig | None) -> DiffFocus | None:
    # The original takes the default weight for all where neither of the two is set: all weigh the same.
    if config is None or (config.diff_focus_q_weight is None and config.diff_focus_pol_scale is None):
        return None
    return DiffFocus(
        q_weight=config.diff_focus_q_weight or 0.0,
        pol_scale=1.0 if config.diff_focus_pol_scale is None else config.diff_focus_pol_scale,
        alpha=config.diff_focus_alpha,
        beta=config.diff_focus_beta,
        gamma=config.diff_focus_gamma,
        tau=config.diff_focus_tau,
        default_weight=config.default_weight,
    )


def _rescorer(config: ChunkRescorerConfig) -> Rescorer:
    wanted = config.new_input_format
    if wanted != -1 and wanted not in INPUT_FORMATS:
        raise PlanError(f"expected new_input_format -1 or one of {sorted(INPUT_FORMATS)}, got {wanted}")
    return Rescorer(
        theta=config.st_q_theta,
        dist_temp=config.dist_temp,
        dist_offset=config.dist_offset,
        dtz_boost=config.dtz_boost,
        deblunder_threshold=config.deblunder_threshold,
        deblunder_width=config.deblunder_width,
        new_input_format=None if wanted == -1 else wanted,
        syzygy=_folders(config.syzygy_paths),
        gaviota=_folders(config.gaviota_paths),
    )


def _folders(paths: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in paths.split(",") if part.strip())
