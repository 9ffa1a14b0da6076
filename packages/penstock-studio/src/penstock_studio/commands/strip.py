"""Draw frames in rows with captions, and curves, on one sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray
from penstock.errors import require

PAPER = (250, 250, 248)
INK = (38, 42, 48)
FAINT = (128, 134, 142)
GRID = (226, 228, 230)
COLORS = (
    (31, 103, 168), (214, 96, 20), (42, 138, 76), (176, 42, 66), (120, 82, 170), (128, 86, 62), (196, 84, 160),
    (100, 104, 110), (156, 150, 20), (20, 150, 164), (90, 130, 210), (230, 150, 60),
)  # fmt: skip
MARGIN = 24
GAP = 12
LINE = 18
WIDTH = 1500  # of a sheet that has room
PANEL = 150  # height of a curve
FINE = 3  # curves are drawn larger by this factor, then reduced
LEAST, MOST = 112, 320  # side of a frame


@dataclass(frozen=True)
class Frame:
    """One picture of the strip `[S, H, W, 3]`, and the lines below it."""

    pictures: ByteArray
    caption: tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """`[n, d]` values at steps `steps` `[n]`, drawn on an axis from 0 to `end`, as `stairs` or a line.

    Each of `marks` is a vertical line."""

    title: str
    steps: AnyArray
    values: AnyArray
    names: tuple[str, ...] = ()
    end: int = 1
    stairs: bool = False
    marks: tuple[int, ...] = ()


def sheet(title: str, subtitle: str, frames: Sequence[Frame], curves: Sequence[Curve]) -> Any:
    """Return a Pillow image with the frames in rows and the curves below. Needs the extra `images`."""
    image, fonts = require("PIL.Image", "images"), _fonts()
    strip = _strip(frames, fonts) if frames else None
    inner = max(strip.width if strip else 0, 900 if curves else 320)
    panels = [_panel(curve, inner, fonts) for curve in curves]
    parts = [part for part in (strip, *panels) if part is not None]
    height = 2 * MARGIN + 2 * LINE + 16 + sum(part.height + GAP for part in parts)
    page = image.new("RGB", (inner + 2 * MARGIN, height), PAPER)
    draw = require("PIL.ImageDraw", "images").Draw(page)
    draw.text((MARGIN, MARGIN - 4), _short(title, draw, fonts["title"], inner), INK, fonts["title"])
    draw.text((MARGIN, MARGIN + LINE + 6), _short(subtitle, draw, fonts["small"], inner), FAINT, fonts["small"])
    top = MARGIN + 2 * LINE + 16
    for part in parts:
        page.paste(part, (MARGIN, top))
        top += part.height + GAP
    return page


def _fonts() -> dict[str, Any]:
    font = require("PIL.ImageFont", "images")
    return {"title": font.load_default(20), "small": font.load_default(13), "curve": font.load_default(12 * FINE)}


def _short(text: str, draw: Any, font: Any, width: int) -> str:
    """Return the text, cut to the width."""
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(text + "…", font=font) > width:
        text = text[:-1]
    return text + "…"


def _strip(frames: Sequence[Frame], fonts: dict[str, Any]) -> Any:
    image, imagedraw = require("PIL.Image", "images"), require("PIL.ImageDraw", "images")
    stack, height, width = frames[0].pictures.shape[:3]
    scale = _scale(max(height, width), LEAST if stack == 1 else LEAST // 2)
    cell = round(width * scale) * stack + (stack - 1) * 2, round(height * scale)
    columns = max(min(len(frames), (WIDTH + GAP) // (cell[0] + GAP)), 1)
    rows = -(-len(frames) // columns)
    columns = -(-len(frames) // rows)  # rows of equal length, except the last
    lines = max(len(frame.caption) for frame in frames)
    tall = cell[1] + 6 + lines * LINE + GAP
    page = image.new("RGB", (columns * (cell[0] + GAP) - GAP, rows * tall - GAP), PAPER)
    draw = imagedraw.Draw(page)
    for i, frame in enumerate(frames):
        left, top = i % columns * (cell[0] + GAP), i // columns * tall
        for s, picture in enumerate(frame.pictures):
            size = (round(width * scale), round(height * scale))
            how = image.Resampling.NEAREST if scale >= 1 else image.Resampling.LANCZOS
            page.paste(image.fromarray(picture).resize(size, how), (left + s * (size[0] + 2), top))
        draw.rectangle((left - 1, top - 1, left + cell[0], top + cell[1]), outline=GRID)
        for k, text in enumerate(frame.caption):
            place = (left, top + cell[1] + 5 + k * LINE)
            draw.text(place, _short(text, draw, fonts["small"], cell[0]), INK if k == 0 else FAINT, fonts["small"])
    return page


def _scale(side: int, least: int) -> float:
    """Small frames grow by whole numbers, so that pixels stay square; large ones shrink."""
    if side > MOST:
        return MOST / side
    return float(max(-(-least // side), 1))


def _panel(curve: Curve, width: int, fonts: dict[str, Any]) -> Any:
    """One diagram: title, zero line, values at both ends of the axes, a line a dimension."""
    image, imagedraw = require("PIL.Image", "images"), require("PIL.ImageDraw", "images")
    page = image.new("RGB", (width * FINE, PANEL * FINE), PAPER)
    draw, font = imagedraw.Draw(page), fonts["curve"]
    left = 64 * FINE
    top = 24 * FINE
    right = (width - 8) * FINE
    bottom = (PANEL - 20) * FINE
    draw.rectangle((left, top, right, bottom), fill=(255, 255, 255), outline=GRID, width=FINE)
    draw.text((left, 4 * FINE), curve.title, INK, font)
    values = np.where(np.isfinite(curve.values), curve.values, np.nan)
    low, high = _ends(values)
    last = float(max(curve.end, 1))

    def x(step: Any) -> Any:
        return left + np.asarray(step) / last * (right - left)

    def y(value: Any) -> Any:
        return bottom - 5 * FINE - (np.asarray(value) - low) / (high - low) * (bottom - top - 10 * FINE)

    for mark in curve.marks:
        draw.line((x(mark), top, x(mark), bottom), GRID, FINE)
    if low < 0 < high:
        draw.line((left, y(0), right, y(0)), GRID, FINE)
    for d in range(values.shape[1]):
        steps, line = curve.steps, values[:, d]
        if curve.stairs:
            steps, line = np.append(steps, curve.end), np.append(line, line[-1:])
        for run in _points(np.asarray(x(steps)), np.asarray(y(line)), stairs=curve.stairs):
            draw.line(run, COLORS[d % len(COLORS)], round(1.6 * FINE), joint="curve")
            if len(run) == 1:
                draw.ellipse((run[0][0] - FINE, run[0][1] - FINE, run[0][0] + FINE, run[0][1] + FINE), COLORS[0])
    for value, place in ((high, top), (low, bottom - 14 * FINE)):
        draw.text((left - 6 * FINE, place), f"{value:.4g}", FAINT, font, anchor="ra")
    draw.text((left, bottom + 4 * FINE), "0", FAINT, font)
    draw.text((right, bottom + 4 * FINE), f"{curve.end}", FAINT, font, anchor="ra")
    _legend(draw, curve, font, right)
    return page.resize((width, PANEL), image.Resampling.LANCZOS)


def _legend(draw: Any, curve: Curve, font: Any, right: int) -> None:
    """Names of the lines, from the right."""
    for d in reversed(range(len(curve.names))):
        text = curve.names[d]
        draw.text((right, 4 * FINE), text, COLORS[d % len(COLORS)], font, anchor="ra")
        right -= int(draw.textlength(text, font=font)) + 10 * FINE


def _ends(values: AnyArray) -> tuple[float, float]:
    """Least and greatest value, apart from one another."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _points(x: AnyArray, y: AnyArray, *, stairs: bool) -> list[list[tuple[float, float]]]:
    """The points of a line, cut where a value is missing."""
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isnan(b):
            runs.append([])
            continue
        if stairs and runs[-1]:
            runs[-1].append((a, runs[-1][-1][1]))
        runs[-1].append((a, b))
    return [run for run in runs if run]
