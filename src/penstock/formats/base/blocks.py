"""`BlockRows`: rows of an array that are stored in blocks, each decoded as a whole, and gathered from decoded blocks.

A run of consecutive rows is in one block: run `r` owns the rows `first[r] : first[r + 1]`, which are the rows from
`skip[r]` on of block `block[r]`. A block may have rows that belong to no run, and several runs. Reading cuts spans at
the edges of runs, sorts the pieces by block, and asks for each block once; the caller decodes and caches blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Field
from penstock.formats.base.pieces import RowPieces, cut, expand, spread
from penstock.kernels.rows import RowMap


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Where rows are in blocks."""

    first: IntArray
    block: IntArray
    skip: IntArray

    @classmethod
    def whole(cls, first: IntArray) -> BlockRows:
        """All rows of consecutive blocks."""
        count = len(first) - 1
        return cls(first, np.arange(count), np.zeros(count, np.int64))

    @classmethod
    def parts(cls, bounds: IntArray, start: IntArray, offsets: IntArray) -> BlockRows:
        """Ranges of the rows of blocks, in order."""
        pieces = cut(bounds, start, np.diff(offsets), offsets[:-1])
        return cls(np.append(pieces.destination, offsets[-1]), pieces.run, pieces.start - bounds[pieces.run])

    def read_array(self, load: Callable[[int], Array], selection: Selection, out: AnyArray) -> None:
        """Gather rows of an array column, as `Source.read_array`."""
        raw = out.reshape(-1).view(np.uint8)
        for block, mine in self.pieces(selection):
            rows = load(block)
            if not isinstance(rows, Ragged):
                RowMap.of(rows).gather(mine.start, mine.length, mine.destination, raw)

    def read_ragged(self, load: Callable[[int], Array], field: Field, selection: Selection) -> Ragged:
        """Read rows of a ragged column, as `Source.read_ragged`."""
        pieces = cut(self.first, selection.start, selection.length, selection.start)
        parts = [Ragged(np.empty((0, *field.shape), field.dtype), np.zeros(1, np.int64))]
        for block, mine in self._by_block(pieces):
            rows = load(block)
            if isinstance(rows, Ragged):
                parts.append(rows.take(expand(mine.start, mine.length)))
        return spread(Ragged.concatenate(parts), selection)

    def blocks(self, selection: Selection) -> list[int]:
        """Return the blocks that have rows of a selection, in order."""
        pieces = cut(self.first, selection.start, selection.length, selection.destination)
        return np.unique(self.block[pieces.run]).tolist()

    def pieces(self, selection: Selection) -> Iterator[tuple[int, RowPieces]]:
        """Yield the pieces of a selection by block, with rows of that block. Each block comes once."""
        pieces = cut(self.first, selection.start, selection.length, selection.destination)
        return self._by_block(pieces.take(np.argsort(self.block[pieces.run], kind="stable")))

    def _by_block(self, pieces: RowPieces) -> Iterator[tuple[int, RowPieces]]:
        """Yield consecutive pieces in the same block together, with `start` counted from the start of the block."""
        block = self.block[pieces.run]
        inside = pieces._replace(start=pieces.start - self.first[pieces.run] + self.skip[pieces.run])
        edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(block)]
        yield from ((int(block[a]), inside.take(slice(a, b))) for a, b in pairwise(edges) if b > a)
