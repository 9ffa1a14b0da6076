"""Agents and the vehicle as boxes, a channel for each step of history."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.geometry import box_corners
from penstock.domains.driving.logs import EGO_EXTENT
from penstock.domains.driving.rasterize.base import Draw, Planes, Rasterizer, unit
from penstock.domains.driving.rasterize.context import RenderContext
from penstock.domains.driving.rasterize.cull import Circles
from penstock.domains.driving.rasterize.drawing import Fixed, fill, to_fixed
from penstock.domains.driving.rasterize.options import RasterOptions
from penstock.domains.driving.rasterize.scenes import Boxes, Integers, Scenes, Views, ranges
from penstock.errors import DataError

FADE = 0.85  # brightness that is left of a step further in the past


class BoxRasterizer(Rasterizer):
    """`2 * (history_num_frames // history_step + 1)` channels: agents now, then back in time; the ego alike.

    The ego is the vehicle, or the view's agent: then the vehicle is among the agents. Only agents whose labels are of
    interest with a probability above `filter_agents_threshold` are drawn. Steps without a frame stay black.

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
        """All boxes of all views, moved to pixels at once; a channel is then one drawing call."""
        polygons, plane = self.polygons(scenes, views)
        channels = 2 * self.steps
        ends = np.searchsorted(plane, np.arange(len(views) * channels + 1)).tolist()
        paint = fill if self.options.fill == "even-odd" else _fill_union

        def draw(view: int, planes: Planes) -> None:
            planes.fill(0)
            first = view * channels
            for channel in range(channels):
                low, high = ends[first + channel], ends[first + channel + 1]
                if low < high:
                    paint(planes[channel], polygons[low:high], 255)

        return draw

    def polygons(self, scenes: Scenes, views: Views) -> tuple[Fixed, Integers]:
        """The boxes that may be seen: fixed-point corners `[m, 4, 2]`, and where `[m]`: view * channels + channel.

        Ascending by where, and in the order of drawing there.
        """
        boxes = scenes.boxes(self.filter_agents_threshold)
        view, plane, corner = self._entries(boxes, views)
        matrices = self.matrices(views)
        circles, corners = boxes.circles.take(corner), boxes.corners
        if views.ego is not None:  # the vehicle's boxes are the last entries, step by step
            moved = self._moved(views, views.ego)
            first = len(corner) - len(moved)
            corners = np.concatenate([corners[corner[:first]], moved])
            corner, around = np.arange(len(corners)), Circles.around(moved)
            circles.center[first:], circles.radius[first:] = around.center, around.radius
        seen = np.flatnonzero(circles.touching(matrices[view], self.context))
        key = view[seen] * self.num_channels() + plane[seen]
        order = np.argsort(key, kind="stable")
        drawn = seen[order]
        return to_fixed(corners[corner[drawn]], matrices[view[drawn]]), key[order]

    def _moved(self, views: Views, ego: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Corners `[m, 4, 2]` of the vehicle where `ego` says that it is, for the steps that are drawn of it."""
        history = slice(0, self.history_num_frames + 1, self.options.history_step)
        shown = views.steps[:, history] >= 0
        if not self.render_ego_history:
            shown[:, 1:] &= views.track[:, None] >= 0  # among an agent's neighbours it is not the ego
        poses = ego[:, history][shown]
        extent = np.broadcast_to(np.array(EGO_EXTENT, np.float32), (len(poses), 3))
        return box_corners(poses[:, :2], extent, poses[:, 2].astype(np.float32))

    def _entries(self, boxes: Boxes, views: Views) -> tuple[Integers, Integers, Integers]:
        """What is drawn: of which view, into which channel, which corners; agents of a frame before the vehicle."""
        wanted = views.steps[:, : self.history_num_frames + 1 : self.options.history_step]
        at = np.flatnonzero(wanted >= 0)
        frame, view, step = wanted.ravel()[at], at // wanted.shape[1], at % wanted.shape[1]
        corner, owner = ranges(boxes.spans[frame])
        chosen = boxes.track[corner] == views.track[view[owner]]
        around_agent = views.track[view] >= 0
        plane = np.concatenate([step[owner] + self.steps * chosen, step + self.steps * ~around_agent])
        view = np.concatenate([view[owner], view])
        corner = np.concatenate([corner, len(boxes.rows) + frame])
        if self.render_ego_history:
            return view, plane, corner
        kept = plane <= self.steps  # the first of the ego's channels is the current one
        return view[kept], plane[kept], corner[kept]

    def to_rgb(self, in_im: npt.NDArray[Any], **kwargs: Any) -> Planes:
        """Agents in `agent_color` (blue), the ego in `ego_color` (green), 0..1 each, fading into the past."""
        agent_color, ego_color = kwargs.pop("agent_color", (0, 0, 1)), kwargs.pop("ego_color", (0, 1, 0))
        if kwargs:
            raise DataError(f"expected agent_color and ego_color, got {', '.join(kwargs)}")
        planes, steps = unit(in_im).transpose(2, 0, 1), in_im.shape[-1] // 2
        picture = _faded(planes[:steps], agent_color) + _faded(planes[steps:], ego_color)
        return (np.clip(picture, 0, 1) * 255).astype(np.uint8)


def _faded(planes: npt.NDArray[Any], color: Any) -> npt.NDArray[np.float32]:
    picture = np.zeros((*planes.shape[1:], 3), np.float32)
    for plane in planes[::-1]:  # from the oldest on
        picture *= FADE
        picture[plane > 0] = color
    return picture


def _fill_union(image: Planes, polygons: Fixed, color: int) -> None:
    for polygon in polygons:
        fill(image, [polygon], color)
