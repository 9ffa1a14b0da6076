"""Undo the filters of PNG rows.

A row of an inflated PNG image is a byte with the number of its filter, then its bytes as differences from a prediction:
from the pixel to the left, the one above, their mean, or Paeth's choice among left, above and above left. Outside the
image all are 0. Rows are undone from the top, because each needs the one before it, and bytes are added modulo 256.

Bounds: both buffers are compared with the number of rows and their size before a byte is read. The caller owns them.
Source: W3C, "Portable Network Graphics (PNG) Specification", section 9, Filtering.
"""

from __future__ import annotations

from penstock.core.arrays import ByteArray, IntScalar
from penstock.kernels.intrinsics import add_nearest3, add_nearest4
from penstock.kernels.jit import helper, kernel


def undo_filters(raw: ByteArray, out: ByteArray, rows: int, pixel_bytes: int) -> bool:
    """Undo the filters of an image. Returns False if a row has an unknown filter.

    `raw` has a byte for the filter and the bytes of the row for each of `rows`, `out` the bytes of the rows.
    """
    if len(raw) != len(out) + rows or rows < 1 or pixel_bytes < 1 or len(out) % (rows * pixel_bytes):
        raise ValueError(f"expected {rows} rows of whole pixels, got {len(raw)} bytes for {len(out)}")
    return bool(_undo_filters(raw, out, rows, pixel_bytes))


@helper
def _nearest(left: IntScalar, above: IntScalar, corner: IntScalar) -> IntScalar:
    """Return which of three is nearest to `left + above - corner`, the first of equals."""
    to_left, to_above = abs(above - corner), abs(left - corner)
    to_corner = abs(above - corner + left - corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner


@helper
def _undo_row(
    raw: ByteArray, out: ByteArray, source: IntScalar, place: IntScalar, size: IntScalar, pixel: IntScalar
) -> None:
    """Undo the filter of a row, one byte of all pixels after the other."""
    kind = raw[source - 1]
    for c in range(pixel):
        left, corner = 0, 0
        if kind == 1 or (kind == 4 and not place):
            for i in range(c, size, pixel):
                left += int(raw[source + i])  # the byte that is written is its remainder
                out[place + i] = left
        elif kind == 3:
            for i in range(c, size, pixel):
                above = int(out[place + i - size]) if place else 0
                left = (int(raw[source + i]) + (left + above >> 1)) & 255
                out[place + i] = left
        else:
            for i in range(c, size, pixel):
                above = int(out[place + i - size])
                left = (int(raw[source + i]) + _nearest(left, above, corner)) & 255
                out[place + i] = left
                corner = above


@kernel("u1[1Cr] u1[1C] i8 i8")
def _undo_filters(raw: ByteArray, out: ByteArray, rows: int, pixel: int) -> bool:
    size = len(out) // rows
    raw_address, out_address = raw.ctypes.data, out.ctypes.data
    # Pixels of three bytes are read as four: the byte behind one is in `raw`, unless it is the last of the image.
    vector_rows = rows if pixel == 4 else rows - 1 if pixel == 3 else 0
    y = 0
    while y < rows:
        source, place = y * (size + 1) + 1, y * size
        kind = raw[source - 1]
        if kind > 4:
            return False
        if kind == 0 or (kind == 2 and y == 0):
            for i in range(size):
                out[place + i] = raw[source + i]
        elif kind == 2:
            for i in range(size):
                out[place + i] = raw[source + i] + out[place + i - size]
        elif kind == 4 and 0 < y < vector_rows:
            count = 1
            while count < 8 and y + count < vector_rows and raw[source - 1 + count * (size + 1)] == 4:
                count += 1
            if pixel == 3:
                add_nearest3(raw_address + source, out_address + place, size, count)
            else:
                add_nearest4(raw_address + source, out_address + place, size, count)
            y += count - 1
        else:
            _undo_row(raw, out, source, place, size, pixel)
        y += 1
    return True
