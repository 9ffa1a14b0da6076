"""Which pixels shapes cover, by PyTorch, on any device.

An edge of a shape crosses rows of pixels; at each crossing the shape begins or ends, and adding up along a row says
what it covers. So the work grows with the lengths of edges, not with areas, and all edges of all shapes are one tensor.

A pixel belongs to a shape if its middle, at whole coordinates, is inside. Of middles on an edge those belong to it
that have it to their right or, on a horizontal edge, below: shapes side by side share no pixel, and leave none out.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import require

POINT = 1 / 512  # of a pixel: what fixed-point coordinates are multiples of
HALF = 128  # of what fits a byte: an even number of them adds up to nothing


class Cover:
    """What shapes cover in `planes` planes of `height` x `width`: how many do, or whether an odd number does."""

    def __init__(self, planes: int, height: int, width: int, device: Any, odd: bool = False) -> None:
        self.torch = require("torch", "torch")
        self.shape, self.odd = (planes, height, width), odd
        # One column more than there are: what ends with the last pixel ends there.
        kind = self.torch.uint8 if odd else self.torch.int16
        self._steps = self.torch.zeros(planes * height * (width + 1), dtype=kind, device=device)

    def add(self, shapes: Any, plane: Any) -> None:
        """Shapes `[m, c, 2]` float32 in pixels, convex, each onto its `plane` `[m]` int64."""
        _, height, width = self.shape
        owner, row, column, step = crossings(shapes, height, width)
        place = (plane[owner] * height + row).mul_(width + 1).add_(column)
        step = self.torch.full_like(step, HALF, dtype=self._steps.dtype) if self.odd else step
        self._steps.scatter_add_(0, place, step)

    def sums(self) -> Any:
        """`[planes, height, width]`: counts, int16; of `odd` 255 or 0, uint8."""
        planes, height, width = self.shape
        steps = self._steps.view(planes, height, width + 1)
        sums = steps.cumsum(dim=-1, dtype=steps.dtype)[..., :width]
        return (sums.view(self.torch.int8) >> 7).view(self.torch.uint8) if self.odd else sums


def topmost(shapes: Any, plane: Any, planes: int, height: int, width: int) -> Any:
    """`[planes, height, width]` int32: 1 + the last of `shapes` that covers each pixel, 0 where none does."""
    torch = require("torch", "torch")
    owner, row, column, _ = crossings(shapes, height, width)
    line, place = torch.unique(owner * height + row, return_inverse=True)
    first = torch.full_like(line, width).scatter_reduce_(0, place, column, "amin")
    last = torch.zeros_like(line).scatter_reduce_(0, place, column, "amax")
    of, within = _ranges(last - first)
    owner, row = line // height, line % height
    pixel = ((plane[owner] * height + row) * width + first)[of] + within
    top = torch.zeros(planes * height * width, dtype=torch.int32, device=shapes.device)
    top.scatter_reduce_(0, pixel, (owner[of] + 1).int(), "amax")
    return top.view(planes, height, width)


def crossings(shapes: Any, height: int, width: int) -> tuple[Any, Any, Any, Any]:
    """Where edges cross rows: of which shape, which row, and the first pixel beyond, in 0..`width`, `[q]` int64 each.

    Then `[q]` int16, 1 where the shape begins and -1 where it ends. Shapes outside the raster are left out.
    """
    torch = require("torch", "torch")
    corners = shapes.shape[1]
    ends = shapes.roll(-1, dims=1)
    along = ends - shapes
    spread = shapes[:, 1:] - shapes[:, :1]
    area = (spread[:, :-1, 0] * spread[:, 1:, 1] - spread[:, :-1, 1] * spread[:, 1:, 0]).sum(dim=1)
    down = along[..., 1:] > 0
    top = torch.where(down, shapes, ends)
    low, high = (y.ceil().clamp_(0, height) for y in (top[..., 1], torch.maximum(shapes[..., 1], ends[..., 1])))
    x = shapes[..., 0]
    seen = (x.amin(dim=1) <= width - 1) & (x.amax(dim=1) >= 0) & (area != 0)
    edge, row = _ranges(((high - low) * seen[:, None]).flatten().long())
    slope = along[..., 0] / along[..., 1]  # of edges that cross no row it may be anything
    level = low.flatten()[edge] + row
    column = level - top[..., 1].flatten()[edge]
    column = column.mul_(slope.flatten()[edge]).add_(top[..., 0].flatten()[edge]).ceil_().clamp_(0, width).long()
    step = torch.where(down[..., 0] == (area < 0)[:, None], 1, -1).to(torch.int16).flatten()[edge]
    return edge // corners, level.long(), column, step


def _ranges(count: Any) -> tuple[Any, Any]:
    """0, 1, ... `count[i] - 1` for each `i`, in order: which `i`, and the number."""
    torch = require("torch", "torch")
    owner = torch.repeat_interleave(count)
    begin = count.cumsum(0) - count
    return owner, torch.arange(len(owner), device=count.device) - begin[owner]


def triangles(left: Any, right: Any) -> Any:
    """`[k, t, 4, 2]`: the area between two sides `[k, p, 2]`, with the last corner twice."""
    torch = require("torch", "torch")
    first = torch.stack([left[:, :-1], left[:, 1:], right[:, :-1], right[:, :-1]], dim=2)
    second = torch.stack([left[:, 1:], right[:, 1:], right[:, :-1], right[:, :-1]], dim=2)
    return torch.cat([first, second], dim=1)


def ribbons(segments: Any) -> Any:
    """`[..., 4, 2]`: segments `[..., 2, 2]` as rectangles, half a pixel beyond on every side."""
    torch = require("torch", "torch")
    begin, end = segments.unbind(-2)
    along = end - begin
    length = along.norm(dim=-1, keepdim=True)
    ahead = torch.where(length > 0, along / length.clamp(min=POINT), along.new_tensor([1.0, 0.0])) / 2
    across = torch.stack([-ahead[..., 1], ahead[..., 0]], dim=-1)
    corners = (begin - ahead - across, end + ahead - across, end + ahead + across, begin - ahead + across)
    return torch.stack(corners, dim=-2)
