"""Compiled loops of replay: count steps, draw anchors, find their episodes, and copy their rows.

Anchors are the places of samples: numbers that only grow, one for each sample, in the order in which the steps that
complete them arrive. A draw is a function of the key and the number of the draw alone (SplitMix64 of a counter), so it
does not depend on the batch size or on earlier draws.

The steps of an episode are in pieces: rows of one segment of memory, one after the other. `table` has a row of `TABLE`
int64, one cache line, for each piece, which names the pieces before and after it. Nearly all samples are inside of one
piece and copied as one range; `_gather_apart` walks over pieces for the others. `entries` has the piece, the step in
the piece, and the number of the completing step of each anchor, in a ring.

`gather_samples` copies the rows of all columns in one call: a call for each column would cost more than its copies.
Sources are at random places, so the rows of the eighth sample after this one are prefetched. All outputs of a few
samples are copied before the next samples: a frame that is in the stack and in the next stack is read from memory once
(measured: 1.3 to 2 times the frames of one output after the other). The caller (`replay.segments`) owns all memory, and
keeps it while a call runs; here windows are clipped to the recorded steps of their episode.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, IntArray
from penstock.kernels.intrinsics import memcpy, move1, move4, move8, prefetch, set_byte
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock.kernels.permute import GOLDEN, mix

# Columns of `table`, one row for each piece of an episode. A boundary row follows the rows of its steps.
STEPS = 0  # recorded in this piece
SLOT = 1  # segment
ROW = 2  # its first row in the segment
OFFSET = 3  # step of the episode that is its first row
BEFORE, AFTER = 4, 5  # pieces before and after it, or -1
EPISODE = 6  # number of the episode
START = 7  # number of the first step of the episode in the whole run
TABLE = 8  # number of columns

# Columns of `entries`, one row for each anchor.
PIECE = 0
STEP = 1  # in the piece
SINCE = 2  # number of the step that completed the sample

# Columns of `state`, one row for each lane of a stream.
LANE_ROW = 0  # next row of the lane
LANE_PIECE = 1  # of the open episode, or -1
LANE_ENTERED = 2  # anchors of the open episode
LANE_CLOSED = 3  # episodes
LANE_ENDED, LANE_NUMBER = 4, 5  # last piece of the last closed episode, and its number
LANE = 6  # number of columns

# Entries of `counters`.
ARRIVED = 0  # steps
ANCHOR_LO, ANCHOR_HI = 1, 2

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
EPISODES = 2  # of `ALIGN`: one value for each episode
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


def find_anchors(anchors: IntArray, table: IntArray, entries: IntArray, lo: int, hi: int) -> IntArray:
    """Find the piece and the step of anchors among `lo : hi`."""
    if table.shape[1:] != (TABLE,) or len(entries) & (len(entries) - 1) or entries.shape[1:] != (3,):
        raise ValueError(f"expected a table of {TABLE} columns and 2^k entries, got {table.shape} and {entries.shape}")
    places = np.empty((len(anchors), 2), np.int64)
    bad = _find_anchors(anchors, table, entries, lo, hi, places)
    if bad >= 0:
        raise IndexError(f"expected an anchor of an episode in memory, got {anchors[bad]}")
    return places


def count_steps(
    lanes: IntArray,
    count: int,
    ended: BoolArray,
    state: IntArray,
    table: IntArray,
    rule: IntArray,
    capacity: int,
    entries: IntArray,
    counters: IntArray,
) -> None:
    """Count `count` more steps of the open episodes of some lanes, and enter the anchors that they complete.

    The lanes take turns, a step each. `state` `[lanes, LANE]` is the state of all lanes. `rule` is the first anchor
    step, the steps without an anchor at the end of an episode, the stride, and the steps after an anchor that must be
    recorded while the episode is open. Episodes that ended are closed after the last step. Anchors leave that are older
    than the last `capacity` steps. `entries` must have room.
    """
    if len(lanes) != len(ended) or table.shape[1:] != (TABLE,) or state.shape[1:] != (LANE,):
        raise ValueError(f"expected an end for each of {len(lanes)} lanes, got {len(ended)} and {state.shape}")
    _count_steps(lanes, count, ended, state, table, rule, capacity, entries, counters)


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


@uncounted_kernel("i8[1C] i8[2C] i8[2C] i8 i8 i8[2C]")
def _find_anchors(anchors: IntArray, table: IntArray, entries: IntArray, lo: int, hi: int, out: IntArray) -> int:
    """Write the piece and the step of each anchor to `out` `[n, 2]`. Return -1, or the first anchor outside."""
    mask = len(entries) - 1
    base, n = np.int64(entries.ctypes.data), len(anchors)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(base + 24 * (anchors[i + _AHEAD] & mask))
        if anchors[i] < lo or anchors[i] >= hi:
            return i
        entry = anchors[i] & mask
        out[i, 0], out[i, 1] = entries[entry, PIECE], entries[entry, STEP]
    lines = np.int64(table.ctypes.data)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(lines + 8 * TABLE * out[i + _AHEAD, 0])
        out[i, 1] += table[out[i, 0], OFFSET]
    return -1


@uncounted_kernel("i8[1C] i8 b1[1C] i8[2C] i8[2C] i8[1C] i8 i8[2C] i8[1C]")
def _count_steps(
    lanes: IntArray,
    count: int,
    ended: BoolArray,
    state: IntArray,
    table: IntArray,
    rule: IntArray,
    capacity: int,
    entries: IntArray,
    counters: IntArray,
) -> None:
    """See `count_steps`."""
    mask = len(entries) - 1
    first, spare, stride, delay = rule[0], rule[1], rule[2], rule[3]
    turns = count if len(lanes) > 1 and count > 1 else 1
    count = count // turns
    for k in range(turns * len(lanes)):
        ends = k >= (turns - 1) * len(lanes) and ended[k % len(lanes)]
        lane = state[lanes[k % len(lanes)]]
        last = lane[LANE_PIECE]
        before = table[last, OFFSET] + table[last, STEPS]
        table[last, STEPS] += count
        total = before + count
        left = total - first - (spare if ends else max(spare, delay))
        ready = max(lane[LANE_ENTERED], -(-left // stride))
        hi = counters[ANCHOR_HI]
        arrived, here = counters[ARRIVED], table[last, OFFSET]  # kept in registers
        for j in range(lane[LANE_ENTERED], ready):
            step = first + j * stride
            piece, offset = last, here
            while step < offset:
                piece = table[piece, BEFORE]
                offset = table[piece, OFFSET]
            since = min(max(step + delay, before), total - 1)  # the step that completed it
            entry = hi & mask
            entries[entry, PIECE], entries[entry, STEP] = piece, step - offset
            entries[entry, SINCE] = arrived + since - before
            hi += 1
        counters[ANCHOR_HI] = hi
        lane[LANE_ENTERED] = ready
        lane[LANE_ROW] += count
        counters[ARRIVED] += count
        if ends:
            lane[LANE_ENDED], lane[LANE_NUMBER] = last, table[last, EPISODE]
            lane[LANE_PIECE] = -1
            lane[LANE_ROW] += 1  # the last boundary
            lane[LANE_CLOSED] += 1
    oldest = counters[ARRIVED] - capacity
    lo, hi = counters[ANCHOR_LO], counters[ANCHOR_HI]
    while lo < hi and entries[lo & mask, SINCE] < oldest:
        lo += 1
    counters[ANCHOR_LO] = lo


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


@uncounted_kernel("i8[2C] i8[2C] i8[2C] i8[2C] i8[1C] u1[1C]")
def _gather_samples(
    places: IntArray, table: IntArray, views: IntArray, address: IntArray, offsets: IntArray, out: ByteArray
) -> None:
    """Copy the rows of samples `places` `[n, 2]` of all `views` to `out`, each view from its byte `offsets` on.

    `address[column, slot]` is where a column begins in a segment; values of episodes are in a table of their own. All
    views of some samples are copied before the next samples, so that rows that several views have come from the cache.
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
            elif view[ALIGN] == EPISODES:
                _gather_whole(places, view, address[view[COLUMN], 0], to, lo, hi)
            elif view[EVERY] == 1:
                _gather(places, table, view, address[view[COLUMN]], to, lo, hi)
            else:
                _gather_strided(places, table, view, address[view[COLUMN]], to, lo, hi)


