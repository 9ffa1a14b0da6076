"""Reference implementation of the kernels of live data: the compiled kernels in `live` must equal it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.permute import GOLDEN, mix, permute

Int = npt.NDArray[np.int64]


def draw_ranges(left: Int, key: Any, counter: int, out: Int) -> int:
    """Which range each draw is from: range `s` with probability `left[s]` by the sum of all, which then is one less.

    Draw `i` is decided by `mix(key + (counter + i) * GOLDEN)` alone. `left[S]` is counted down; `out[n]` gets ranges.
    Returns the number of draws, which is below `n` if all ranges are empty.

    >>> left, out = np.array([1, 0, 2]), np.zeros(5, np.int64)
    >>> draw_ranges(left, np.uint64(7), 0, out), sorted(out[:3].tolist()), left.tolist()
    (3, [0, 2, 2], [0, 0, 0])
    """
    total = int(left.sum())
    n = min(len(out), total)
    with np.errstate(over="ignore"):
        draws = mix(np.uint64(key) + (np.arange(n, dtype=np.uint64) + np.uint64(counter)) * np.uint64(GOLDEN))
    for i in range(n):
        place = int(draws[i]) % (total - i)
        out[i] = np.searchsorted(np.cumsum(left), place, side="right")
        left[out[i]] -= 1
    return n


def shuffle_places(key: Any, number: int, n: int, begin: int, endless: bool, out: Int) -> None:
    """What stands at `begin`, `begin + 1`, ... of the positions `0 : n` of a chunk, shuffled and joined to a circle;
    with `endless`, they are shuffled again for each time round. `key` derives from the seed; `number` is the chunk's.

    >>> out = np.zeros(6, np.int64)
    >>> shuffle_places(np.uint64(7), 5, 3, 3, False, out), out.tolist()
    (None, [0, 2, 1, 0, 2, 1])
    """
    at = np.arange(begin, begin + len(out))
    mixed = mix(np.array([number], np.uint64) * np.uint64(GOLDEN) + key)[0]
    stream = at // n if endless else np.zeros(len(at), np.int64)
    out[:] = permute(at % n, np.full(len(at), n), stream, int(mixed))


def exchange(
    pages: Any,
    link: Any,
    free: Int,
    head: Int,
    length: Int,
    slots: Int,
    given: Any,
    given_ends: Int,
    taken: Any,
    taken_ends: Int,
    begin: int,
) -> int:
    """Take the row out of each of `slots[begin:]`, in order, and put the given row into it.

    A row is stored in a chain of pages `[P, bytes]`: `head[R]` is its first, `link[P]` the next of each, `length[R]`
    its bytes, 0 for an empty slot. `free[0]` is the first of a chain of pages that were used before, or -1, and
    `free[1]` the number of pages that were ever used. Given row `i` is `given[given_ends[i] : given_ends[i + 1]]`;
    taken rows are laid end to end in `taken`, row `i` at `taken_ends[i] : taken_ends[i + 1]`.

    Returns the number of exchanged slots. It is smaller than asked for if `taken` or the pages have no room for the
    next slot, which is then unchanged.
    """
    size = pages.shape[1]
    for i in range(begin, len(slots)):
        slot, row = slots[i], given[given_ends[i] : given_ends[i + 1]]
        old, out = int(length[slot]), int(taken_ends[i])
        spare, needed = -(-old // size) + len(pages) - int(free[1]), -(-len(row) // size)
        page = int(free[0])
        while page >= 0 and spare < needed:
            spare, page = spare + 1, int(link[page])
        if out + old > len(taken) or spare < needed:
            return i
        _take(pages, link, free, int(head[slot]), taken[out : out + old])
        head[slot] = _put(pages, link, free, row)
        taken_ends[i + 1], length[slot] = out + old, len(row)
    return len(slots)


def _take(pages: Any, link: Any, free: Int, page: int, out: Any) -> None:
    """Copy a row out of its chain, whose pages become free."""
    size = pages.shape[1]
    for lo in range(0, len(out), size):
        out[lo : lo + size] = pages[page, : len(out) - lo]
        following = int(link[page])
        link[page], free[0] = free[0], page
        page = following


def _put(pages: Any, link: Any, free: Int, row: Any) -> int:
    """Copy a row into free pages; gives the first of them, 0 for an empty row."""
    size, first, last = pages.shape[1], 0, -1
    for lo in range(0, len(row), size):
        page = int(free[0])
        if page >= 0:
            free[0] = link[page]
        else:
            page = int(free[1])
            free[1] += 1
        part = row[lo : lo + size]
        pages[page, : len(part)] = part
        if last < 0:
            first = page
        else:
            link[last] = page
        last = page
    return first


def exchange_references(chunk: Int, place: Any, slots: Int, new_chunk: Int, new_place: Any, out: Int, at: Any) -> None:
    """Take `chunk` and `place` out of each slot, in order, and put the new ones in.

    >>> chunk, place, out, at = np.array([7, 8]), np.zeros(2, np.int32), np.zeros(3, np.int64), np.zeros(3, np.int32)
    >>> exchange_references(chunk, place, np.array([1, 1, 0]), np.arange(3), np.ones(3, np.int32), out, at)
    >>> out.tolist(), at.tolist(), chunk.tolist()
    ([8, 0, 7], [0, 1, 0], [2, 1])
    """
    for i in range(len(slots)):
        slot = slots[i]
        out[i], at[i] = chunk[slot], place[slot]
        chunk[slot], place[slot] = new_chunk[i], new_place[i]


# A store of positions is a log of records, of 64-bit words each: number of the chunk, words of the record, first use,
# uses U, frames up to each use [U + 1], place of each frame [F], bytes up to each frame [F + 1], the rows end to end.
# `where[number - base]` is the word at which the record of a chunk begins, -1 where there is none.


def frames_of(words: Any, at: Any, use: Any) -> tuple[Any, Any, Any, Any]:
    """Frames `first : last` of a use, and at which words the bytes up to each frame stand, and the rows."""
    uses = words[at + 3]
    ends = at + 4 + use - words[at + 2]
    frames = words[at + 4 + uses]
    return words[ends], words[ends + 1], at + 5 + uses + frames, at + 6 + uses + 2 * frames


def find_held(words: Any, where: Any, base: int, number: Int, use: Int, frames: Int, nbytes: Int) -> None:
    """Count the stored `frames` of each `use` of chunk `number` `[n]`, and their bytes; -1 if the use has none."""
    for i in range(len(number)):
        frames[i], nbytes[i] = -1, 0
        slot = number[i] - base
        at = where[slot] if 0 <= slot < len(where) else -1
        if at >= 0 and 0 <= use[i] - words[at + 2] < words[at + 3]:
            first, last, bytes_at = frames_of(words, at, use[i])[:3]
            frames[i], nbytes[i] = last - first, words[bytes_at + last] - words[bytes_at + first]


def copy_held(
    words: Any, where: Any, base: int, number: Int, use: Int, frames: Int, rows: Any, ends: Int, chunk: Int, place: Any
) -> int:
    """Copy what `find_held` found: `rows`, end to end; `ends` of each, from the second on; `chunk` and `place`.

    The record of a chunk is dropped after its last use. Returns the words of the dropped records.
    """
    held, done, freed = words.view(np.uint8), 0, 0
    for i in range(len(number)):
        if frames[i] < 0:
            continue
        at = where[number[i] - base]
        first, last, bytes_at, rows_at = frames_of(words, at, use[i])
        for j in range(first, last):
            lo, hi = (8 * rows_at + words[bytes_at + k] for k in (j, j + 1))
            rows[ends[done] : ends[done] + hi - lo] = held[lo:hi]
            ends[done + 1] = ends[done] + hi - lo
            chunk[done], place[done] = number[i], words[bytes_at - words[at + 4 + words[at + 3]] + j]
            done += 1
        if use[i] - words[at + 2] == words[at + 3] - 1:
            where[number[i] - base] = -1
            freed += words[at + 1]
    return freed


def slide_held(words: Int, where: Int, base: int, end: int, excess: int) -> tuple[int, int]:
    """Move the stored records to the front of a log of `end` words, in their order, without the oldest records of
    at least `excess` words. Returns the end, and the words of the records left out.

    >>> words, where = np.array([7, 4, 0, 0, 9, 4, 1, 0, 8, 4, 2, 0]), np.array([0, -1, 4])
    >>> slide_held(words, where, 7, 12, 1), where.tolist(), words[:4].tolist()
    ((4, 4), [-1, -1, 0], [9, 4, 1, 0])
    """
    at, to, dropped = 0, 0, 0
    while at < end:
        slot, size = words[at] - base, words[at + 1]
        if 0 <= slot < len(where) and where[slot] == at:
            if dropped < excess:
                where[slot] = -1
                dropped += size
            else:
                words[to : to + size] = words[at : at + size].copy()
                where[slot] = to
                to += size
        at += size
    return int(to), int(dropped)
