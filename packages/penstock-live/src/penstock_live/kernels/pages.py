"""Exchange rows of any length in place: take the old row out of a slot and put a new one into it.

A row is stored in a chain of pages of equal size, so slots of any lengths share one array without gaps that grow. Pages
of a row that was taken out are the first to be used again, while they are still in the cache. A slot is exchanged
whole or not at all: where the output or the pages have no room, the loop stops before the slot, and the caller extends
them and goes on. The caller owns all arrays; the chains in `link`, `head` and `free` are written here alone.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Int32Array, IntArray, IntScalar
from penstock.kernels.intrinsics import memcpy
from penstock.kernels.jit import helper, kernel


def exchange(
    pages: ByteArray,
    link: Int32Array,
    free: IntArray,
    head: Int32Array,
    length: IntArray,
    slots: IntArray,
    new_rows: ByteArray,
    new_ends: IntArray,
    taken: ByteArray,
    taken_ends: IntArray,
    begin: int,
) -> int:
    """Take the row out of each of `slots[begin:]`, in order, and put the new row into it."""
    n = len(slots)
    sizes = (len(link), len(free), len(head), len(new_ends), len(taken_ends))
    if sizes != (len(pages), 2, len(length), n + 1, n + 1) or not 0 <= begin <= n:
        raise ValueError(f"expected arrays for {len(pages)} pages, {len(length)} slots and {n} rows, got {sizes}")
    done = _exchange(pages, link, free, head, length, slots, new_rows, new_ends, taken, taken_ends, begin)
    if done < 0:
        lo, hi = new_ends[~done], new_ends[~done + 1]
        limits = f"slots within 0:{len(head)} and rows within 0:{len(new_rows)}"
        raise IndexError(f"expected {limits}, got slot {slots[~done]} and row {lo}:{hi}")
    return done


def exchange_references(
    chunk: IntArray,
    place: Int32Array,
    slots: IntArray,
    new_chunk: IntArray,
    new_place: Int32Array,
    old_chunk: IntArray,
    old_place: Int32Array,
) -> None:
    """Take `chunk` and `place` out of each slot, in order, and put the new ones in."""
    sizes = {len(slots), len(new_chunk), len(new_place), len(old_chunk), len(old_place)}
    if len(sizes) > 1 or len(chunk) != len(place):
        raise ValueError(f"expected one length for all rows and one for all slots, got {sizes}")
    wrong = _exchange_references(chunk, place, slots, new_chunk, new_place, old_chunk, old_place)
    if wrong >= 0:
        raise IndexError(f"expected slots within 0:{len(chunk)}, got {slots[wrong]}")


@kernel("u1[2C] i4[1C] i8[1C] i4[1C] i8[1C] i8[1C] u1[1C] i8[1C] u1[1C] i8[1C] i8")
def _exchange(
    pages: ByteArray,
    link: Int32Array,
    free: IntArray,
    head: Int32Array,
    length: IntArray,
    slots: IntArray,
    new_rows: ByteArray,
    new_ends: IntArray,
    taken: ByteArray,
    taken_ends: IntArray,
    begin: int,
) -> int:
    """Return the number of exchanged slots, or `~i` where slot or row `i` is outside its array."""
    size = pages.shape[1]
    base = pages.ctypes.data
    source = new_rows.ctypes.data
    to = taken.ctypes.data
    for i in range(begin, len(slots)):
        slot: int = slots[i]
        if not 0 <= slot < len(head) or not 0 <= new_ends[i] <= new_ends[i + 1] <= len(new_rows):
            return ~i
        old = length[slot]
        new = new_ends[i + 1] - new_ends[i]
        out = taken_ends[i]
        spare, needed = (old + size - 1) // size + len(pages) - free[1], (new + size - 1) // size
        page = free[0]
        while page >= 0 and spare < needed:
            spare, page = spare + 1, np.int64(link[page])
        if out + old > len(taken) or spare < needed:
            return i
        _take(base, size, link, free, np.int64(head[slot]), to + out, old)
        head[slot] = _put(base, size, link, free, source + new_ends[i], new)
        taken_ends[i + 1], length[slot] = out + old, new
    return len(slots)


@helper
def _take(base: int, size: int, link: Int32Array, free: IntArray, page: IntScalar, to: IntScalar, n: IntScalar) -> None:
    """Copy a row out of its chain, whose pages become free."""
    lo = 0
    while lo < n:  # a range of this step compiles to twice the code
        memcpy(to + lo, base + page * size, size if size < n - lo else n - lo)
        lo += size
        following = np.int64(link[page])
        link[page] = free[0]
        free[0] = page
        page = following


@helper
def _put(base: int, size: int, link: Int32Array, free: IntArray, source: IntScalar, n: IntScalar) -> IntScalar:
    """Copy a row into free pages. Returns the first of them, 0 for an empty row."""
    first, last = np.int64(0), np.int64(-1)
    lo = 0
    while lo < n:
        page = free[0]
        if page >= 0:
            free[0] = link[page]
        else:
            page = free[1]
            free[1] += 1
        memcpy(base + page * size, source + lo, size if size < n - lo else n - lo)
        lo += size
        if last < 0:
            first = page
        else:
            link[last] = page
        last = page
    return first


@kernel("i8[1C] i4[1C] i8[1C] i8[1C] i4[1C] i8[1C] i4[1C]")
def _exchange_references(
    chunk: IntArray,
    place: Int32Array,
    slots: IntArray,
    new_chunk: IntArray,
    new_place: Int32Array,
    old_chunk: IntArray,
    old_place: Int32Array,
) -> int:
    for i in range(len(slots)):
        slot = slots[i]
        if not 0 <= slot < len(chunk):
            return i
        old_chunk[i], old_place[i] = chunk[slot], place[slot]
        chunk[slot], place[slot] = new_chunk[i], new_place[i]
    return -1
