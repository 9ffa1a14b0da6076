"""`Loader`: batches in an exact order, prefetched by threads, resumable at the last batch that was consumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.core.boundary import loading_state
from penstock.data.iter_dataset import IterDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.plan_picture import PlanPicture
from penstock.errors import PlanError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import Metrics
from penstock.loading.batch_source import BatchSource, State
from penstock.loading.block_source import BlockSource
from penstock.loading.cursor import Changed, Cursor, Grown, Skippable
from penstock.loading.engine import LoaderIterator, LoaderStats
from penstock.loading.explain import Explanation, explain
from penstock.loading.pipeline_source import BatchPipeline, LiveExplanation, PipelineSource, TicketReader
from penstock.loading.position_source import PositionSource
from penstock.loading.ranks import Ranks, check_ranks, ranks
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why, why
from penstock.plan.batched import BatchedPlan, check_unplanned

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")


class Loader:
    """Iterate over a dataset in batches, with prefetching and exact resume.

    Each `for` loop is one epoch, or the rest of an epoch after `load_state_dict`. A loop that is left early does not
    continue: the next loop is the next epoch. `iter()` changes nothing before its first batch is taken, so an iterator
    may be thrown away, and `peek` looks at a batch. Threads do not change the order or the content of batches.

    `batch_size` counts the samples of all ranks together. Of a batch of `m` samples, rank `r` of `R` gets the rows
    `r * m // R : (r + 1) * m // R`. No number has to divide evenly, and every rank gets the same number of batches. In
    a short last batch, a rank may get no rows. `batch.weight` makes averaged losses exact then.

    Every batch of a `MapDataset` has a `ticket`, an id of its rows for `why` and `skip`. A state is below 1 kB, and
    loading it takes O(1). Batch size, number of ranks and threads may change between saving and loading.

    Args:
        dataset: A `MapDataset`, an `IterDataset` whose blocks are the batches, or a `penstock_live.LivePipeline`.
        batch_size: Samples of a batch over all ranks, at least 1. Required for a `MapDataset`, unless its `batches` are
            planned, and not allowed for others.
        drop_last: Whether to drop a short last batch of an epoch. The default is False.
        rank: Number of this process, 0 to `world - 1`. Give both `rank` and `world`, or neither. Default: from
            `torch.distributed` or `jax.distributed` if initialised, then from Ray Train, then from `RANK` in the
            environment, then 0.
        world: Number of processes. Default: as for `rank`, with `WORLD_SIZE`, then 1.
        threads: Number of background threads. 0 loads in the calling thread. The default is the number of cores that
            the process may use. An `IterDataset` has at most one thread. Not allowed for a live pipeline, which has
            threads already: `LiveOptions` has their number.
        prefetch: Most batches ahead of the consumer, at least 1. Threads work on several small batches at once, so
            a small number costs speed. By default, threads work on up to `threads + 1` groups of some thousand samples.
            If neither `threads` nor `prefetch` is given, that starts with one group and grows each time that the
            consumer waits. Not allowed for a live pipeline: `LiveOptions` has it.
        memory: Limit in bytes for data in flight and reused buffers. The default is 1 GiB, or a quarter of the free
            memory if that is less. Arrays that map functions allocate are not counted: leave room for them. Of a live
            pipeline, it limits the batches that `explain` keeps; `LiveOptions` has the limit of what is in flight.
        allow_empty: Whether to allow datasets without a batch, for runs where some processes have no data. The default
            is False.

    Attributes:
        dataset: The dataset.

    Raises:
        ArgumentError: `dataset` is something else, such as an `EpisodeDataset`.
        PlanError: An argument is impossible, or the dataset has no batch. The message has the reason. A stream without
            samples raises at its end.
        WorkerError: In the loop, a batch cannot be loaded. `__cause__` is the original error.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> loader = Loader(data.steps(), batch_size=4, threads=1)
        >>> [batch["rewards"].tolist() for batch in loader]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
        >>> loader.state_dict()["position"]
        6
    """

    def __init__(
        self,
        dataset: MapDataset | IterDataset | BatchPipeline,
        batch_size: int | None = None,
        *,
        drop_last: bool = False,
        rank: int | None = None,
        world: int | None = None,
        threads: int | None = None,
        prefetch: int | None = None,
        memory: int | None = None,
        allow_empty: bool = False,
    ) -> None:
        if _is_pipeline(dataset):
            _refuse_for_pipelines(batch_size=batch_size, drop_last=drop_last, threads=threads, prefetch=prefetch)
        self.dataset = dataset
        self.ranks = ranks(rank, world)
        most = 0 if _is_pipeline(dataset) else 1 if isinstance(dataset, IterDataset) else None
        self.limits = PrefetchLimits(threads, prefetch, memory, most)
        source = _source(dataset, batch_size, drop_last, self.ranks, self.limits.memory)
        if prefetch is not None:
            source, jobs = _with_prefetch(source, prefetch, self.limits.threads)
            self.limits = PrefetchLimits(threads, jobs, self.limits.memory, most)
        self._metrics = Metrics()
        self._cursor = Cursor(source, allow_empty=allow_empty)

    def __len__(self) -> int:
        """Return the number of batches of the current or next epoch, without skipped ones. It is equal on all ranks.

        It counts the whole epoch, also after a state in mid-epoch was loaded.

        Raises:
            TypeError: The dataset is an `IterDataset` or a live pipeline, whose length is unknown, or has no end.
        """
        source, state = self._cursor.current()
        if not isinstance(source, PositionSource):
            raise TypeError("an IterDataset or a live pipeline has no length; count its batches as they come")
        return source.epoch_batches(state)

    def __repr__(self) -> str:
        source = self._cursor.source
        size = f", batch_size={source.batch_size}" if isinstance(source, PositionSource) else ""
        return f"Loader({self.dataset!r}{size}, rank={self.ranks.rank}, world={self.ranks.world})"

    @property
    def even(self) -> bool:
        """Whether every rank gets the same number of rows of every batch."""
        source = self._cursor.source
        return self.ranks.world == 1 or (
            isinstance(source, PositionSource) and source.drop_last and source.step % self.ranks.world == 0
        )

    def __iter__(self) -> LoaderIterator[Batch]:
        """Return an iterator over one epoch, which begins when its first batch is taken.

        After `load_state_dict` it is the rest of the epoch of the state, and after `set_epoch` that epoch. Otherwise it
        is the epoch after the last batch that was taken, also if that one was not the last of its epoch. An endless
        dataset continues.
        """
        return self.through(_as_it_is, ahead=0)

    def peek(self) -> Batch:
        """Return the first batch of the next loop, which still gets it. Cost: loads one batch.

        Raises:
            PlanError: There are no more batches.
            WorkerError: The batch cannot be loaded. `__cause__` is the original error.

        Example:
            >>> import numpy as np, penstock
            >>> loader = Loader(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps(), batch_size=4)
            >>> loader.peek()["x"].tolist(), [batch["x"].tolist() for batch in loader]
            ([0, 1, 2, 3], [[0, 1, 2, 3], [4, 5]])
        """
        _, source, state = self._cursor.place()
        batch = source.first(state)
        if batch is None:
            raise PlanError("expected a batch to look at, got a dataset without one, or a pipeline that has ended")
        return batch

    def set_epoch(self, epoch: int) -> None:
        """Begin the next loop at the start of an epoch. Without a call, loops count epochs themselves.

        It may be called before or after `iter()`, until the first batch is taken, and any number of times. The epoch of
        a state that was just loaded keeps its position. Every epoch of an `IterDataset` or a live pipeline is the
        same, so a call changes nothing there.

        Args:
            epoch: Number of the epoch, 0 or more.

        Raises:
            PlanError: There is no such epoch.
            StateError: A state of another epoch was just loaded, which the call would throw away.

        Example:
            >>> import numpy as np, penstock
            >>> loader = Loader(penstock.from_arrays({"x": np.arange(4)}, [4]).steps().shuffle(), batch_size=4)
            >>> epochs = [batch["x"].tolist() for _ in range(3) for batch in loader]
            >>> loader.set_epoch(1)
            >>> [batch["x"].tolist() for batch in loader] == [epochs[1]]
            True
        """
        self._cursor.set_epoch(epoch)

    def through(self, hand_over: Callable[[Batch], T], *, ahead: int = 1) -> LoaderIterator[T]:
        """Pass each batch through a function ahead of the consumer, for example to copy it to a device.

        The state counts the batches that the consumer has received.

        Args:
            hand_over: Called with each batch, in order. Its results are yielded.
            ahead: How many batches to pass before the consumer asks for them. The default is 1.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
            >>> list(Loader(data.steps(), batch_size=3).through(lambda batch: batch["rewards"].sum()))
            [np.float64(3.0), np.float64(12.0)]
        """
        return LoaderIterator(self._cursor, self.limits, hand_over, ahead, self._metrics)

    @property
    def stats(self) -> LoaderStats:
        """Counts and times so far: what the consumer received, and how long it waited."""
        return LoaderStats.of(self._metrics)

    def metrics(self) -> dict[str, Any]:
        """Return counts and times of all stages so far.

        `penstock_live.MetricsEndpoint` serves them, for Prometheus and `penstock top`.

        Returns:
            Plain values, as `penstock.flow.metrics.Metrics.snapshot` has them: of the stages of a live pipeline, or of
            `loader`, the stages that its threads run, and `consumer`.

        Example:
            >>> import penstock
            >>> loader = Loader(penstock.from_arrays({"x": [1, 2, 3, 4]}, lengths=[4]).steps(), batch_size=2)
            >>> _ = list(loader)
            >>> loader.metrics()["stages"]["loader"]["counts"]["samples"]
            4
        """
        source = self._cursor.source
        return source.pipeline.metrics() if isinstance(source, PipelineSource) else self._metrics.snapshot()

    def state_dict(self) -> State:
        """Return the position of the consumer, without prefetched batches.

        Returns:
            Plain JSON values, below 1 kB with up to about 36 skipped ranges of some 20 bytes each. Each part of a mix
            adds about 50 bytes. `position` is the
            next sample in the order of the dataset, and is equal on all ranks. The state of a live pipeline also has
            integer arrays, for the frames of its reservoir.

        Example:
            >>> import penstock
            >>> loader = Loader(penstock.from_arrays({"x": [1, 2, 3, 4]}, lengths=[4]).steps(), batch_size=2)
            >>> first, state = next(iter(loader)), loader.state_dict()
            >>> loader.load_state_dict(state)
            >>> [batch["x"].tolist() for batch in loader]
            [[3, 4]]
        """
        return self._cursor.saved()

    @loading_state
    def load_state_dict(self, state: State, grown: Grown = "refuse", changed: Changed = "refuse") -> None:
        """Continue from a saved state in the next loop, also of an iterator that has not begun. Cost: O(1).

        A running loop continues from the state if the epoch is the same, and otherwise ends.

        Args:
            state: Output of `state_dict`.
            grown: What to do if episodes were appended since the state was saved. `"refuse"` raises. `"finish_epoch"`
                finishes the epoch with the old data, and then uses all data. `"next_epoch"` starts the next epoch with
                all data. Skipped ranges are dropped, because they are positions in the old order. The default is
                `"refuse"`.
            changed: What to do if the state belongs to a mix with other weights, parts or stop. `"refuse"` raises.
                `"continue"` begins the new mix at position 0, each part after the samples that the old mix has taken of
                the part with this name. No sample of a part is lost or repeated within its pass. New parts begin with
                their first sample. Later states have the old mix on record, so `why` explains its tickets, and they
                load without `changed`. Skipped ranges are dropped. The default is `"refuse"`.

        Raises:
            StateError: The state belongs to another dataset, plan or version, or the data has grown and `grown` is
                `"refuse"`, or a part of a mix has other samples or another order than the part with this name before.

        Example:
            >>> import numpy as np, penstock
            >>> a, b = (penstock.from_arrays({"x": np.arange(8) + n}, lengths=[8]).steps() for n in (0, 100))
            >>> loader = Loader(penstock.mix({"a": a, "b": b}, [3, 1], stop="never"), batch_size=4)
            >>> next(iter(loader))["x"].tolist()
            [0, 1, 100, 2]
            >>> later = Loader(penstock.mix({"a": a, "b": b}, [1, 1], stop="never"), batch_size=4)
            >>> later.load_state_dict(loader.state_dict(), changed="continue")
            >>> next(iter(later))["x"].tolist()
            [3, 101, 4, 102]
        """
        self._cursor.load(state, grown, changed)

    def skip(self, what: Skippable) -> None:
        """Leave samples out of the following batches, which keep their size.

        Batches that were already consumed do not change. The ranges are part of the state. All ranks must skip the same
        samples. An epoch without a sample left is passed over: the next loop has the epoch after it.

        Args:
            what: A batch ticket, or positions as a pair `(lo, hi)` or a `range`.

        Raises:
            StateError: The ticket belongs to another plan.
            PlanError: The dataset is not a `MapDataset`, or the range is impossible.

        Example:
            >>> import numpy as np, penstock
            >>> loader = Loader(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps(), batch_size=2)
            >>> loader.skip((1, 3))
            >>> [batch["x"].tolist() for batch in loader]
            [[0, 3], [4, 5]]
        """
        self._cursor.skip(what)

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return the episodes and rows of a batch as a table. Nothing is read; the rows are planned again.

        The table of a replay also has `anchor`, `probability`, `priority` and `weight`: see `Replay.why`.

        Args:
            ticket: Batch ticket of any rank, also of skipped samples.
            column: Column whose rows to list. The default is the widest range of steps.

        Raises:
            StateError: The ticket belongs to another plan.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
            >>> loader = Loader(data.steps(), batch_size=5)
            >>> loader.why(next(iter(loader)).ticket).table["episode"].tolist()
            [0, 0, 1, 1, 1]
        """
        parsed = Ticket.parse(ticket)
        given = self._cursor.source
        if isinstance(given, PipelineSource) and isinstance(given.pipeline, TicketReader):
            return given.pipeline.why(parsed, column)
        source = self._cursor.owner(parsed)
        return why(source.dataset, parsed, source.skips, column)

    def show(self, batches: int = 16, *, position: int | None = None) -> PlanPicture:
        """Show what the loader will serve, before it serves it: batches, layout, mixing, shares of a mix.

        No data are read, and the state does not change. Batches are the batches of all ranks together.

        Args:
            batches: Most batches to show, at least 1. The default is 16.
            position: First position, 0 or more. The default is None: the position of the loader.

        Returns:
            The figures. Notebooks show them as pictures, and `print` as sentences.

        Raises:
            PlanError: The dataset is not a `MapDataset`, there are no batches, or a number is out of range.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"x": np.arange(100)}, lengths=[10] * 10)
            >>> Loader(data.steps(), batch_size=20).show(batches=2).mixing.same[0] > 0.8
            np.True_
        """
        feed, state = self._cursor.current()
        if not isinstance(feed, PositionSource):
            raise PlanError("expected a loader of a MapDataset, got one of a stream, whose rows are not planned")
        if batches < 1 or (position is not None and position < 0):
            raise PlanError(f"expected at least one batch from position 0 or later, got {batches} from {position}")
        return PlanPicture.of(
            feed.dataset, *feed.upcoming(state if position is None else {"position": position}, batches)
        )

    def explain(self, batches: int = 64) -> Explanation | LiveExplanation:
        """Measure every stage on the next batches and name the bottleneck.

        The report compares each stage with the memory bandwidth of this machine.

        Small batches are measured for at least 0.2 s, over several epochs if needed. The report says if that was too
        short. The state of the loader does not change. Cost: loads the batches twice, and uses some 100 MB of memory
        meanwhile.

        A live pipeline is measured with all its threads. The batches are kept for the loop, at most `memory` bytes.

        Args:
            batches: Number of batches to measure. The default is 64.
        """
        return self.explain_through(None, batches)

    def explain_through(
        self, hand_over: Callable[[Batch], object] | None, batches: int
    ) -> Explanation | LiveExplanation:
        """Measure like `explain`, with one more stage.

        Args:
            hand_over: Function of that stage, as for `through`, or None.
            batches: Number of batches to measure.
        """
        source = self._cursor.source
        if isinstance(source, PipelineSource):
            return source.explain(hand_over, batches, self.limits.memory)
        return explain(self._cursor, self.limits, self.stats, batches, hand_over)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _is_pipeline(dataset: object) -> TypeIs[BatchPipeline]:
    """Whether the batches come from a pipeline. Python 3.11 reads all properties to see, so datasets come first."""
    return not isinstance(dataset, MapDataset | IterDataset) and isinstance(dataset, BatchPipeline)


