"""Agents and the vehicle as boxes, a channel for each step of history."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, FloatArray, Int32Array, IntArray
from penstock.errors import DataError
from penstock_driving.geometry import box_corners
from penstock_driving.kernels.polygons import FILLED
from penstock_driving.logs import EGO_EXTENT
from penstock_driving.rasterize.base import Draw, Planes, Rasterizer, unit
from penstock_driving.rasterize.context import Circles, RenderContext, place
from penstock_driving.rasterize.drawing import Strokes, calls_of, spans_of
from penstock_driving.rasterize.options import RasterOptions
from penstock_driving.rasterize.scenes import Boxes, Scenes, Views, ranges

FADE = 0.85  # brightness that is left of a step further in the past


class BoxRasterizer(Rasterizer):
    """Boxes of agents and of the ego: `2 * (history_num_frames // history_step + 1)` channels.

    The first half has the agents now, then back in time; the second half has the ego alone. The ego is the vehicle that
    records, or the agent of the view; the vehicle is then among the agents. Steps without a frame are black.

    Args:
        context: Size and place of rasters.
        filter_agents_threshold: Agents are drawn if their labels of interest have a probability above this, 0 to 1.
        history_num_frames: Frames before the current one, 0 or more.
        render_ego_history: Whether an agent as ego leaves the channels of agents, also in the past. The default is
            True.
        options: Differences from L5Kit. The default is None: none.

    Raises:
        DataError: The history is negative.

    Example:
        >>> BoxRasterizer(RenderContext((9, 9), (1.0, 1.0), (0.5, 0.5)), 0.5, 10).num_channels()
        22
    """

    def __init__(
        self,
        context: RenderContext,
        filter_agents_threshold: float,
        history_num_frames: int,
        render_ego_history: bool = True,
        options: RasterOptions | None = None,
    ) -> None:
        if history_num_frames < 0:
            raise DataError(f"expected a history of 0 frames or more, got {history_num_frames}")
        self.context = context
        self.filter_agents_threshold = filter_agents_threshold
        self.history_num_frames = history_num_frames
        self.render_ego_history = render_ego_history
        self.options = options or RasterOptions()
        self.steps = history_num_frames // self.options.history_step + 1

    def num_channels(self) -> int:
        """Two a step."""
        return 2 * self.steps

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """All boxes of all views, moved to pixels at once; the boxes of a channel are one call, or with `union` each
        is."""
        polygons, where = self.polygons(scenes, views)
        channels = 2 * self.steps
        if self.options.fill == "union":
            boxes, planes = np.arange(len(where) + 1), where
        else:
            planes = np.arange(len(views) * channels)
            boxes = np.searchsorted(where, np.arange(len(planes) + 1))
        calls = calls_of(boxes[:-1], boxes[1:], planes % channels, FILLED, 255)
        ends = np.searchsorted(planes, np.arange(len(views) + 1) * channels).tolist()
        strokes = Strokes(polygons.reshape(-1, 2), spans_of(len(where), 4), calls, ends)
        return strokes.paint

    def polygons(self, scenes: Scenes, views: Views) -> tuple[Int32Array, IntArray]:
        """Return the boxes that may be visible.

        Args:
            scenes: Rows of a log.
            views: `n` views of them.

        Returns:
            Corners `[m, 4, 2]` in fixed-point pixels, and places `[m]`: view * channels + channel, ascending, agents
            before the vehicle.
        """
        boxes, matrices = scenes.boxes(self.filter_agents_threshold), self.matrices(views)
        vehicle, circles = boxes.corners, boxes.circles
        if views.ego is not None:
            vehicle = self._moved(views, views.ego)
            circles = Circles.around(vehicle)
        parts: list[tuple[Int32Array, IntArray]] = []
        for shapes, around, (view, plane, shape) in (
            (boxes.corners, boxes.circles, self._agents(boxes, views)),
            (vehicle, circles, self._vehicle(boxes, views)),
        ):
            polygons, seen = place(shapes, around, shape, view, matrices, self.context)
            parts.append((polygons, view[seen] * self.num_channels() + plane[seen]))
        polygons, where = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(where, kind="stable")
        return polygons[order], where[order]

    def _moved(self, views: Views, ego: FloatArray) -> FloatArray:
        """Corners `[n * steps, 4, 2]` of the vehicle where `ego` says that it is."""
        poses = ego[:, : self.history_num_frames + 1 : self.options.history_step].reshape(-1, 3)
        extent = np.broadcast_to(np.array(EGO_EXTENT, np.float32), (len(poses), 3))
        return box_corners(poses[:, :2], extent, poses[:, 2].astype(np.float32))

    def _shown(self, views: Views) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """The existing steps: which of all, and their frame, view and step."""
        wanted = views.steps[:, : self.history_num_frames + 1 : self.options.history_step]
        places = np.flatnonzero(wanted >= 0)
        return places, wanted.ravel()[places], places // wanted.shape[1], places % wanted.shape[1]

    def _agents(self, boxes: Boxes, views: Views) -> tuple[IntArray, IntArray, IntArray]:
        """Which agents are drawn: of which view, into which channel, which corners."""
        _, frame, view, step = self._shown(views)
        corner, owner = ranges(boxes.spans[frame])
        view, step = view[owner], step[owner]
        chosen = boxes.track[corner] == views.track[view]
        if self.render_ego_history:
            return view, step + self.steps * chosen, corner
        kept = ~chosen | (step == 0)
        return view[kept], (step + self.steps * chosen)[kept], corner[kept]

    def _vehicle(self, boxes: Boxes, views: Views) -> tuple[IntArray, IntArray, IntArray]:
        """The same of the vehicle, which is an agent among others around an agent."""
        places, frame, view, step = self._shown(views)
        is_ego = views.track[view] < 0
        kept = slice(None) if self.render_ego_history else ~is_ego | (step == 0)
        corner = len(boxes.rows) + frame if views.ego is None else places
        return view[kept], (step + self.steps * is_ego)[kept], corner[kept]

    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """Agents in `agent_color` (blue), the ego in `ego_color` (green), 0..1 each, fading into the past."""
        agent_color, ego_color = kwargs.pop("agent_color", (0, 0, 1)), kwargs.pop("ego_color", (0, 1, 0))
        if kwargs:
            raise DataError(f"expected agent_color and ego_color, got {', '.join(kwargs)}")
        planes, steps = unit(in_im).transpose(2, 0, 1), in_im.shape[-1] // 2
        picture = _faded(planes[:steps], agent_color) + _faded(planes[steps:], ego_color)
        return (np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _faded(planes: AnyArray, color: Any) -> Float32Array:
    picture = np.zeros((*planes.shape[1:], 3), np.float32)
    for plane in planes[::-1]:  # from the oldest on
        picture *= FADE
        picture[plane > 0] = color
    return picture
