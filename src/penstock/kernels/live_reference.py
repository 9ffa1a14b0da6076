"""What the kernels of live data compute, in Python and NumPy: the compiled ones in `live` must equal these."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.cipher_reference import GOLDEN, mix

Int = npt.NDArray[np.int64]


def draw_ranges(left: Int, key: Any, counter: int, out: Int) -> int:
    """Which range each draw is from: range `s` with probability `left[s]` by the sum of all, which then is one less.

    Draw `i` is decided by `mix(key + (counter + i) * GOLDEN)` alone. `left[S]` is counted down; `out[n]` gets ranges.
    Gives how many draws there were: fewer than `n` where nothing is left.

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
    """Take the row out of each of `slots[begin:]`, one after the other, and put the given row into it.

    A row lies in a chain of pages `[P, bytes]`: `head[R]` is its first, `link[P]` the next of each, `length[R]` its
    bytes, 0 for an empty slot. `free[0]` is the first of a chain of pages that were used before, -1 if there is none,
    and `free[1]` the number of pages that were ever used. Given row `i` is `given[given_ends[i] : given_ends[i + 1]]`;
    taken rows are laid end to end in `taken`, row `i` at `taken_ends[i] : taken_ends[i + 1]`.

    Gives how many slots are done: fewer than there are where `taken` or the pages have no room for the next, which
    is then untouched.
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
    """Take `chunk` and `place` out of each slot, one after the other, and put the new ones in.

    >>> chunk, place, out, at = np.array([7, 8]), np.zeros(2, np.int32), np.zeros(3, np.int64), np.zeros(3, np.int32)
    >>> exchange_references(chunk, place, np.array([1, 1, 0]), np.arange(3), np.ones(3, np.int32), out, at)
    >>> out.tolist(), at.tolist(), chunk.tolist()
    ([8, 0, 7], [0, 1, 0], [2, 1])
    """
    for i in range(len(slots)):
        slot = slots[i]
        out[i], at[i] = chunk[slot], place[slot]
        chunk[slot], place[slot] = new_chunk[i], new_place[i]
