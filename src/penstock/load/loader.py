"""The loader: batches in their exact order, prefetched by threads, resumable at the batch last consumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core.boundary import loading_state
from penstock.data.iter_dataset import IterDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.load.cursor import Cursor, Grown, Skippable
from penstock.load.engine import Flow, LoaderIterator, LoaderStats
from penstock.load.explain import Explanation, explain
from penstock.load.feed import BlockFeed, Feed, PositionFeed, State
from penstock.load.ranks import Ranks, check_ranks, ranks
from penstock.load.ticket import Batch, Ticket
from penstock.load.why import Why, why

T = TypeVar("T")


class Loader:
    """Iterates a dataset in batches; each `for` loop is one epoch, or the rest of one after `load_state_dict`.

    `dataset` is a `MapDataset`, cut into batches of `batch_size` samples (the last of an epoch is short unless
    `drop_last`), or an `IterDataset`, whose blocks are the batches.

    `batch_size` counts the samples of all ranks together: of a batch of `m` samples, rank `r` of `R` gets the rows
    `r * m // R : (r + 1) * m // R`. Nothing has to divide evenly, and every rank gets as many batches; in a short last
    batch a share may have no rows. `rank` and `world` are given, or found: in `torch.distributed` or `jax.distributed`
    if initialised, else in the environment (`RANK`, `WORLD_SIZE`), else this process is alone.

    `threads` plan and fetch ahead (0 does it in the caller); `prefetch` is how many jobs of some thousand samples are
    in flight, `threads + 1` by default. Left out, both set themselves: from one job on, one more each time that the
    consumer waits, up to the cores. `memory` bounds the bytes in flight, and those kept to be used again; by default
    1 GiB or a quarter of what is free. None of them changes the order or the content of the batches.

    Every batch of a `MapDataset` has a `ticket`, which `why` and `skip` take. `state_dict()` is below 1 kB and says
    what the consumer has taken, whatever was prefetched; `load_state_dict` seeks in O(1). Batch size, ranks and threads
    may change between the two.

    A dataset that gives no batch is refused, and the message says why: no episode is long enough, a condition keeps
    none, a share is empty. A stream that ends without a sample raises at its end. `allow_empty` allows both, for runs
    in which some processes get nothing.

    Raises `PlanError` for impossible arguments and empty datasets; `WorkerError` out of the loop if a batch could not
    be loaded.

    >>> import numpy as np, penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> loader = Loader(data.samples(), batch_size=4, threads=1)
    >>> [batch["rewards"].tolist() for batch in loader]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    >>> loader.state_dict()["position"]
    6
    """

    def __init__(
        self,
        dataset: MapDataset | IterDataset,
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
        self.ranks = ranks(rank, world)
        self.flow = Flow(threads, prefetch, memory, 1 if isinstance(dataset, IterDataset) else None)
        self.stats = LoaderStats()
        self._cursor = Cursor(
            _feed(dataset, batch_size, drop_last, self.ranks, self.flow.memory), allow_empty=allow_empty
        )

    def __len__(self) -> int:
        """Batches in the whole epoch that is under way, or next, without what is skipped; as many on every rank.

        Raises `TypeError` for an `IterDataset`, whose length nobody knows.
        """
        feed = self._cursor.feed
        if not isinstance(feed, PositionFeed):
            raise TypeError("an IterDataset has no length; count its batches as they come")
        epoch = feed.epoch(self._cursor.state)
        return 0 if epoch is None else feed.batches(epoch)

    @property
    def even(self) -> bool:
        """Whether every rank gets as many rows of every batch."""
        feed = self._cursor.feed
        return self.ranks.world == 1 or (
            isinstance(feed, PositionFeed) and feed.drop_last and feed.batch_size % self.ranks.world == 0
        )

    def __iter__(self) -> LoaderIterator[Batch]:
        """The batches from the current state to the end of its epoch."""
        return self.through(_as_it_is, ahead=0)

    def through(self, hand_over: Callable[[Batch], T], *, ahead: int = 1) -> LoaderIterator[T]:
        """The same batches, each passed through `hand_over` while the consumer still has the one `ahead` before it.

        This is what copies to devices are made of. The state is that of the batch that the consumer has.

        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> list(Loader(data.samples(), batch_size=3).through(lambda batch: batch["rewards"].sum()))
        [np.float64(3.0), np.float64(12.0)]
        """
        return LoaderIterator(self._cursor, self.flow, self.stats, hand_over, ahead)

    def state_dict(self) -> State:
        """Where the consumer stands: plain JSON values, below 1 kB with up to three dozen skipped ranges.

        `position` is that of the next sample in the dataset's order, whatever the rank; each range takes some 20 bytes.
        """
        return self._cursor.saved()

    @loading_state
    def load_state_dict(self, state: State, grown: Grown = "refuse") -> None:
        """Continue where `state` was taken, at the next `iter()`; a loop that is running goes on from there if it is in
        the same epoch, and ends if not.

        Where episodes were appended to the data since, `grown` says what to do: `"refuse"` it; `"finish_epoch"`, the
        rest of the epoch from the data as it was, and then the next epoch from all; or `"next_epoch"`, at once. Skipped
        ranges are dropped with the order that they were positions of.

        Raises `StateError` if it belongs to another dataset, plan or version, naming both. Cost: O(1).
        """
        self._cursor.load(state, grown)

    def skip(self, what: Skippable) -> None:
        """Leave out the samples of a ticket, or those at positions `lo : hi` (a pair or a `range`), from here on.

        Later batches are made of what remains, and keep their size. What was consumed already stays as it was. The
        ranges are part of the state; all ranks have to skip the same. Cost: arithmetic in the number of ranges.

        Raises `StateError` for a ticket of another plan, `PlanError` for an `IterDataset` or an odd range.

        >>> import numpy as np, penstock
        >>> loader = Loader(penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).samples(), batch_size=2)
        >>> loader.skip((1, 3))
        >>> [batch["x"].tolist() for batch in loader]
        [[0, 3], [4, 5]]
        """
        self._cursor.skip(what)

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Which episodes and rows a ticket names, of whatever rank and whether skipped or not, as a table.

        `column` asks for the rows that this output was read from; by default those of the widest range of steps.
        Raises `StateError` for a ticket of another plan. Cost: planning the rows anew; nothing is read.

        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
        >>> loader = Loader(data.samples(), batch_size=5)
        >>> loader.why(next(iter(loader)).ticket).table["episode"].tolist()
        [0, 0, 1, 1, 1]
        """
        parsed = Ticket.parse(ticket)
        feed = self._cursor.owner(parsed)
        return why(feed.dataset, parsed, feed.skips, column)

    def explain(self, batches: int = 64) -> Explanation:
        """Measure every stage on the next batches, beside what this machine's memory can do, and name the bottleneck.

        Small batches are measured for 0.2 s at least, over several epochs if need be; where that is not enough, it says
        so. The loader's state stays as it is. Cost: loads so many batches twice, and some 100 MB of memory for a while.
        """
        return self.explain_through(None, batches)

    def explain_through(self, hand_over: Callable[[Batch], object] | None, batches: int) -> Explanation:
        """As `explain`, with a `hand_over` such as `through` takes as a stage of its own."""
        return explain(self._cursor, self.flow, self.stats, batches, hand_over)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _feed(
    dataset: MapDataset | IterDataset, batch_size: int | None, drop_last: bool, shares: Ranks, memory: int
) -> Feed:
    if isinstance(dataset, IterDataset):
        if batch_size is not None or drop_last:
            raise PlanError(
                f"expected no batch_size and drop_last for an IterDataset, whose blocks are the batches, "
                f"got {batch_size} and {drop_last}; call its rebatch({batch_size}, drop_last={drop_last})"
            )
        if shares.world > 1:
            raise PlanError(
                f"expected one process to load an IterDataset, whose blocks have no shares, got rank {shares.rank} of "
                f"{shares.world}; call shard({shares.rank}, {shares.world}) before iterate, and give rank=0, world=1"
            )
        return BlockFeed(dataset)
    if batch_size is None or batch_size < 1:
        raise PlanError(f"expected a batch_size of at least 1 for a MapDataset, got {batch_size}")
    check_ranks(dataset.plan, batch_size, shares)
    return PositionFeed(dataset, batch_size, drop_last, shares, memory)
