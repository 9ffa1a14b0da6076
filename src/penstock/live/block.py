"""Blocks: frames on their way between stages, with where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, Ragged


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """`n` frames: `rows`, `[n, width]` uint8 or ragged rows of uint8; `chunk` `[n]` int64, the number of the chunk
    that each is from; `place` `[n]` int32, its position there.

    A pair of chunk and place names a frame for ever.

    >>> block = Block(np.zeros((4, 2), np.uint8), np.arange(4), np.zeros(4, np.int32))
    >>> Block.join([block.part(2, 4), block.part(0, 1)]).chunk.tolist()
    [2, 3, 0]
    """

    rows: Array
    chunk: npt.NDArray[np.int64]
    place: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.rows.nbytes

    @property
    def width(self) -> int:
        """Bytes of a row; 0 where rows are ragged."""
        return 0 if isinstance(self.rows, Ragged) else int(self.rows.shape[1])

    def part(self, first: int, last: int) -> Block:
        """Frames `first : last`, as views."""
        rows, cut = self.rows, slice(first, last)
        if isinstance(rows, Ragged):
            ends = rows.offsets[first : last + 1]
            return Block(Ragged(rows.values[ends[0] : ends[-1]], ends - ends[0]), self.chunk[cut], self.place[cut])
        return Block(rows[cut], self.chunk[cut], self.place[cut])

    def take(self, index: npt.NDArray[np.int64]) -> Block:
        """The frames of an index array, in its order. Cost: one gather."""
        rows = self.rows.take(index) if isinstance(self.rows, Ragged) else self.rows[index]
        return Block(rows, self.chunk[index], self.place[index])

    @staticmethod
    def join(blocks: Sequence[Block]) -> Block:
        """The frames of one block or more, of one kind. Cost: one copy where there is more than one."""
        if len(blocks) == 1:
            return blocks[0]
        chunk, place = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("chunk", "place"))
        ragged = [b.rows for b in blocks if isinstance(b.rows, Ragged)]
        plain = [b.rows for b in blocks if not isinstance(b.rows, Ragged)]
        return Block(Ragged.concatenate(ragged) if ragged else np.concatenate(plain), chunk, place)
