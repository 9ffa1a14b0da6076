"""Depth maps in colour: near is blue and far is red, on a scale that holds for a whole episode."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, FloatArray
from penstock.core.spec import Field

SIDE = 16  # shorter sides are tables of numbers
SAMPLED = 9  # frames of an episode that the scale is made of
ENDS = (1.0, 99.0)  # percentiles
# Colours of an even scale, between which colours are mixed; black is for pixels without depth.
STOPS = np.array([[48, 18, 90], [50, 110, 230], [30, 190, 190], [110, 235, 80], [240, 200, 50], [220, 70, 20]], float)


def is_depth(path: str, field: Field) -> bool:
    """Whether rows of a column are maps of one number a pixel: numbers that are no pictures, and no small tables."""
    known = field.kind == "array" and field.align != "episode" and (field.dtype == np.uint16 or field.dtype.kind == "f")
    sides = sides_of(field.shape)
    return known and len(sides) == 2 and min(sides) >= (1 if "depth" in path else SIDE)


def sides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Height and width of `[H, W]`, `[H, W, 1]` or `[1, H, W]`; or another shape without a side of 1."""
    return shape if len(shape) < 3 else shape[1:] if shape[0] == 1 else shape[:-1] if shape[-1] == 1 else shape


def scale_of(rows: AnyArray) -> tuple[float, float]:
    """Return the ends of the scale for some rows: percentiles of the values above 0."""
    values = rows[np.isfinite(rows) & (rows > 0)] if rows.size else rows
    if not values.size:
        return 0.0, 1.0
    low, high = np.percentile(values.astype(np.float64), ENDS).tolist()
    return (low, high) if high > low else (low, low + 1)


def colored(rows: AnyArray, scale: tuple[float, float]) -> ByteArray:
    """Return rows `[n, ...]` as pictures `[n, H, W, 3]`. Pixels without a depth above 0 are black."""
    depths = maps(rows)
    low, high = scale
    with np.errstate(invalid="ignore"):
        place = np.nan_to_num((depths.astype(np.float64) - low) / (high - low)).clip(0, 1)
    colors = table()[np.rint(place * 255).astype(np.uint8)]
    colors[~(np.isfinite(depths) & (depths > 0))] = 0
    return colors


def maps(rows: AnyArray) -> AnyArray:
    """Return rows `[n, ...]` as maps `[n, H, W]`."""
    return rows.reshape(len(rows), *sides_of(rows.shape[1:]))


def table() -> ByteArray:
    """`[256, 3]` colours of the scale."""
    levels: FloatArray = np.linspace(0, len(STOPS) - 1, 256)
    stops = np.arange(len(STOPS), dtype=np.float64)
    sides: list[FloatArray] = [np.interp(levels, stops, STOPS[:, i]) for i in range(3)]
    return np.stack(sides, axis=1).round().astype(np.uint8)


def described(scale: tuple[float, float], unit: str) -> dict[str, Any]:
    """Return the scale for the page: its ends, its unit and some of its colours."""
    return {"low": scale[0], "high": scale[1], "unit": unit, "colors": table()[:: 255 // 5].tolist()}
