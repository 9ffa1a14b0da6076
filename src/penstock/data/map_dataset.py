"""A plan and its sources: a dataset with a length and random access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns, under
from penstock.core.selection import Selection
from penstock.data.fetch import Empty, Fetch
from penstock.data.iter_dataset import BlockIterator, IteratorState, IterDataset
from penstock.data.keys import keys
from penstock.errors import PlanError, SpecError, StateError
from penstock.formats.base.source import Source
from penstock.plan.base import Plan, PlanTransform, chained
from penstock.plan.repeat import Repeat
from penstock.plan.shard import Shard
from penstock.plan.shuffle import Shuffle

Int = npt.NDArray[np.int64]
MapFn = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class Mapped:
    """A function over columns, with the seed of its random keys if it wants any."""

    fn: MapFn
    seed: int | None

    def __call__(self, columns: Columns, positions: Int) -> Columns:
        """The function's columns; as many rows as went in."""
        result = self.fn(columns) if self.seed is None else self.fn(columns, keys(self.seed, positions))
        mapped = result if isinstance(result, Columns) else Columns(result)
        if mapped.n != columns.n:
            raise SpecError(
                f"expected {columns.n} rows from {self!r}, got {mapped.n}; use IterDataset.flat_map to change them"
            )
        return mapped

    def __repr__(self) -> str:
        return f"map({getattr(self.fn, '__qualname__', type(self.fn).__qualname__)}, seed={self.seed})"


