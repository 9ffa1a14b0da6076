"""Blocks: frames that stages pass on, with the chunk and place of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, Ragged, offsets_of


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """`n` frames: `rows`, `[n, width]` uint8 or ragged rows of uint8; `chunk` `[n]` int64, the number of the chunk that
    each is from; `place` `[n]` int32, its position there.

    A pair of chunk and place names a frame for ever.
    """

    rows: Array
    chunk: npt.NDArray[np.int64]
    place: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def width(self) -> int:
        """Bytes of a row; 0 if rows are ragged."""
        return 0 if isinstance(self.rows, Ragged) else int(self.rows.shape[1])

    def flat(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the rows end to end `[bytes]`, and their offsets `[n + 1]`. Copies rows that are not contiguous."""
        if isinstance(self.rows, Ragged):
            return np.ascontiguousarray(self.rows.values), self.rows.offsets
        n, width = self.rows.shape
        return np.ascontiguousarray(self.rows).reshape(-1), np.arange(n + 1, dtype=np.int64) * width

    def part(self, first: int, last: int) -> Block:
        """Return frames `first : last` as views."""
        rows, cut = self.rows, slice(first, last)
        if isinstance(rows, Ragged):
            ends = rows.offsets[first : last + 1]
            return Block(Ragged(rows.values[ends[0] : ends[-1]], ends - ends[0]), self.chunk[cut], self.place[cut])
        return Block(rows[cut], self.chunk[cut], self.place[cut])

    def take(self, index: npt.NDArray[np.int64]) -> Block:
        """Return the frames of an index array, in its order. Cost: one gather."""
        rows = self.rows.take(index) if isinstance(self.rows, Ragged) else self.rows[index]
        return Block(rows, self.chunk[index], self.place[index])

    @staticmethod
    def join(blocks: Sequence[Block]) -> Block:
        """Concatenate one or more blocks of one kind. Cost: one copy if there are several."""
        return blocks[0] if len(blocks) == 1 else Part.join([Part(block, 0, len(block)) for block in blocks])


class Part:
    """Frames `first : last` of a block, without a copy: thousands of small parts are cheap to store and to join."""

    __slots__ = ("block", "first", "last")

    def __init__(self, block: Block, first: int, last: int) -> None:
        self.block = block
        self.first = first
        self.last = last

    def __len__(self) -> int:
        return self.last - self.first

    @staticmethod
    def join(parts: Sequence[Part]) -> Block:
        """Concatenate one or more parts of one kind to a block. Cost: one copy if there are several."""
        if len(parts) == 1:
            part = parts[0]
            return part.block if len(part) == len(part.block) else part.block.part(part.first, part.last)
        chunk = np.concatenate([p.block.chunk[p.first : p.last] for p in parts])
        place = np.concatenate([p.block.place[p.first : p.last] for p in parts])
        return Block(join_rows([(p.block.rows, p.first, p.last) for p in parts]), chunk, place)


def join_rows(parts: Sequence[tuple[Array, int, int]]) -> Array:
    """Concatenate rows `first : last` of several arrays, all ragged or none."""
    ragged = [(rows, first, last) for rows, first, last in parts if isinstance(rows, Ragged)]
    if not ragged:
        return np.concatenate([rows[first:last] for rows, first, last in parts if not isinstance(rows, Ragged)])
    ends = [rows.offsets[first : last + 1] for rows, first, last in ragged]
    values = [rows.values[end[0] : end[-1]] for (rows, _, _), end in zip(ragged, ends, strict=True)]
    lengths = np.concatenate([end[1:] - end[:-1] for end in ends])
    return Ragged(np.concatenate(values), offsets_of(lengths))