@uncounted_helper
def _gather(places: IntArray, table: IntArray, view: IntArray, address: IntArray, to: int, lo: int, hi: int) -> None:
    n = len(places)
    row_bytes = view[ROW_BYTES]
    width = view[HI] - view[LO]
    soon = min(width * row_bytes, 512)
    for j in range(lo, hi):
        if j + _AHEAD < n:
            piece = places[j + _AHEAD, 0]
            row = max(places[j + _AHEAD, 1] - table[piece, OFFSET] + view[LO], 0) + table[piece, ROW]
            start = address[table[piece, SLOT]] + row * row_bytes
            for line in range(start & -64, start + soon, 64):
                prefetch(line)
        piece = places[j, 0]
        begin = places[j, 1] - table[piece, OFFSET] + view[LO]
        here = to + j * width * row_bytes
        if begin >= 0 and begin + width <= table[piece, STEPS] + view[END]:
            source = address[table[piece, SLOT]] + (table[piece, ROW] + begin) * row_bytes
            _copy(here, source, width * row_bytes)
        else:
            _gather_apart(piece, places[j, 1], table, view, address, here)


@uncounted_helper
def _recorded(piece: int, table: IntArray, enough: int) -> int:
    """Recorded steps of the episode of a piece, or a smaller number that is at least `enough`."""
    while table[piece, AFTER] >= 0 and table[piece, OFFSET] + table[piece, STEPS] < enough:
        piece = table[piece, AFTER]
    return table[piece, OFFSET] + table[piece, STEPS]


