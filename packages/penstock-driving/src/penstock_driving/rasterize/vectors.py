"""Rasters drawn by PyTorch from vectors, on any device: kilobytes travel, pictures are made where they are used.

The edge rule: a pixel belongs to a shape if its middle, at whole coordinates, is inside, or on an edge with the
shape to its right or below; nothing is smoothed. Lines are half a pixel to each side. So pictures differ from
the CPU path's at edges, nowhere else. Aerial images are sampled by the CPU path's fixed-point rules and equal its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, FloatArray, Int32Array, IntArray
from penstock.errors import DataError, require
from penstock_driving.kernels.warping import PLACES, ROUND
from penstock_driving.rasterize.attributes import AttributeRasterizer
from penstock_driving.rasterize.base import Rasterizer, StubRasterizer
from penstock_driving.rasterize.boxes import BoxRasterizer
from penstock_driving.rasterize.combined import CombinedRasterizer
from penstock_driving.rasterize.cover import POINT, Cover, ribbons, topmost, triangles
from penstock_driving.rasterize.satellite import SatelliteRasterizer
from penstock_driving.rasterize.scenes import Scenes, Views
from penstock_driving.rasterize.semantic import KINDS, POINTS, SemanticRasterizer, VisibleElements

if TYPE_CHECKING:
    import torch

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


# Order of the layers; 0 is the background
ROAD = 1
LINES = 2
CROSSWALK = 2 + len(KINDS)
CELLS = {"cpu": 1 << 24}  # pixels of planes that are worked on at once: they stay in a processor's cache
MANY_CELLS = 1 << 29  # elsewhere: some bytes each, and calls are few


@dataclass(frozen=True, eq=False)
class Vectors:
    """Shapes from which rasters are drawn, in fixed-point pixels: some kilobytes a raster."""

    views: int
    boxes: Int32Array  # `[m, 4, 2]` corners
    box_plane: IntArray  # `[m]`: view * channels + channel
    marks: Int32Array  # `[b, 4, 2]` corners of the boxes of attributes, in the order of drawing
    mark_plane: IntArray
    mark_value: ByteArray
    lanes: Int32Array  # `[k, 40, 2]` outlines
    lane_view: IntArray
    lane_level: IntArray  # `[k]` layer of its lines
    lane_color: ByteArray  # `[k, 3]` of its road
    edges: Int32Array  # `[q, 2, 2]` sides of crosswalks
    edge_view: IntArray
    palette: ByteArray  # `[views, levels, 3]` colour of each layer
    cut: IntArray  # `[views, 3]` place in the aerial image
    turn: FloatArray  # `[views, 2, 3]`

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return sum(getattr(self, part.name).nbytes for part in fields(self) if part.name != "views")


class VectorRasterizer:
    """Draws the rasters of another rasterizer by PyTorch on a device, under the edge rule of this module.

    Args:
        rasterizer: Any that `build_rasterizer` makes.
        device: Device of PyTorch. The default is `"cpu"`.

    Raises:
        DataError: A layer is of another kind, or two are of one kind.
        MissingExtraError: PyTorch is not installed.

    Example:
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, TL_FACE_DTYPE
        >>> scenes = Scenes.of(*(np.zeros(1, dtype) for dtype in (FRAME_DTYPE, AGENT_DTYPE, TL_FACE_DTYPE)))
        >>> from penstock_driving.rasterize import RenderContext
        >>> context = RenderContext((9, 9), (1.0, 1.0), (0.5, 0.5))
        >>> rasterizer = VectorRasterizer(BoxRasterizer(context, 0.5, 0), device="cpu")
        >>> rasterizer.draw(rasterizer.vectors(scenes, Views.of_ego(scenes, [[0]]))).shape
        torch.Size([1, 2, 9, 9])
    """

    def __init__(self, rasterizer: Rasterizer, device: str | torch.device = "cpu") -> None:
        self.layers = rasterizer.layers if isinstance(rasterizer, CombinedRasterizer) else [rasterizer]
        known = (BoxRasterizer, AttributeRasterizer, SemanticRasterizer, SatelliteRasterizer, StubRasterizer)
        kinds = [type(layer).__name__ for layer in self.layers]
        if not all(isinstance(layer, known) for layer in self.layers) or len(set(kinds)) < len(kinds):
            raise DataError(f"expected layers of {', '.join(kind.__name__ for kind in known)}, got {', '.join(kinds)}")
        require("torch", "torch")
        self.device = device
        self.context = rasterizer.context
        self.boxes = self._layer(BoxRasterizer)
        self.attributes = self._layer(AttributeRasterizer)
        self.semantic = self._layer(SemanticRasterizer)
        self.satellite = self._layer(SatelliteRasterizer)
        self._warp = None if self.satellite is None else Warp(self.satellite, device)

    def _layer(self, kind: type[Any]) -> Any:
        return next((layer for layer in self.layers if isinstance(layer, kind)), None)

    def num_channels(self) -> int:
        """Return the number of channels of the rasterizer."""
        return sum(layer.num_channels() for layer in self.layers)

    def vectors(self, scenes: Scenes, views: Views) -> Vectors:
        """Find the shapes that views see, without drawing. Threads may do this ahead.

        Args:
            scenes: Rows of a log.
            views: `n` views of them.
        """
        parts: dict[str, Any] = {name: np.empty((0, 4, 2), np.int32) for name in ("boxes", "marks")}
        parts.update({name: np.empty(0, np.int64) for name in ("box_plane", "mark_plane")})
        parts.update(mark_value=np.empty(0, np.uint8), cut=np.empty((0, 3), np.int64), turn=np.empty((0, 2, 3)))
        if self.boxes is not None:
            parts["boxes"], parts["box_plane"] = self.boxes.polygons(scenes, views)
        if self.attributes is not None:
            marks, view, values = self.attributes.polygons(scenes, views)
            box, channel = np.nonzero(values)
            parts["marks"], parts["mark_value"] = marks[box], values[box, channel].astype(np.uint8)
            parts["mark_plane"] = view[box] * values.shape[1] + channel
        if self.satellite is not None:
            parts["cut"], parts["turn"] = self.satellite.places(views)
        road = _NOTHING if self.semantic is None else self._road(self.semantic, self.semantic.see(scenes, views))
        return Vectors(views=len(views), **parts, **road)

    def _road(self, semantic: SemanticRasterizer, seen: VisibleElements) -> dict[str, Any]:
        rank = np.argsort(np.argsort(seen.met, axis=1), axis=1)  # of each kind of line, in the order of drawing
        color = semantic.options.color
        palette = np.zeros((len(seen.met), CROSSWALK + 1, 3), np.uint8)
        palette[:, 0] = color("background")
        palette[:, ROAD] = color("road")
        palette[:, CROSSWALK] = color("crosswalk")
        lines = np.array([color(kind) for kind in KINDS], np.uint8)
        np.put_along_axis(palette[:, LINES:CROSSWALK], rank[:, :, None], lines[None], axis=1)
        after = np.arange(len(seen.walks)) + 1
        starts, ends = seen.walk_spans[seen.walk_spans[:, 0] < seen.walk_spans[:, 1]].T
        after[ends - 1] = starts
        counts = seen.walk_spans[:, 1] - seen.walk_spans[:, 0]
        direction = semantic.options.lane_color == "direction"
        packed = semantic.road_colors(seen.lanes if direction else seen.lanes[:0])
        roads = packed[:, None] >> np.array([0, 16, 32]) if direction else np.empty((0, 3))
        return {
            "lanes": seen.lanes,
            "lane_view": seen.view,
            "lane_level": LINES + rank[seen.view, seen.kinds],
            "lane_color": roads.astype(np.uint8),
            "edges": np.stack([seen.walks, seen.walks[after]], axis=1),
            "edge_view": np.repeat(seen.walk_view, counts),
            "palette": palette,
        }

    def draw(self, vectors: Vectors) -> torch.Tensor:
        """Draw shapes.

        Args:
            vectors: Shapes of `n` views.

        Returns:
            `[n, C, H, W]` uint8 on the device.
        """
        height, width = self.context.shape
        shape = (vectors.views, self.num_channels(), height, width)
        out = self.torch.empty(shape, dtype=self.torch.uint8, device=self.device)
        cells = CELLS.get(self.torch.device(self.device).type, MANY_CELLS)
        step = max(1, cells // (shape[1] * height * width))
        for low in range(0, vectors.views, step):
            self._draw(vectors, low, min(low + step, vectors.views), out[low : low + step])
        return out

    def _draw(self, vectors: Vectors, low: int, high: int, out: Any) -> None:
        first = 0
        for layer in self.layers:
            planes = out[:, first : first + layer.num_channels()]
            first += layer.num_channels()
            if layer is self.boxes:
                self._draw_boxes(vectors, low, high, planes)
            elif layer is self.attributes:
                self._draw_marks(vectors, low, high, planes)
            elif layer is self.semantic:
                self._draw_map(vectors, low, high, planes)
            elif self._warp is not None and layer is self.satellite:
                self._warp.draw(vectors.cut[low:high], vectors.turn[low:high], planes)
            else:
                planes.zero_()

    def _draw_boxes(self, vectors: Vectors, low: int, high: int, planes: Any) -> None:
        views, channels, height, width = planes.shape
        boxes, plane = self._part(vectors.box_plane, channels, low, high, vectors.boxes)
        odd = self.boxes.options.fill == "even-odd"
        cover = Cover(views * channels, height, width, self.device, odd)
        cover.add(_pixels(boxes), plane)
        covered = cover.sums() if odd else (cover.sums() > 0) * 255
        planes.copy_(covered.view(planes.shape))

    def _draw_marks(self, vectors: Vectors, low: int, high: int, planes: Any) -> None:
        views, channels, height, width = planes.shape
        marks, value, plane = self._part(vectors.mark_plane, channels, low, high, vectors.marks, vectors.mark_value)
        top = topmost(_pixels(marks), plane, views * channels, height, width)
        planes.copy_(self.torch.cat([value.new_zeros(1), value])[top.long()].view(planes.shape))

    def _draw_map(self, vectors: Vectors, low: int, high: int, planes: Any) -> None:
        views, _, height, width = planes.shape
        colored = len(vectors.lane_color) > 0
        roads = (vectors.lane_color,) if colored else ()
        lanes, level, *color, view = self._part(
            vectors.lane_view, 1, low, high, vectors.lanes, vectors.lane_level, *roads
        )
        edges, walk = self._part(vectors.edge_view, 1, low, high, vectors.edges)
        points = _pixels(lanes)
        left, right = points[:, :POINTS], points[:, POINTS:].flip(1)
        road = triangles(left, right)
        lines = self.torch.cat([self.torch.stack([side[:, :-1], side[:, 1:]], dim=2) for side in (left, right)], dim=1)
        # A plane a level, from the first one on.
        parts = [_each(ribbons(lines), view * CROSSWALK + level - 1)]
        parts.append((ribbons(_pixels(edges)), walk * CROSSWALK + CROSSWALK - 1))
        if not colored:
            parts.append(_each(road, view * CROSSWALK + ROAD - 1))
        cover = Cover(views * CROSSWALK, height, width, self.device)
        cover.add(*(self.torch.cat(part) for part in zip(*parts, strict=True)))
        number = self.torch.arange(1, CROSSWALK + 1, dtype=self.torch.uint8, device=self.device)
        covered = cover.sums().view(views, CROSSWALK, height, width) > 0
        highest = (covered * number[:, None, None]).amax(dim=1).int()
        palette = self._moved(vectors.palette[low:high])
        first = CROSSWALK + 1
        picked = highest + first * self.torch.arange(views, dtype=self.torch.int32, device=self.device)[:, None, None]
        picture = palette.view(-1, 3)[picked]
        if colored:
            shapes, plane = _each(road, view)
            top = topmost(shapes, plane, views, height, width)
            lane = (top - 1) // road.shape[1]
            picture = self.torch.where(((highest == 0) & (top > 0))[..., None], color[0][lane.clamp(min=0)], picture)
        planes.copy_(picture.permute(0, 3, 1, 2))

    def _part(self, plane: IntArray, channels: int, low: int, high: int, *arrays: AnyArray) -> list[Any]:
        """Of views `low:high`, on the device: each of `arrays`, then the planes, counted from the first of these views.

        Planes ascend from view to view, if not within.
        """
        begin, end = np.searchsorted(plane, (low * channels, high * channels))
        return [self._moved(part[begin:end]) for part in (*arrays, plane - low * channels)]

    def _moved(self, array: AnyArray) -> Any:
        return self.torch.from_numpy(array).to(self.device)

    @property
    def torch(self) -> Any:
        """PyTorch."""
        return require("torch", "torch")


_NOTHING: dict[str, Any] = {
    "lanes": np.empty((0, 2 * POINTS, 2), np.int32),
    "lane_view": np.empty(0, np.int64),
    "lane_level": np.empty(0, np.int64),
    "lane_color": np.empty((0, 3), np.uint8),
    "edges": np.empty((0, 2, 2), np.int32),
    "edge_view": np.empty(0, np.int64),
    "palette": np.empty((0, CROSSWALK + 1, 3), np.uint8),
}


def _pixels(points: Any) -> Any:
    return points.float() * POINT


def _each(shapes: Any, plane: Any) -> tuple[Any, Any]:
    """Shapes `[k, t, c, 2]` of `k` lanes in order, with the planes `[k]` of their lanes."""
    return shapes.flatten(0, 1), plane.repeat_interleave(shapes.shape[1])