class MapDataset:
    """Samples by position: what `plan` selects, read from `sources`.

    `ds[5]` is one record for a person (a nested dict), `ds[2:9]` and `ds[[3, 1, 4]]` are `Columns` with a row a
    sample, in the order asked for. `batch` does the same for an int64 array, and takes positions beyond the first
    epoch (position `k` is sample `k % len` of epoch `k // len`). Immutable; reads are thread-safe.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[2, 4])
    >>> windows = data.windows(2)
    >>> len(windows), windows[[0, 3]]["rewards"].tolist()
    (4, [[0.0, 1.0], [4.0, 5.0]])
    """

    def __init__(
        self, sources: Sequence[Source], plan: Plan, maps: Sequence[Mapped] = (), columns: Sequence[str] | None = None
    ) -> None:
        self.sources, self.plan, self.maps, self.columns = tuple(sources), plan, tuple(maps), columns
        wanted = plan.reads if columns is None else [r for r in plan.reads if any(under(c, r.name) for c in columns)]
        for name in columns or ():
            if not any(under(name, read.name) for read in plan.reads):
                raise SpecError(f"expected a column among {[r.name for r in plan.reads]}, got {name!r}")
        self._fetch = Fetch(self.sources, plan, wanted)

    def __len__(self) -> int:
        return len(self.plan)

    def __repr__(self) -> str:
        return f"MapDataset({len(self)} samples, columns={[r.name for r in self._fetch.reads]}, maps={list(self.maps)})"

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Int) -> Columns: ...
    def __getitem__(self, index: Any) -> Any:
        """One record for an integer, `Columns` for a slice, list or array. Raises `IndexError` beyond the length."""
        if isinstance(index, slice):
            return self.batch(np.arange(len(self), dtype=np.int64)[index])
        asked = np.asarray(index)
        if asked.size and asked.dtype.kind not in "iu":
            raise TypeError(f"expected integers or a slice, got {asked.dtype}")
        numbers = asked.astype(np.int64)
        if numbers.size and not (-len(self) <= numbers.min() and numbers.max() < len(self)):
            raise IndexError(f"expected positions within 0:{len(self)}, got {numbers.min()}:{numbers.max() + 1}")
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        return self.batch(numbers) if numbers.ndim else self.batch(numbers[None]).row(0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def batch(self, positions: Int) -> Columns:
        """The samples at `[n]` int64 positions `>= 0`, mapped. Cost: one plan call and one gather a column."""
        positions = np.asarray(positions, np.int64)
        return self.mapped(self.read(self.resolve(positions)), positions)

    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """The selections of the plan, one a view."""
        if len(self) == 0 and len(positions):
            raise PlanError("expected a dataset with samples, got an empty one; check its filters and window length")
        return self.plan.resolve(positions)

    def read(self, selections: Sequence[Selection], empty: Empty = np.empty) -> Columns:
        """Fetch selections, unmapped, into columns that `empty(shape, dtype)` allocates."""
        return self._fetch(selections, empty)

    def mapped(self, columns: Columns, positions: Int) -> Columns:
        """Apply the map functions to what was read for `positions`."""
        for fn in self.maps:
            columns = fn(columns, positions)
        return columns

    def row_bytes(self) -> int:
        """About how many bytes one sample takes before the map functions."""
        return self._fetch.row_bytes()

    @property
    def fingerprint(self) -> str:
        """A digest of data, plan and the names of the map functions."""
        digest = self.plan.fingerprint
        for part in (*self.maps, self.columns):
            digest = chained(digest, part)
        return digest

    def apply(self, transform: PlanTransform) -> MapDataset:
        """The dataset in the order of another plan: `ds.apply(Shuffle(seed=3))`."""
        return MapDataset(self.sources, transform.reorder(self.plan), self.maps, self.columns)

    def shuffle(self, seed: int = 0, *, block: int | None = None, pool: int | None = None) -> MapDataset:
        """Another order each epoch, by `penstock.plan.Shuffle`."""
        return self.apply(Shuffle(seed, block, pool))

    def repeat(self, times: int) -> MapDataset:
        """`times` epochs as one, by `penstock.plan.Repeat`."""
        return self.apply(Repeat(times))

    def shard(self, index: int, count: int) -> MapDataset:
        """Every `count`-th sample from `index` on, by `penstock.plan.Shard`."""
        return self.apply(Shard(index, count))

    def select(self, *columns: str) -> MapDataset:
        """Only the outputs at or below these names; the others are not read."""
        return MapDataset(self.sources, self.plan, self.maps, columns)

    def map(self, fn: MapFn, *, seed: int | None = None) -> MapDataset:
        """Transform batches: `fn(columns)` gives a mapping with as many rows, each depending on its own row alone.

        With a `seed` it is called as `fn(columns, keys)`, `keys` being `[n]` uint64 drawn from (seed, position), so
        that random augmentation is the same whatever the batch size, the thread, or the point of resuming.
        """
        return MapDataset(self.sources, self.plan, (*self.maps, Mapped(fn, seed)), self.columns)

    def iterate(self, batch_size: int, *, epochs: int | None = 1, drop_last: bool = False) -> IterDataset:
        """The one-way door to a dataset that is only iterated: `filter`, `flat_map` and `rebatch` live there."""
        return IterDataset(_Walk(self, batch_size, epochs, drop_last))


@dataclass(frozen=True)
class _Walk:
    dataset: MapDataset
    batch_size: int
    epochs: int | None
    drop_last: bool

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise PlanError(f"expected a batch size of at least 1, got {self.batch_size}")

    @property
    def fingerprint(self) -> str:
        return chained(self.dataset.fingerprint, (self.batch_size, self.epochs, self.drop_last))

    def __call__(self) -> BlockIterator:
        return _Cursor(self)


class _Cursor(BlockIterator):
    """Walks the positions of a dataset; its state is the next position."""

    def __init__(self, walk: _Walk) -> None:
        self.walk = walk
        self.position = 0

    def __next__(self) -> Columns:
        size, step = len(self.walk.dataset), self.walk.batch_size
        if self.walk.drop_last and size and size - self.position % size < step:
            self.position += size - self.position % size
        if size < (step if self.walk.drop_last else 1) or self._finished(size):
            raise StopIteration
        stop = min(self.position + step, (self.position // size + 1) * size)
        positions = np.arange(self.position, stop)
        self.position = stop
        return self.walk.dataset.batch(positions)

    def _finished(self, size: int) -> bool:
        return self.walk.epochs is not None and self.position >= self.walk.epochs * size

    def state_dict(self) -> IteratorState:
        return {"position": self.position}

    def load_state_dict(self, state: IteratorState) -> None:
        if set(state) != {"position"} or not isinstance(state["position"], int) or state["position"] < 0:
            raise StateError(f"expected a state with a position >= 0, got {state}")
        self.position = state["position"]
