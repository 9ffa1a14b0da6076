"""Compiled loops of replay: draw anchors, find their episodes, and copy their rows.

Anchors are the places of samples: numbers that only grow, one for each sample of each episode, in the order of arrival.
A draw is a function of the key and the number of the draw alone (SplitMix64 of a counter), so it does not depend on the
batch size or on earlier draws. `table` has a row of `TABLE` int64 for each episode with anchors: a batch reads one or
two cache lines for an episode. `guide[(a >> 6) & mask]` is the number of the episode with anchor `a & ~63`, or of an
older one, so that finding an episode walks over the few episodes that begin in 64 anchors, for any size of the store.

`gather_samples` copies the rows of all columns in one call: a call for each column would cost more than its copies.
Sources are at random places, so the rows of the eighth sample after this one are prefetched. All outputs of a few
samples are copied before the next samples: a frame that is in the stack and in the next stack is read from memory once
(measured: 1.3 to 2 times the frames of one output after the other). The caller
(`replay.segments`) owns all memory, keeps it while a call runs, and checks that segments have the rows of the table;
here windows are clipped to their episode, so no row outside of it is read.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock.kernels.intrinsics import memcpy, move1, move4, move8, prefetch, set_byte
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock.kernels.permute import GOLDEN, mix

# Columns of `table`, one row for each episode with anchors.
FIRST = 0  # first anchor
STEPS = 1
SLOT = 2  # segment
STEP_ROW = 3  # first step row in the segment
BOUNDARY_ROW, EPISODE_ROW = 4, 5  # first boundary row and episode row in the segment: `STEP_ROW + align`
EPISODE = 6  # number of the episode
START = 7  # its first step row in the whole run
TABLE = 8  # number of columns

# Columns of `views`, one row for each output.
ALIGN = 0
LO = 1  # rows `lo : hi : every` from the anchor
HI = 2
EVERY = 3
END = 4  # rows more than steps
PAD = 5
SHIFT = 6
COLUMN = 7
ROW_BYTES = 8
VIEWS = 9  # number of columns
REPEAT, MASK = 1, 2  # of `PAD`: copy the nearest row, or write which rows are real; otherwise zeros

_GOLDEN, _11 = np.uint64(GOLDEN), np.uint64(11)
_UNIT = 1.0 / (1 << 53)
_TOGETHER = 1 << 17  # bytes of samples whose views are copied together: they stay in a second-level cache
_AHEAD = 8  # samples whose rows are asked for before they are copied, so that memory answers several at a time


def uniform_anchors(key: np.uint64, number: int, lo: int, hi: int, n: int) -> IntArray:
    """Draw anchors that are all equally likely. The bias is below `(hi - lo) / 2^64`."""
    _check_range(lo, hi)
    anchors = np.empty(n, np.int64)
    _draw_uniform(key, number, lo, hi, anchors)
    return anchors


def recent_anchors(key: np.uint64, number: int, lo: int, hi: int, half_life: float, n: int) -> IntArray:
    """Draw anchors of which one that is `half_life` older is half as likely."""
    _check_range(lo, hi)
    anchors = np.empty(n, np.int64)
    _draw_recent(key, number, lo, hi, float(half_life), anchors)
    return anchors


def find_anchors(anchors: IntArray, table: IntArray, number: int, guide: IntArray, first: int, stride: int) -> IntArray:
    """Find the episode and the step of anchors."""
    if table.shape[1:] != (TABLE,) or len(guide) & (len(guide) - 1):
        raise ValueError(f"expected a table of {TABLE} columns and a guide of 2^k, got {table.shape} and {guide.shape}")
    places = np.empty((len(anchors), 2), np.int64)
    bad = _find_anchors(anchors, table, number, guide, first, stride, places)
    if bad >= 0:
        raise IndexError(f"expected an anchor of an episode in memory, got {anchors[bad]}")
    return places


def gather_samples(
    places: IntArray, table: IntArray, views: IntArray, address: IntArray, offsets: IntArray, out: ByteArray
) -> None:
    """Copy the rows of samples of all outputs."""
    if places.shape[1:] != (2,) or views.shape != (len(offsets), VIEWS) or table.shape[1:] != (TABLE,):
        raise ValueError(f"expected tables of 2, {VIEWS} and {TABLE} columns, got {places.shape}, {views.shape}")
    _gather_samples(places, table, views, address, offsets, out)


def _check_range(lo: int, hi: int) -> None:
    if hi <= lo:
        raise ValueError(f"expected anchors to draw from, got the empty range {lo}:{hi}")


@uncounted_helper
def random_bits(key: np.uint64, number: int) -> np.uint64:
    """64 random bits: the number-th output of SplitMix64."""
    return mix(key + (np.uint64(number) + np.uint64(1)) * _GOLDEN)


@uncounted_helper
def unit(bits: np.uint64) -> float:
    """A double in [0, 1) of 53 bits."""
    return np.float64(bits >> _11) * _UNIT


@uncounted_kernel("u8 i8 i8 i8 i8[1C]")
def _draw_uniform(key: np.uint64, number: int, lo: int, hi: int, out: IntArray) -> None:
    """Fill `out` with anchors in `lo : hi`. The bias is below `(hi - lo) / 2^64`."""
    size = np.uint64(hi - lo)
    for i in range(len(out)):
        out[i] = lo + np.int64(random_bits(key, number + i) % size)


@uncounted_kernel("u8 i8 i8 i8 f8 i8[1C]")
def _draw_recent(key: np.uint64, number: int, lo: int, hi: int, half_life: float, out: IntArray) -> None:
    """Fill `out` with anchors in `lo : hi`: an anchor that is `half_life` older is half as likely."""
    whole = 1.0 - 2.0 ** (-(hi - lo) / half_life)
    for i in range(len(out)):
        age = np.int64(-half_life * np.log2(1.0 - unit(random_bits(key, number + i)) * whole))
        out[i] = hi - 1 - min(max(age, 0), hi - lo - 1)


@uncounted_kernel("i8[1C] i8[2C] i8 i8[1C] i8 i8 i8[2C]")
def _find_anchors(
    anchors: IntArray, table: IntArray, number: int, guide: IntArray, first: int, stride: int, out: IntArray
) -> int:
    """Write the table row of each anchor's episode and its anchor step to `out` `[n, 2]`.

    `number` is the number of the first row of `table`. Return -1, or the first anchor that no row has.
    """
    mask, rows = len(guide) - 1, len(table)
    for i in range(len(anchors)):
        a = anchors[i]
        if rows == 0 or a < table[0, FIRST]:
            return i
        e = max(guide[(a >> 6) & mask] - number, 0)
        while e + 1 < rows and table[e + 1, FIRST] <= a:
            e += 1
        step = first + (a - table[e, FIRST]) * stride
        if step >= table[e, STEPS]:
            return i
        out[i, 0], out[i, 1] = e, step
    return -1


@uncounted_helper
def _copy(to: int, source: int, size: int) -> None:
    if size == 4:
        move4(to, source)
    elif size == 8:
        move8(to, source)
    elif size == 1:
        move1(to, source)
    else:
        memcpy(to, source, size)


@uncounted_helper
def _fill(to: int, size: int) -> None:
    for i in range(size):
        set_byte(to + i, 0)


@uncounted_helper
def _pad(to: int, rows: int, source: int, row_bytes: int, repeat: bool) -> None:
    """Fill `rows` rows with copies of the row at `source`, or with zeros."""
    if not repeat:
        _fill(to, rows * row_bytes)
        return
    for i in range(rows):
        _copy(to + i * row_bytes, source, row_bytes)


@uncounted_kernel("i8[2C] i8[2C] i8[2C] i8[2C] i8[1C] u1[1C]")
def _gather_samples(
    places: IntArray, table: IntArray, views: IntArray, address: IntArray, offsets: IntArray, out: ByteArray
) -> None:
    """Copy the rows of samples `places` `[n, 2]` of all `views` to `out`, each view from its byte `offsets` on.

    `address[column, slot]` is where a column begins in a segment. All views of some samples are copied before the next
    samples, so that rows that several views have come from the cache.
    """
    base, n = np.int64(out.ctypes.data), len(places)
    size = 1
    for v in range(len(views)):
        size += (views[v, HI] - views[v, LO]) * views[v, ROW_BYTES]
    block = max(_AHEAD, _TOGETHER // size)
    for lo in range(0, n, block):
        hi = min(lo + block, n)
        for v in range(len(views)):
            view, to = views[v], base + offsets[v]
            if view[PAD] == MASK:
                _mask(places, table, view, to, lo, hi)
            elif view[EVERY] == 1:
                _gather(places, table, view, address[view[COLUMN]], to, lo, hi)
            else:
                _gather_strided(places, table, view, address[view[COLUMN]], to, lo, hi)


@uncounted_helper
def _begin(place: int, steps: int, view: IntArray) -> int:
    """First row of a window, counted from the start of the episode."""
    begin = place + view[LO]
    over = place + view[HI] - (steps + view[END])
    return begin - over if view[SHIFT] and over > 0 else begin


@uncounted_helper
def _gather(places: IntArray, table: IntArray, view: IntArray, address: IntArray, to: int, lo: int, hi: int) -> None:
    n = len(places)
    row_bytes = view[ROW_BYTES]
    align = view[ALIGN]
    width = view[HI] - view[LO]
    soon = min(width * row_bytes, 512)
    for j in range(lo, hi):
        if j + _AHEAD < n:
            e = places[j + _AHEAD, 0]
            row = table[e, STEP_ROW + align]
            if align < 2:
                row += max(_begin(places[j + _AHEAD, 1], table[e, STEPS], view), 0)
            start = address[table[e, SLOT]] + row * row_bytes
            for line in range(start & -64, start + soon, 64):
                prefetch(line)
        e = places[j, 0]
        source = address[table[e, SLOT]] + table[e, STEP_ROW + align] * row_bytes
        here = to + j * width * row_bytes
        if align == 2:
            _copy(here, source, row_bytes)
            continue
        begin = _begin(places[j, 1], table[e, STEPS], view)
        limit = table[e, STEPS] + view[END]
        first, last = max(begin, 0), min(begin + width, limit)
        if first == begin and last == begin + width:
            _copy(here, source + first * row_bytes, width * row_bytes)
            continue
        first = min(first, limit)
        last = max(last, first)
        if last > first:
            _copy(here + (first - begin) * row_bytes, source + first * row_bytes, (last - first) * row_bytes)
        repeat = view[PAD] == REPEAT
        front = min(first - begin, width)
        _pad(here, front, source, row_bytes, repeat)
        real = max(front, last - begin)
        _pad(here + real * row_bytes, width - real, source + (limit - 1) * row_bytes, row_bytes, repeat)


@uncounted_helper
def _gather_strided(
    places: IntArray, table: IntArray, view: IntArray, address: IntArray, to: int, lo: int, hi: int
) -> None:
    """Single rows, all inside the episode."""
    row_bytes, align = view[ROW_BYTES], view[ALIGN]
    to += lo * len(range(view[LO], view[HI], view[EVERY])) * row_bytes
    for j in range(lo, hi):
        e = places[j, 0]
        source = address[table[e, SLOT]] + table[e, STEP_ROW + align] * row_bytes
        for step in range(view[LO], view[HI], view[EVERY]):
            _copy(to, source + (places[j, 1] + step) * row_bytes, row_bytes)
            to += row_bytes


@uncounted_helper
def _mask(places: IntArray, table: IntArray, view: IntArray, to: int, lo: int, hi: int) -> None:
    width = view[HI] - view[LO]
    for j in range(lo, hi):
        begin = places[j, 1] + view[LO]
        limit = table[places[j, 0], STEPS] + view[END]
        for i in range(width):
            set_byte(to + j * width + i, int(0 <= begin + i < limit))
