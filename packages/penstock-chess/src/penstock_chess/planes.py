"""Planes: a network's input for a position, in any of seven input formats, which each record names."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, UInt32Array, UInt64Array
from penstock.core.ragged import Ragged
from penstock.errors import DataError
from penstock_chess.expansion import FILLED, PLANES, InputFormat, Rows, expand, frame_bytes, row_bytes

PlaneDtype = Literal["float32", "float16", "uint8"]


class BitPlanes(NamedTuple):
    """Planes without loss, in 928 bytes a position.

    Attributes:
        words: `[n, 112]` uint64. Square `8 * rank + file` of a plane is bit `(8 * rank + file) ^ 7`, as in the record,
            so `np.unpackbits(words.view("u1"))` returns the squares in order.
        fill: `[n, 8]` float32: the values of set bits in planes 104 to 111. Set bits of all other planes are 1.

    Example:
        >>> bits = bit_planes(np.zeros((1, 8396), np.uint8), input_format="reference")
        >>> bits.words.shape, bits.fill.shape
        ((1, 112), (1, 8))
    """

    words: UInt64Array
    fill: Float32Array


def planes(
    rows: Rows,
    dtype: PlaneDtype = "float32",
    out: AnyArray | None = None,
    *,
    input_format: InputFormat = "record",
) -> AnyArray:
    """Expand positions to planes, the input of a network.

    Planes 0 to 103 are eight positions of 13 planes, the newest first, with values 0 and 1. Planes 104 to 111 depend on
    the input format, which each record names, so that a batch may mix input formats. Plane 109 is the count of the
    fifty-move rule divided by 99 or 100; float16 rounds it from float32, and uint8 has the count itself: divide by
    `rule50_divisors`.

    Args:
        rows: Frames `[n, 8396]` uint8, or `n` compact rows.
        dtype: `"float32"` (the default), `"float16"` or `"uint8"`.
        out: Contiguous array `[n, 112, 8, 8]` of `dtype`. The default is None: a new array.
        input_format: `"record"` (the default) reads the input format of each record. `"reference"` takes all for input
            format 1, as the loader of Leela Chess Zero does.

    Returns:
        `[n, 112, 8, 8]` planes.

    Raises:
        DataError: Rows or `out` have another shape or dtype, or an input format is unknown.

    Example:
        >>> planes(np.zeros((1, 8396), np.uint8), "uint8", input_format="reference")[0, 111].sum().item()
        64
    """
    if dtype not in get_args(PlaneDtype):
        raise DataError(f"expected a dtype of {get_args(PlaneDtype)}, got {dtype!r}; for bits there is bit_planes")
    if out is not None and out.dtype != np.dtype(dtype):
        raise DataError(f"expected out of {dtype}, got {out.dtype}")
    filled = np.empty((len(rows), *PLANES), dtype) if out is None else out
    expand(rows, planes=filled, input_format=input_format)
    return filled


def bit_planes(rows: Rows, *, input_format: InputFormat = "record") -> BitPlanes:
    """Expand positions to planes as words of bits, an eighth to a thirtieth of the bytes of `planes`.

    Args:
        rows: Frames `[n, 8396]` uint8, or `n` compact rows.
        input_format: `"record"` (the default) or `"reference"`, as in `planes`.

    Returns:
        The words and the values of set bits.

    Raises:
        DataError: Rows have another shape or dtype, or an input format is unknown.

    Example:
        >>> words, fill = bit_planes(np.zeros((1, 8396), np.uint8), input_format="reference")
        >>> hex(words[0, 111]), fill[0, 7].item()
        ('0xffffffffffffffff', 1.0)
    """
    out = BitPlanes(np.empty((len(rows), PLANES[0]), np.uint64), np.empty((len(rows), FILLED), np.float32))
    expand(rows, planes=out.words, fill=out.fill, input_format=input_format)
    return out


def from_bits(bits: BitPlanes) -> Float32Array:
    """Expand bit planes to the planes that `planes` returns, bit for bit.

    Args:
        bits: Words `[n, 112]` uint64 and values `[n, 8]` float32.

    Returns:
        `[n, 112, 8, 8]` float32 planes.

    Raises:
        DataError: The words or values have another shape or dtype.

    Example:
        >>> rows = np.zeros((1, 8396), np.uint8)
        >>> bits = bit_planes(rows, input_format="reference")
        >>> np.array_equal(from_bits(bits), planes(rows, input_format="reference"))
        True
    """
    n = len(bits.words)
    if bits.words.shape != (n, PLANES[0]) or bits.words.dtype != np.uint64 or bits.fill.shape != (n, FILLED):
        raise DataError(f"expected [n, 112] uint64 words and [n, 8] fill, got {bits.words.shape}, {bits.fill.shape}")
    squares = np.unpackbits(np.ascontiguousarray(bits.words).view(np.uint8), axis=1)
    out = squares.reshape(n, *PLANES).astype(np.float32)
    out[:, -FILLED:] *= bits.fill[:, :, None, None]
    return out


def input_formats(rows: Rows) -> UInt32Array:
    """Return the input format that each record states, without checking that it exists.

    Args:
        rows: Frames `[n, 8396]` uint8, or `n` compact rows.

    Returns:
        `[n]` uint32.

    Raises:
        DataError: Rows have another shape or dtype, or a compact row is too short.

    Example:
        >>> frames = np.zeros((2, 8396), np.uint8)
        >>> frames[:, 4] = 1, 5
        >>> input_formats(frames).tolist()
        [1, 5]
    """
    if not isinstance(rows, Ragged):
        return np.ascontiguousarray(frame_bytes(rows)[:, 4:8]).view("<u4")[:, 0]
    values, offsets = row_bytes(rows)
    if np.any(rows.lengths < 8):
        raise DataError("expected compact rows, got one of fewer than 8 bytes")
    return values[offsets[:-1, None] + np.arange(4, 8)].view("<u4")[:, 0]


def rule50_divisors(rows: Rows, *, input_format: InputFormat = "record") -> Float32Array:
    """Return the divisors of plane 109 of uint8 planes: 99 for input formats 1 to 3, 100 for later ones.

    Args:
        rows: Frames `[n, 8396]` uint8, or `n` compact rows.
        input_format: `"record"` (the default) or `"reference"`, as in `planes`.

    Returns:
        `[n]` float32.

    Raises:
        DataError: Rows have another shape or dtype.

    Example:
        >>> frames = np.zeros((2, 8396), np.uint8)
        >>> frames[:, 4] = 3, 4
        >>> rule50_divisors(frames).tolist()
        [99.0, 100.0]
    """
    hecto = (input_formats(rows) > 3) & (input_format == "record")
    return np.where(hecto, np.float32(100), np.float32(99))
