"""Pictures out of rows of observations: which axis is which, and which of a stack is the newest."""

from __future__ import annotations

from typing import Literal

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray

Color = Literal["RGB", "GRAY"] | None

SIDE = 8  # smaller arrays are no pictures
CHANNELS = 16  # more are no channels


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether rows of that shape can be shown: `[H, W]`, `[H, W, C]`, `[C, H, W]`, or one of them a stack."""
    if len(shape) == 2:
        return min(shape) >= SIDE
    if len(shape) == 4:
        return shape[0] <= CHANNELS and is_picture(shape[1:])
    return len(shape) == 3 and channel_axis(shape) is not None


def pictures(rows: AnyArray, color: Color = None) -> ByteArray:
    """`[n, S, H, W, 3]` uint8 pictures of `[n, *shape]` rows: S of each, the newest last.

    `color` tells three channels of gray from RGB, and a stack of gray from one of RGB. Four channels without it are
    gray, as Atari's stacks are. Values of floats up to 1 become 0 to 255.
    """
    shape = rows.shape[1:]
    if len(shape) == 2:
        return _rgb(_scaled(rows)[:, None, :, :, None])
    if len(shape) == 4:
        inside = pictures(rows.reshape(-1, *shape[1:]), color)
        return inside.reshape(len(rows), -1, *inside.shape[2:])
    axis = channel_axis(shape)
    if axis is None:
        raise ValueError(f"expected rows of [H, W], [H, W, C] or [C, H, W], got {shape}")
    last = np.moveaxis(_scaled(rows), axis + 1, -1)
    n, height, width, channels = last.shape
    each = 3 if (color == "RGB" or (color is None and channels != 4)) and channels % 3 == 0 else 1
    if channels == 4 and color == "RGB":
        return _rgb(last[:, None, :, :, :3])  # with transparency
    split = last.reshape(n, height, width, channels // each, each)
    return _rgb(np.moveaxis(split, 3, 1))


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """0 or 2; where both could be, the smaller."""
    fitting = [axis for axis in (2, 0) if shape[axis] <= CHANNELS and min(np.delete(shape, axis)) >= SIDE]
    return min(fitting, key=lambda axis: shape[axis], default=None)


def _scaled(rows: AnyArray) -> ByteArray:
    if rows.dtype == np.uint8:
        return rows
    if rows.dtype.kind == "b":
        return rows.astype(np.uint8) * np.uint8(255)
    values = np.nan_to_num(rows.astype(np.float64))
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:
        values = (values - low) * (255 / max(high - low, 1e-12))
    return np.rint(values).astype(np.uint8)


def _rgb(stack: ByteArray) -> ByteArray:
    """`[n, S, H, W, 1 or 3]` as `[n, S, H, W, 3]`."""
    return np.ascontiguousarray(np.broadcast_to(stack, (*stack.shape[:-1], 3)))
