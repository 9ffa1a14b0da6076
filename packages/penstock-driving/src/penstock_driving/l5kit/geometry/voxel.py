"""Points counted in the cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, BoolArray


def points_within_bounds(coords: AnyArray, shape: Sequence[int] | AnyArray) -> BoolArray:
    """Return `[N]` bool: which points `[N, D]` are within `0 : shape` along all axes."""
    return np.asarray(((coords >= 0) & (coords < np.asarray(shape))).all(axis=1))


def voxel_coords_to_intensity_grid(
    voxel_coords: AnyArray, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, drop_out_of_bounds: bool = True
) -> AnyArray:
    """Return the number of points `[N, 3]` (integers) in each cell of a grid; points outside are left out.

    With `drop_out_of_bounds=False` negative numbers count from the end, and points beyond it raise `IndexError`.
    """
    if drop_out_of_bounds:
        voxel_coords = voxel_coords[points_within_bounds(voxel_coords, shape)]
    cells, counts = np.unique(voxel_coords, axis=0, return_counts=True)
    grid = np.zeros(shape, dtype)
    grid[tuple(cells.T)] = counts
    return grid


def normalize_intensity(x: AnyArray, max_intensity: float) -> AnyArray:
    """Return `x / max_intensity`, clipped to 0 to 1."""
    return np.clip(x / max_intensity, 0, 1)
