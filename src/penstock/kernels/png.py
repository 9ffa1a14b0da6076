"""Undo the filters of PNG rows.

A row of an inflated PNG image is a byte with the number of its filter, then its bytes as differences from a prediction:
from the pixel to the left, the one above, their mean, or Paeth's choice among left, above and above left. Outside the
image all are 0. Rows are undone from the top, because each needs the one before it, and bytes are added modulo 256.

Bounds: both buffers are compared with the number of rows and their size before a byte is read. The caller owns them.
Source: W3C, "Portable Network Graphics (PNG) Specification", section 9, Filtering.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, IntScalar
from penstock.kernels.intrinsics import add_paeth, lanes4, store_lanes3, store_lanes4
from penstock.kernels.jit import uncounted_helper, uncounted_kernel


def undo_filters(raw: ByteArray, out: ByteArray, rows: int, pixel_bytes: int) -> bool:
    """Undo the filters of an image.

    Args:
        raw: `[rows * (1 + n)]` uint8, read-only: a filter and n bytes for each row.
        out: `[rows * n]` uint8, C-contiguous; receives the bytes of the pixels.
        rows: How many rows there are.
        pixel_bytes: Bytes of a pixel; n is a multiple of it.

    Returns:
        False if a row has an unknown filter.

    Raises:
        ValueError: The sizes do not fit together.
    """
    if len(raw) != len(out) + rows or rows < 1 or pixel_bytes < 1 or len(out) % (rows * pixel_bytes):
        raise ValueError(f"expected {rows} rows of whole pixels, got {len(raw)} bytes for {len(out)}")
    return bool(_undo_filters(raw, out, rows, pixel_bytes))


@uncounted_helper
def _nearest(left: IntScalar, above: IntScalar, corner: IntScalar) -> IntScalar:
    """Return which of three is nearest to `left + above - corner`, the first of equals."""
    to_left, to_above = abs(above - corner), abs(left - corner)
    to_corner = abs(above - corner + left - corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner


@uncounted_helper
def _copied(raw: ByteArray, out: ByteArray, source: IntScalar, at: IntScalar, size: IntScalar) -> None:
    for i in range(size):
        out[at + i] = raw[source + i]


@uncounted_helper
def _from_left(
    raw: ByteArray, out: ByteArray, source: IntScalar, at: IntScalar, size: IntScalar, pixel: IntScalar
) -> None:
    for i in range(pixel):
        out[at + i] = raw[source + i]
    for i in range(pixel, size):
        out[at + i] = raw[source + i] + out[at + i - pixel]


@uncounted_helper
def _from_mean(
    raw: ByteArray, out: ByteArray, source: IntScalar, at: IntScalar, size: IntScalar, pixel: IntScalar
) -> None:
    for i in range(size):
        left = int(out[at + i - pixel]) if i >= pixel else 0
        above = int(out[at + i - size]) if at else 0
        out[at + i] = (int(raw[source + i]) + (left + above >> 1)) & 255


@uncounted_helper
def _from_nearest(
    raw: ByteArray, out: ByteArray, source: IntScalar, at: IntScalar, size: IntScalar, pixel: IntScalar
) -> None:
    for c in range(pixel):
        left, corner = 0, 0
        for i in range(c, size, pixel):
            above = int(out[at + i - size])
            left = (int(raw[source + i]) + _nearest(left, above, corner)) & 255
            out[at + i] = left
            corner = above


@uncounted_helper
def _store(at: IntScalar, lanes: np.uint64, pixel: IntScalar) -> None:
    if pixel == 3:
        store_lanes3(at, lanes)
    else:
        store_lanes4(at, lanes)


@uncounted_helper
def _from_nearest_lanes(source: IntScalar, at: IntScalar, size: IntScalar, pixel: IntScalar) -> None:
    """As `_from_nearest` for one row of pixels of three or four bytes, all bytes of a pixel at once, by addresses."""
    left, corner = np.uint64(0), np.uint64(0)
    for i in range(0, size, pixel):
        above = lanes4(at + i - size)
        left = add_paeth(lanes4(source + i), left, above, corner)
        _store(at + i, left, pixel)
        corner = above


@uncounted_helper
def _two_from_nearest(source: IntScalar, at: IntScalar, size: IntScalar, pixel: IntScalar) -> None:
    """As `_from_nearest_lanes` for two rows. A pixel waits for the one to its left, and the processor works on the row
    below meanwhile: both take as long as one."""
    left, corner = np.uint64(0), np.uint64(0)
    below, below_corner = np.uint64(0), np.uint64(0)
    for i in range(0, size, pixel):
        above = lanes4(at + i - size)
        left = add_paeth(lanes4(source + i), left, above, corner)
        below = add_paeth(lanes4(source + size + 1 + i), below, left, below_corner)
        _store(at + i, left, pixel)
        _store(at + size + i, below, pixel)
        corner, below_corner = above, left


@uncounted_kernel("u1[1Cr] u1[1C] i8 i8")
def _undo_filters(raw: ByteArray, out: ByteArray, rows: int, pixel: int) -> bool:
    size = len(out) // rows
    raw_address, out_address = raw.ctypes.data, out.ctypes.data
    # Pixels of three bytes are read as four: the byte behind one is in `raw`, unless it is the last of the image.
    lanes_end = rows if pixel == 4 else rows - 1 if pixel == 3 else 0
    y = 0
    while y < rows:
        source, at = y * (size + 1) + 1, y * size
        kind = raw[source - 1]
        if kind == 0 or (kind == 2 and y == 0):
            _copied(raw, out, source, at, size)
        elif kind == 1 or (kind == 4 and y == 0):
            _from_left(raw, out, source, at, size, pixel)
        elif kind == 2:
            for i in range(size):
                out[at + i] = raw[source + i] + out[at + i - size]
        elif kind == 3:
            _from_mean(raw, out, source, at, size, pixel)
        elif kind == 4 and y + 1 < lanes_end and raw[source + size] == 4:
            _two_from_nearest(raw_address + source, out_address + at, size, pixel)
            y += 1
        elif kind == 4 and y < lanes_end:
            _from_nearest_lanes(raw_address + source, out_address + at, size, pixel)
        elif kind == 4:
            _from_nearest(raw, out, source, at, size, pixel)
        else:
            return False
        y += 1
    return True
