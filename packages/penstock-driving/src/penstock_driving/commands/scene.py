"""Pictures of driving: the map, the ego and its way, and other agents around it, seen from above with north up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.errors import DataError, require
from penstock_driving.geometry import box_corners
from penstock_driving.logs import EGO_EXTENT, Arrays
from penstock_driving.map import MapAPI
from penstock_driving.map.api import load_metadata, matrix_of
from penstock_driving.scene import KINDS, OTHERS, SceneFromAbove
from penstock_driving.tables import Predictions
from penstock_studio.commands.strip import COLORS, FAINT, GAP, GRID, INK, LINE, MARGIN, PAPER

Color = tuple[int, int, int]

FINE = 2  # drawn larger by this factor, then reduced
BAR = 20  # metres of the scale
EGO_TRACK = -1  # in predictions

EGO = (42, 138, 76)
TARGET = INK
PREDICTED = (196, 84, 160)
OTHER = (178, 182, 188)
VEHICLE = COLORS[0]
CYCLE = COLORS[1]
WALKER = COLORS[4]
ROAD = (234, 236, 239)
SIDE = (206, 210, 216)
CROSSWALK = (222, 178, 104)
LIGHTS: dict[str, Color] = {"RED": (208, 44, 44), "YELLOW": (226, 172, 20), "GREEN": (44, 168, 84)}
AGENTS: tuple[Color, ...] = (VEHICLE, CYCLE, WALKER)  # of each kind
LEGEND: tuple[tuple[str, Color], ...] = (
    ("ego", EGO),
    ("where it will be", TARGET),
    *((name, color) for (name, _), color in zip(KINDS, AGENTS, strict=True)),
    ("others", OTHER),
)


@dataclass(frozen=True)
class Picture:
    """A picture (of Pillow), and the lines below it."""

    image: Any
    caption: tuple[str, ...]


def road_of(semantic_map: Path | None, meta: Path | None) -> MapAPI | None:
    if semantic_map is None and meta is None:
        return None
    if semantic_map is None or meta is None:
        raise DataError("expected --map and --meta together, got one of them")
    return MapAPI(semantic_map, matrix_of(load_metadata(meta), "world_to_ecef"))


class Drive:
    """One scene, ready to be drawn: `ahead` frames of the future, `meters` from side to side, `size` pixels.

    `road` and `predictions` are drawn where they are given. Cost: one sort of the scene's agents.
    """

    def __init__(
        self,
        scene: Arrays,
        road: MapAPI | None = None,
        predictions: Predictions | None = None,
        *,
        meters: float = 100.0,
        size: int = 320,
        ahead: int = 50,
    ) -> None:
        self.above = SceneFromAbove(scene, road)
        self.timeline = self.above.timeline
        self.tracks = self.above.tracks
        self.predictions = predictions
        self.meters = meters
        self.size = size
        self.ahead = ahead

    def __len__(self) -> int:
        return len(self.above)

    def picture(self, frame: int) -> Picture:
        """Draw the surroundings of the ego in a frame."""
        image, imagedraw = require("PIL.Image", "images"), require("PIL.ImageDraw", "images")
        side = self.size * FINE
        canvas = image.new("RGB", (side, side), PAPER)
        pen = Pen(imagedraw.Draw(canvas), self.timeline.ego[frame, :2], side, self.meters)
        self._map(pen, frame)
        self._ways(pen, frame)
        rows = self.above.rows(frame)
        kinds = self._agents(pen, rows)
        ego = np.array([EGO_EXTENT])
        pen.boxes(self.timeline.ego[frame : frame + 1, :2], ego, self.timeline.ego[frame : frame + 1, 2], EGO, True)
        self._predicted(pen, frame, rows)
        pen.scale()
        small = canvas.resize((self.size, self.size), image.Resampling.LANCZOS)
        return Picture(small, self._caption(frame, kinds))

    def _caption(self, frame: int, kinds: Mapping[str, int]) -> tuple[str, ...]:
        here = slice(max(frame - 1, 0), max(frame, 1) + 1)  # two frames
        moved = np.linalg.norm(np.diff(self.timeline.ego[here, :2], axis=0), axis=1).sum()
        passed = float(np.diff(self.timeline.timestamps[here]).sum()) / 1e9
        speed = f"   {moved / passed:.1f} m/s" if passed > 0 else ""
        counts_text = [
            f"{count} {name.split()[0].removesuffix('s' * (count == 1))}" for name, count in kinds.items() if count
        ]
        return f"frame {frame}   {self.above.seconds(frame):.1f} s{speed}", ", ".join(counts_text) or "nobody"

    def _map(self, pen: Pen, frame: int) -> None:
        center = self.timeline.ego[frame, :2]
        lanes = self.above.lanes_near(center, self.meters * 0.75)
        lights = self.above.lights(frame, lanes)
        for lane in lanes:
            left, right = pen.at(self.above.sides[lane])
            pen.polygon(np.concatenate([left, right[::-1]]), ROAD)
        for lane in sorted(lanes, key=lambda lane: lane in lights):  # lit ones on top
            color = LIGHTS[lights[lane]] if lane in lights else SIDE
            for line in pen.at(self.above.sides[lane]):
                pen.line(line, color, 1.6 if lane in lights else 0.8)
        for crosswalk in self.above.crosswalks_near(center, self.meters * 0.75):
            outline = pen.at(self.above.crosswalk(crosswalk))
            pen.line(np.concatenate([outline, outline[:1]]), CROSSWALK, 1)

    def _ways(self, pen: Pen, frame: int) -> None:
        """Draw the ego's past and future positions."""
        ego = pen.at(self.timeline.ego[:, :2])
        pen.line(ego[: frame + 1], EGO, 1.6)
        pen.dots(ego[frame + 1 : frame + 1 + self.ahead : 2], TARGET, 1.6)

    def _agents(self, pen: Pen, rows: IntArray) -> dict[str, int]:
        """Draw boxes, and the future paths of agents of interest; return the number of agents of each kind."""
        tracks, places = self.tracks, self.tracks.place[rows]
        counts: dict[str, int] = {}
        kinds = self.above.kinds[places]
        for number, name in ((OTHERS, "others"), *((i, name) for i, (name, _) in enumerate(KINDS))):
            mine = places[kinds == number]
            color = OTHER if number == OTHERS else AGENTS[number]
            for place in mine.tolist() if number != OTHERS else ():
                end = int(tracks.bounds[tracks.track[place], 1])
                until = place + int(np.searchsorted(tracks.frame[place:end], tracks.frame[place] + self.ahead, "right"))
                pen.line(pen.at(tracks.xy[place:until]), mixed(color, 0.45), 1)
            pen.boxes(tracks.xy[mine], tracks.extent[mine], tracks.yaw[mine], color, number != OTHERS)
            counts[name] = len(mine)
        return {name: counts[name] for name in [*(name for name, _ in KINDS), "others"]}

    def _predicted(self, pen: Pen, frame: int, rows: IntArray) -> None:
        """Modes that have any confidence, the most probable darkest."""
        if self.predictions is None:
            return
        ids = self.above.scene.agents["track_id"][rows].astype(np.int64)
        begins = {
            EGO_TRACK: self.timeline.ego[frame, :2],
            **dict(zip(ids.tolist(), self.above.scene.agents["centroid"][rows], strict=True)),
        }
        predictions = self.predictions
        for i in np.flatnonzero(predictions.timestamps == self.timeline.timestamps[frame]).tolist():
            begin = begins.get(int(predictions.track_ids[i]))
            for mode in np.argsort(predictions.confs[i]).tolist() if begin is not None else ():
                if predictions.confs[i, mode] > 0:
                    way = pen.at(begin + predictions.coords[i, mode])
                    pen.line(way, mixed(PREDICTED, 0.35 + 0.65 * float(predictions.confs[i, mode])), 1.4)


