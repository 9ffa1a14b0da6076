"""The semantic map as a picture: roads, the lines of lanes in the colours of their lights, crosswalks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.geometry import transform_points
from penstock.domains.driving.map.api import COLORS, MapAPI
from penstock.domains.driving.rasterize.base import Draw, Planes, Rasterizer
from penstock.domains.driving.rasterize.context import RenderContext
from penstock.domains.driving.rasterize.cull import Circles, Near
from penstock.domains.driving.rasterize.drawing import Fixed, fill, opencv, outline, to_fixed
from penstock.domains.driving.rasterize.options import Color, RasterOptions
from penstock.domains.driving.rasterize.scenes import Integers, Scenes, Views, ranges
from penstock.errors import DataError

POINTS = 20  # of a lane's side
KINDS = ("lane", *(color.lower() for color in COLORS))  # how the lines of a lane are coloured
STRICTEST = (0, 3, 1, 2)  # of KINDS: red before yellow before green
NO_COLOR = -1  # of a control that is no face


@dataclass(frozen=True, eq=False)
class Shapes:
    """What one view sees, in fixed-point pixels and in the order of drawing.

    `lanes` `[m, 40, 2]`: the left side, then the right one back. `kinds` `[m]`: the place in `KINDS` of their lines,
    which are drawn in `order`. `crosswalks`: outlines `[points, 2]`.
    """

    lanes: Fixed
    kinds: Integers
    order: list[int]
    crosswalks: list[Fixed]


class SemanticRasterizer(Rasterizer):
    """Three channels: the map around each view, with the lights of the current frame.

    Lanes are taken where their bounding box meets the square around the raster's circumscribed circle, resampled to 20
    points a side, and drawn in the map's order: first all roads, then all lines, then crosswalks.
    """

    def __init__(
        self, context: RenderContext, road: MapAPI, options: RasterOptions | None = None, lights: bool = True
    ) -> None:
        self.context = context
        self.road = road
        self.options = options or RasterOptions()
        self.lights = lights
        sides = road.interpolated_lanes(POINTS)[..., :2]
        # [lanes, 40, 2]: the left side, then the right one back, so that both are one outline
        self.lanes = np.concatenate([sides[:, 0], sides[:, 1, ::-1]], axis=1)
        self.near_lanes = Near(road.bounds_info["lanes"]["bounds"])
        self.near_crosswalks = Near(road.bounds_info["crosswalks"]["bounds"])
        self.radius = context.radius
        self.lane_circles = Circles.around(self.lanes)
        self.crosswalk_points = np.ascontiguousarray(road.outlines.values[:, :2])
        self.crosswalk_spans = np.stack([road.outlines.offsets[:-1], road.outlines.offsets[1:]], axis=1)
        self.line_colors = [self.options.color(kind) for kind in KINDS]
        self.blank = np.full((*context.shape, 3), self.options.color("background"), np.uint8)
        self._take_controls()

    def _take_controls(self) -> None:
        """Every control that a lane obeys, lane after lane: `control_lane`, `control_face`, and `face_kind` by face."""
        names: dict[str, int] = {}
        pairs = [(lane, name) for lane, held in enumerate(self.road.road.controls) for name in held]
        self.control_lane = np.array([lane for lane, _ in pairs], np.int64)
        self.control_face = np.array([names.setdefault(name, len(names)) for _, name in pairs], np.int64)
        self.faces = names
        colors = [self.road[name].color if name in self.road.ids_to_el else None for name in names]
        self.face_kind = np.array([NO_COLOR if c is None else KINDS.index(c.lower()) for c in colors], np.int64)

    def num_channels(self) -> int:
        """Red, green, blue."""
        return 3

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Where each view looks, and which faces are active in its current frame."""
        canvas = np.empty((*self.context.shape, 3), np.uint8)
        shapes = self.shapes(scenes, views)
        cv2 = opencv()

        def draw(view: int, planes: Planes) -> None:
            self._paint(canvas, shapes(view))
            cv2.split(canvas, list(planes))  # in place

        return draw

    def shapes(self, scenes: Scenes, views: Views) -> Callable[[int], Shapes]:
        """What says of each of the views which shapes it sees."""
        matrices = self.matrices(views)
        middle = np.array([self.context.raster_size_px]) * 0.5
        centers = transform_points(np.broadcast_to(middle, (len(views), 1, 2)), np.linalg.inv(matrices))[:, 0]
        active = self._active(scenes, views)

        def see(view: int) -> Shapes:
            center, matrix = centers[view], matrices[view : view + 1]
            lanes = self.near_lanes.query(center, self.radius)
            kinds = self._kinds(lanes, active[view])
            order = list(dict.fromkeys(kinds.tolist()))  # lines are drawn by kind, kinds as they are met
            seen = self.lane_circles.take(lanes).touching(matrix, self.context)
            lanes, kinds = lanes[seen], kinds[seen]
            return Shapes(to_fixed(self.lanes[lanes], matrix), kinds, order, self._crosswalks(center, matrix))

        return see

    def _active(self, scenes: Scenes, views: Views) -> npt.NDArray[np.bool_]:
        """`[n, faces]`: which of the faces that lanes obey are on in each view's current frame."""
        active = np.zeros((len(views), len(self.faces)), np.bool_)
        rows, owner = ranges(scenes.face_spans[views.steps[:, 0]])
        if not (self.lights and len(rows) and len(self.faces)):
            return active
        lit = scenes.faces["traffic_light_face_status"][rows, 0] > 0
        names, inverse = np.unique(scenes.faces["face_id"][rows[lit]], return_inverse=True)
        face = np.array([self.faces.get(name, -1) for name in names.tolist()], np.int64)[inverse]
        active[owner[lit][face >= 0], face[face >= 0]] = True
        return active

    def _kinds(self, lanes: Integers, active: npt.NDArray[np.bool_]) -> Integers:
        """`[m]`: the place in `KINDS` of each of the ascending `lanes`."""
        on = np.flatnonzero(active[self.control_face]) if len(self.faces) else np.empty(0, np.int64)
        kinds = np.zeros(len(lanes), np.int64)
        if len(on) == 0 or len(lanes) == 0:
            return kinds
        kind = self.face_kind[self.control_face[on]]
        if self.options.light_rule == "strictest":
            on, kind = on[order := np.argsort(np.array(STRICTEST)[kind], kind="stable")], kind[order]
        place = np.minimum(np.searchsorted(lanes, self.control_lane[on]), len(lanes) - 1)
        here = lanes[place] == self.control_lane[on]
        strange = on[here & (kind == NO_COLOR)]
        if len(strange):
            name = list(self.faces)[self.control_face[strange[0]]]
            raise DataError(f"expected active faces to be red, yellow or green in the map, got {name!r}")
        kinds[place[here]] = kind[here]  # the last one stays
        return kinds

    def _crosswalks(self, center: npt.NDArray[Any], matrix: npt.NDArray[Any]) -> list[Fixed]:
        walks = self.near_crosswalks.query(center, self.radius)
        if len(walks) == 0:
            return []
        spans = self.crosswalk_spans[walks]
        points = to_fixed(self.crosswalk_points[None, ranges(spans)[0]], matrix)[0]
        ends = np.cumsum(spans[:, 1] - spans[:, 0]).tolist()
        return [points[low:high] for low, high in pairwise([0, *ends])]

    def _paint(self, canvas: Planes, shapes: Shapes) -> None:
        np.copyto(canvas, self.blank)
        for polygon, color in zip(shapes.lanes, self._road_colors(shapes.lanes), strict=True):
            fill(canvas, [polygon], color)
        sides = shapes.lanes.reshape(-1, 2, POINTS, 2)
        for kind in shapes.order:
            lines = sides if len(shapes.order) == 1 else sides[shapes.kinds == kind]
            if len(lines):
                outline(canvas, lines.reshape(-1, POINTS, 2), False, self.line_colors[kind])
        if shapes.crosswalks:
            outline(canvas, shapes.crosswalks, True, self.options.color("crosswalk"))

    def _road_colors(self, pixels: Fixed) -> list[Color]:
        """One colour a road; by `direction` the hue is the angle from its first to its last points in the raster."""
        if self.options.lane_color == "type" or len(pixels) == 0:
            return [self.options.color("road")] * len(pixels)
        left, right = pixels[:, :POINTS].astype(np.float64), pixels[:, POINTS:]
        along = (left[:, -1] + right[:, 0]) - (left[:, 0] + right[:, -1])
        turns = np.arctan2(-along[:, 1], along[:, 0]) / (2 * np.pi)  # y points down in arrays
        parts = np.clip(np.abs((turns[:, None] * 6 + (0, 4, 2)) % 6 - 3) - 1, 0, 1) * 255
        return [(int(red), int(green), int(blue)) for red, green, blue in parts]

    def to_rgb(self, in_im: npt.NDArray[Any], **kwargs: Any) -> Planes:
        """The raster itself, as uint8."""
        return picture(in_im)


def picture(image: npt.NDArray[Any]) -> Planes:
    """A raster `[H, W, 3]`, float in 0..1 or uint8, as uint8. Floats are cut, not rounded, as in the original.

    >>> picture(np.array([[[0.0, 0.5, 1.0]]], np.float32)).tolist()
    [[[0, 127, 255]]]
    """
    return image.copy() if image.dtype == np.uint8 else (image * 255).astype(np.uint8)
