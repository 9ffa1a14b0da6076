"""`expand`: frames or compact rows into the tensors of networks, into buffers of the caller's."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, ByteArray, Float32Array, IntArray, UInt32Array, read_only
from penstock.core.ragged import Ragged
from penstock.errors import DataError
from penstock_chess.formats.lc0.records import FRAME, INPUT_FORMATS, POLICY
from penstock_chess.kernels.planes import expand_frames, expand_rows
from penstock_chess.kernels.rows import check_rows

Rows = ByteArray | Ragged
"""`[n, 8396]` uint8 frames, or `n` compact rows."""

InputFormat = Literal["record", "reference"]
"""Whose word counts for the meaning of planes 104 to 111: each record's own, or that of Leela Chess Zero's loader,
which takes every record for one of input format 1."""

PLANES = (112, 8, 8)
VALUES = (6, 3)
FILLED = 8  # planes, the last, whose set bits may have another value than 1

LANES = {np.dtype("f4"): 4, np.dtype("f2"): 2, np.dtype("u1"): 1}


def expand(
    rows: Rows,
    *,
    planes: AnyArray | None = None,
    fill: Float32Array | None = None,
    probabilities: Float32Array | None = None,
    values: Float32Array | None = None,
    input_format: InputFormat = "record",
) -> None:
    """Fill the buffers that are given with the tensors of `rows`, `[n, 8396]` uint8 frames or `n` compact rows.

    Arguments: `planes`, `[n, 112, 8, 8]` float32, float16 or uint8, or `[n, 112]` uint64 for bit planes; `fill`,
    `[n, 8]` float32, the values of set bits in the last 8 planes; `probabilities`, `[n, 1858]` float32; `values`,
    `[n, 6, 3]` float32. Frames and compact rows give the same bits. Uint8 planes hold numbers as they are stored: plane
    109 is the count itself, see `planes.rule50_divisors`.

    Cost: one pass, bound by writing the buffers; the GIL is released.
    """
    if input_format not in get_args(InputFormat):
        raise DataError(f"expected input_format to be one of {get_args(InputFormat)}, got {input_format!r}")
    n = len(rows)
    lane, dtype = _lane(planes)
    shape = (n, PLANES[0]) if lane == 8 else (n, *PLANES)
    into = (
        _buffer("planes", planes, shape, None if planes is None else planes.dtype, np.uint8),
        lane,
        _buffer("fill", fill, (n, FILLED), np.dtype("f4"), np.uint32),
        _buffer("probabilities", probabilities, (n, POLICY), np.dtype("f4"), np.uint32),
        _buffer("values", values, (n, *VALUES), np.dtype("f4"), np.uint32),
    )
    forced = 1 if input_format == "reference" else 0
    if isinstance(rows, Ragged):
        row_values, offsets = row_bytes(rows)
        bad = expand_rows(row_values, offsets, levels(dtype), forced, *into)
    else:
        bad = expand_frames(frame_bytes(rows), levels(dtype), forced, *into)
    if bad >= 0:
        raise bad_row(rows, bad)


@cache
def levels(dtype: npt.DTypeLike) -> UInt32Array:
    """`[3, 256]` the bits of each byte as an element of `dtype`: as a number, by 99 and by 100, rounded
    from float32.

    Of uint8 all three are the byte itself. Read-only.
    """
    byte = np.arange(256, dtype=np.float32)
    if np.dtype(dtype) == np.uint8:
        table = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
    else:
        table = np.stack([byte, byte / np.float32(99), byte / np.float32(100)]).astype(dtype)
    return read_only(table.view(f"u{table.itemsize}").astype(np.uint32))


def frame_bytes(frames: AnyArray) -> ByteArray:
    """The frames, contiguous and read-only: kernels are compiled once, for such arrays."""
    if frames.dtype != np.uint8 or frames.ndim != 2 or frames.shape[1] != FRAME.itemsize:
        raise DataError(
            f"expected frames as [n, {FRAME.itemsize}] uint8 (or compact rows as a Ragged), "
            f"got {list(frames.shape)} {frames.dtype}"
        )
    return read_only(frames)


def row_bytes(rows: Ragged) -> tuple[ByteArray, IntArray]:
    """Values and offsets of compact rows, contiguous and read-only."""
    if rows.values.dtype != np.uint8 or rows.values.ndim != 1 or len(rows.shape) != 1:
        raise DataError(f"expected compact rows of uint8, got {rows.values.dtype} rows in a grid {rows.shape}")
    return read_only(rows.values), read_only(rows.offsets)


def bad_row(rows: Rows, row: int) -> DataError:
    """Error of row number `row`, which a kernel has refused."""
    if isinstance(rows, Ragged):
        one = np.ascontiguousarray(rows[row])
        ends = np.array([0, len(one)], np.int64)
        if check_rows(one, ends, 1) >= 0:
            return DataError(f"expected row {row} as `compact.encode` makes it, got {len(one)} other bytes")
        head = one[4:8]
    else:
        head = rows[row, 4:8]
    stated = int.from_bytes(head.tobytes(), "little")
    return DataError(f"expected an input format of {INPUT_FORMATS}, got {stated} in row {row}")


def _lane(planes: AnyArray | None) -> tuple[int, np.dtype[Any]]:
    """Bytes an element of planes, 8 for bit planes, and the dtype of the values they are filled with."""
    if planes is None or planes.dtype == np.uint64:
        return 8, np.dtype("f4")
    if planes.dtype not in LANES:
        raise DataError(f"expected planes of float32, float16, uint8 or uint64, got {planes.dtype}")
    return LANES[planes.dtype], planes.dtype


def _buffer(
    name: str, array: AnyArray | None, shape: tuple[int, ...], dtype: np.dtype[Any] | None, unit: type[Any]
) -> AnyArray:
    """The buffer as `[n, bytes or words]`, one of no rows where there is none."""
    if array is None:
        return np.empty((0, 0), unit)
    flags = array.flags
    if array.shape != shape or array.dtype != dtype or not (flags.c_contiguous and flags.writeable and flags.aligned):
        raise DataError(
            f"expected {name} as {list(shape)} {dtype}, contiguous and writeable, got {list(array.shape)} "
            f"{array.dtype}, contiguous: {flags.c_contiguous}, writeable: {flags.writeable}"
        )
    width = int(np.prod(shape[1:]))
    return array.reshape(shape[0], width).view(unit)
