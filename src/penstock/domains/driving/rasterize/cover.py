"""Which pixels convex shapes cover, by PyTorch, wherever the tensors lie: a first and a last pixel a row of each shape.

A pixel belongs to a shape if its middle, at whole coordinates, lies inside or on the edge. So the work grows with the
heights of shapes, not with their areas, and nothing is done shape by shape: all rows of all shapes are one tensor.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import require

POINT = 1 / 512  # of a pixel: what fixed-point coordinates are multiples of


class Cover:
    """How many shapes cover each pixel of `planes` planes of `height` x `width`, all of which begin with none."""

    def __init__(self, planes: int, height: int, width: int, device: Any) -> None:
        self.torch = require("torch", "torch")
        self.shape = planes, height, width
        # One column more than there are: what ends with the last pixel is taken away there.
        self._steps = self.torch.zeros(planes * height * (width + 1), dtype=self.torch.int16, device=device)

    def add(self, shapes: Any, plane: Any) -> None:
        """Shapes `[m, c, 2]` float32 in pixels, convex, each onto its `plane` `[m]` int64."""
        _, height, width = self.shape
        owner, row, first, last = spans(shapes, height, width)
        begin = (plane[owner] * height + row) * (width + 1)
        one = self.torch.ones_like(first, dtype=self.torch.int16)
        self._steps.scatter_add_(0, begin + first, one)
        self._steps.scatter_add_(0, begin + last + 1, -one)

    def counts(self) -> Any:
        """`[planes, height, width]` int16."""
        planes, height, width = self.shape
        steps = self._steps.view(planes, height, width + 1)
        return steps.cumsum(dim=-1, dtype=self.torch.int16)[..., :width]


def topmost(shapes: Any, plane: Any, planes: int, height: int, width: int) -> Any:
    """`[planes, height, width]` int32: 1 + the last of `shapes` that covers each pixel, 0 where none does."""
    torch = require("torch", "torch")
    owner, row, first, last = spans(shapes, height, width)
    of, within = _ranges(last + 1 - first)
    place = (plane[owner[of]] * height + row[of]) * width + first[of] + within
    top = torch.zeros(planes * height * width, dtype=torch.int32, device=shapes.device)
    top.scatter_reduce_(0, place, (owner[of] + 1).to(torch.int32), "amax")
    return top.view(planes, height, width)


def spans(shapes: Any, height: int, width: int) -> tuple[Any, Any, Any, Any]:
    """The rows of all shapes: of which shape, which row, the first and the last pixel; `[q]` int64 each.

    Where a row has no pixel, the last is one before the first.
    """
    torch = require("torch", "torch")
    x, y = shapes.unbind(-1)
    low, high = y.amin(1).ceil().clamp_(min=0), y.amax(1).floor().clamp_(max=height - 1)
    seen = (x.amax(1) >= 0) & (x.amin(1) <= width - 1)
    owner, row = _ranges((high - low + 1).clamp_(min=0).mul_(seen).long())
    row += low.long()[owner]
    level = row.to(shapes.dtype)
    first, last = torch.full_like(level, torch.inf), torch.full_like(level, -torch.inf)
    for corner in range(shapes.shape[1]):
        begin, end = shapes[:, corner - 1], shapes[:, corner]
        along = end - begin
        slope = torch.where(along[:, 1] != 0, along[:, 0] / along[:, 1], 0.0)
        left, right = torch.minimum(begin, end), torch.maximum(begin, end)
        edge = torch.stack([begin[:, 0], begin[:, 1], slope, left[:, 0], right[:, 0], left[:, 1], right[:, 1]], dim=1)
        x0, y0, lean, least, most, top, bottom = edge[owner].unbind(1)
        # An edge that lies in its row is met at its beginning; the next one begins at its end.
        at = (x0 + (level - y0) * lean).clamp_(least, most)
        meets = (top <= level) & (level <= bottom)
        first = torch.where(meets, torch.minimum(first, at), first)
        last = torch.where(meets, torch.maximum(last, at), last)
    from_, to = first.ceil().clamp_(0, width).long(), last.floor().clamp_(-1, width - 1).long()
    return owner, row, from_, torch.maximum(to, from_ - 1)


def _ranges(count: Any) -> tuple[Any, Any]:
    """0, 1, ... `count[i] - 1` for each `i`, one after the other: which `i`, and the number."""
    torch = require("torch", "torch")
    owner = torch.repeat_interleave(count)
    begin = count.cumsum(0) - count
    return owner, torch.arange(len(owner), device=count.device) - begin[owner]


def triangles(left: Any, right: Any) -> Any:
    """`[k, t, 3, 2]`: what lies between two sides `[k, p, 2]`."""
    torch = require("torch", "torch")
    first = torch.stack([left[:, :-1], left[:, 1:], right[:, :-1]], dim=2)
    second = torch.stack([left[:, 1:], right[:, 1:], right[:, :-1]], dim=2)
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
