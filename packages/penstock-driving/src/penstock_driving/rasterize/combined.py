"""Several rasterisers' channels, one behind the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError
from penstock_driving.rasterize.attributes import AttributeRasterizer
from penstock_driving.rasterize.base import Draw, Planes, Rasterizer, refuse_colors
from penstock_driving.rasterize.boxes import BoxRasterizer
from penstock_driving.rasterize.scenes import Scenes, Views


class CombinedRasterizer(Rasterizer):
    """The channels of several rasterizers of one render context, in order."""

    def __init__(self, layers: list[Rasterizer]) -> None:
        if not layers or any(layer.context != layers[0].context for layer in layers):
            raise DataError("expected layers of one render context, got none or several")
        self.layers = layers
        self.context = layers[0].context

    def num_channels(self) -> int:
        """All layers' together."""
        return sum(layer.num_channels() for layer in self.layers)

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Every layer prepares, then draws into its own channels."""
        ends = np.cumsum([0, *(layer.num_channels() for layer in self.layers)]).tolist()
        draws = [layer.prepare(scenes, views) for layer in self.layers]

        def draw(view: int, planes: Planes) -> None:
            for place, one in enumerate(draws):
                one(view, planes[ends[place] : ends[place + 1]])

        return draw

    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """The map, and over it the boxes in the colours of `BoxRasterizer.to_rgb`. Attributes are not shown."""
        if not any(isinstance(layer, BoxRasterizer) for layer in self.layers):
            refuse_colors(kwargs)
        boxes = None
        below = None
        first = 0
        for layer in self.layers:
            last = first + layer.num_channels()
            if isinstance(layer, BoxRasterizer):
                boxes = layer.to_rgb(in_im[..., first:last], **kwargs)
            elif not isinstance(layer, AttributeRasterizer):
                below = layer.to_rgb(in_im[..., first:last])
            first = last
        if boxes is None or below is None:
            return next(shown for shown in (boxes, below) if shown is not None)
        covered = np.any(boxes > 0, axis=-1)
        below[covered] = boxes[covered]
        return below