@uncounted_helper
def _gather_apart(piece: int, step: int, table: IntArray, view: IntArray, address: IntArray, to: int) -> None:
    """Copy the rows of a sample that are in several pieces, strided, or padded, one by one."""
    row_bytes = view[ROW_BYTES]
    limit = _recorded(piece, table, step + view[HI]) + view[END]
    begin, over = step + view[LO], step + view[HI] - limit
    if view[SHIFT] and over > 0:
        begin -= over
    for row in range(begin, begin + view[HI] - view[LO], view[EVERY]):
        if (row >= 0 and row < limit) or view[PAD] == REPEAT:
            inside = min(max(row, 0), limit - 1)
            while inside < table[piece, OFFSET] and table[piece, BEFORE] >= 0:
                piece = table[piece, BEFORE]
            while inside >= table[piece, OFFSET] + table[piece, STEPS] + view[END] and table[piece, AFTER] >= 0:
                piece = table[piece, AFTER]
            source = address[table[piece, SLOT]]
            _copy(to, source + (table[piece, ROW] + max(inside - table[piece, OFFSET], 0)) * row_bytes, row_bytes)
        else:
            _fill(to, row_bytes)
        to += row_bytes


@uncounted_helper
def _gather_strided(
    places: IntArray, table: IntArray, view: IntArray, address: IntArray, to: int, lo: int, hi: int
) -> None:
    size = len(range(view[LO], view[HI], view[EVERY])) * view[ROW_BYTES]
    for j in range(lo, hi):
        _gather_apart(places[j, 0], places[j, 1], table, view, address, to + j * size)


@uncounted_helper
def _gather_whole(places: IntArray, view: IntArray, source: int, to: int, lo: int, hi: int) -> None:
    """Values of episodes, of which each piece has a copy."""
    for j in range(lo, hi):
        _copy(to + j * view[ROW_BYTES], source + places[j, 0] * view[ROW_BYTES], view[ROW_BYTES])


@uncounted_helper
def _mask(places: IntArray, table: IntArray, view: IntArray, to: int, lo: int, hi: int) -> None:
    width = view[HI] - view[LO]
    for j in range(lo, hi):
        begin = places[j, 1] + view[LO]
        limit = _recorded(places[j, 0], table, places[j, 1] + view[HI]) + view[END]
        for i in range(width):
            set_byte(to + j * width + i, int(0 <= begin + i < limit))