@dataclass(frozen=True)
class Pen:
    """Draws in metres on a square of `side` pixels, `meters` wide, around `center`."""

    draw: Any
    center: AnyArray
    side: int
    meters: float

    @property
    def unit(self) -> float:
        """Pixels of a line of width 1: more in larger pictures."""
        return FINE * max(self.side / FINE / 320, 1) ** 0.5

    def at(self, points: AnyArray) -> AnyArray:
        """`[..., 2]` pixels of points of the world."""
        return (points - self.center) * [1, -1] * (self.side / self.meters) + self.side / 2

    def polygon(self, pixels: AnyArray, color: Color) -> None:
        self.draw.polygon(pixels.ravel().tolist(), fill=color)

    def line(self, pixels: AnyArray, color: Color, width: float) -> None:
        """Through all points, if there are two."""
        if len(pixels) > 1:
            self.draw.line(pixels.ravel().tolist(), fill=color, width=max(round(width * self.unit), 1), joint="curve")

    def dots(self, pixels: AnyArray, color: Color, radius: float) -> None:
        """A disc at each point."""
        for x, y in pixels.tolist():
            r = radius * self.unit
            self.draw.ellipse((x - r, y - r, x + r, y + r), fill=color)

    def boxes(self, xy: AnyArray, extent: AnyArray, yaw: AnyArray, color: Color, solid: bool) -> None:
        """Outlines, or filled with a nose that says where they look."""
        corners = self.at(box_corners(xy, extent, yaw))
        for box, middle in zip(corners, self.at(xy), strict=True):
            points = box.ravel().tolist()
            if not solid:
                self.draw.polygon(points, outline=color)
                continue
            self.draw.polygon(points, fill=color, outline=mixed(color, 0.75, INK))
            self.line(np.stack([middle, box[2:].mean(axis=0)]), PAPER, 0.8)

    def scale(self) -> None:
        """A bar of `BAR` metres in the corner."""
        length, edge = BAR * self.side / self.meters, 10 * FINE
        bottom = self.side - edge
        self.draw.line((edge, bottom, edge + length, bottom), fill=INK, width=2 * FINE)
        font = require("PIL.ImageFont", "images").load_default(11 * FINE)
        self.draw.text((edge, bottom - 15 * FINE), f"{BAR} m", INK, font)


