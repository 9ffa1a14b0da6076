"""A dataset that is only iterated: what can be known no earlier than after the values are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged
from penstock.errors import PlanError, SpecError, StateError

IteratorState = dict[str, Any]


class BlockIterator(ABC):
    """An iterator over blocks of columns that can say where it stands and go there."""

    def __iter__(self) -> Iterator[Columns]:
        return self

    @abstractmethod
    def __next__(self) -> Columns:
        """The next block, of any number of rows."""

    @abstractmethod
    def state_dict(self) -> IteratorState:
        """Where it stands, as plain JSON values: what comes next is what an iterator that loads this gives next."""

    @abstractmethod
    def load_state_dict(self, state: IteratorState) -> None:
        """Go there. Raises `StateError` for a state of another kind of iterator."""


class Origin(Protocol):
    """Makes fresh iterators, and knows what they are over."""

    @property
    def fingerprint(self) -> str:
        """A digest of data and order."""
        ...

    def __call__(self) -> BlockIterator:
        """A fresh iterator, at the start."""
        ...


class IterDataset:
    """Blocks of columns in one order, with stages that may change how many rows there are; no length, no index.

    Made by `MapDataset.iterate`. Each `iter()` starts afresh; its iterator has `state_dict` and `load_state_dict`.

    >>> import penstock
    >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
    >>> even = data.samples().iterate(4).filter(lambda c: c["rewards"] % 2 == 0).rebatch(2)
    >>> [block["rewards"].tolist() for block in even]
    [[0.0, 2.0], [4.0]]
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __iter__(self) -> BlockIterator:
        return self._origin()

    @property
    def fingerprint(self) -> str:
        """A digest of data, order and stages."""
        return self._origin.fingerprint

    def filter(self, condition: Callable[[Columns], npt.NDArray[np.bool_]]) -> IterDataset:
        """Keep the rows where `condition(columns)`, `[n]` bool, is True."""
        return IterDataset(_FlatMap(self._origin, _Kept(condition)))

    def flat_map(self, fn: Callable[[Columns], Mapping[str, Any]]) -> IterDataset:
        """Replace each block by what `fn` makes of it, of any number of rows, none included."""
        return IterDataset(_FlatMap(self._origin, fn))

    def rebatch(self, batch_size: int, *, drop_last: bool = False) -> IterDataset:
        """Cut the rows anew into blocks of `batch_size`; a last short one is kept unless `drop_last`.

        The state never holds rows: it is the state before the block that the next row lies in, and an offset.
        """
        if batch_size < 1:
            raise PlanError(f"expected a batch size of at least 1, got {batch_size}")
        return IterDataset(_Rebatch(self._origin, batch_size, drop_last))


@dataclass(frozen=True)
class _Kept:
    condition: Callable[[Columns], npt.NDArray[np.bool_]]

    def __call__(self, columns: Columns) -> Columns:
        keep = np.asarray(self.condition(columns))
        if keep.dtype != np.bool_ or keep.shape != (columns.n,):
            raise SpecError(f"expected a condition of {columns.n} bools, got {keep.dtype}{list(keep.shape)}")
        return columns.take(np.flatnonzero(keep))


@dataclass(frozen=True)
class _FlatMap:
    upstream: Origin
    fn: Callable[[Columns], Mapping[str, Any]]

    @property
    def fingerprint(self) -> str:
        return f"{self.upstream.fingerprint}/flat_map"

    def __call__(self) -> BlockIterator:
        return _FlatMapIterator(self.upstream(), self.fn)


class _FlatMapIterator(BlockIterator):
    def __init__(self, upstream: BlockIterator, fn: Callable[[Columns], Mapping[str, Any]]) -> None:
        self.upstream, self.fn = upstream, fn

    def __next__(self) -> Columns:
        result = self.fn(next(self.upstream))
        return result if isinstance(result, Columns) else Columns(result)

    def state_dict(self) -> IteratorState:
        return self.upstream.state_dict()

    def load_state_dict(self, state: IteratorState) -> None:
        self.upstream.load_state_dict(state)


@dataclass(frozen=True)
class _Rebatch:
    upstream: Origin
    batch_size: int
    drop_last: bool

    @property
    def fingerprint(self) -> str:
        return f"{self.upstream.fingerprint}/rebatch({self.batch_size}, {self.drop_last})"

    def __call__(self) -> BlockIterator:
        return _RebatchIterator(self.upstream(), self.batch_size, self.drop_last)


class _RebatchIterator(BlockIterator):
    def __init__(self, upstream: BlockIterator, batch_size: int, drop_last: bool) -> None:
        self.upstream, self.batch_size, self.drop_last = upstream, batch_size, drop_last
        # Blocks not yet given out whole, each with the upstream state before it; `offset` rows of the first are out.
        self.held: list[tuple[IteratorState, Columns]] = []
        self.offset = 0

    def __next__(self) -> Columns:
        while self._available() < self.batch_size:
            before = self.upstream.state_dict()
            block = next(self.upstream, None)
            if block is None:
                break
            if block.n:
                self.held.append((before, block))
        available = self._available()
        if available == 0 or (self.drop_last and available < self.batch_size):
            raise StopIteration
        return self._give(min(self.batch_size, available))

    def _available(self) -> int:
        return sum(block.n for _, block in self.held) - self.offset

    def _give(self, n: int) -> Columns:
        parts: list[Columns] = []
        while n:
            _, block = self.held[0]
            stop = min(block.n, self.offset + n)
            parts.append(block.take(slice(self.offset, stop)))
            n -= stop - self.offset
            self.offset = stop
            if self.offset == block.n:
                self.held.pop(0)
                self.offset = 0
        return concatenated(parts)

    def state_dict(self) -> IteratorState:
        upstream = self.held[0][0] if self.held else self.upstream.state_dict()
        return {"upstream": upstream, "offset": self.offset}

    def load_state_dict(self, state: IteratorState) -> None:
        if set(state) != {"upstream", "offset"}:
            raise StateError(f"expected a state with upstream and offset, got {sorted(state)}")
        self.upstream.load_state_dict(state["upstream"])
        self.held, self.offset = [], 0
        if state["offset"]:
            before = self.upstream.state_dict()
            while (block := next(self.upstream)).n == 0:
                before = self.upstream.state_dict()
            self.held, self.offset = [(before, block)], int(state["offset"])


def concatenated(parts: list[Columns]) -> Columns:
    """The rows of all parts, one after the other; a single part is not copied.

    >>> concatenated([Columns({"a": np.zeros(2)}), Columns({"a": np.ones(1)})])["a"].tolist()
    [0.0, 0.0, 1.0]
    """
    if len(parts) == 1:
        return parts[0]
    return Columns({path: _joined([part.flat[path] for part in parts]) for path in parts[0]})


def _joined(arrays: list[Array]) -> Array:
    ragged = [a for a in arrays if isinstance(a, Ragged)]
    return Ragged.concatenate(ragged) if ragged else np.concatenate([a for a in arrays if not isinstance(a, Ragged)])
