"""Chunks: the units of a file of a growing dataset, as live data loads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from penstock.core.arrays import ByteArray, IntArray
from penstock.core.ragged import Array
from penstock_live.hooks import ChunkFunctions

Wanted = Callable[[int], IntArray]
"""From the number of frames of a chunk to those that are wanted: places `[k]` int64, ascending, none twice."""

WantedOfEach = Callable[[int, int], IntArray]
"""The same for several chunks: of which of them, by its place among these, and the number of its frames."""


TOGETHER = 1 << 20
"""Bytes of frames of several chunks that are read in one go."""


class FrameTable(Protocol):
    """Frames of all chunks of several sources, any of which one call reads. Chunks are numbered over all of them.

    Reading needs no open source.
    """

    def lengths(self, chunks: IntArray) -> IntArray:
        """Return `[m]` the number of frames of each chunk."""
        ...

    def gather(self, chunks: IntArray, places: IntArray, hooks: ChunkFunctions) -> Array:
        """Return the rows that `hooks` makes of single frames: frame `places[i]` of chunk `chunks[i]`."""
        ...


class ChunkSource(ABC):
    """Chunks `0 .. len - 1` of one file, each the frames of one game in order. Reads may be called from any thread.

    `key` sorts sources by age: the newest has the greatest. `torn` says what cannot be read of a damaged file, None for
    a whole one. `table` has the frames where any of them can be read alone, and the number of chunk 0 there.
    """

    key: str
    torn: str | None = None
    table: tuple[FrameTable, int] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """How many chunks there are."""

    @property
    def expected(self) -> int:
        """Number of chunks without damage: the readable ones, and the lost ones as far as that is known."""
        return len(self)

    @abstractmethod
    def load(self, i: int, wanted: Wanted | None = None) -> ByteArray:
        """`[n, width]` frames of chunk `i`, in new memory.

        With `wanted`, only those at the places that it gives for the number of frames, in that order. A source may then
        read only these, so damage elsewhere in the chunk may not be seen: the frames returned, or the error raised, are
        a function of the chunk and the places alone. `wanted` may be called again, with the same number.
        """

    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[ByteArray | None]:
        """Few frames of each of several chunks, in one go where that costs less than a `load` for each: what `load`
        returns, but perhaps read-only; or None, and then `load` reads the chunk and says what is wrong.

        A file that is replaced while it is read may be noticed at the end: the caller checks once.
        """
        return [None] * len(chunks)

    def close(self) -> None:
        """Release files and memory. Reading afterwards is an error."""


Opener = Callable[[Path], ChunkSource | None]
"""Opens and indexes the file at a path; None if it is no file of chunks. Raises `FormatError` and `OSError`."""


def chosen(frames: ByteArray, wanted: Wanted | None) -> ByteArray:
    """What `ChunkSource.load` gives of frames that were read whole; these themselves where all are wanted."""
    if wanted is None:
        return frames
    places = wanted(len(frames))
    return frames if len(places) == len(frames) else frames[places]
