"""How the toys look: a floor and a few shapes, drawn with smooth edges in NumPy, and found again in the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, Float32Array, FloatArray

Point = FloatArray
Kind = Literal["disc", "ring", "square"]

WHITE = (246, 246, 240)
GOLD = (255, 200, 60)
CORAL = (240, 96, 84)
TEAL = (70, 214, 190)
FLOORS = ((34, 38, 70), (52, 34, 66), (30, 52, 62), (46, 46, 52), (60, 42, 40), (34, 54, 44))
TILES = 8  # along a side of the floor


@dataclass(frozen=True)
class Shape:
    """One thing in the unit square, x to the right and y down: its centre, its radius (of a square: half a side)."""

    kind: Kind
    center: Point
    radius: float
    color: tuple[int, int, int]


def draw(shapes: Sequence[Shape], floor: int, size: int) -> ByteArray:
    """`[3, size, size]` uint8: the floor of that number, and the shapes on it, the last on top.

    Cost: some ten microseconds a shape at 32 pixels.
    """
    canvas = _floor(floor, size).copy()
    for shape in shapes:
        _shade(canvas, shape)
    return (canvas + np.float32(0.5)).astype(np.uint8)


def find(images: ByteArray, color: tuple[int, int, int]) -> Point:
    """`[..., 2]` float64: the centres of what has that colour in images `[..., 3, size, size]`; NaN where
    nothing has.
    """
    size = images.shape[-1]
    apart = images.astype(np.float64) - np.asarray(color, np.float64)[:, None, None]
    weight = np.clip(1 - np.sqrt((apart**2).sum(axis=-3)) / 70, 0, None)
    middles = (np.arange(size, dtype=np.int64) + 0.5) / size
    with np.errstate(invalid="ignore"):
        x = (weight.sum(axis=-2) * middles).sum(axis=-1) / weight.sum(axis=(-2, -1))
        y = (weight.sum(axis=-1) * middles).sum(axis=-1) / weight.sum(axis=(-2, -1))
    return np.stack([x, y], axis=-1)


def _shade(canvas: Float32Array, shape: Shape) -> None:
    """A soft shadow, then the shape itself, blended into the part of the canvas `[3, size, size]` around it."""
    size = canvas.shape[-1]
    low = np.maximum(((shape.center - 1.5 * shape.radius) * size).astype(int), 0)
    high = np.minimum(((shape.center + 1.7 * shape.radius) * size).astype(int) + 2, size)
    x = (np.arange(low[0], high[0], dtype=np.float32) + 0.5) / size
    y = (np.arange(low[1], high[1], dtype=np.float32)[:, None] + 0.5) / size
    patch = canvas[:, low[1] : high[1], low[0] : high[0]]
    drop = 0.2 * shape.radius
    shadow = _distance(shape, x - drop, y - drop)
    patch *= 1 - 0.45 * np.clip(0.5 - shadow / (0.5 * shape.radius), 0, 1)
    covered = np.clip(0.5 - _distance(shape, x, y) * size, 0, 1)
    patch += covered * (np.array(shape.color, np.float32)[:, None, None] - patch)


def _distance(shape: Shape, x: Float32Array, y: Float32Array) -> AnyArray:
    """Signed distances from the outline, negative inside, of the points of a grid."""
    dx = x - np.float32(shape.center[0])
    dy = y - np.float32(shape.center[1])
    radius = shape.radius
    if shape.kind == "square":  # with round corners
        corner = 0.3 * radius
        ax, ay = np.abs(dx) - (radius - corner), np.abs(dy) - (radius - corner)
        return np.hypot(np.maximum(ax, 0), np.maximum(ay, 0)) + np.minimum(np.maximum(ax, ay), 0) - corner
    away = np.hypot(dx, dy)
    return away - radius if shape.kind == "disc" else np.abs(away - 0.8 * radius) - 0.2 * radius


@lru_cache(maxsize=64)
def _floor(number: int, size: int) -> Float32Array:
    """`[3, size, size]` float32: faint tiles, lighter towards the top."""
    tile = np.arange(size) * TILES // size
    tiles = np.where((tile + tile[:, None]) % 2 == 0, 1.0, 1.16)
    light = np.linspace(1.2, 0.85, size)[:, None]
    return (np.asarray(FLOORS[number], np.float32)[:, None, None] * (tiles * light)).astype(np.float32)
