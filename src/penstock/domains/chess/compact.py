"""Compact rows: any frame of 8396 bytes, in 420 on average, bit for bit. `docs/chess.md` has the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Ragged
from penstock.domains.chess.expansion import Bytes, bad_row, frame_bytes, read_only, row_bytes
from penstock.errors import DataError
from penstock.formats.lc0.records import FRAME
from penstock.kernels.chess_reference import LARGEST
from penstock.kernels.dispatch import kernels

ROOM = 480  # bytes a row that are asked for at first


def encode(frames: npt.NDArray[Any], places: npt.ArrayLike | None = None) -> Ragged:
    """Compact rows of `frames` `[n, 8396]` uint8, or of those at `places` `[m]`, in that order.

    Every 8396 bytes can be encoded, whatever they mean; `decode` gives them back bit for bit. Rows are multiples of 8
    bytes, at most 8416. Raises `DataError` for frames of another form or places outside. Cost: one pass over the
    frames; the GIL is released.

    >>> rows = encode(np.zeros((3, 8396), np.uint8), [2, 0])
    >>> rows.lengths.tolist()
    [7552, 7552]
    """
    held = frame_bytes(frames)
    chosen = np.arange(len(held)) if places is None else np.asarray(places)
    if chosen.ndim != 1 or (len(chosen) and not np.issubdtype(chosen.dtype, np.integer)):
        raise DataError(f"expected places as [m] integers, got {list(chosen.shape)} {chosen.dtype}")
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(held):
        raise DataError(f"expected places within 0:{len(held)}, got {chosen.min()} to {chosen.max()}")
    order = read_only(chosen.astype(np.int64))
    out, offsets = np.empty(ROOM * len(order) + LARGEST + 8, np.uint8), np.zeros(len(order) + 1, np.int64)
    done = 0
    while (done := int(kernels().encode_chess(held, order, done, out, offsets))) < len(order):
        more = np.empty(2 * len(out), np.uint8)
        more[: offsets[done]] = out[: offsets[done]]
        out = more
    return Ragged(out[: offsets[-1]].copy(), offsets)


def decode(rows: Ragged, out: Bytes | None = None) -> Bytes:
    """`[n, 8396]` uint8 the frames that `encode` was given, in `out` where there is one.

    Raises `DataError` for a row that is none, and for an `out` of another form. Cost: one pass; the GIL is released.

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
    bad = int(kernels().decode_chess(values, offsets, out))
    if bad >= 0:
        raise bad_row(rows, bad)
    return out
