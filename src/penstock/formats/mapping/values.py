"""What becomes of stored rows before they are rows of a column: chosen places, bits, numbers of pixels, a scale.

`at`: places on the last axis, a list of them or one, which leaves no axis. `bits`: the bytes of the last axis are bits,
the first bit of a byte first; the shape of these, or `"square"`. `rgb`: the three bytes of a pixel are one number, of
which the first byte is the highest (`"big"`) or the lowest (`"little"`). `scale`: by which numbers are multiplied.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.spec import Field
from penstock.errors import FormatError
from penstock.formats.mapping.rules import ColumnRule


def changed_field(rule: ColumnRule, field: Field) -> Field:
    """Return the field of the rows that a rule makes of others. Raises `FormatError`."""
    shape, dtype = field.shape, field.dtype
    if rule.at is not None:
        places = rule.at if isinstance(rule.at, tuple) else (rule.at,)
        if not shape or not all(0 <= place < shape[-1] for place in places):
            raise FormatError(f"expected rows with the places {list(places)} on the last axis, got {list(shape)}")
        shape = (*shape[:-1], *((len(places),) if isinstance(rule.at, tuple) else ()))
    if rule.bits is not None:
        if not shape or dtype != np.uint8:
            raise FormatError(f"expected bytes for bits, got {dtype}{list(shape)}")
        shape = (*shape[:-1], *_bits_shape(rule, shape[-1]))
    if rule.rgb is not None:
        if shape[-1:] != (3,) or dtype != np.uint8:
            raise FormatError(f"expected pixels of three bytes for rgb, got {dtype}{list(shape)}")
        shape, dtype = shape[:-1], np.dtype(np.uint32)
    if rule.scale is not None:
        dtype = _scaled(dtype)
    return field if (shape, dtype) == (field.shape, field.dtype) else replace(field, shape=shape, dtype=dtype)


def changed_rows(rule: ColumnRule, rows: AnyArray) -> AnyArray:
    """Return the rows that a rule makes of others, whose field `changed_field` accepted."""
    if rule.at is not None:
        rows = rows[..., list(rule.at) if isinstance(rule.at, tuple) else rule.at]
    if rule.bits is not None:
        shape = _bits_shape(rule, rows.shape[-1])
        bits = np.unpackbits(rows, axis=-1, count=math.prod(shape))
        rows = bits.reshape(*rows.shape[:-1], *shape)
    if rule.rgb is not None:
        powers = np.array([1 << 16, 1 << 8, 1], np.uint32)
        rows = rows.astype(np.uint32) @ (powers if rule.rgb == "big" else powers[::-1])
    if rule.scale is not None:
        rows = (rows * np.float64(rule.scale)).astype(_scaled(rows.dtype))
    return rows


def _scaled(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)


def _bits_shape(rule: ColumnRule, size: int) -> tuple[int, ...]:
    """The shape of the bits in so many bytes, of which the last may be filled up."""
    shape = rule.bits if isinstance(rule.bits, tuple) else (math.isqrt(8 * size),) * 2
    if not 0 <= 8 * size - math.prod(shape) < 8:
        raise FormatError(f"expected {-(-math.prod(shape) // 8)} bytes for bits of {list(shape)}, got {size}")
    return shape
