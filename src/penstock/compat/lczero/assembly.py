"""From a branch of a configuration to a pipeline of penstock's live stages; what there is not is said."""

from __future__ import annotations

import os
from typing import Any, Literal

from penstock.compat.lczero.config import (
    ChunkRescorerConfig,
    PositionSamplingConfig,
    QueueConfig,
    ShufflingChunkPoolConfig,
)
from penstock.compat.lczero.graph import Branch, Feed
from penstock.domains.chess.live import DiffFocus, chess_pipeline
from penstock.domains.chess.rescore import Rescorer
from penstock.domains.chess.tensors import ChessTensors
from penstock.errors import PlanError
from penstock.live.pipeline import LivePipeline

ROW_BYTES = 512  # of a position that is kept, with what keeping it costs
INPUT_FORMATS = {1, 2, 3, 4, 5, 132, 133}


def pipeline_of(
    branch: Branch,
    *,
    seed: int,
    follow: bool | Literal["manual"],
    passes: int | None,
    journal: str | os.PathLike[str] | None,
    tensors: ChessTensors | None,
) -> LivePipeline:
    """The pipeline that gives the batches of a branch. Raises `PlanError` for what there is not, or cannot be."""
    (feed,) = _supported(branch)
    pool, unpacker, sampler = feed.pool, feed.unpacker, branch.sampler
    assert isinstance(pool, ShufflingChunkPoolConfig), "others are not supported"
    if (unpacker.position_sampling_rate is None) == (unpacker.position_count is None):
        name = feed.names["chunk_unpacker"]
        raise PlanError(f"expected position_sampling_rate or position_count of stage {name!r}, one of both")
    if (unpacker.prefetch_count is None) != (unpacker.prefetch_output is None):
        raise PlanError(f"expected both of prefetch_count and prefetch_output of {feed.names['chunk_unpacker']!r}")
    if unpacker.prefetch_count is not None and not pool.position_cache_size:
        name = feed.names["shuffling_chunk_pool"]
        raise PlanError(f"expected a position_cache_size of stage {name!r}, which is to keep positions, got none")
    return chess_pipeline(
        feed.provider.directory,
        window=pool.chunk_pool_size,
        rate=unpacker.position_sampling_rate,
        count=unpacker.position_count,
        weights=_weights(feed),
        hanse_gamma=pool.hanse_sampling_gamma if pool.hanse_sampling_threshold else None,
        rescorer=None if feed.rescorer is None else _rescorer(feed.rescorer),
        reservoir=0 if sampler is None else sampler.reservoir_size_per_thread * max(sampler.threads, 1),
        batch_size=branch.tensors.batch_size,
        tensors=tensors,
        split=None if feed.splitter is None else feed.splitter.weight,
        part=feed.part,
        seed=seed,
        passes=passes,
        follow=follow,
        ahead=unpacker.prefetch_count or 0,
        store_bytes=max(pool.position_cache_size, 1) * ROW_BYTES,
        prefetch=max(branch.tensors.output.queue_capacity, 1),
        journal=journal,
    )


def _supported(branch: Branch) -> tuple[Feed]:
    """The one feed of a branch. Raises `PlanError` for what penstock's stages do not do."""
    if len(branch.feeds) != 1:
        names = [feed.names["chunk_unpacker"] for feed in branch.feeds]
        raise PlanError(
            f"expected one chunk_unpacker to lead to output {branch.alias!r}, got {names}: joins of several streams "
            "are not supported; make each an output, and mix their batches"
        )
    (feed,) = branch.feeds
    if not isinstance(feed.pool, ShufflingChunkPoolConfig):
        raise PlanError(
            f"expected a shuffling_chunk_pool, got simple_chunk_extractor {feed.names['simple_chunk_extractor']!r}, "
            "which is not supported; a pool with follow=False has every chunk once"
        )
    for name, queue in _queues(branch, feed).items():
        if queue.overflow_behavior != "BLOCK":
            raise PlanError(
                f"expected overflow_behavior BLOCK of stage {name!r}, got {queue.overflow_behavior}: outputs have "
                "threads of their own here and never hold up one another, so that nothing need be dropped"
            )
    return (feed,)


def _queues(branch: Branch, feed: Feed) -> dict[str, QueueConfig]:
    """The queue behind each stage of a branch, by the stage's name."""
    stages: dict[str, Any] = {
        "file_path_provider": feed.provider,
        "chunk_source_loader": feed.loader,
        "shuffling_chunk_pool": feed.pool,
        "chunk_rescorer": feed.rescorer,
        "chunk_unpacker": feed.unpacker,
        "shuffling_frame_sampler": branch.sampler,
        "tensor_generator": branch.tensors,
    }
    names = {**feed.names, **branch.names}
    found = {names[kind]: options.output for kind, options in stages.items() if options is not None}
    if feed.splitter is not None:
        found[names["chunk_source_splitter"]] = feed.splitter.output[feed.part]
    return found


def _weights(feed: Feed) -> DiffFocus | None:
    """The weights of positions, which are one for the pool and the unpacker."""
    pool, unpacker = feed.pool, feed.unpacker
    assert isinstance(pool, ShufflingChunkPoolConfig), "others are not supported"
    # What has no effect in the original has none here: a pool weighs with hanse sampling, an unpacker with a count.
    drawing, taking = _diff_focus(pool.position_sampling), _diff_focus(unpacker.position_sampling)
    if not pool.hanse_sampling_threshold:
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
