# pyright: reportMissingImports=false, reportCallIssue=false, reportUnusedImport=false
"""The compiled kernels (numba, GIL released, cached on disk). Their definitions stand in `reference`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from penstock.kernels.checksum import lookup3  # noqa: F401 - one module has them all
from penstock.kernels.chess import (  # noqa: F401 - one module has them all
    check_chess_rows,
    decode_chess,
    encode_chess,
    expand_chess_frames,
    expand_chess_rows,
)
from penstock.kernels.chess_rescore import (  # noqa: F401 - one module has them all
    called_for,
    complete,
    deblunder,
    encode_planes,
    encode_rest,
    frame_faults,
    inspect,
    lacks_short_term,
    sharpen,
    short_term,
    turn_policies,
)
from penstock.kernels.chess_trace import trace  # noqa: F401 - one module has them all
from penstock.kernels.cipher import permute  # noqa: F401 - one module has them all
from penstock.kernels.driving import (  # noqa: F401 - one module has them all
    move_lines,
    nearest_agents,
    nearest_lines,
    relative_poses,
    select_agents,
)
from penstock.kernels.intrinsics import memcpy, move1, move4, move8, prefetch, set_byte, weave3, weave4
from penstock.kernels.live import (  # noqa: F401 - one module has them all
    copy_held,
    draw_ranges,
    exchange,
    exchange_references,
    find_held,
    shuffle_places,
    slide_held,
)
from penstock.kernels.members import plain_members  # noqa: F401 - one module has them all
from penstock.kernels.mixing import earliest_deadline, mix_table, mix_tree  # noqa: F401 - one module has them all
from penstock.kernels.packing import (  # noqa: F401 - one module has them all
    best_fit,
    bin_slots,
    count_decreasing,
    first_fit,
    gather_runs,
    histogram,
    open_fit,
    plan_decreasing,
    sort_decreasing,
)
from penstock.kernels.packing_concat import concat  # noqa: F401 - one module has them all
from penstock.kernels.packing_read import lay, pack_items, pack_slots  # noqa: F401 - one module has them all
from penstock.kernels.polygons import (  # noqa: F401 - one module has them all
    draw_shapes,
    meeting_boxes,
    place_shapes,
    split_channels,
    to_unit,
)
from penstock.kernels.reference import DIGEST_1, DIGEST_2, DIGEST_STEP
from penstock.kernels.stream_packing import open_packs, pack_stream, repack_stream  # noqa: F401 - one module has them all
from penstock.kernels.warp import warp  # noqa: F401 - one module has them all

_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")


@_jit
def _bad_span(start: Any, length: Any, at: Any, rows: int, places: int) -> Any:
    """The first span that leaves `0 : rows` or `0 : places`, or -1; in differences, for sums could wrap around."""
    for j in range(len(start)):
        span = length[j]
        if span < 0 or not (0 <= start[j] <= rows - span) or not (0 <= at[j] <= places - span):
            return j
    return -1


@_jit
def _run_of(first: Any, guide: Any, shift: int, row: int) -> Any:
    """The run that holds a row; the guide bounds the search. See `locate.guide_of`."""
    lo, hi = guide[row >> shift], guide[(row >> shift) + 1]
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if first[middle] <= row:
            lo = middle
        else:
            hi = middle - 1
    return lo


_AHEAD = 8
"""Spans that are asked for before they are copied, so that memory answers several at a time."""
_TILES_AHEAD = 8


@_jit
def gather_rows(
    first: Any, guide: Any, shift: int, address: Any, row_bytes: int, start: Any, length: Any, at: Any, out: Any
) -> Any:
    """See `reference.gather_rows`; `address[r]` is where run `r` begins in memory. Gives -1, or the first bad span."""
    spans = len(start)
    bad = _bad_span(start, length, at, first[-1], len(out) // row_bytes)
    if bad >= 0 or len(address) == 0:
        return bad
    base = np.int64(out.ctypes.data)
    source, head = np.empty(spans, np.int64), np.empty(spans, np.int64)
    run, crossing = 0, False
    for j in range(spans):
        row = start[j]
        if length[j] > 0 and not (first[run] <= row < first[run + 1]):
            run = _run_of(first, guide, shift, row)
        source[j] = address[run] + (row - first[run]) * row_bytes
        head[j] = min(length[j], first[run + 1] - row) if length[j] > 0 else 0
        crossing |= head[j] < length[j]
    for j in range(spans):
        if j + _AHEAD < spans:
            _prefetch_lines(source[j + _AHEAD], min(head[j + _AHEAD] * row_bytes, 512))
        memcpy(base + at[j] * row_bytes, source[j], head[j] * row_bytes)
    if crossing:
        for j in range(spans):
            if head[j] < length[j]:
                _gather_rest(first, address, row_bytes, start[j] + head[j], length[j] - head[j], at[j] + head[j], base)
    return -1


@_jit
def _gather_rest(first: Any, address: Any, row_bytes: int, row: int, left: int, at: int, base: Any) -> None:
    """What of a span lies in later runs; `row` begins one."""
    run = np.searchsorted(first, row, side="right") - 1
    while left > 0:
        take = min(left, first[run + 1] - row)
        memcpy(base + at * row_bytes, address[run] + (row - first[run]) * row_bytes, take * row_bytes)
        row += take
        at += take
        left -= take
        run += 1


@_jit
def _prefetch_lines(begin: int, size: int) -> None:
    """The cache lines of `size` bytes; `size` may be 0."""
    for line in range(begin & -64, begin + size, 64):
        prefetch(line)


@_jit
def gather_tiles(
    first: Any,
    guide: Any,
    shift: int,
    tile_shape: Any,
    tile_first: Any,
    address: Any,
    layout: Any,
    axes: Any,
    fill: Any,
    start: Any,
    length: Any,
    at: Any,
    row_bytes: int,
    out: Any,
) -> Any:
    """See `reference.gather_tiles`; `address[t]` is where tile `t` begins in memory, -1 where it is missing, and
    `axes[layout[r]]` `[4, 2]` is size and tile size along a row, the last axis in bytes."""
    base = np.int64(out.ctypes.data)
    spans = len(start)
    bad = _bad_span(start, length, at, first[-1], len(out) // row_bytes)
    if bad >= 0:
        return bad
    across, slab, plain = _sides(axes)
    # The tiles side by side that hold the first rows of each span, where in them those begin, and how many they hold.
    kind, tile = np.empty(spans, np.int64), np.empty(spans, np.int64)
    skip, held = np.empty(spans, np.int64), np.empty(spans, np.int64)
    run, crossing = 0, False
    for j in range(spans):
        row = start[j]
        held[j] = 0
        if length[j] == 0:  # it may begin behind the last row, where there is no tile
            continue
        if not (first[run] <= row < first[run + 1]):
            run = _run_of(first, guide, shift, row)
        kind[j], tile[j], skip[j], most = _lies(row, run, first, tile_shape, tile_first, layout, across, slab)
        held[j] = min(length[j], most)
        crossing |= held[j] < length[j]
    ahead = _AHEAD if row_bytes <= 4096 else 1
    for j in range(spans):
        soon = j + ahead
        if soon < spans and held[soon] > 0:
            k = kind[soon]
            for i in range(tile[soon], tile[soon] + min(across[k], _TILES_AHEAD)):
                _prefetch_lines(address[i] + skip[soon], min(slab[k] * held[soon], 512))
        if held[j] == 0:
            continue
        k, place = kind[j], base + at[j] * row_bytes
        _copy_rows(address, tile[j], skip[j], held[j], across[k], slab[k], plain[k], axes, k, fill, place, row_bytes)
    if crossing:
        for j in range(spans):
            while held[j] < length[j]:
                row, place = start[j] + held[j], base + (at[j] + held[j]) * row_bytes
                run = _run_of(first, guide, shift, row)
                k, t, s, most = _lies(row, run, first, tile_shape, tile_first, layout, across, slab)
                take = min(length[j] - held[j], most)
                _copy_rows(address, t, s, take, across[k], slab[k], plain[k], axes, k, fill, place, row_bytes)
                held[j] += take
    return -1


@_jit
def _sides(axes: Any) -> Any:
    """`[K]` of each layout: how many tiles lie side by side across a row, how many bytes each has for it, and whether
    they cut it along one axis only."""
    across, slab = np.ones(len(axes), np.int64), np.ones(len(axes), np.int64)
    plain = np.ones(len(axes), np.bool_)
    for k in range(len(axes)):
        for axis in range(4):
            across[k] *= (axes[k, axis, 0] + axes[k, axis, 1] - 1) // axes[k, axis, 1]
            slab[k] *= axes[k, axis, 1]
            plain[k] &= axis == 3 or (axes[k, axis, 0] == 1 and axes[k, axis, 1] == 1)
    return across, slab, plain


@_jit
def _lies(row: int, run: int, first: Any, tile_shape: Any, tile_first: Any, layout: Any, across: Any, slab: Any) -> Any:
    """Layout and first tile of a row, where in its tiles it begins, and how many rows from it on they hold."""
    k, height, inside = layout[run], tile_shape[run, 0], row - first[run]
    down = inside // height
    inside -= down * height
    return k, tile_first[run] + down * across[k], inside * slab[k], min(height - inside, first[run + 1] - row)


@_jit
def _copy_rows(
    address: Any,
    tile: int,
    skip: int,
    rows: int,
    across: int,
    slab: int,
    plain: bool,
    axes: Any,
    k: int,
    fill: Any,
    place: Any,
    row_bytes: int,
) -> None:
    """`rows` rows out of the `across` tiles side by side from `tile` on; of plain tiles, all pieces of one together."""
    if not plain:
        form = axes[k]
        for i in range(rows):
            _tiled_row(address, tile, tile + across, skip + i * slab, form, fill, place + i * row_bytes)
        return
    for i in range(across):
        unit, to, source = min(slab, row_bytes - i * slab), place + i * slab, address[tile + i]
        if source == -1:
            _fill_lines(to, row_bytes, fill, rows, unit)
        elif slab == row_bytes:
            memcpy(to, source + skip, rows * row_bytes)
        else:
            _copy_lines(to, row_bytes, source + skip, slab, rows, unit)


@_jit
def _tiled_row(address: Any, tile: int, last: int, skip: int, form: Any, fill: Any, place: int) -> None:
    """One row out of the tiles `tile : last` side by side; in each, the row lies `skip` bytes in."""
    n0, n1, n2, n3 = form[0, 0], form[1, 0], form[2, 0], form[3, 0]
    c0, c1, c2, c3 = form[0, 1], form[1, 1], form[2, 1], form[3, 1]
    if c3 == 1 and 3 <= n3 <= 4 and _all_here(address, tile, last - tile):
        _woven_row(address, tile, last, skip, form, place)
        return
    for b0 in range(0, n0, c0):
        for b1 in range(0, n1, c1):
            for b2 in range(0, n2, c2):
                for b3 in range(0, n3, c3):
                    corner = place + ((b0 * n1 + b1) * n2 + b2) * n3 + b3
                    count, unit = min(c2, n2 - b2), min(c3, n3 - b3)
                    for i0 in range(min(c0, n0 - b0)):
                        for i1 in range(min(c1, n1 - b1)):
                            to = corner + (i0 * n1 + i1) * n2 * n3
                            if address[tile] == -1:
                                _fill_lines(to, n3, fill, count, unit)
                            else:
                                source = address[tile] + skip + (i0 * c1 + i1) * c2 * c3
                                _copy_lines(to, n3, source, c3, count, unit)
                    tile += 1


@_jit
def _woven_row(address: Any, tile: int, last: int, skip: int, form: Any, place: int) -> None:
    """One row whose last axis is 3 or 4 bytes, each in a tile of its own: those tiles are woven together, while the
    next ones are asked for."""
    n0, n1, n2, n3 = form[0, 0], form[1, 0], form[2, 0], form[3, 0]
    c0, c1, c2 = form[0, 1], form[1, 1], form[2, 1]
    for b0 in range(0, n0, c0):
        for b1 in range(0, n1, c1):
            for b2 in range(0, n2, c2):
                if tile + 2 * n3 <= last:
                    for i in range(tile + n3, tile + 2 * n3):
                        _prefetch_lines(address[i] + skip, c0 * c1 * c2)
                corner = place + ((b0 * n1 + b1) * n2 + b2) * n3
                for i0 in range(min(c0, n0 - b0)):
                    for i1 in range(min(c1, n1 - b1)):
                        line = skip + (i0 * c1 + i1) * c2
                        _weave(address, tile, line, n3, min(c2, n2 - b2), corner + (i0 * n1 + i1) * n2 * n3)
                tile += n3


@_jit
def _all_here(address: Any, tile: int, count: int) -> Any:
    return np.all(address[tile : tile + count] != -1)


@_jit
def _fill_lines(to: int, step: int, fill: Any, count: int, unit: int) -> None:
    """`count` pieces of `unit` bytes, `step` apart, filled with the bytes of one element over and over."""
    for i in range(count):
        for byte in range(unit):
            set_byte(to + i * step + byte, fill[byte % len(fill)])


@_jit
def _copy_lines(to: int, to_step: int, source: int, source_step: int, count: int, unit: int) -> None:
    """`count` pieces of `unit` bytes, `to_step` and `source_step` apart."""
    if unit == 1:
        for i in range(count):
            move1(to + i * to_step, source + i * source_step)
    elif unit == 4:
        for i in range(count):
            move4(to + i * to_step, source + i * source_step)
    elif unit == 8:
        for i in range(count):
            move8(to + i * to_step, source + i * source_step)
    elif unit <= 64 and unit % 8 == 0:
        for i in range(count):
            for byte in range(0, unit, 8):
                move8(to + i * to_step + byte, source + i * source_step + byte)
    else:
        for i in range(count):
            memcpy(to + i * to_step, source + i * source_step, unit)


@_jit
def _weave(address: Any, tile: int, line: int, channels: int, count: int, to: int) -> None:
    """`count` pixels whose 3 or 4 channels of a byte lie in as many tiles, `line` bytes in."""
    a, b, c = address[tile] + line, address[tile + 1] + line, address[tile + 2] + line
    d = address[tile + channels - 1] + line
    if count < 16:
        for i in range(count):
            move1(to + i * channels, a + i)
            move1(to + i * channels + 1, b + i)
            move1(to + i * channels + 2, c + i)
            move1(to + i * channels + channels - 1, d + i)
        return
    i = 0
    while i < count:
        i = min(i, count - 16)  # the last sixteen may overlap the ones before: written twice, and the same
        if channels == 4:
            weave4(to + 4 * i, a + i, b + i, c + i, d + i)
        else:
            weave3(to + 3 * i, a + i, b + i, c + i)
        i += 16


@_jit
def locate(table: Any, guide: Any, shift: int, index: Any, out: Any) -> None:
    """See `reference.locate`; the guide bounds each search to the groups that begin within `1 << shift` indices."""
    n, columns = len(index), table.shape[1]
    guides, base = np.int64(guide.ctypes.data), np.int64(table.ctypes.data)
    for i in range(n):
        if i + 32 < n:
            prefetch(guides + 8 * (index[i + 32] >> shift))
            prefetch(base + 8 * columns * guide[index[i + 16] >> shift])
        lo, hi = guide[index[i] >> shift], guide[(index[i] >> shift) + 1]
        while lo < hi:
            middle = (lo + hi + 1) >> 1
            if table[middle, 0] <= index[i]:
                lo = middle
            else:
                hi = middle - 1
        out[0, i] = index[i] - table[lo, 0]
        for c in range(1, columns):
            out[c, i] = table[lo, c]


@_jit
def paint(at: Any, length: Any, value: Any, slope: int, out: Any) -> None:
    """See `reference.paint`."""
    end = 0
    for j in range(len(at)):
        begin = at[j]
        for i in range(end, begin):
            out[i] = 0
        first = value[j]
        end = begin + length[j]
        for i in range(begin, end):
            out[i] = first + slope * (i - begin)
    for i in range(end, len(out)):
        out[i] = 0


@_jit
def digest(words: Any, sums: Any) -> None:
    """See `reference.digest`."""
    first, second = np.uint64(0), np.uint64(0)
    for i in range(len(words)):
        x = words[i] + np.uint64(i) * np.uint64(DIGEST_STEP)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(DIGEST_1)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(DIGEST_2)
        first += x ^ (x >> np.uint64(31))
        second += (x ^ (x >> np.uint64(29))) * np.uint64(DIGEST_STEP)
    sums[0], sums[1] = first, second


@_jit
def zero_gaps(at: Any, length: Any, row_bytes: int, out: Any) -> None:
    """See `reference.zero_gaps`."""
    end = 0
    for j in range(len(at)):
        for i in range(end, at[j] * row_bytes):
            out[i] = 0
        end = (at[j] + length[j]) * row_bytes
    for i in range(end, len(out)):
        out[i] = 0
