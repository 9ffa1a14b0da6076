"""`IterDataset`: a stream of blocks, for operations that change the number of rows.

Each stage is a `BlockOrigin`: calling it starts an iterator above the iterator of the stage below. The state of an
iterator contains the state below it, so the state of the last stage is the state of the whole stream.

Invariant: an iterator that loads a state yields what the saved one would have yielded. A stage that keeps blocks
(`rebatch`, `pack`) does not save values. It saves the state below as it was before the oldest block that it keeps, and
how many rows of this block were returned, and reads the block again. Loading a state runs no function of the user:
the block is read at the next draw.

Functions are identified by a digest of their code or by `version`, which is part of the fingerprint, so a state of
another function is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray
from penstock.core.blocks import BlockIterator, BlockOrigin, IteratorState, concatenated
from penstock.core.columns import Columns
from penstock.core.html import page, steps
from penstock.data.function_digest import FunctionDigest
from penstock.data.loadable import Loadable
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.names import name_of
from penstock.data.sample_blocks import SampleBlocks, check_batches
from penstock.data.stream_items import Overlong, PackOptions, Positions
from penstock.data.stream_pack import StreamPack
from penstock.errors import PlanError, SpecError, StateError
from penstock.plan.base import chained


class IterDataset(Loadable):
    """Iterable blocks of columns, with stages that may change the number of rows. It has no length and no index.

    `IterDataset.of` makes one of samples. Each `iter()` starts from the beginning. The iterator has `state_dict` and
    `load_state_dict`.

    Args:
        origin: Makes a new iterator over the blocks, and has a fingerprint.
        chain: The source and the stages, in order, as text. The default is the `repr` of `origin`.
        endless: Whether the blocks have no end, as with `epochs=None`. The default is False.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[6])
        >>> blocks = penstock.IterDataset.of(data.steps(), 4)
        >>> even = blocks.filter(lambda columns: columns["rewards"] % 2 == 0).rebatch(2)
        >>> [block["rewards"].tolist() for block in even]
        [[0.0, 2.0], [4.0]]
    """

    def __init__(self, origin: BlockOrigin, chain: Sequence[str] = (), *, endless: bool = False) -> None:
        self._origin = origin
        self.endless = endless
        self.chain = tuple(chain) or (repr(origin),)

    @classmethod
    def of(
        cls,
        samples: MapDataset,
        batch_size: int,
        *,
        epochs: int | None = 1,
        drop_last: bool = False,
        allow_empty: bool = False,
    ) -> IterDataset:
        """Iterate over blocks of samples.

        Args:
            samples: The samples.
            batch_size: Samples of a block, at least 1.
            epochs: Number of epochs, or None for endless iteration. The default is 1.
            drop_last: Whether to drop a short last block of an epoch. The default is False.
            allow_empty: Whether to allow epochs without a block. The default is False.

        Raises:
            ArgumentError: `samples` is no `MapDataset`.
            PlanError: `batch_size` is below 1, or no epoch has a block. The message has the reason.

        Example:
            >>> import penstock
            >>> data = penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3])
            >>> [block["x"].tolist() for block in penstock.IterDataset.of(data.steps(), 2)]
            [[1, 2], [3]]
        """
        planned = planned_samples(samples)
        blocks = SampleBlocks(planned, batch_size, epochs, drop_last)
        if not allow_empty:
            check_batches(planned.plan, batch_size, drop_last=drop_last)
        return cls(blocks, (*planned.chain, f"blocks of {batch_size}"), endless=epochs is None)

    def __repr__(self) -> str:
        return f"IterDataset(chain={' > '.join(self.chain)})"

    def _repr_html_(self) -> str:
        return page("IterDataset", "a stream of blocks", steps(self.chain))

    def _then(self, origin: BlockOrigin, step: str) -> IterDataset:
        """The dataset after one more stage."""
        return IterDataset(origin, (*self.chain, step), endless=self.endless)

    def __iter__(self) -> BlockIterator:
        return self._origin()

    @property
    def fingerprint(self) -> str:
        """Digest of data, order and stages."""
        return self._origin.fingerprint

    def filter(self, condition: Callable[[Columns], BoolArray], *, version: str | int | None = None) -> IterDataset:
        """Keep the rows that meet a condition.

        Args:
            condition: Called with a block of `n` rows; returns `[n]` bool, True for rows to keep.
            version: Replaces the digest of `condition`, as in `MapDataset.map`. The default is None.

        Raises:
            SpecError: When read, the condition returns another dtype or shape.

        Example:
            >>> import penstock
            >>> blocks = penstock.IterDataset.of(penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps(), 3)
            >>> next(iter(blocks.filter(lambda columns: columns["x"] > 1)))["x"].tolist()
            [2, 3]
        """
        stage = _FlatMap(self._origin, _Kept(condition), FunctionDigest.of(condition, version))
        return self._then(stage, f"filter({name_of(condition)})")

    def flat_map(self, fn: Callable[[Columns], Mapping[str, Any]], *, version: str | int | None = None) -> IterDataset:
        """Replace each block by a block of any number of rows.

        Args:
            fn: Called with a block; returns a mapping of columns. It may have 0 rows.
            version: Replaces the digest of `fn`, as in `MapDataset.map`. The default is None.

        Example:
            >>> import penstock
            >>> blocks = penstock.IterDataset.of(penstock.from_arrays({"x": [1, 2]}, lengths=[2]).steps(), 2)
            >>> next(iter(blocks.flat_map(lambda columns: {"x": columns["x"].repeat(2)})))["x"].tolist()
            [1, 1, 2, 2]
        """
        return self._then(_FlatMap(self._origin, fn, FunctionDigest.of(fn, version)), f"flat_map({name_of(fn)})")

    def rebatch(self, batch_size: int, *, drop_last: bool = False) -> IterDataset:
        """Cut the rows into blocks of another size.

        A state stores no rows. It stores the upstream state before the current block, and an offset.

        Args:
            batch_size: Rows of a block, at least 1.
            drop_last: Whether to drop a short last block. The default is False.

        Raises:
            PlanError: `batch_size` is below 1.

        Example:
            >>> import penstock
            >>> blocks = penstock.IterDataset.of(penstock.from_arrays({"x": [1, 2, 3]}, lengths=[3]).steps(), 1)
            >>> [block["x"].tolist() for block in blocks.rebatch(2)]
            [[1, 2], [3]]
        """
        if batch_size < 1:
            raise PlanError(f"expected a batch size of at least 1, got {batch_size}")
        return self._then(_Rebatch(self._origin, batch_size, drop_last), f"rebatch({batch_size})")

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
        fill: float | Mapping[str, float] = 0,
        keep: Sequence[str] = (),
        lengths: str | os.PathLike[str] | None = None,
    ) -> IterDataset:
        """Pack sequences, the rows of `Ragged` columns, by best fit into rows of `length` places.

        Use this for sequences whose lengths are unknown until they are read. `MapDataset.pack` keeps random access and
        an exact length where lengths are known. Empty sequences are left out.

        A saved state stores no values. It stores where the oldest waiting sequence came from, and which later ones were
        already returned. Loading a state reads the waiting sequences again, which fit in at most `max_age` rows.

        Args:
            length: Places of a row. One number packs all `Ragged` columns together; they must have equal lengths. A
                number for each column packs these columns. With several columns, each has its own
                `<column>_segment_ids` and `<column>_positions`.
            open_bins: Number of packs to fill at the same time. The default is 1024.
            max_age: Most other packs that are returned after the first sequence of a pack was read and before the
                pack, above `open_bins`. The default is `8 * open_bins`.
            overlong: What to do with a sequence longer than `length`: raise an `"error"`, keep the end
                (`"truncate_left"`), keep the start (`"truncate_right"`), `"split"` it into several sequences, or
                `"drop"` it. `iterator.passed` counts the losses.
            positions: Whether the positions of a split sequence `"restart"` at 0 or `"continue"` after the part before.
            max_sequences: Most sequences of a row. The default is None: no limit.
            rows: Packs of a block. The default is 256.
            fill: Value of padding, for all columns or by column. The default is 0.
            keep: Dense columns to keep. They become `Ragged`, with one entry for each sequence of a row. All other
                columns are dropped.
            lengths: File to write the length of every sequence to. `penstock.read_lengths` reads it. The default is
                None.

        Returns:
            Blocks with `[rows, length, ...]` columns, `segment_ids` and `positions`, int32. `segment_ids` counts
            sequences from 1. `positions` counts from 0 in each sequence. Both are 0 in padding. Cost: one copy. Memory:
            the blocks that contain a waiting sequence.

        Raises:
            PlanError: An argument is out of range.
            SpecError: When read, a column cannot be packed.
            DataError: When read, a sequence is too long and `overlong` is `"error"`.

        Example:
            >>> import penstock
            >>> words = penstock.Ragged.from_strings(["three", "ab", "c", "four"])
            >>> data = penstock.from_arrays({"words": words}, lengths=[4]).steps()
            >>> block = next(iter(penstock.IterDataset.of(data, 4).pack(8)))
            >>> block["segment_ids"].tolist()
            [[1, 1, 1, 1, 1, 2, 2, 3], [1, 1, 1, 1, 0, 0, 0, 0]]

        Source: best fit (Johnson, "Near-optimal bin packing algorithms", 1973) with a bounded number of bins.
        """
        options = PackOptions(
            length, open_bins, max_age, overlong, positions, max_sequences, rows, fill, tuple(keep), lengths
        )
        return self._then(StreamPack(self._origin, options), f"pack({length})")


@dataclass(frozen=True)
class _Kept:
    condition: Callable[[Columns], BoolArray]

    def __call__(self, columns: Columns) -> Columns:
        keep = np.asarray(self.condition(columns))
        if keep.dtype != np.bool_ or keep.shape != (columns.n,):
            raise SpecError(f"expected a condition of {columns.n} bools, got {keep.dtype}{list(keep.shape)}")
        return columns.take(np.flatnonzero(keep))


@dataclass(frozen=True)
class _FlatMap:
    upstream: BlockOrigin
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
    upstream: BlockOrigin
    batch_size: int
    drop_last: bool

    @property
    def fingerprint(self) -> str:
        return f"{self.upstream.fingerprint}/rebatch({self.batch_size}, {self.drop_last})"

    def __call__(self) -> BlockIterator:
        return _RebatchIterator(self.upstream(), self.batch_size, self.drop_last)


class _RebatchIterator(BlockIterator):
    def __init__(self, upstream: BlockIterator, batch_size: int, drop_last: bool) -> None:
        self.upstream = upstream
        self.batch_size = batch_size
        self.drop_last = drop_last
        # Blocks not yet returned whole, each with the upstream state before it; `offset` rows of the first were
        # returned.
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
        """Read the partly returned block again. This may run user functions, so `load_state_dict` does not."""
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
