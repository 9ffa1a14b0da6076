"""Bring pixels of rasters into another form: colours apart, and bytes as numbers from 0 to 1.

Both are one pass that reads and writes each byte once, which NumPy cannot do without a temporary array. The caller owns
all arrays. Reference: `tests/driving/reference/polygons.py`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Float32Array, UInt64Array
from penstock.kernels.jit import kernel

# 1 / 255 in two parts: a byte times the first is exact, and the sum rounds as the quotient of each byte does. Dividing
# takes twice the time of these.
_HIGH = np.float32(257 / 65536)
_LOW = np.float32(1 / 255 - 257 / 65536)


def split_channels(pixels: UInt64Array, planes: ByteArray) -> None:
    """Write the channels of pixels, which have them 16 bits apart, as planes."""
    if len(planes) > 4 or planes.shape[1:] != pixels.shape:
        raise ValueError(f"expected at most 4 planes of {len(pixels)} pixels, got {list(planes.shape)}")
    _split_channels(pixels, planes)


def to_unit(values: ByteArray, out: Float32Array) -> None:
    """Write `values / 255` in float32."""
    if len(values) != len(out):
        raise ValueError(f"expected room for {len(values)} values, got {len(out)}")
    _to_unit(values, out)


@kernel("u8[1C] u1[2C]")
def _split_channels(pixels: UInt64Array, planes: ByteArray) -> None:
    for channel in range(len(planes)):
        plane, digits = planes[channel], np.uint64(16 * channel)
        for i in range(len(pixels)):
            plane[i] = pixels[i] >> digits


@kernel("u1[1C] f4[1C]")
def _to_unit(values: ByteArray, out: Float32Array) -> None:
    for i in range(len(values)):
        value = np.float32(values[i])
        out[i] = value * _HIGH + value * _LOW
