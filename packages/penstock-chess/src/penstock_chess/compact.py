"""Compact rows: any frame of 8396 bytes, in 420 on average, bit for bit. `docs/tensors.md` has the layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, ByteArray, IntArray, read_only
from penstock.core.ragged import Ragged
from penstock.errors import DataError
from penstock_chess.expansion import bad_row, frame_bytes, row_bytes
from penstock_chess.formats.lc0 import FRAME, Missing
from penstock_chess.formats.lc0.upgrade import check_missing
from penstock_chess.kernels.layout import LARGEST, SHORT
from penstock_chess.kernels.rows import decode_rows, encode_rows

ROOM = 480  # bytes a row that are asked for at first


def encode(frames: AnyArray, places: npt.ArrayLike | None = None, *, missing_st: Missing = "zero") -> Ragged:
    """Encode frames as compact rows, which `decode` expands to the same frames bit for bit.

    All values of the 8396 bytes can be encoded, with any meaning. A row has a multiple of 8 bytes, at most 8416. Cost:
    one pass over the frames, without the GIL.

    Args:
        frames: `[n, 8396]` uint8, or records of version 6 `[n, 8356]` uint8, which become the rows of the frames that
            `open_chunks` makes of them.
        places: `[m]` integers in 0 to n - 1: the frames to encode, in this order. The default is None: all.
        missing_st: Short-term values of records of version 6: `"zero"` (the default) or `"nan"`.

    Returns:
        `n`, or `m`, ragged rows of uint8.

    Raises:
        DataError: Frames have another shape or dtype, or places are out of range.

    Example:
        >>> rows = encode(np.zeros((3, 8396), np.uint8), [2, 0])
        >>> rows.lengths.tolist()
        [7552, 7552]
    """
    check_missing(missing_st)
    records = read_only(frames) if _is_short(frames) else frame_bytes(frames)
    order = _places(np.arange(len(records)) if places is None else np.asarray(places), len(records))
    out, offsets = np.empty(ROOM * len(order) + LARGEST + 8, np.uint8), np.zeros(len(order) + 1, np.int64)
    nan = missing_st == "nan"
    done = 0
    while (done := encode_rows(records, nan, order, done, out, offsets)) < len(order):
        more = np.empty(2 * len(out), np.uint8)
        more[: offsets[done]] = out[: offsets[done]]
        out = more
    return Ragged(out[: offsets[-1]].copy(), offsets)


def _is_short(frames: AnyArray) -> bool:
    return frames.ndim == 2 and frames.shape[1] == SHORT and frames.dtype == np.uint8


def _places(chosen: AnyArray, n: int) -> IntArray:
    """Places within `0 : n` as the kernel takes them."""
    if chosen.ndim != 1 or (len(chosen) and chosen.dtype.kind not in "iu"):
        raise DataError(f"expected places as [m] integers, got {list(chosen.shape)} {chosen.dtype}")
    order = read_only(chosen.astype(np.int64))
    if len(order) and order.view(np.uint64).max() >= n:  # negative ones are large
        raise DataError(f"expected places within 0:{n}, got {order.min()} to {order.max()}")
    return order


def decode(rows: Ragged, out: ByteArray | None = None) -> ByteArray:
    """Decode compact rows to the frames that were encoded. Cost: one pass, without the GIL.

    Args:
        rows: `n` compact rows.
        out: Contiguous array `[n, 8396]` uint8. The default is None: a new array.

    Returns:
        `[n, 8396]` uint8.

    Raises:
        DataError: A row is damaged, or `out` has another shape or dtype.

    Example:
        >>> frames = np.full((1, 8396), 7, np.uint8)
        >>> np.array_equal(decode(encode(frames)), frames)
        True
    """
    values, offsets = row_bytes(rows)
    shape = (len(rows), FRAME.itemsize)
    if out is None:
        out = np.empty(shape, np.uint8)
    if out.shape != shape or out.dtype != np.uint8 or not (out.flags.c_contiguous and out.flags.writeable):
        raise DataError(f"expected out as {list(shape)} uint8, contiguous and writeable, got {out.shape} {out.dtype}")
    bad = decode_rows(values, offsets, out)
    if bad >= 0:
        raise bad_row(rows, bad)
    return out
