"""The source of a loader's batches, from the arguments of the loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.data.iter_dataset import IterDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError
from penstock.loading.batch_source import BatchSource
from penstock.loading.block_source import BlockSource
from penstock.loading.pipeline_source import BatchPipeline, PipelineSource
from penstock.loading.position_source import PositionSource
from penstock.loading.ranks import Ranks, check_ranks
from penstock.plan.batched import BatchedPlan, Batches, check_unplanned

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_pipeline(dataset: object) -> TypeIs[BatchPipeline]:
    """Whether the batches come from a pipeline. Python 3.11 reads all properties to see, so datasets come first."""
    return not isinstance(dataset, MapDataset | IterDataset) and isinstance(dataset, BatchPipeline)


def refuse_for_pipelines(**given: object) -> None:
    """Raise `PlanError` for an argument that a pipeline decides. Each is an option of `LiveOptions` too."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise PlanError(
                f"expected no {name} for a live pipeline, which makes the batches, got {value!r}; give {name} to its "
                "LiveOptions, or the batch_size of a Replay to Replay.batches"
            )


def with_prefetch(source: BatchSource, prefetch: int, threads: int) -> tuple[BatchSource, int]:
    """Return the source with jobs that are small enough for `prefetch` batches, and how many jobs may be ahead."""
    return source.with_prefetch(prefetch, threads) if isinstance(source, PositionSource) else (source, prefetch)


def require_even(source: BatchSource, shares: Ranks, divisor: int) -> None:
    """Raise `PlanError` unless a sharding can divide every batch, as far as that is known before."""
    size = source.batch_size if isinstance(source, PositionSource) else None
    known = size is not None or shares.parts > 1  # else JAX refuses what it cannot divide
    if (
        divisor > 1
        and known
        and not (size and size % divisor == 0 and isinstance(source, PositionSource) and source.drop_last)
    ):
        raise PlanError(
            f"expected batches that divide into {divisor} equal parts for the sharding, got shares that may differ by "
            f"a row; give the loader drop_last=True and a batch_size that {divisor} divides"
        )


def source_of(
    dataset: MapDataset | IterDataset | BatchPipeline,
    batch_size: int | Batches | None,
    drop_last: bool,
    shares: Ranks,
    memory: int,
) -> BatchSource:
    if is_pipeline(dataset):
        return PipelineSource(dataset, shares)
    if isinstance(dataset, IterDataset):
        if batch_size is not None or drop_last:
            raise PlanError(
                f"expected no batch_size and drop_last for an IterDataset, whose blocks are the batches, "
                f"got {batch_size} and {drop_last}; call its rebatch({batch_size}, drop_last={drop_last})"
            )
        if shares.world > 1:
            raise PlanError(
                f"expected one process to load an IterDataset, whose blocks have no shares, got rank {shares.rank} of "
                f"{shares.world}; call shard({shares.rank}, {shares.world}) first, and give rank=0, world=1"
            )
        return BlockSource(dataset)
    samples = planned_samples(dataset)
    if isinstance(batch_size, Batches):
        samples, batch_size = planned_samples(dataset.apply(batch_size)), None
    if isinstance(samples.plan, BatchedPlan):
        check_unplanned(samples.plan, batch_size, drop_last=drop_last)
        check_ranks(samples.plan, shares.world, shares)
        return PositionSource(samples, None, False, shares, memory)
    if batch_size is None or batch_size < 1:
        raise PlanError(f"expected a batch_size of at least 1 for a MapDataset, got {batch_size}")
    check_ranks(samples.plan, batch_size, shares)
    return PositionSource(samples, batch_size, drop_last, shares, memory)