def mixed(color: Color, share: float, other: Color = PAPER) -> Color:
    """`share` of a colour, the rest of another."""
    red, green, blue = (round(a * share + b * (1 - share)) for a, b in zip(color, other, strict=True))
    return red, green, blue


def page(title: str, subtitle: str, pictures: list[Picture], legend: tuple[tuple[str, Color], ...]) -> Any:
    """Return a Pillow sheet of pictures of one size in rows, with captions and a legend of the colours."""
    image, imagedraw = require("PIL.Image", "images"), require("PIL.ImageDraw", "images")
    load = require("PIL.ImageFont", "images").load_default
    large, small = load(20), load(13)
    side = pictures[0].image.width
    columns = min(len(pictures), max(1500 // (side + GAP), 1))
    rows = -(-len(pictures) // columns)
    columns = -(-len(pictures) // rows)
    tall = side + 2 * LINE + GAP + 6
    head = MARGIN + 2 * LINE + 16
    width = columns * (side + GAP) - GAP + 2 * MARGIN
    places, lines = _placed_legend(legend, width - 2 * MARGIN, imagedraw.Draw(image.new("RGB", (1, 1))), small)
    sheet = image.new("RGB", (width, head + rows * tall + lines * LINE + MARGIN), PAPER)
    draw = imagedraw.Draw(sheet)
    draw.text((MARGIN, MARGIN - 6), title, INK, large)
    draw.text((MARGIN, MARGIN + LINE + 4), subtitle, FAINT, small)
    for i, picture in enumerate(pictures):
        left, top = MARGIN + i % columns * (side + GAP), head + i // columns * tall
        sheet.paste(picture.image, (left, top))
        draw.rectangle((left - 1, top - 1, left + side, top + side), outline=GRID)
        for k, text in enumerate(picture.caption):
            draw.text((left, top + side + 5 + k * LINE), text, INK if k == 0 else FAINT, small)
    for (name, color), (x, line) in zip(legend, places, strict=True):
        left, top = MARGIN + x, head + rows * tall + line * LINE
        draw.rounded_rectangle((left, top + 3, left + 11, top + 14), 3, fill=color)
        draw.text((left + 17, top), name, INK, small)
    return sheet


def _placed_legend(
    legend: tuple[tuple[str, Color], ...], width: int, draw: Any, font: Any
) -> tuple[list[tuple[float, int]], int]:
    """Where each entry begins (pixels, line), and how many lines there are."""
    places: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for name, _ in legend:
        wide = 17 + draw.textlength(name, font=font) + 22
        if x and x + wide - 22 > width:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += wide
    return places, line + 1
