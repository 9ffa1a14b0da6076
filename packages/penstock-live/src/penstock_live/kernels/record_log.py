"""A log of records in one array of 64-bit words: which frames of a chunk are for which use, and their bytes.

The words of a record are, in this order: number of the chunk, words of the record, first use, uses `U`, frames up to
each use `[U + 1]`, place of each frame `[F]`, bytes up to each frame `[F + 1]`, and the rows end to end. So one copy
moves a record, and one subtraction gives the bytes of several frames. `where[number - base]` is the word at which the
record of a chunk begins, -1 where there is none. The caller owns and writes the log; records are trusted, what callers
ask for is not.
"""

from __future__ import annotations

from penstock.core.arrays import ByteArray, Int32Array, IntArray
from penstock.kernels.intrinsics import memcpy
from penstock.kernels.jit import helper, kernel


def find_records(
    words: IntArray, where: IntArray, base: int, number: IntArray, use: IntArray, frames: IntArray, nbytes: IntArray
) -> None:
    """Count the stored frames of each use of a chunk, and their bytes."""
    if not len(number) == len(use) == len(frames) == len(nbytes):
        raise ValueError(f"expected columns of {len(number)} rows, got {len(use)}, {len(frames)} and {len(nbytes)}")
    _find_records(words, where, base, number, use, frames, nbytes)


def copy_records(
    words: IntArray,
    where: IntArray,
    base: int,
    number: IntArray,
    use: IntArray,
    frames: IntArray,
    rows: ByteArray,
    ends: IntArray,
    chunk: IntArray,
    place: Int32Array,
) -> int:
    """Copy the frames that `find_records` found, and drop the record of a chunk after its last use."""
    fits = len(number) == len(use) == len(frames) and len(chunk) == len(place) == len(ends) - 1
    freed = _copy_records(words, where, base, number, use, frames, rows, ends, chunk, place) if fits else -1
    if freed < 0:
        raise ValueError(f"expected room for all frames, got {len(chunk)}, {len(place)}, {len(ends)} and {len(rows)}")
    return freed


def slide_records(words: IntArray, where: IntArray, base: int, end: int, excess: int) -> tuple[int, int]:
    """Move the stored records to the front of a log, in their order, and drop the oldest of them."""
    if not 0 <= end <= len(words):
        raise ValueError(f"expected an end within {len(words)} words, got {end}")
    return _slide_records(words, where, base, end, excess)


@helper
def _frames_of(words: IntArray, record: int, use: int) -> tuple[int, int, int, int]:
    """Return frames `first : last` of a use, and at which words the bytes up to each frame begin, and the rows."""
    uses: int = words[record + 3]
    ends: int = record + 4 + use - words[record + 2]
    frames: int = words[record + 4 + uses]
    return words[ends], words[ends + 1], record + 5 + uses + frames, record + 6 + uses + 2 * frames


@kernel("i8[1C] i8[1C] i8 i8[1C] i8[1C] i8[1C] i8[1C]")
def _find_records(
    words: IntArray, where: IntArray, base: int, number: IntArray, use: IntArray, frames: IntArray, nbytes: IntArray
) -> None:
    for i in range(len(number)):
        frames[i], nbytes[i] = -1, 0
        slot: int = number[i] - base
        record: int = where[slot] if 0 <= slot < len(where) else -1
        if record >= 0 and 0 <= use[i] - words[record + 2] < words[record + 3]:
            first, last, bytes_at, _ = _frames_of(words, record, use[i])
            frames[i], nbytes[i] = last - first, words[bytes_at + last] - words[bytes_at + first]


@kernel("i8[1C] i8[1C] i8 i8[1C] i8[1C] i8[1C] u1[1C] i8[1C] i8[1C] i4[1C]")
def _copy_records(
    words: IntArray,
    where: IntArray,
    base: int,
    number: IntArray,
    use: IntArray,
    frames: IntArray,
    rows: ByteArray,
    ends: IntArray,
    chunk: IntArray,
    place: Int32Array,
) -> int:
    """Return the words of the dropped records, or -1 where the output has no room."""
    done = 0
    freed: int = 0
    for i in range(len(number)):
        if frames[i] < 0:
            continue
        slot: int = number[i] - base
        record: int = where[slot]
        first, last, bytes_at, rows_at = _frames_of(words, record, use[i])
        size = words[bytes_at + last] - words[bytes_at + first]
        if done + last - first > len(chunk) or ends[done] + size > len(rows):
            return -1
        memcpy(rows.ctypes.data + ends[done], words.ctypes.data + 8 * rows_at + words[bytes_at + first], size)
        places = bytes_at - words[record + 4 + words[record + 3]]
        for j in range(first, last):
            ends[done + 1] = ends[done] + words[bytes_at + j + 1] - words[bytes_at + j]
            chunk[done], place[done] = number[i], words[places + j]
            done += 1
        if use[i] - words[record + 2] == words[record + 3] - 1:
            where[slot] = -1
            freed += words[record + 1]
    return freed


@kernel("i8[1C] i8[1C] i8 i8 i8")
def _slide_records(words: IntArray, where: IntArray, base: int, end: int, excess: int) -> tuple[int, int]:
    record = 0
    to = 0
    dropped = 0
    while record < end:
        slot, size = words[record] - base, words[record + 1]
        if 0 <= slot < len(where) and where[slot] == record:
            if dropped < excess:
                where[slot] = -1
                dropped += size
            else:
                for i in range(size):  # front to back: a record moves towards the front
                    words[to + i] = words[record + i]
                where[slot] = to
                to += size
        record += size
    return to, dropped
