"""A plan and its sources: a dataset with a length and random access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from penstock.core.blocks import BlockIterator, IteratorState
from penstock.core.columns import Columns
from penstock.core.selection import Selection
from penstock.data.fetch import Empty, Fetch
from penstock.data.function_digest import FunctionDigest
from penstock.data.iter_dataset import IterDataset
from penstock.data.keys import keys
from penstock.data.names import name_of
from penstock.errors import PlanError, SpecError, StateError
from penstock.formats.base.source import Source
from penstock.plan.base import Plan, PlanTransform, chained
from penstock.plan.nominal import Nominal
from penstock.plan.pack import Pack
from penstock.plan.repeat import Repeat
from penstock.plan.select import Select, Take, check_takable
from penstock.plan.shard import Shard
from penstock.plan.shuffle import Shuffle

Int = npt.NDArray[np.int64]
MapFn = Callable[..., Mapping[str, Any]]

BLOCK = 4096  # samples of a scan that are read at a time, and how many bytes of them
BLOCK_BYTES = 32 << 20
LONGEST_SEARCH = 1000  # epochs of unequal lengths among which one with a whole block is looked for
LONGEST_SLICE = 1 << 40  # samples: no memory holds more, and a mix that never ends has 2^62


@dataclass(frozen=True)
class Mapped:
    """A function over columns, with the seed of its random keys if it wants any. What it computes is digested when it
    is handed over; a `version` stands for that."""

    fn: MapFn
    seed: int | None
    version: str | int | None = None
    _digest: FunctionDigest = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_digest", FunctionDigest.of(self.fn, self.version))

    @property
    def fingerprint(self) -> str:
        """What the function computes, and its seed."""
        return f"map({self._digest.text}, seed={self.seed})"

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
        return f"map({name_of(self.fn)}, seed={self.seed})"


class Stage(Protocol):
    """What is done to columns after they were read: as many rows come out as went in, each of its own row alone."""

    @property
    def fingerprint(self) -> str:
        """What is done, so that other functions have another fingerprint."""
        ...

    def __call__(self, columns: Columns, positions: Int) -> Columns:
        """The columns made of those read for `[n]` int64 `positions`."""
        ...


class Origin(Protocol):
    """How a dataset was made, so that it can be made again of fewer episodes."""

    def until(self, episodes: Sequence[int]) -> MapDataset | None:
        """The dataset of the first `episodes[s]` episodes of each source `s`; None if a source cannot say."""
        ...


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
        self,
        sources: Sequence[Source],
        plan: Plan,
        maps: Sequence[Stage] = (),
        origin: Origin | None = None,
    ) -> None:
        self.sources, self.plan, self.maps = tuple(sources), plan, tuple(maps)
        self._origin = origin
        self._fetch = Fetch(self.sources, plan)

    def __len__(self) -> int:
        return len(self.plan)

    def __repr__(self) -> str:
        return f"MapDataset({len(self)} samples, columns={[r.name for r in self._fetch.reads]}, maps={list(self.maps)})"

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Int) -> Columns: ...
    def __getitem__(self, index: Any) -> Any:
        """One record for an integer, `Columns` for a slice, list or array. A slice costs what it selects.

        Raises `IndexError` beyond the length, `PlanError` for a slice of a mix that never stops which has no end.
        """
        if isinstance(index, slice):
            return self.batch(_positions(range(len(self))[index]))
        asked = np.asarray(index)
        if asked.size and asked.dtype.kind not in "iu":
            raise TypeError(f"expected integers or a slice, got {asked.dtype}")
        numbers = asked.astype(np.int64)
        if numbers.size and not (-len(self) <= numbers.min() and numbers.max() < len(self)):
            raise IndexError(f"expected positions within 0:{len(self)}, got {numbers.min()}:{numbers.max() + 1}")
        numbers = np.where(numbers < 0, numbers + len(self), numbers)
        return self.batch(numbers) if numbers.ndim else self.batch(numbers[None]).row(0)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """The records of many integers, read at once: what torch's `DataLoader` asks of a map-style dataset."""
        columns = self[list(indices)]
        return [columns.row(i) for i in range(columns.n)]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def batch(self, positions: Int) -> Columns:
        """The samples at `[n]` int64 positions `>= 0`, mapped. Cost: one plan call and one gather a column."""
        positions = np.asarray(positions, np.int64)
        return self.mapped(self.read(self.resolve(positions)), positions)

    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """The selections of the plan, one a view."""
        if len(positions) and self.plan.empty:
            raise PlanError(f"expected a dataset with samples, got an empty one: {self.plan.why_empty()}")
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
        """A digest of data, plan and what the map functions compute.

        Warns (`FingerprintWarning`) once of what a function refers to and the digest does not cover.
        """
        digest = self.plan.fingerprint
        for stage in self.maps:
            digest = chained(digest, stage.fingerprint)
        return digest

    def apply(self, transform: PlanTransform) -> MapDataset:
        """The dataset in the order of another plan: `ds.apply(Shuffle(seed=3))`."""
        return MapDataset(self.sources, transform.reorder(self.plan), self.maps, _Derived(self, transform))

    def until(self, episodes: Sequence[int]) -> MapDataset | None:
        """This dataset as it was when source `s` had `episodes[s]` episodes, by the same transforms; None if unknown.

        Raises `StateError` if a source has fewer by now.
        """
        return None if self._origin is None else self._origin.until(episodes)

    def shuffle(self, seed: int = 0, *, block: int | None = None, pool: int | None = None) -> MapDataset:
        """Another order each epoch, by `penstock.plan.Shuffle`."""
        return self.apply(Shuffle(seed, block, pool))

    def repeat(self, times: int) -> MapDataset:
        """`times` epochs as one, by `penstock.plan.Repeat`."""
        return self.apply(Repeat(times))

    def nominal(self, samples: int) -> MapDataset:
        """Epochs of so many samples that go on where the last one ended, by `penstock.plan.Nominal`."""
        return self.apply(Nominal(samples))

    def shard(self, index: int, count: int) -> MapDataset:
        """Every `count`-th sample from `index` on, by `penstock.plan.Shard`."""
        return self.apply(Shard(index, count))

    def select(self, *columns: str) -> MapDataset:
        """Only the outputs at or below these names; the others are not read."""
        return self.apply(Select(columns))

    def where(self, condition: Callable[[Columns], npt.NDArray[np.bool_]], *, progress: bool = False) -> MapDataset:
        """The samples whose values meet a condition: `condition(columns)` gives `[n]` bool for a block of samples.

        One scan of the first epoch; what is left is a dense table, so the length is exact, and it can be shuffled,
        mixed and packed as any other. Shuffle afterwards: the order is the first epoch's. `progress` shows a bar.
        Raises `PlanError` on a dataset whose epochs have other samples than the first.

        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> data.samples().where(lambda c: c["rewards"] > 3)[:]["rewards"].tolist()
        [4.0, 5.0]
        """
        check_takable(self.plan, "where")
        size = max(1, min(BLOCK, BLOCK_BYTES // max(self.row_bytes(), 1)))
        kept: list[Int] = []
        blocks = range(0, len(self), size)
        for lo in _tracked(blocks) if progress else blocks:
            k = np.arange(lo, min(lo + size, len(self)))
            keep = np.asarray(condition(self.batch(k)))
            if keep.dtype != np.bool_ or keep.shape != (len(k),):
                raise SpecError(f"expected a condition of {len(k)} bools, got {keep.dtype}{list(keep.shape)}")
            kept.append(k[keep])
        return self.apply(Take(np.concatenate(kept) if kept else np.zeros(0, np.int64)))

    def pack(self, length: int | Mapping[str, int], **options: Any) -> MapDataset:
        """Several samples in one row, by `penstock.plan.Pack`, which names the options.

        Raises `PlanError` after `map`: lengths must be known, so map the packs, or `penstock.measure` the function.

        >>> import penstock
        >>> data = penstock.from_arrays({"tokens": np.arange(9)}, lengths=[4, 3, 2])
        >>> packs = data.sequences().pack(6)
        >>> len(packs), sorted(packs[:]["segment_ids"].sum(axis=1).tolist())
        (2, [3, 8])
        """
        if self.maps:
            raise PlanError(
                f"expected a dataset without functions to pack, got {list(self.maps)}; map the packs instead, or use "
                "penstock.measure for a function that changes lengths"
            )
        return self.apply(Pack(length, **options))

    def map(self, fn: MapFn, *, seed: int | None = None, version: str | int | None = None) -> MapDataset:
        """Transform batches: `fn(columns)` gives a mapping with as many rows, each depending on its own row alone.

        With a `seed` it is called as `fn(columns, keys)`, `keys` being `[n]` uint64 drawn from (seed, position), so
        that random augmentation is the same whatever the batch size, the thread, or the point of resuming.

        What `fn` computes is part of the fingerprint, so a state is refused after a change of it: its code, defaults
        and the values it refers to, as they are now. A `version` (text or a number) stands in place of all that, for
        functions whose values differ between runs or cannot be covered.

        >>> import penstock
        >>> data = penstock.from_arrays({"x": np.arange(3.0)}, lengths=[3]).samples()
        >>> one, other = (data.map(lambda c, mean=mean: {"x": c["x"] - mean}) for mean in (0, 100))
        >>> one.fingerprint == other.fingerprint
        False
        """
        stage = Mapped(fn, seed, version)
        return MapDataset(self.sources, self.plan, (*self.maps, stage), _Derived(self, stage))

    def iterate(
        self, batch_size: int, *, epochs: int | None = 1, drop_last: bool = False, allow_empty: bool = False
    ) -> IterDataset:
        """The one-way door to a dataset that is only iterated: `filter`, `flat_map` and `rebatch` live there.

        Raises `PlanError` where no epoch has a block, naming the cause, unless `allow_empty`.
        """
        walk = _Walk(self, batch_size, epochs, drop_last)
        if not allow_empty:
            check_batches(self.plan, batch_size, drop_last=drop_last)
        return IterDataset(walk)


def _positions(chosen: range) -> Int:
    """`[n]` int64 the numbers of a range, whose step may be larger than int64."""
    if len(chosen) > LONGEST_SLICE:
        raise PlanError(f"expected a slice of at most {LONGEST_SLICE} samples, got {len(chosen)}; read it in parts")
    return np.arange(len(chosen)) * (chosen.step if len(chosen) > 1 else 1) + (chosen.start if chosen else 0)


def check_batches(plan: Plan, batch_size: int, *, drop_last: bool) -> None:
    """Raise `PlanError` where no epoch of a plan has a batch, naming the cause.

    >>> import penstock
    >>> check_batches(penstock.from_arrays({"x": np.arange(3)}, lengths=[3]).windows(9).plan, 1, drop_last=False)
    Traceback (most recent call last):
    penstock.errors.PlanError: ... no episode is as long as 9 steps; the longest has 3; ...
    """
    samples, reason = len(plan), None
    if plan.empty:
        reason = plan.why_empty()
    elif drop_last and samples < batch_size and not plan.uneven:
        reason = f"an epoch has {samples:,} samples, fewer than one batch of {batch_size:,}, and drop_last is set"
    if reason is not None:
        raise PlanError(f"expected at least one batch, got none: {reason}; allow_empty=True allows that")


def _tracked(blocks: range) -> Iterable[int]:
    from rich.progress import track  # not at the import of this module, which is part of every start

    return track(blocks, "where")


@dataclass(frozen=True)
class _Derived:
    """A dataset made of another one by a transform or a function."""

    parent: MapDataset
    step: PlanTransform | Mapped

    def until(self, episodes: Sequence[int]) -> MapDataset | None:
        earlier = self.parent.until(episodes)
        if earlier is None or isinstance(self.step, Take):  # a table of samples says nothing of other extents
            return None
        if isinstance(self.step, Mapped):
            return earlier.map(self.step.fn, seed=self.step.seed, version=self.step.version)
        return earlier.apply(self.step)


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
        plan, step, last = self.walk.dataset.plan, self.walk.batch_size, self.walk.drop_last
        if plan.empty or (last and not plan.uneven and len(plan) < step):
            raise StopIteration
        for _ in range(LONGEST_SEARCH):
            epoch = int(plan.locate(np.array([self.position]))[0][0])
            if self.walk.epochs is not None and epoch >= self.walk.epochs:
                raise StopIteration
            end = plan.start(epoch + 1)
            if not last or end - self.position >= step:
                break
            self.position = end
        else:
            raise StopIteration
        positions = np.arange(self.position, min(self.position + step, end))
        self.position += len(positions)
        return self.walk.dataset.batch(positions)

    def state_dict(self) -> IteratorState:
        return {"position": self.position}

    def load_state_dict(self, state: IteratorState) -> None:
        if set(state) != {"position"} or not isinstance(state["position"], int) or state["position"] < 0:
            raise StateError(f"expected a state with a position >= 0, got {state}")
        self.position = state["position"]
