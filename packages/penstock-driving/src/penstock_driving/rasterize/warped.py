"""Aerial images turned and resized by PyTorch, by the rules of `driving.kernels.warping`, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray
from penstock.errors import require
from penstock_driving.kernels.warping import PLACES, ROUND
from penstock_driving.rasterize.satellite import SatelliteRasterizer

PIXELS = 1 << 23  # of turned images, worked on at once: about a hundred bytes each


class Warp:
    """The image of `satellite` on `device`, as uint8, and what its rasters are mixed from."""

    def __init__(self, satellite: SatelliteRasterizer, device: Any) -> None:
        self.shape = satellite.context.shape
        rows, place = np.unique(satellite.rows, return_inverse=True)
        upper, lower = place.reshape(satellite.rows.shape).T
        image = satellite.map_im if satellite.map_im.flags.writeable else satellite.map_im.copy()
        self.size = image.shape[:2]
        self.device = device
        self.image = self._moved(image).view(-1, 3)
        self.rows, self.columns, self.left = (self._moved(part) for part in (rows, satellite.columns, satellite.left))
        self.upper, self.lower = self._moved(upper.copy()), self._moved(lower.copy())
        self.across, self.down = (
            self._moved(satellite.across)[:, :, None],
            self._moved(satellite.down)[:, :, None, None],
        )

    def _moved(self, array: AnyArray) -> Any:
        return require("torch", "torch").from_numpy(array).to(self.device)

    def draw(self, cut: AnyArray, turn: FloatArray, out: Any) -> None:
        """Views cut out at `cut` `[n, 3]`, turned by `turn` `[n, 2, 3]`, into `out` `[n, 3, H, W]` uint8."""
        step = max(1, PIXELS // (len(self.rows) * len(self.columns)))
        for low in range(0, len(cut), step):
            part = slice(low, low + step)
            turned = self._turned(self._moved(cut[part]), self._moved(turn[part]))
            mixed = turned[:, :, self.left] * self.across[:, 0] + turned[:, :, self.left + 1] * self.across[:, 1]
            mixed >>= 4
            both = ((mixed[:, self.upper] * self.down[:, 0]) >> 16) + ((mixed[:, self.lower] * self.down[:, 1]) >> 16)
            out[part] = ((both + 2) >> 2).permute(0, 3, 1, 2)

    def _turned(self, cut: Any, turn: Any) -> Any:
        """`[n, rows, columns, 3]` int32: those pixels of the turned cut-outs."""
        places: list[Any] = []
        for axis in range(2):
            along, down, first = turn[:, axis].T[:, :, None]
            start = ((down * self.rows + first) * PLACES).round_().long() + ROUND
            places.append((start[:, :, None] + (along * self.columns * PLACES).round_().long()[:, None]) >> 5)
        (x, right), (y, lower) = ((place >> 5, (place & 31).int()[..., None]) for place in places)
        top, bottom = (
            (32 - right) * self._pixels(cut, row, x) + right * self._pixels(cut, row, x + 1) for row in (y, y + 1)
        )
        return ((32 - lower) * top + lower * bottom + 512) >> 10

    def _pixels(self, cut: Any, row: Any, column: Any) -> Any:
        """`[..., 3]` int32 of the cut-outs, black where there is nothing."""
        first, left, side = cut.T[:, :, None, None]
        there = (row >= 0) & (row < side) & (column >= 0) & (column < side)
        row, column = row + first, column + left
        there &= (row >= 0) & (row < self.size[0]) & (column >= 0) & (column < self.size[1])
        return self.image[(row * self.size[1] + column) * there].int() * there[..., None]
