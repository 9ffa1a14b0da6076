"""Rasters drawn by PyTorch from vectors, on whatever device: kilobytes travel, pictures are made where they are used.

The edge rule: a pixel belongs to a shape if its middle, at whole coordinates, lies inside or on the edge; nothing is
smoothed. Lines are half a pixel to each side. So pictures differ from those of the CPU path at edges, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock.domains.driving.rasterize.base import Rasterizer
from penstock.domains.driving.rasterize.boxes import BoxRasterizer
from penstock.domains.driving.rasterize.combined import CombinedRasterizer
from penstock.domains.driving.rasterize.drawing import SHIFT, Fixed
from penstock.domains.driving.rasterize.scenes import Integers, Scenes, Views
from penstock.domains.driving.rasterize.semantic import KINDS, POINTS, SemanticRasterizer, Shapes
from penstock.errors import DataError, require

if TYPE_CHECKING:
    import torch

Pixels = npt.NDArray[Any]  # float32

TESTS = 1 << 24  # pixels tested against shapes at once
ROAD, LINES, CROSSWALK = 1, 2, 2 + len(KINDS)  # what lies above what; 0 is the background


@dataclass(frozen=True, eq=False)
class Vectors:
    """What `views` rasters are drawn from, in fixed-point pixels: some kilobytes a raster.

    `boxes` `[m, 4, 2]` and `box_plane` `[m]` (view * channels + channel). `lanes` `[k, 40, 2]`, `lane_view` `[k]` and
    `lane_level` `[k]`, what their lines lie above. `edges` `[q, 2, 2]` and `edge_view` `[q]`: the sides of crosswalks.
    `palette` `[views, levels, 3]` uint8: the colour of each level.
    """

    views: int
    boxes: Fixed
    box_plane: Integers
    lanes: Fixed
    lane_view: Integers
    lane_level: Integers
    edges: Fixed
    edge_view: Integers
    palette: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        parts = (self.boxes, self.box_plane, self.lanes, self.lane_view, self.lane_level, self.edges, self.edge_view)
        return sum(part.nbytes for part in parts) + self.palette.nbytes


class VectorRasterizer:
    """Draws what `rasterizer` draws, by PyTorch on `device`, under the edge rule of this module.

    `rasterizer` draws boxes, the semantic map, or one over the other, with roads in one colour. Raises `DataError` for
    any other, `MissingExtraError` without PyTorch.
    """

    def __init__(self, rasterizer: Rasterizer, device: str | torch.device = "cpu") -> None:
        layers = rasterizer.layers if isinstance(rasterizer, CombinedRasterizer) else [rasterizer]
        strange = [
            type(layer).__name__ for layer in layers if not isinstance(layer, BoxRasterizer | SemanticRasterizer)
        ]
        if strange:
            raise DataError(f"expected boxes and the semantic map, got {', '.join(strange)}")
        require("torch", "torch")
        self.device = device
        self.context = rasterizer.context
        self.boxes = next((layer for layer in layers if isinstance(layer, BoxRasterizer)), None)
        self.semantic = next((layer for layer in layers if isinstance(layer, SemanticRasterizer)), None)
        if self.semantic is not None and self.semantic.options.lane_color != "type":
            raise DataError("expected roads in one colour (lane_color='type'), got their direction")

    @property
    def torch(self) -> Any:
        """PyTorch."""
        return require("torch", "torch")

    def num_channels(self) -> int:
        """As many as the rasterizer has."""
        return sum(layer.num_channels() for layer in (self.boxes, self.semantic) if layer is not None)

    def vectors(self, scenes: Scenes, views: Views) -> Vectors:
        """What `views` see of `scenes`, culled, lights decided, nothing drawn. Threads may do this ahead."""
        boxes, plane = np.empty((0, 4, 2), np.int32), np.empty(0, np.int64)
        if self.boxes is not None:
            boxes, plane = self.boxes.polygons(scenes, views)
        n, shapes = len(views), list[Shapes]()
        if self.semantic is not None:
            see = self.semantic.shapes(scenes, views)
            shapes = [see(view) for view in range(n)]
        lanes = [np.empty((0, 2 * POINTS, 2), np.int32), *(seen.lanes for seen in shapes)]
        levels = [_levels(seen) for seen in shapes]
        edges = [np.stack([walk, np.roll(walk, -1, axis=0)], axis=1) for seen in shapes for walk in seen.crosswalks]
        walks = [sum(map(len, seen.crosswalks)) for seen in shapes]
        return Vectors(
            views=n,
            boxes=boxes,
            box_plane=plane,
            lanes=np.concatenate(lanes),
            lane_view=np.repeat(np.arange(len(shapes)), [len(seen.lanes) for seen in shapes]),
            lane_level=np.concatenate([np.empty(0, np.int64), *levels]),
            edges=np.concatenate([np.empty((0, 2, 2), np.int32), *edges]),
            edge_view=np.repeat(np.arange(len(shapes)), walks),
            palette=self._palette(shapes),
        )

    def _palette(self, shapes: list[Shapes]) -> npt.NDArray[np.uint8]:
        palette = np.zeros((len(shapes), CROSSWALK + 1, 3), np.uint8)
        if self.semantic is None:
            return palette
        color = self.semantic.options.color
        palette[:, 0], palette[:, ROAD], palette[:, CROSSWALK] = color("background"), color("road"), color("crosswalk")
        for view, seen in enumerate(shapes):
            for place, kind in enumerate(seen.order):
                palette[view, LINES + place] = color(KINDS[kind])
        return palette

    def draw(self, vectors: Vectors) -> torch.Tensor:
        """`[views, C, H, W]` uint8 on the device."""
        parts: list[Any] = []
        if self.boxes is not None:
            parts.append(self._draw_boxes(vectors, self.boxes))
        if self.semantic is not None:
            parts.append(self._draw_map(vectors))
        return parts[0] if len(parts) == 1 else self.torch.cat(parts, dim=1)

    def _draw_boxes(self, vectors: Vectors, boxes: BoxRasterizer) -> Any:
        torch, channels = self.torch, boxes.num_channels()
        covered = torch.zeros(vectors.views * channels * self._area, dtype=torch.uint8, device=self.device)

        def count(place: Any, _value: Any) -> None:
            covered.scatter_add_(0, place, torch.ones_like(place, dtype=torch.uint8))

        self._cover(_pixels(vectors.boxes), vectors.box_plane, vectors.box_plane, count)
        inside = covered & 1 if boxes.options.fill == "even-odd" else covered > 0
        return (inside * 255).to(torch.uint8).view(vectors.views, channels, *self.context.shape)

    def _draw_map(self, vectors: Vectors) -> Any:
        torch = self.torch
        level = torch.zeros(vectors.views * self._area, dtype=torch.uint8, device=self.device)

        def lift(place: Any, value: Any) -> None:
            level.scatter_reduce_(0, place, value.to(torch.uint8), "amax")

        lanes = _pixels(vectors.lanes)
        left, right = lanes[:, :POINTS], lanes[:, : POINTS - 1 : -1]
        self._cover(*_per_lane(_triangles(left, right), vectors.lane_view, np.full(len(lanes), ROAD)), lift)
        sides = np.stack([lanes[:, :POINTS], lanes[:, POINTS:]], axis=1)
        segments = np.stack([sides[:, :, :-1], sides[:, :, 1:]], axis=3).reshape(len(lanes), 2 * (POINTS - 1), 2, 2)
        self._cover(*_per_lane(_ribbons(segments), vectors.lane_view, vectors.lane_level), lift)
        edges = _ribbons(_pixels(vectors.edges))
        self._cover(edges, vectors.edge_view, np.full(len(edges), CROSSWALK), lift)
        view = torch.arange(vectors.views, device=self.device)[:, None]
        palette = torch.from_numpy(vectors.palette).to(self.device)
        colored = palette[view, level.view(vectors.views, self._area).long()]
        return colored.permute(0, 2, 1).reshape(vectors.views, 3, *self.context.shape)

    @property
    def _area(self) -> int:
        height, width = self.context.shape
        return height * width

    def _cover(self, shapes: Pixels, plane: Integers, value: Integers, add: Any) -> None:
        """Tell `add` the pixels that convex `shapes` `[m, 4, 2]` cover: their place in all planes, and the value.

        Each shape is tested against the pixels around it, in squares whose side is a power of two.
        """
        size = np.array(self.context.raster_size_px)
        low = np.maximum(np.ceil(shapes.min(axis=1)), 0).astype(np.int64)
        high = np.minimum(np.floor(shapes.max(axis=1)), size - 1).astype(np.int64)
        side = (high - low).max(axis=1, initial=0) + 1
        seen = np.flatnonzero(np.all(high >= low, axis=1))
        classes = np.ceil(np.log2(side[seen])).astype(np.int64)
        for power in np.unique(classes).tolist():
            rows, step = seen[classes == power], max(1, TESTS >> 2 * power)
            for at in range(0, len(rows), step):
                part = rows[at : at + step]
                self._test(shapes[part], low[part], high[part], plane[part], value[part], 1 << power, add)

    def _test(self, shapes: Any, low: Any, high: Any, plane: Any, value: Any, side: int, add: Any) -> None:
        torch = self.torch
        corners, low, high, plane, value = (
            torch.from_numpy(part).to(self.device) for part in (shapes, low, high, plane, value)
        )
        along = torch.arange(side, device=self.device)
        x, y = low[:, :1] + along, low[:, 1:] + along  # [m, side] each
        ahead = torch.roll(corners, -1, dims=1) - corners
        left = torch.ones((len(corners), side, side), dtype=torch.bool, device=self.device)
        right = left.clone()
        for edge in range(4):
            dx, dy = ahead[:, edge, 0, None, None], ahead[:, edge, 1, None, None]
            over = (y[:, :, None] - corners[:, edge, 1, None, None]) * dx
            turn = over - (x[:, None, :] - corners[:, edge, 0, None, None]) * dy
            left &= turn >= 0
            right &= turn <= 0
        inside = (left | right) & (x <= high[:, :1])[:, None, :] & (y <= high[:, 1:])[:, :, None]
        height, width = self.context.shape
        place = (plane[:, None, None] * height + y[:, :, None]) * width + x[:, None, :]
        add(place[inside], value[:, None, None].expand_as(inside)[inside])


def _pixels(points: Fixed) -> Pixels:
    return points.astype(np.float32) / np.float32(1 << SHIFT)


def _levels(seen: Shapes) -> Integers:
    """What the lines of each lane lie above: kinds in the order of drawing."""
    level = np.zeros(len(KINDS), np.int64)
    level[seen.order] = LINES + np.arange(len(seen.order))
    return level[seen.kinds]


def _triangles(left: Pixels, right: Pixels) -> Pixels:
    """`[k, t, 4, 2]`: what lies between two sides `[k, 20, 2]`, as triangles whose last corner is there twice."""
    first = np.stack([left[:, :-1], left[:, 1:], right[:, :-1], right[:, :-1]], axis=2)
    second = np.stack([left[:, 1:], right[:, 1:], right[:, :-1], right[:, :-1]], axis=2)
    return np.concatenate([first, second], axis=1)


def _ribbons(segments: Pixels) -> Pixels:
    """`[..., 4, 2]`: segments `[..., 2, 2]` as rectangles, half a pixel beyond on every side."""
    begin, end = segments[..., 0, :], segments[..., 1, :]
    along = end - begin
    length = np.linalg.norm(along, axis=-1, keepdims=True)
    half = np.where(length > 0, along / np.maximum(length, 1e-6), np.array([1, 0])) / 2
    across = np.stack([-half[..., 1], half[..., 0]], axis=-1)
    corners = (begin - half - across, end + half - across, end + half + across, begin - half + across)
    return np.stack(corners, axis=-2).astype(np.float32)


def _per_lane(shapes: Pixels, view: Integers, value: Integers) -> tuple[Any, Integers, Integers]:
    """Shapes `[k, t, 4, 2]` of lanes one after the other, with the views and values of their lanes."""
    count = shapes.shape[1]
    return shapes.reshape(-1, 4, 2), np.repeat(view, count), np.repeat(value, count)
