"""A dataset that is only iterated: what can be known no earlier than after the values are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.blocks import BlockIterator, IteratorState, Origin, concatenated
from penstock.core.columns import Columns
from penstock.data.function_digest import FunctionDigest
from penstock.data.stream_items import Overlong, PackOptions, Positions
from penstock.data.stream_pack import StreamPack
from penstock.errors import PlanError, SpecError, StateError
from penstock.plan.base import chained


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

    def filter(
        self, condition: Callable[[Columns], npt.NDArray[np.bool_]], *, version: str | int | None = None
    ) -> IterDataset:
        """Keep the rows where `condition(columns)`, `[n]` bool, is True. `version` is as in `MapDataset.map`."""
        return IterDataset(_FlatMap(self._origin, _Kept(condition), FunctionDigest.of(condition, version)))

    def flat_map(self, fn: Callable[[Columns], Mapping[str, Any]], *, version: str | int | None = None) -> IterDataset:
        """Replace each block by what `fn` makes of it, of any number of rows, none included. `version` is as in
        `MapDataset.map`."""
        return IterDataset(_FlatMap(self._origin, fn, FunctionDigest.of(fn, version)))

    def rebatch(self, batch_size: int, *, drop_last: bool = False) -> IterDataset:
        """Cut the rows anew into blocks of `batch_size`; a last short one is kept unless `drop_last`.

        The state never holds rows: it is the state before the block that the next row lies in, and an offset.
        """
        if batch_size < 1:
            raise PlanError(f"expected a batch size of at least 1, got {batch_size}")
        return IterDataset(_Rebatch(self._origin, batch_size, drop_last))

    def pack(
        self,
        length: int | Mapping[str, int],
        *,
        open_bins: int = 1024,
        max_age: int | None = None,
        overlong: Overlong = "error",
        positions: Positions = "restart",
        max_sequences: int | None = None,
        rows: int = 256,
        pad: float | Mapping[str, float] = 0,
        keep: Sequence[str] = (),
        lengths: str | os.PathLike[str] | None = None,
    ) -> IterDataset:
        """Lay sequences (rows of `Ragged` columns) one after the other into rows of `length` places, by best fit into
        `open_bins` packs that are open at a time. For sequences whose lengths are known, a planned pack keeps random
        access and an exact length; this is for those whose lengths only show as they pass.

        Gives blocks of `rows` packs, each `Ragged` column as `[rows, length, ...]`, with int32 `segment_ids` (from 1,
        in the order of the stream; 0 in padding) and `positions` (from 0 in every sequence; 0 in padding).

        Arguments: `length`, places of a row: one number for all `Ragged` columns, which must then be equally long
        sequence by sequence; or a number for each column that is packed, each of which, if there are several, then has
        its own `<column>_segment_ids` and `<column>_positions`. All other columns are dropped, except the dense ones in
        `keep`, which come out `Ragged`, a row having one entry for each of its sequences. `max_age`: a pack is given
        out before so many others have come after its first sequence did (8 `open_bins`). `overlong`, for a sequence
        longer than `length`: `"error"`; `"truncate_left"` (keeps the end); `"truncate_right"` (keeps the beginning);
        `"split"` makes sequences of their own out of its parts, whose positions `"restart"` at 0 or `"continue"` where
        the part before ended, as `positions` says; `"drop"`. What was lost stands in `iterator.passed`.
        `max_sequences` bounds the sequences of a row. `pad` is the value of padding, one or by column. `lengths` is
        a file that gets the length of every sequence: see `penstock.read_lengths`. Sequences of no length are left out.

        A state says where the oldest sequence that waits comes from and which ones after it are out; it never holds
        values. Loading it reads those again, which is at most what fits in `max_age` rows.

        Raises `PlanError` for impossible arguments, `SpecError` for columns that cannot be packed, `DataError` for
        a sequence that is too long. Cost: one copy; memory: the blocks that hold a sequence which waits.
        Source: best fit (Johnson, "Near-optimal bin packing algorithms", 1973) on a bounded number of bins.

        >>> import penstock
        >>> words = penstock.Ragged.from_strings(["three", "ab", "c", "four"])
        >>> data = penstock.from_arrays({"words": words}, lengths=[4]).samples()
        >>> block = next(iter(data.iterate(4).pack(8)))
        >>> block["segment_ids"].tolist()
        [[1, 1, 1, 1, 1, 2, 2, 3], [1, 1, 1, 1, 0, 0, 0, 0]]
        """
        options = PackOptions(
            length, open_bins, max_age, overlong, positions, max_sequences, rows, pad, tuple(keep), lengths
        )
        return IterDataset(StreamPack(self._origin, options))


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
    digest: FunctionDigest

    @property
    def fingerprint(self) -> str:
        kind = "filter" if isinstance(self.fn, _Kept) else "flat_map"
        return chained(self.upstream.fingerprint, f"{kind}({self.digest.text})")

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
        self.to_restore: IteratorState | None = None  # a loaded state whose first block is not read yet

    def __next__(self) -> Columns:
        self._restore()
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
        if self.to_restore is not None:
            return self.to_restore
        upstream = self.held[0][0] if self.held else self.upstream.state_dict()
        return {"upstream": upstream, "offset": self.offset}

    def load_state_dict(self, state: IteratorState) -> None:
        if set(state) != {"upstream", "offset"}:
            raise StateError(f"expected a state with upstream and offset, got {sorted(state)}")
        if type(state["offset"]) is not int or state["offset"] < 0:
            raise StateError(f"expected an offset >= 0, got {state['offset']!r}")
        self.upstream.load_state_dict(state["upstream"])
        self.held, self.offset = [], 0
        self.to_restore = state if state["offset"] else None

    def _restore(self) -> None:
        """Read again the block that is partly out. Not in `load_state_dict`: functions of the user may run here."""
        if self.to_restore is None:
            return
        offset, self.to_restore = self.to_restore["offset"], None
        before = self.upstream.state_dict()
        while (block := next(self.upstream, None)) is not None and block.n == 0:
            before = self.upstream.state_dict()
        if block is None or block.n < offset:
            got = 0 if block is None else block.n
            raise StateError(f"expected a block of more than {offset} rows, got {got}; the stream has changed since")
        self.held, self.offset = [(before, block)], offset
