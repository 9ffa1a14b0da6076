"""What agents are and how fast they are, as channels of the current frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, Int32Array, IntArray
from penstock.errors import DataError
from penstock_driving.kernels.polygons import FILLED
from penstock_driving.rasterize.base import Draw, Planes, Rasterizer, refuse_colors
from penstock_driving.rasterize.context import RenderContext, place
from penstock_driving.rasterize.drawing import Strokes, calls_of, spans_of
from penstock_driving.rasterize.scenes import LABELS, Scenes, Views, ranges

CLASSES = (0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2)  # of LABELS: vehicles; cycles and motorcycles; pedestrians, animals
REST = 128  # the value of no velocity
STEPS = 4.0  # values a metre a second


class AttributeRasterizer(Rasterizer):
    """Channels with the kinds and velocities of the agents in the current frame, including the agent of the view.

    `type` has three channels: 255 on the boxes of vehicles; of cycles and motorcycles; of pedestrians and animals, by
    the most probable label. `velocity` has two channels, along the pose and to its left: 128 + 4 for each metre a
    second, 1 to 255 on the boxes and 0 elsewhere. Later rows cover earlier ones.

    Args:
        context: Size and place of rasters.
        filter_agents_threshold: Agents are drawn if their labels of interest have a probability above this, 0 to 1.
        channels: Any of `"type"` and `"velocity"`, in order.

    Raises:
        DataError: `to_rgb` gets colours, or a raster without `type`.

    Example:
        >>> context = RenderContext((9, 9), (1.0, 1.0), (0.5, 0.5))
        >>> AttributeRasterizer(context, 0.5, ("type", "velocity")).num_channels()
        5
    """

    def __init__(self, context: RenderContext, filter_agents_threshold: float, channels: tuple[str, ...]) -> None:
        self.context = context
        self.filter_agents_threshold = filter_agents_threshold
        self.channels = channels

    def num_channels(self) -> int:
        """Three for `type`, two for `velocity`."""
        return sum(3 if channel == "type" else 2 for channel in self.channels)

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Each box of each view is a call for every channel in which it has a value."""
        polygons, view, values = self.polygons(scenes, views)
        box, channel = np.nonzero(values)
        calls = calls_of(box, box + 1, channel, FILLED, values[box, channel])
        ends = np.searchsorted(view[box], np.arange(len(views) + 1)).tolist()
        return Strokes(polygons.reshape(-1, 2), spans_of(len(polygons), 4), calls, ends).paint

    def polygons(self, scenes: Scenes, views: Views) -> tuple[Int32Array, IntArray, IntArray]:
        """Return the boxes that may be visible, view after view, in the order of drawing.

        Args:
            scenes: Rows of a log.
            views: `n` views of them.

        Returns:
            Corners `[m, 4, 2]` in fixed-point pixels, views `[m]`, and values `[m, channels]`, 0 for none.
        """
        boxes = scenes.boxes(self.filter_agents_threshold)
        corner, view = ranges(boxes.spans[views.steps[:, 0]])
        polygons, seen = place(boxes.corners, boxes.circles, corner, view, self.matrices(views), self.context)
        corner, view = corner[seen], view[seen]
        return polygons, view, self._values(scenes.agents[boxes.rows[corner]], views.yaw[view])

    def _values(self, agents: AnyArray, yaw: FloatArray) -> IntArray:
        """`[m, channels]` of `m` agents seen from poses that look along `yaw`."""
        parts: list[IntArray] = []
        for channel in self.channels:
            if channel == "type":
                likeliest = np.array(CLASSES)[agents["label_probabilities"][:, LABELS].argmax(axis=1)]
                parts.append(255 * (likeliest[:, None] == np.arange(3)))
            else:
                x, y = agents["velocity"].T.astype(np.float64)
                ahead, left = x * np.cos(yaw) + y * np.sin(yaw), y * np.cos(yaw) - x * np.sin(yaw)
                scaled = np.nan_to_num(REST + STEPS * np.stack([ahead, left], axis=1), nan=REST)
                parts.append(np.clip(np.rint(scaled), 1, 255).astype(np.int64))
        return np.concatenate(parts, axis=1)

    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """The first three channels, as they are. Raises `DataError` for colours of boxes."""
        refuse_colors(kwargs)
        if self.num_channels() < 3:
            raise DataError("expected the channels of type, got velocity alone, which is no picture")
        shown = in_im[..., :3]
        return shown.copy() if shown.dtype == np.uint8 else (shown * 255).astype(np.uint8)
