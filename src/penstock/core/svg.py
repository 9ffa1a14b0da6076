"""Pictures as SVG, for notebooks and the viewer: cells and curves, without scripts, styles or anything from elsewhere.

Text and axes have the colour of the text around them, and the other colours are in the middle of the scale of
lightness, so that a picture is legible on light and on dark ground. Shapes of one colour are one path, so that a grid
of some thousand cells takes some twenty bytes for each. All text is escaped.
"""

from __future__ import annotations

import colorsys
import html
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray
from penstock.core.html import Markup

COLORS = (
    "#4287d6", "#e5812e", "#46a35c", "#b065cf", "#d9534f", "#1f9e9e", "#c79a1b", "#7678e0", "#d465a0", "#7da52e",
    "#a8734e", "#838b93",
)  # fmt: skip
GOLDEN = 0.6180339887  # fraction of the circle of hues between two numbers: neighbours differ most
HUES = 48  # of many things, each light and dark: the eye cannot tell more apart, and each colour is a path
FONT = 'font-family="system-ui,sans-serif" font-size="11"'
MARGIN = 14.0  # pixels above a chart's highest line and below its lowest one, where its numbers are
WIDE = 760.0  # pixels of a picture in notebooks
LEGEND = 16.0  # pixels of a line of names


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart."""

    name: str
    values: AnyArray
    color: str
    dashed: bool = False
    stepped: bool = False  # a value stays until the next one, as integers and flags do


def color(number: int) -> str:
    """Return the colour of one of a few things, such as the sources of a mix."""
    return COLORS[number % len(COLORS)]


def tint(number: int) -> str:
    """Return the colour of one of many things, such as the episodes of a dataset. Neighbours differ clearly."""
    hue = int((number * GOLDEN % 1) * HUES) / HUES
    red, green, blue = colorsys.hls_to_rgb(hue, 0.58 if number % 2 else 0.48, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def drawing(width: float, height: float, label: str, *shapes: str) -> Markup:
    size = f'width="{_short(width)}" height="{_short(height)}" viewBox="0 0 {_short(width)} {_short(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{html.escape(label)}">'
    return Markup(f"{head}{''.join(shapes)}</svg>")


def cells(boxes: Iterable[tuple[str, float, float, float, float]]) -> str:
    """Return boxes `(colour, x, y, width, height)`, with one path for each colour."""
    paths: dict[str, list[str]] = {}
    for fill, x, y, width, height in boxes:
        w = _short(width)
        paths.setdefault(fill, []).append(f"M{_short(x)} {_short(y)}h{w}v{_short(height)}h-{w}z")
    return "".join(f'<path fill="{fill}" d="{"".join(each)}"/>' for fill, each in paths.items())


def label(text: str, x: float, y: float, anchor: str = "start") -> str:
    """Return faint text at a place; `anchor` is `start`, `middle` or `end`."""
    place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}"'
    return f'<text {place} fill="currentColor" fill-opacity=".7" {FONT}>{html.escape(text)}</text>'


def heights(values: AnyArray, low: float, high: float) -> FloatArray:
    """Return the heights at which values are drawn, 0 for `low` and 1 for `high`, also where a difference overflows."""
    span = high / 2 - low / 2
    above = np.asarray(values, np.float64) / 2 - low / 2
    return above / span if span > 0 else above * 0


def chart(
    curves: Sequence[ChartLine],
    ends: tuple[str, str],
    width: float,
    height: float,
    name: str,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    missing: BoolArray | None = None,
) -> Markup:
    """Return curves over a common axis, with their names below."""
    values = np.concatenate([np.asarray(curve.values, np.float64) for curve in curves] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    least = float(values.min(initial=np.inf)) if low is None else low
    most = float(values.max(initial=-np.inf)) if high is None else high
    if most <= least:
        most = min(least + (abs(least) or 1.0), sys.float_info.max)
    top, bottom = MARGIN, height - MARGIN
    shapes = [_line([(0, top), (width, top)], "currentColor", faint=True)]
    shapes.append(_line([(0, bottom), (width, bottom)], "currentColor", faint=True))
    if missing is not None and missing.any():
        step = width / len(missing)
        shapes.append(cells(("#e5812e", i * step, 0, max(step, 2), height) for i in np.flatnonzero(missing).tolist()))
    for curve in curves:
        step = width / max(len(curve.values) - 1, 1)
        for run in _runs(curve.values):
            y = bottom - heights(np.asarray(curve.values)[run], least, most) * (bottom - top)
            points = [(i * step, place) for i, place in zip(run, y.tolist(), strict=True)]
            if curve.stepped:
                corners = [(x, before) for (_, before), (x, after) in pairwise(points) if before != after]
                points = sorted([*corners, *points], key=itemgetter(0))  # a corner comes first
            if len(points) == 1:  # a dot
                points = [(points[0][0] - 1.5, points[0][1]), (points[0][0] + 1.5, points[0][1])]
            shapes.append(_line(points, curve.color, dashed=curve.dashed))
    scale = 100 if unit == "%" else 1
    for value, place in ((most, top - 3), (least, height - 3)) if len(values) else ():
        shapes.append(label(f"{scale * value:.4g}{f' {unit}' if unit else ''}", 0, place))
    if not len(values):
        shapes.append(label("no values", width / 2, (top + bottom) / 2 + 4, "middle"))
    shapes += [label(f"{ends[0]} to {ends[1]}", width, height - 3, "end")] if any(ends) else []
    legend, rows = _legend(curves, width, height)
    return drawing(width, height + rows * LEGEND, name, *shapes, *legend)


def _legend(curves: Sequence[ChartLine], width: float, top: float) -> tuple[list[str], int]:
    """Names with their colours, in lines that fit the width, and the number of lines."""
    shapes: list[str] = []
    x, row = 0.0, 0
    named = [curve for curve in curves if curve.name]
    for curve in named:
        room = 26 + 6.3 * len(curve.name)
        if x and x + room > width:
            x, row = 0.0, row + 1
        y = top + row * LEGEND + 11
        shapes.append(_line([(x, y - 4), (x + 14, y - 4)], curve.color, dashed=curve.dashed))
        shapes.append(label(curve.name, x + 18, y))
        x += room
    return shapes, row + 1 if named else 0


def _runs(values: AnyArray) -> list[list[int]]:
    """Numbers of the points between missing ones."""
    known = np.flatnonzero(np.isfinite(np.asarray(values, np.float64)))
    cuts = np.flatnonzero(np.diff(known) > 1) + 1
    return [run.tolist() for run in np.split(known, cuts) if len(run)]


def _line(points: Sequence[tuple[float, float]], stroke: str, *, dashed: bool = False, faint: bool = False) -> str:
    path = "L".join(f"{_short(x)} {_short(y)}" for x, y in points)
    more = ' stroke-dasharray="4 3"' if dashed else ""
    more += ' stroke-opacity=".25" stroke-width="1"' if faint else ' stroke-width="1.5"'
    return f'<path d="M{path}" fill="none" stroke="{stroke}"{more}/>'


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
