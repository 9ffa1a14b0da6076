"""`Loader`: batches in an exact order, prefetched by threads, resumable at the last batch that was consumed."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, overload

from typing_extensions import TypeVar

from penstock.core.boundary import loading_state
from penstock.data.coverage import Coverage, coverage
from penstock.data.iter_dataset import IterDataset
from penstock.data.map_dataset import MapDataset
from penstock.data.plan_picture import PlanPicture
from penstock.errors import ArgumentError, PlanError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.metrics import Metrics
from penstock.loading.batch_source import State
from penstock.loading.cursor import Changed, Cursor, Grown, Skippable
from penstock.loading.engine import LoaderIterator, LoaderStats
from penstock.loading.explain import Explanation, explain
from penstock.loading.layout import Arrange, Layout
from penstock.loading.output import Output, as_it_is, hand_over_of, rows_of
from penstock.loading.pipeline_source import BatchPipeline, LiveExplanation, PipelineSource, TicketReader
from penstock.loading.position_source import PositionSource
from penstock.loading.sources import is_pipeline, refuse_for_pipelines, require_even, source_of, with_prefetch
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.uses import Uses, uses
from penstock.loading.why import Why, why
from penstock.plan.batched import Batches

if TYPE_CHECKING:
    import torch

T = TypeVar("T", default=Batch)


class Loader(Generic[T]):
    """Iterable over a dataset in batches, with prefetching and exact resume. The method `loader` of a dataset makes it.

    Each `for` loop is one epoch, or the rest of an epoch after `load_state_dict`. A loop that is left early does not
    continue: the next loop is the next epoch. `iter()` changes nothing before its first batch is taken, so an iterator
    may be thrown away, and `peek` looks at a batch. Threads do not change the order or the content of batches.

    `batch_size` counts the samples of all ranks together. Of a batch of `m` samples, rank `r` of `R` gets the rows
    `r * m // R : (r + 1) * m // R`. No number has to divide evenly, and every rank gets the same number of batches. In
    a short last batch, a rank may get no rows. `batch.weight` makes averaged losses exact then.

    Every batch of a `MapDataset` has a `ticket`, an id of its rows for `why` and `skip`. A state is below 1 kB, and
    loading it takes O(1). Batch size, number of ranks and threads may change between saving and loading. With
    `output="torch"` and others, batches are made one ahead of the consumer, and state, tickets and skipped ranges count
    the batches that the consumer has received.

    Args:
        dataset: A `MapDataset`, an `IterDataset` whose blocks are the batches, or a `penstock_live.LivePipeline`. Its
            method `loader` describes the other arguments in full.
        batch_size: Samples of a batch over all ranks, or a plan of batches.
        output: `"numpy"`, `"torch"`, `"jax"`, or a function of a batch. The default is `"numpy"`.
        layout: Name of a layout, names of columns for a tuple, or a function of a batch.
        float32: Whether to convert float64 columns to float32. The default is False.
        rename: New names of columns by their names.
        device: Device to copy tensors to.
        pin: Whether to copy tensors through page-locked memory.
        sharding: Sharding of JAX arrays, or a tree of them.
        drop_last: Whether to drop a short last batch of an epoch. The default is False.
        rank: Number of this process.
        world: Number of processes.
        threads: Number of background threads.
        prefetch: Most batches ahead of the consumer.
        memory: Limit in bytes for data in flight and reused buffers.
        allow_empty: Whether to allow datasets without a batch. The default is False.

    Attributes:
        dataset: The dataset.
        batch_size: Samples of a batch over all ranks, or None if a plan, an `IterDataset` or a pipeline decides it.
        drop_last: Whether a short last batch of an epoch is dropped.
        num_workers: 0: threads of this process load the batches.
        prefetch_factor: None, as without worker processes.
        pin_memory: Whether batches go through page-locked memory.
        rank: Number of this process.
        world: Number of processes.

    Raises:
        ArgumentError: `dataset` is something else, such as an `EpisodeDataset`.
        PlanError: An argument is impossible, or the dataset has no batch. The message has the reason. A stream without
            samples raises at its end.
        WorkerError: In the loop, a batch cannot be loaded. `__cause__` is the original error.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> loader = data.steps().loader(batch_size=4, threads=1)
        >>> [batch["rewards"].tolist() for batch in loader]
        [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
        >>> loader.state_dict()["position"]
        6
    """

    def __init__(
        self,
        dataset: MapDataset | IterDataset | BatchPipeline,
        batch_size: int | Batches | None = None,
        *,
        output: Output = "numpy",
        layout: str | Sequence[str] | Arrange | None = None,
        float32: bool = False,
        rename: Mapping[str, str] | None = None,
        device: str | torch.device | None = None,
        pin: bool | None = None,
        sharding: Any = None,
        drop_last: bool = False,
        rank: int | None = None,
        world: int | None = None,
        threads: int | None = None,
        prefetch: int | None = None,
        memory: int | None = None,
        allow_empty: bool = False,
    ) -> None:
        if is_pipeline(dataset):
            refuse_for_pipelines(batch_size=batch_size, drop_last=drop_last, threads=threads, prefetch=prefetch)
        shares, divisor = rows_of(output, sharding, rank, world)
        most = 0 if is_pipeline(dataset) else 1 if isinstance(dataset, IterDataset) else None
        self._limits = PrefetchLimits(threads, prefetch, memory, most)
        source = source_of(dataset, batch_size, drop_last, shares, self._limits.memory)
        if prefetch is not None:
            source, jobs = with_prefetch(source, prefetch, self._limits.threads)
            self._limits = PrefetchLimits(threads, jobs, self._limits.memory, most)
        require_even(source, shares, divisor)
        arranged = None if layout is None and not float32 and not rename else Layout(layout, float32, rename)
        self._hand_over: Callable[[Batch], T] = hand_over_of(output, device, pin, sharding, arranged)
        self._ahead = 0 if self._hand_over is as_it_is else 1
        self._metrics = Metrics()
        self._cursor = Cursor(source, allow_empty=allow_empty)
        self.dataset = dataset
        self.batch_size = None if isinstance(batch_size, Batches) else batch_size
        self.drop_last = drop_last
        self.num_workers = 0
        self.prefetch_factor = None
        self.pin_memory: bool = getattr(self._hand_over, "pin", False)
        self.rank, self.world = shares.rank, shares.world

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
        return f"Loader({self.dataset!r}{size}, rank={self.rank}, world={self.world})"

    def __iter__(self) -> LoaderIterator[T]:
        """Return an iterator over one epoch, which begins when its first batch is taken.

        After `load_state_dict` it is the rest of the epoch of the state, and after `set_epoch` that epoch. Otherwise it
        is the epoch after the last batch that was taken, also if that one was not the last of its epoch. An endless
        dataset continues.
        """
        return LoaderIterator(self._cursor, self._limits, self._hand_over, self._ahead, self._metrics)

    def __getitem__(self, number: object) -> NoReturn:
        """Raise `ArgumentError`: batches have no numbers. A `DataLoader` over a loader asks for them.

        Args:
            number: Anything.
        """
        raise ArgumentError(
            "expected a loop over the loader, which makes batches already, got a request by number, as of a PyTorch "
            "DataLoader around it; use the loader itself, or loader.data_loader() where only a DataLoader will do"
        )

    __getitems__ = __getitem__  # which a DataLoader calls with the numbers of a batch

    @property
    def sampler(self) -> torch.utils.data.Sampler[int]:
        """A view for trainers of PyTorch, whose `set_epoch` sets the epoch of the loader. It yields nothing.

        Example:
            >>> import penstock
            >>> loader = penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps().shuffle().loader(batch_size=3)
            >>> loader.sampler.set_epoch(5)
            >>> loader.state_dict()["position"]
            15
        """
        return importlib.import_module("penstock.loading.torch_view").LoaderOrder(self._cursor)

    @property
    def batch_sampler(self) -> torch.utils.data.BatchSampler | None:
        """A view for trainers of PyTorch, around `sampler`. None if batches have no fixed size.

        Example:
            >>> import penstock
            >>> loader = penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps().loader(batch_size=2)
            >>> loader.batch_sampler.batch_size, len(loader.batch_sampler)
            (2, 2)
        """
        view = importlib.import_module("penstock.loading.torch_view")
        return view.batch_sampler(self._cursor, self.batch_size, self.drop_last)

    def data_loader(
        self, kind: type[torch.utils.data.DataLoader[Any]] | None = None, **options: Any
    ) -> torch.utils.data.DataLoader[Any]:
        """Return a `DataLoader` of PyTorch with the samples of the loader in the same order.

        It is for trainers that accept nothing else and split batches over processes themselves, such as
        `Accelerator.prepare`. So the loader must have the samples of all ranks: with several processes, make it with
        `rank=0, world=1`. The trainer may split, repeat, drop and skip batches, and begin any epoch with `set_epoch`.
        Without worker processes, threads read ahead of a trainer that asks for batches at regular distances, within
        `threads` and `memory` of the loader. It begins where the next loop of the loader would, and does not move the
        loader. Its state is the trainer's: the epoch, and the number of batches.

        Args:
            kind: The class, such as `StatefulDataLoader` of torchdata, whose states then hold the position. The default
                is None: `torch.utils.data.DataLoader`.
            options: More arguments of the class, such as `num_workers`.

        Raises:
            PlanError: The loader has the share of a rank, or its batches are made in turn, or worker processes would
                copy to a device.

        Example:
            >>> import numpy as np, penstock
            >>> samples = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6]).steps()
            >>> batches = samples.loader(batch_size=4, output="torch").data_loader()
            >>> type(batches).__name__, [batch["rewards"].tolist() for batch in batches]
            ('DataLoader', [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]])
        """
        view = importlib.import_module("penstock.loading.torch_view")
        return view.data_loader(copy.copy(self._cursor), self._limits, self._hand_over, kind, options)

    def peek(self) -> T:
        """Return the first batch of the next loop, which still gets it. Cost: loads one batch.

        Raises:
            PlanError: There are no more batches.
            WorkerError: The batch cannot be loaded. `__cause__` is the original error.

        Example:
            >>> import numpy as np, penstock
            >>> loader = penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps().loader(batch_size=4)
            >>> loader.peek()["x"].tolist(), [batch["x"].tolist() for batch in loader]
            ([0, 1, 2, 3], [[0, 1, 2, 3], [4, 5]])
        """
        _, source, state = self._cursor.place()
        batch = source.first(state)
        if batch is None:
            raise PlanError("expected a batch to look at, got a dataset without one, or a pipeline that has ended")
        return self._hand_over(batch)

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
            >>> loader = penstock.from_arrays({"x": np.arange(4)}, [4]).steps().shuffle().loader(batch_size=4)
            >>> epochs = [batch["x"].tolist() for _ in range(3) for batch in loader]
            >>> loader.set_epoch(1)
            >>> [batch["x"].tolist() for batch in loader] == [epochs[1]]
            True
        """
        self._cursor.set_epoch(epoch)

    @property
    def stats(self) -> LoaderStats:
        """Counts and times so far: what the consumer received, how long it waited, and what all stages did.

        Example:
            >>> import penstock
            >>> loader = penstock.from_arrays({"x": [1, 2, 3, 4]}, lengths=[4]).steps().loader(batch_size=2)
            >>> _ = list(loader)
            >>> loader.stats.samples, loader.stats.snapshot["stages"]["loader"]["counts"]["batches"]
            (4, 2)
        """
        source = self._cursor.source
        snapshot = source.pipeline.metrics() if isinstance(source, PipelineSource) else self._metrics.snapshot()
        return LoaderStats.of(self._metrics, snapshot)

    def state_dict(self) -> State:
        """Return the position of the consumer, without prefetched batches.

        Returns:
            Plain JSON values, below 1 kB with up to about 36 skipped ranges of some 20 bytes each. Each part of a mix
            adds about 50 bytes. `position` is the
            next sample in the order of the dataset, and is equal on all ranks. The state of a live pipeline also has
            integer arrays, for the frames of its reservoir.

        Example:
            >>> import penstock
            >>> loader = penstock.from_arrays({"x": [1, 2, 3, 4]}, lengths=[4]).steps().loader(batch_size=2)
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
                load without `changed`. Skipped samples that were ahead stay skipped, at their new positions, unless
                their part has no share now. The default is `"refuse"`.

        Raises:
            StateError: The state belongs to another dataset, plan or version, or the data has grown and `grown` is
                `"refuse"`, or a part of a mix has other samples or another order than the part with this name before.

        Example:
            >>> import numpy as np, penstock
            >>> a, b = (penstock.from_arrays({"x": np.arange(8) + n}, lengths=[8]).steps() for n in (0, 100))
            >>> loader = penstock.mix({"a": a, "b": b}, [3, 1], stop="never").loader(batch_size=4)
            >>> next(iter(loader))["x"].tolist()
            [0, 1, 100, 2]
            >>> later = penstock.mix({"a": a, "b": b}, [1, 1], stop="never").loader(batch_size=4)
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
            >>> loader = penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps().loader(batch_size=2)
            >>> loader.skip((1, 3))
            >>> [batch["x"].tolist() for batch in loader]
            [[0, 3], [4, 5]]
        """
        self._cursor.skip(what)

    @overload
    def why(self, ticket: Ticket | str, column: str | None = None) -> Why: ...
    @overload
    def why(self, *, batches: int = 64) -> Explanation | LiveExplanation: ...
    def why(
        self, ticket: Ticket | str | None = None, column: str | None = None, *, batches: int = 64
    ) -> Why | Explanation | LiveExplanation:
        """Return why a batch has its rows, or without a ticket why the loader is as fast as it is. `print` shows it.

        **With a ticket**: the episodes and rows of the batch as a table. Nothing is read; the rows are planned again.
        The table of a replay also has `anchor`, `probability`, `priority` and `weight`: see `Replay.why`.

        **Without**: measure every stage on the next batches and name the bottleneck. The report compares each stage
        with the memory bandwidth of this machine. Small batches are measured for at least 0.2 s, over several epochs if
        needed. The report says if that was too short. The state of the loader does not change. Cost: loads the batches
        twice, and uses some 100 MB of memory meanwhile. A live pipeline is measured with all its threads. The batches
        are kept for the loop, at most `memory` bytes.

        Args:
            ticket: Batch ticket of any rank, also of skipped samples. The default is None: measure.
            column: Column whose rows to list. The default is the widest range of steps.
            batches: Number of batches to measure. The default is 64.

        Raises:
            StateError: The ticket belongs to another plan.
            PlanError: There are no batches to measure.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
            >>> loader = data.steps().loader(batch_size=5)
            >>> loader.why(next(iter(loader)).ticket).table["episode"].tolist()
            [0, 0, 1, 1, 1]
        """
        given = self._cursor.source
        if ticket is None:
            hand_over = None if self._hand_over is as_it_is else self._hand_over
            if isinstance(given, PipelineSource):
                return given.explain(hand_over, batches, self._limits.memory)
            return explain(self._cursor, self._limits, LoaderStats.of(self._metrics), batches, hand_over)
        parsed = Ticket.parse(ticket)
        if isinstance(given, PipelineSource) and isinstance(given.pipeline, TicketReader):
            return given.pipeline.why(parsed, column)
        source = self._cursor.owner(parsed)
        return why(source.dataset, parsed, source.skips, column)

    def uses(
        self,
        episodes: int | Sequence[int],
        source: int | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
    ) -> Uses:
        """Return the batches that had some episodes so far, and the ones that will: the inverse of `why`.

        It is arithmetic: nothing is logged, read, or changed. Positions before the position of the loader were given,
        except of epochs that were left early. A run over data that has grown meanwhile is counted in its present order.

        Cost: proportional to the uses, for most orders. An order of sorted batches or packs also plans each window with
        a use. Random draws, goals drawn from all episodes, and transforms of yours without an `inverse` look at each
        position.

        Args:
            episodes: Number of an episode in its source, as `why` has it, or several.
            source: Number of the source. Required if there are several. The default is None: the only one.
            since: First position to look at. The default is None: the beginning of the run, with the mixes that it had
                before.
            until: Position after the last one. The default is None: the end of the epoch under way; of an endless
                dataset, the position of the loader.

        Returns:
            A line for each sample, with its batch, row, rank and ticket. `print` shows it as a table.

        Raises:
            PlanError: The dataset is not a `MapDataset`, or there is no such source or episode.
            ArgumentError: `episodes` is something else.
            StateError: The run had a mix before whose parts have changed.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
            >>> uses = data.steps().shuffle(seed=0).loader(batch_size=2).uses(0, until=10)
            >>> np.asarray(uses.table["epoch"]).tolist(), len(set(uses.tickets)) <= 4
            ([0, 0, 1, 1], True)
        """
        feed, state = self._planned()
        return uses(feed, int(state["position"]), episodes, source, since, until)

    def coverage(self, column: str | None = None, *, epoch: int | None = None) -> Coverage:
        """Return which rows of the data are in no sample of an epoch, and why.

        Reasons are, for example, episodes that were not chosen, excluded spans, episodes that are shorter than a
        window, a stride, a filter, the length of an epoch, the end of a mix, packs that drop samples, a short last
        batch, and skipped ranges. Nothing is read, and the state does not change.

        Args:
            column: Output whose rows are counted. The default is the widest range of steps.
            epoch: Number of the epoch, 0 or more. The default is None: the epoch under way.

        Returns:
            Counts and ranges by reason. Cost: plans the epoch once, and where rows are missing once more for each
            transform that may lose some.

        Raises:
            PlanError: The dataset is not a `MapDataset` or has no end, or there is no such column or epoch.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[6, 1, 2])
            >>> print(data.windows(2, stride=2).loader(batch_size=2, drop_last=True).coverage())
            8 of 9 steps (88.889%) are in a sample of epoch 0
                                           steps   share  ranges  episodes
            in a sample                        8  88.89%
            episode shorter than a sample      1  11.11%       1         1
        """
        feed, state = self._planned()
        number = feed.epoch(state) if epoch is None else epoch
        return coverage(feed.dataset, number or 0, column, feed.given(number or 0))

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
            >>> data.steps().loader(batch_size=20).show(batches=2).mixing.same[0] > 0.8
            np.True_
        """
        feed, state = self._planned()
        if batches < 1 or (position is not None and position < 0):
            raise PlanError(f"expected at least one batch from position 0 or later, got {batches} from {position}")
        return PlanPicture.of(
            feed.dataset, *feed.upcoming(state if position is None else {"position": position}, batches)
        )

    def _planned(self) -> tuple[PositionSource, State]:
        source, state = self._cursor.current()
        if not isinstance(source, PositionSource):
            raise PlanError("expected a loader of a MapDataset, got one of a stream, whose rows are not planned")
        return source, state
