"""The semantic map as a picture: roads, the lines of lanes in the colours of their lights, crosswalks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, Int32Array, IntArray
from penstock.core.ragged import offsets_of
from penstock.errors import DataError
from penstock_driving.geometry import transform_points
from penstock_driving.kernels.pixels import split_channels
from penstock_driving.kernels.polygons import CLOSED, FILLED, OPEN
from penstock_driving.map.api import COLORS, MapAPI
from penstock_driving.rasterize.base import Draw, Planes, Rasterizer, refuse_colors
from penstock_driving.rasterize.context import Circles, RenderContext, SpatialIndex, place
from penstock_driving.rasterize.drawing import Strokes, calls_of, packed, spans_of
from penstock_driving.rasterize.options import RasterOptions
from penstock_driving.rasterize.scenes import Scenes, Views, ranges

POINTS = 20  # of a lane's side
KINDS = ("lane", *(color.lower() for color in COLORS))  # how the lines of a lane are coloured
STRICTEST = (0, 3, 1, 2)  # of KINDS: red before yellow before green
NO_COLOR = -1  # of a control that is no face
ABSENT = 1 << 62  # of a kind that a view does not meet


@dataclass(frozen=True, eq=False)
class VisibleElements:
    """What `n` views see, view after view.

    `lanes` `[m, 40, 2]`: the left side, then the right one back, in fixed-point pixels and in the map's order. `kinds`
    `[m]`: the place in `KINDS` of their lines; `view` `[m]`: whose they are. `met` `[n, kinds]`: the lines of a view
    are drawn in ascending order of these, and there are none where it is `ABSENT`. `walks` `[P, 2]`: points of
    crosswalks, of which `walk_spans` `[k, 2]` are one each, of `walk_view` `[k]`.
    """

    lanes: Int32Array
    kinds: IntArray
    view: IntArray
    met: IntArray
    walks: Int32Array
    walk_spans: IntArray
    walk_view: IntArray


class SemanticRasterizer(Rasterizer):
    """Three channels: the map around each view, with the traffic lights of the current frame.

    Lanes are drawn if their bounding box meets the square around the circle through the corners of the raster. They are
    resampled to 20 points a side, and drawn in the order of the map: all roads, then all lines, then crosswalks.

    Args:
        context: Size and place of rasters.
        road: The map.
        options: Differences from L5Kit. The default is None: none.
        lights: Whether traffic lights colour the lines of lanes. The default is True.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp(), "map.pb")  # a map of one junction without lanes
        >>> _ = file.write_bytes(bytes.fromhex("12090a030a014a12022a00"))
        >>> context = RenderContext((9, 9), (1.0, 1.0), (0.5, 0.5))
        >>> SemanticRasterizer(context, MapAPI(file, np.eye(4))).num_channels()
        3
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
        self.near_lanes = SpatialIndex(road.bounds_info["lanes"]["bounds"])
        self.near_crosswalks = SpatialIndex(road.bounds_info["crosswalks"]["bounds"])
        self.radius = context.radius
        self.lane_circles = Circles.around(self.lanes)
        self.crosswalk_points = np.ascontiguousarray(road.outlines.values[:, None, :2])
        self.crosswalk_circles = Circles(self.crosswalk_points[:, 0], np.full(len(self.crosswalk_points), np.inf))
        self.crosswalk_spans = np.stack([road.outlines.offsets[:-1], road.outlines.offsets[1:]], axis=1)
        self.line_colors = packed([self.options.color(kind) for kind in KINDS])
        self._take_controls()

    def _take_controls(self) -> None:
        """Every control that a lane obeys, lane after lane: `control_lane`, `control_face`, and `face_kind` by face."""
        names: dict[str, int] = {}
        pairs = [(lane, name) for lane, faces in enumerate(self.road.road.controls) for name in faces]
        self.control_lane = np.array([lane for lane, _ in pairs], np.int64)
        self.control_face = np.array([names.setdefault(name, len(names)) for _, name in pairs], np.int64)
        self.faces = names
        colors = [self.road[name].color if name in self.road.ids_to_el else None for name in names]
        self.face_kind = np.array([NO_COLOR if c is None else KINDS.index(c.lower()) for c in colors], np.int64)

    def num_channels(self) -> int:
        """Red, green, blue."""
        return 3

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Everything that the views see, moved to pixels; drawing is one call, on pixels of all three colours."""
        strokes = self._strokes(self.see(scenes, views), len(views))
        background = int(packed(self.options.color("background")))
        canvas = np.empty((1, *self.context.shape), np.uint64)

        def draw(view: int, planes: Planes) -> None:
            strokes.paint(view, canvas, background)
            split_channels(canvas.reshape(-1), planes.reshape(3, -1))

        return draw

    def see(self, scenes: Scenes, views: Views) -> VisibleElements:
        """Find the elements of the map that views see, in pixels.

        Args:
            scenes: Rows of a log.
            views: `n` views of them.
        """
        matrices = self.matrices(views)
        middle = np.array([self.context.raster_size_px]) * 0.5
        centers = transform_points(np.broadcast_to(middle, (len(views), 1, 2)), np.linalg.inv(matrices))[:, 0]
        lane, view = self.near_lanes.query_all(centers, self.radius)
        kinds = self._kinds(lane, view, self._active(scenes, views))
        met = np.full((len(views), len(KINDS)), ABSENT)
        met.ravel()[(view * len(KINDS) + kinds)[::-1]] = np.arange(len(lane))[::-1]  # where each is met first
        lanes, seen = place(self.lanes, self.lane_circles, lane, view, matrices, self.context)
        walk, walk_view = self.near_crosswalks.query_all(centers, self.radius)
        spans = self.crosswalk_spans[walk]
        point, owner = ranges(spans)
        walks, _ = place(self.crosswalk_points, self.crosswalk_circles, point, walk_view[owner], matrices, self.context)
        offsets = offsets_of(spans[:, 1] - spans[:, 0])
        walk_spans = np.stack([offsets[:-1], offsets[1:]], axis=1)
        return VisibleElements(lanes, kinds[seen], view[seen], met, walks[:, 0], walk_spans, walk_view)

    def _strokes(self, seen: VisibleElements, views: int) -> Strokes:
        """First all roads, then all lines, by their kinds, then crosswalks."""
        lanes, halves = len(seen.lanes), 2 * len(seen.lanes)
        points = np.concatenate([seen.lanes.reshape(-1, 2), seen.walks])
        spans = [spans_of(lanes, 2 * POINTS), spans_of(halves, POINTS), seen.walk_spans + lanes * 2 * POINTS]
        road, side = np.arange(lanes), lanes + 2 * np.arange(lanes)
        walk = lanes + halves + np.arange(len(seen.walk_view))
        by_kind = np.argsort(seen.met[seen.view, seen.kinds], kind="stable")
        side, colors = side[by_kind], self.line_colors[seen.kinds[by_kind]]
        calls = [
            calls_of(road, road + 1, 0, FILLED, self.road_colors(seen.lanes)),
            calls_of(side, side + 2, 0, OPEN, colors),
            calls_of(walk, walk + 1, 0, CLOSED, packed(self.options.color("crosswalk"))),
        ]
        view = np.concatenate([seen.view, seen.view[by_kind], seen.walk_view])
        order = np.argsort(view, kind="stable")
        ends = np.searchsorted(view[order], np.arange(views + 1)).tolist()
        return Strokes(points, np.concatenate(spans), np.concatenate(calls)[order], ends)

    def _active(self, scenes: Scenes, views: Views) -> BoolArray:
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

    def _kinds(self, lane: IntArray, view: IntArray, active: BoolArray) -> IntArray:
        """`[m]`: the place in `KINDS` of each lane of each view, ascending by view and lane."""
        kinds = np.zeros(len(lane), np.int64)
        if len(self.faces) == 0 or len(lane) == 0:
            return kinds
        seer, on = np.nonzero(active[:, self.control_face])
        kind = self.face_kind[self.control_face[on]]
        if self.options.light_rule == "strictest":
            order = np.argsort(np.array(STRICTEST)[kind], kind="stable")
            seer = seer[order]
            on = on[order]
            kind = kind[order]
        known, wanted = view * len(self.lanes) + lane, seer * len(self.lanes) + self.control_lane[on]
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        here = known[place] == wanted
        strange = on[here & (kind == NO_COLOR)]
        if len(strange):
            name = list(self.faces)[self.control_face[strange[0]]]
            raise DataError(f"expected active faces to be red, yellow or green in the map, got {name!r}")
        kinds[place[here]] = kind[here]  # the last one stays
        return kinds

    def road_colors(self, pixels: Int32Array) -> Any:
        """Return the colours of roads.

        With `"direction"`, the hue is the angle from the first points to the last in the raster.

        Args:
            pixels: `[m, 40, 2]` lanes in fixed-point pixels.
        """
        if self.options.lane_color == "type":
            return packed(self.options.color("road"))
        left, right = pixels[:, :POINTS].astype(np.float64), pixels[:, POINTS:]
        along = (left[:, -1] + right[:, 0]) - (left[:, 0] + right[:, -1])
        turns = np.arctan2(-along[:, 1], along[:, 0]) / (2 * np.pi)  # y points down in arrays
        return packed(np.clip(np.abs((turns[:, None] * 6 + (0, 4, 2)) % 6 - 3) - 1, 0, 1) * 255)

    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """The raster itself, as uint8. Raises `DataError` for colours of boxes."""
        refuse_colors(kwargs)
        return picture(in_im)


def picture(image: AnyArray) -> Planes:
    """A raster `[H, W, 3]`, float in 0..1 or uint8, as uint8. Floats are cut, not rounded, as in the original."""
    return image.copy() if image.dtype == np.uint8 else (image * 255).astype(np.uint8)
