"""Planes: a network's input for a position, in any of seven input formats, which each record names."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, UInt32Array, UInt64Array
from penstock.core.ragged import Ragged
from penstock.domains.chess.expansion import FILLED, PLANES, InputFormat, Rows, expand, frame_bytes, row_bytes
from penstock.errors import DataError

PlaneDtype = Literal["float32", "float16", "uint8"]


class BitPlanes(NamedTuple):
    """Planes without loss, in 928 bytes a position.

    `words` `[n, 112]` uint64: square `8 * rank + file` of a plane is bit `(8 * rank + file) ^ 7`, as in the record, so
    `np.unpackbits(words.view("u1"))` gives the squares in order. `fill` `[n, 8]` float32: the values of set bits in
    planes 104 to 111; in all others 1.
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
    """`[n, 112, 8, 8]` planes of frames `[n, 8396]` uint8 or of compact rows, in `out` where there is one.

    Planes 0 to 103 are eight positions of 13 planes, newest first, 0 or 1; 104 to 111 depend on the input format, which
    is read from each record, so that a batch may mix them. `input_format="reference"` gives instead what the loader of
    Leela Chess Zero gives, which takes all for input format 1. Of float16, plane 109 (the count of the fifty-move rule
    by 99 or 100) is rounded from float32. Of uint8 it is the count itself: divide by `rule50_divisors`.

    Raises `DataError` for rows or an `out` of another form, and for an input format that does not exist. Cost: writing
    the planes.

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
    """The planes of `rows` as words of bits; see `planes` for the arguments and errors.

    >>> words, fill = bit_planes(np.zeros((1, 8396), np.uint8), input_format="reference")
    >>> hex(words[0, 111]), fill[0, 7].item()
    ('0xffffffffffffffff', 1.0)
    """
    out = BitPlanes(np.empty((len(rows), PLANES[0]), np.uint64), np.empty((len(rows), FILLED), np.float32))
    expand(rows, planes=out.words, fill=out.fill, input_format=input_format)
    return out


def from_bits(bits: BitPlanes) -> Float32Array:
    """`[n, 112, 8, 8]` float32 planes of bit planes, the same bits that `planes` gives. Raises `DataError`.

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
    """`[n]` uint32 the input format that each of `rows` tells, as it stands there. Raises `DataError`.

    >>> input_formats(np.full((1, 8396), 1, np.uint8)).tolist()
    [16843009]
    """
    if not isinstance(rows, Ragged):
        return np.ascontiguousarray(frame_bytes(rows)[:, 4:8]).view("<u4")[:, 0]
    values, offsets = row_bytes(rows)
    if np.any(rows.lengths < 8):
        raise DataError("expected compact rows, got one of fewer than 8 bytes")
    return values[offsets[:-1, None] + np.arange(4, 8)].view("<u4")[:, 0]


def rule50_divisors(rows: Rows, *, input_format: InputFormat = "record") -> Float32Array:
    """`[n]` float32 what plane 109 of uint8 planes is to be divided by: 99 for input formats 1 to 3, 100 beyond.

    >>> frames = np.zeros((2, 8396), np.uint8)
    >>> frames[:, 4] = 3, 4
    >>> rule50_divisors(frames).tolist()
    [99.0, 100.0]
    """
    hecto = (input_formats(rows) > 3) & (input_format == "record")
    return np.where(hecto, np.float32(100), np.float32(99))