def _refuse_for_pipelines(**given: object) -> None:
    """Raise `PlanError` for an argument that a pipeline decides. Each is an option of `LiveOptions` too."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise PlanError(
                f"expected no {name} for a live pipeline, which makes the batches, got {value!r}; give {name} to its "
                "LiveOptions, or the batch_size of a Replay to Replay.batches"
            )


def _with_prefetch(source: BatchSource, prefetch: int, threads: int) -> tuple[BatchSource, int]:
    """Return the source with jobs that are small enough for `prefetch` batches, and how many jobs may be ahead."""
    return source.with_prefetch(prefetch, threads) if isinstance(source, PositionSource) else (source, prefetch)


def _source(
    dataset: MapDataset | IterDataset | BatchPipeline,
    batch_size: int | None,
    drop_last: bool,
    shares: Ranks,
    memory: int,
) -> BatchSource:
    if _is_pipeline(dataset):
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
    if isinstance(samples.plan, BatchedPlan):
        check_unplanned(samples.plan, batch_size, drop_last=drop_last)
        check_ranks(samples.plan, shares.world, shares)
        return PositionSource(samples, None, False, shares, memory)
    if batch_size is None or batch_size < 1:
        raise PlanError(f"expected a batch_size of at least 1 for a MapDataset, got {batch_size}")
    check_ranks(samples.plan, batch_size, shares)
    return PositionSource(samples, batch_size, drop_last, shares, memory)
