"""Gather spans of rows out of memory: rows that are stored one after another, and rows that are cut into tiles.

A gather copies spans of rows from memory maps into a buffer. Spans are at random places, so a copy waits for memory:
all source addresses are computed first, and the copy of a span prefetches the memory of the eighth span after it. The
caller (`rows.RowMap`, `tiles.TileMap`) owns all arrays, the working memory included, and has checked once that every
run is within its buffer. So the loops check only that spans are within rows and places, as differences, because sums
could wrap around. If a check fails, nothing is copied. Functions that make no array do not count references to arrays,
which would take longer to compile and to run.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, IntArray, IntScalar
from penstock.kernels.intrinsics import memcpy, move1, move4, move8, prefetch, set_byte, weave3, weave4
from penstock.kernels.jit import helper, kernel

AXES = 4
"""Axes that tiles may cut; see `tiles.TileMap`, which joins the others."""
_AHEAD = 8  # spans that are asked for before they are copied, so that memory answers several; twice, if narrow
_TILES_AHEAD = 8
_ONE = np.uint64(1)


def gather_rows(
    first: IntArray,
    guide: IntArray,
    shift: int,
    address: IntArray,
    row_bytes: int,
    start: IntArray,
    length: IntArray,
    destination: IntArray,
    out: ByteArray,
) -> int:
    """Copy rows `start[j] : start[j] + length[j]` to rows `destination[j]` onwards of `out`, for every span `j`."""
    _require_spans(start, length, destination)
    if len(address) != len(first) - 1 or row_bytes < 1:
        raise ValueError(f"expected rows of bytes and {len(first) - 1} addresses, got {row_bytes} and {len(address)}")
    room = np.empty((2, len(start)), np.int64)
    return _gather_rows(first, guide, shift, address, row_bytes, start, length, destination, room, out)


def gather_tiles(
    first: IntArray,
    guide: IntArray,
    shift: int,
    tile_shape: IntArray,
    tile_first: IntArray,
    address: IntArray,
    layout: IntArray,
    axes: IntArray,
    fill: ByteArray,
    start: IntArray,
    length: IntArray,
    destination: IntArray,
    row_bytes: int,
    out: ByteArray,
) -> int:
    """Copy spans of rows that are cut into tiles, as `gather_rows` does with whole rows."""
    _require_spans(start, length, destination)
    runs = len(first) - 1
    if (
        axes.shape[1:] != (AXES, 2)
        or row_bytes < 1
        or not runs == len(tile_shape) == len(layout) == len(tile_first) - 1
    ):
        raise ValueError(
            f"expected rows of bytes, axes [K, {AXES}, 2] and a shape, a layout and tiles for each of {runs} runs, got "
            f"{row_bytes}, {axes.shape}, {len(tile_shape)}, {len(layout)} and {len(tile_first) - 1}"
        )
    return _gather_tiles(
        first,
        guide,
        shift,
        tile_shape,
        tile_first,
        address,
        layout,
        axes,
        fill,
        start,
        length,
        destination,
        row_bytes,
        np.empty((4, len(start)), np.int64),
        np.ones((2, len(axes)), np.int64),
        np.ones(len(axes), np.bool_),
        out,
    )


def _require_spans(start: IntArray, length: IntArray, destination: IntArray) -> None:
    if not len(start) == len(length) == len(destination):
        raise ValueError(f"expected spans of equal number, got {len(start)}, {len(length)} and {len(destination)}")


@helper
def _is_within(begin: int, count: int, limit: int) -> bool:
    """Whether `begin : begin + count` is within `0 : limit`; in differences, for sums could wrap around."""
    return count >= 0 and 0 <= begin <= limit - count


@helper
def _run_of(first: IntArray, guide: IntArray, shift: int, row: int) -> int:
    """The run that holds a row; the guide bounds the search. See `locate.guide_of`.

    Indices are unsigned: of a signed one, compiled code asks each time whether it counts from the end.
    """
    entry = np.uint64(row >> shift)
    lo, hi = guide[entry], guide[entry + _ONE]
    if hi - lo <= 1:  # usual, and decided without a branch, which random rows would have guessed wrong
        return hi - (1 if first[np.uint64(hi)] > row else 0)
    while lo < hi:
        middle = (lo + hi + 1) >> 1
        if first[np.uint64(middle)] <= row:
            lo = middle
        else:
            hi = middle - 1
    return lo


@kernel("i8[1C] i8[1C] i8 i8[1C] i8 i8[1C] i8[1C] i8[1C] i8[2C] u1[1C]")
def _gather_rows(
    first: IntArray,
    guide: IntArray,
    shift: int,
    address: IntArray,
    row_bytes: int,
    start: IntArray,
    length: IntArray,
    destination: IntArray,
    room: IntArray,
    out: ByteArray,
) -> int:
    spans = len(start)
    end, places = first[-1], len(out) // row_bytes
    base = np.int64(out.ctypes.data)
    source, head = room[0], room[1]  # address and rows of the first piece of each span
    crossing = False
    for j in range(spans):  # no search waits for the one before it
        row, rows = start[j], length[j]
        if not _is_within(row, rows, end) or not _is_within(destination[j], rows, places):
            return j
        place, count = 0, rows
        if rows > 0:  # else it may begin behind the last row, in no run
            run = np.uint64(_run_of(first, guide, shift, row))
            place = address[run] + (row - first[run]) * row_bytes
            count = min(rows, first[run + _ONE] - row)
        source[j], head[j] = place, count
        crossing |= count < rows
    ahead = _AHEAD if row_bytes > 64 else 2 * _AHEAD
    for j in range(spans):
        if j + ahead < spans:
            soon = head[j + ahead] * row_bytes
            _prefetch_lines(source[j + ahead], soon if soon < 512 else 512)
        memcpy(base + destination[j] * row_bytes, source[j], head[j] * row_bytes)
    if crossing:
        for j in range(spans):
            if head[j] < length[j]:
                row = start[j] + head[j]
                run = _run_of(first, guide, shift, row)
                _gather_rest(first, address, row_bytes, run, row, length[j] - head[j], base, destination[j] + head[j])
    return -1


@helper
def _gather_rest(
    first: IntArray, address: IntArray, row_bytes: int, run: int, row: int, left: int, base: IntScalar, destination: int
) -> None:
    """Copy the part of a span that is in later runs; `row` begins `run`."""
    while left > 0:
        take = first[run + 1] - row
        take = take if take < left else left
        memcpy(base + destination * row_bytes, address[run] + (row - first[run]) * row_bytes, take * row_bytes)
        row += take
        destination += take
        left -= take
        run += 1


@helper
def _prefetch_lines(begin: int, size: int) -> None:
    """The cache lines of `size` bytes; `size` may be 0."""
    for line in range(begin & -64, begin + size, 64):
        prefetch(line)


@kernel(
    "i8[1C] i8[1C] i8 i8[2C] i8[1C] i8[1C] i8[1C] i8[3C] u1[1C] i8[1C] i8[1C] i8[1C] i8 i8[2C] i8[2C] b1[1C] u1[1C]"
)
def _gather_tiles(
    first: IntArray,
    guide: IntArray,
    shift: int,
    tile_shape: IntArray,
    tile_first: IntArray,
    address: IntArray,
    layout: IntArray,
    axes: IntArray,
    fill: ByteArray,
    start: IntArray,
    length: IntArray,
    destination: IntArray,
    row_bytes: int,
    room: IntArray,
    sides: IntArray,
    plain: BoolArray,
    out: ByteArray,
) -> int:
    """`room` is for four numbers of each span; `sides` and `plain` are ones, for what `_measure_sides` says."""
    base = np.int64(out.ctypes.data)
    spans = len(start)
    end, places = first[-1], len(out) // row_bytes
    across, slab = sides[0], sides[1]
    _measure_sides(axes, across, slab, plain)
    # The tiles side by side that hold the first rows of each span, where in them those begin, and how many they hold.
    kind, tile, skip, in_tile = room[0], room[1], room[2], room[3]
    run, crossing = 0, False
    for j in range(spans):
        row = start[j]
        if not _is_within(row, length[j], end) or not _is_within(destination[j], length[j], places):
            return j
        in_tile[j] = 0
        if length[j] == 0:  # it may begin behind the last row, where there is no tile
            continue
        if not (first[run] <= row < first[run + 1]):
            run = _run_of(first, guide, shift, row)
        kind[j], tile[j], skip[j], most = _place_in_tiles(row, run, first, tile_shape, tile_first, layout, across, slab)
        in_tile[j] = min(length[j], most)
        crossing |= in_tile[j] < length[j]
    ahead = _AHEAD if row_bytes <= 4096 else 1
    for j in range(spans):
        soon = j + ahead
        if soon < spans and in_tile[soon] > 0:
            k: int = kind[soon]
            for i in range(tile[soon], tile[soon] + min(across[k], _TILES_AHEAD)):
                _prefetch_lines(address[i] + skip[soon], min(slab[k] * in_tile[soon], 512))
        if in_tile[j] == 0:
            continue
        k = kind[j]
        place = base + destination[j] * row_bytes
        _copy_rows(address, tile[j], skip[j], in_tile[j], across[k], slab[k], plain[k], axes, k, fill, place, row_bytes)
    if crossing:
        for j in range(spans):
            while in_tile[j] < length[j]:
                row, place = start[j] + in_tile[j], base + (destination[j] + in_tile[j]) * row_bytes
                run = _run_of(first, guide, shift, row)
                k, t, s, most = _place_in_tiles(row, run, first, tile_shape, tile_first, layout, across, slab)
                take = min(length[j] - in_tile[j], most)
                _copy_rows(address, t, s, take, across[k], slab[k], plain[k], axes, k, fill, place, row_bytes)
                in_tile[j] += take
    return -1


@helper
def _measure_sides(axes: IntArray, across: IntArray, slab: IntArray, plain: BoolArray) -> None:
    """Fill in `[K]` for each layout: the number of tiles across a row, the bytes of the row in each, and whether the
    tiles cut it along one axis only. All are ones."""
    for k in range(len(axes)):
        for axis in range(4):
            across[k] *= (axes[k, axis, 0] + axes[k, axis, 1] - 1) // axes[k, axis, 1]
            slab[k] *= axes[k, axis, 1]
            plain[k] &= axis == 3 or (axes[k, axis, 0] == 1 and axes[k, axis, 1] == 1)


@helper
def _place_in_tiles(
    row: int,
    run: int,
    first: IntArray,
    tile_shape: IntArray,
    tile_first: IntArray,
    layout: IntArray,
    across: IntArray,
    slab: IntArray,
) -> tuple[int, int, int, int]:
    """Layout and first tile of a row, where in its tiles it begins, and how many rows from it on they hold."""
    k = layout[run]
    height = tile_shape[run, 0]
    inside = row - first[run]
    down = inside // height
    inside -= down * height
    return k, tile_first[run] + down * across[k], inside * slab[k], min(height - inside, first[run + 1] - row)


@helper
def _copy_rows(
    address: IntArray,
    tile: int,
    skip: int,
    rows: int,
    across: int,
    slab: int,
    plain: bool,
    axes: IntArray,
    k: int,
    fill: ByteArray,
    place: IntScalar,
    row_bytes: int,
) -> None:
    """`rows` rows out of the `across` tiles side by side from `tile` on; of plain tiles, all pieces of one together."""
    if not plain:
        form = axes[k]
        for i in range(rows):
            _tiled_row(address, tile, tile + across, skip + i * slab, form, fill, place + i * row_bytes)
        return
    for i in range(across):
        unit = min(slab, row_bytes - i * slab)
        to = place + i * slab
        source = address[tile + i]
        if source == -1:
            _fill_lines(to, row_bytes, fill, rows, unit)
        elif slab == row_bytes:
            memcpy(to, source + skip, rows * row_bytes)
        else:
            _copy_lines(to, row_bytes, source + skip, slab, rows, unit)


@helper
def _tiled_row(
    address: IntArray, tile: int, last: int, skip: int, form: IntArray, fill: ByteArray, place: IntScalar
) -> None:
    """Copy one row out of the tiles `tile : last` side by side; in each, the row begins at byte `skip`."""
    n0 = form[0, 0]
    n1 = form[1, 0]
    n2 = form[2, 0]
    n3 = form[3, 0]
    c0 = form[0, 1]
    c1 = form[1, 1]
    c2 = form[2, 1]
    c3 = form[3, 1]
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


@helper
def _woven_row(address: IntArray, tile: int, last: int, skip: int, form: IntArray, place: IntScalar) -> None:
    """Copy one row whose last axis is 3 or 4 bytes, each in its own tile: weave these tiles together and prefetch the
    next ones."""
    n0 = form[0, 0]
    n1 = form[1, 0]
    n2 = form[2, 0]
    n3 = form[3, 0]
    c0 = form[0, 1]
    c1 = form[1, 1]
    c2 = form[2, 1]
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


@helper
def _all_here(address: IntArray, tile: int, count: int) -> bool:
    missing = 0
    for i in range(tile, tile + count):
        missing += address[i] == -1
    return missing == 0


@helper
def _fill_lines(to: IntScalar, step: int, fill: ByteArray, count: int, unit: int) -> None:
    """`count` pieces of `unit` bytes, `step` apart, filled with the bytes of one element over and over."""
    for i in range(count):
        for byte in range(unit):
            set_byte(to + i * step + byte, fill[byte % len(fill)])


@helper
def _copy_lines(to: IntScalar, to_step: int, source: int, source_step: int, count: int, unit: int) -> None:
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


@helper
def _weave(address: IntArray, tile: int, line: int, channels: int, count: int, to: IntScalar) -> None:
    """Weave `count` pixels of 3 or 4 one-byte channels; each channel is in its own tile, from byte `line` on."""
    a = address[tile] + line
    b = address[tile + 1] + line
    c = address[tile + 2] + line
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
