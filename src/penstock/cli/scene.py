"""Pictures of driving: the map, the ego and its way, and other agents around it, seen from above with north up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.cli.strip import COLORS, FAINT, GAP, GRID, INK, LINE, MARGIN, PAPER
from penstock.core.arrays import AnyArray, IntArray
from penstock.domains.driving.geometry import box_corners
from penstock.domains.driving.logs import EGO_EXTENT, Arrays, Timeline, Tracks
from penstock.domains.driving.map import MapAPI
from penstock.domains.driving.rasterize.cull import SpatialIndex
from penstock.domains.driving.tables import Predictions
from penstock.errors import require

Color = tuple[int, int, int]

FINE = 2  # drawn larger by this factor, then reduced
POINTS = 20  # of a side of a lane
BAR = 20  # metres of the scale
EGO_TRACK = -1  # in predictions
OF_INTEREST = 0.5

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
KINDS: tuple[tuple[str, range, Color], ...] = (
    ("vehicles", range(3, 10), VEHICLE),
    ("cycles", range(10, 14), CYCLE),
    ("pedestrians and animals", range(14, 16), WALKER),
)
LEGEND: tuple[tuple[str, Color], ...] = (
    ("ego", EGO),
    ("where it will be", TARGET),
    *((name, color) for name, _, color in KINDS),
    ("others", OTHER),
)


@dataclass(frozen=True)
class Picture:
    """A picture (of Pillow), and the lines below it."""

    image: Any
    caption: tuple[str, ...]


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
        self.scene = scene
        self.road = road
        self.predictions = predictions
        self.meters = meters
        self.size = size
        self.ahead = ahead
        self.timeline = Timeline.of(scene)
        self.tracks = Tracks.of(scene.agents, 0, self.timeline, 0)
        if road is not None:
            self.sides = road.interpolated_lanes(POINTS)[..., :2]
            self.near = SpatialIndex(road.bounds_info["lanes"]["bounds"])
            self.near_crosswalks = SpatialIndex(road.bounds_info["crosswalks"]["bounds"])

    def __len__(self) -> int:
        return len(self.timeline)

    def seconds(self, frame: int) -> float:
        """Since the first frame."""
        return float(self.timeline.timestamps[frame] - self.timeline.timestamps[0]) / 1e9

    def picture(self, frame: int) -> Picture:
        """Draw the surroundings of the ego in a frame."""
        image, imagedraw = require("PIL.Image", "images"), require("PIL.ImageDraw", "images")
        side = self.size * FINE
        canvas = image.new("RGB", (side, side), PAPER)
        pen = Pen(imagedraw.Draw(canvas), self.timeline.ego[frame, :2], side, self.meters)
        if self.road is not None:
            self._map(pen, frame, self.road)
        self._ways(pen, frame)
        first, last = self.timeline.agents[frame : frame + 2].tolist()
        rows = np.arange(first, last, dtype=np.int64)
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
        return f"frame {frame}   {self.seconds(frame):.1f} s{speed}", ", ".join(counts_text) or "nobody"

    def _active(self, frame: int, road: MapAPI) -> dict[str, str]:
        """Return the lit faces that are on the map, and their colours."""
        rows = self.scene.tl_faces[slice(*self.timeline.faces[frame : frame + 2].tolist())]
        lit = rows["face_id"][rows["traffic_light_face_status"][:, 0] > 0].tolist()
        return {face: road.get_color_for_face(face) for face in lit if face in road.ids_to_el}

    def _map(self, pen: Pen, frame: int, road: MapAPI) -> None:
        lights = self._active(frame, road)
        center = self.timeline.ego[frame, :2]
        lanes: list[int] = self.near.query(center, self.meters * 0.75).tolist()
        for lane in lanes:
            left, right = pen.at(self.sides[lane])
            pen.polygon(np.concatenate([left, right[::-1]]), ROAD)
        colors = {lane: [lights[c] for c in road.road.controls[lane] if c in lights] for lane in lanes}
        for lane in sorted(lanes, key=lambda lane: bool(colors[lane])):  # lit ones on top
            color = next((LIGHTS[name] for name in LIGHTS if name in colors[lane]), SIDE)
            for line in pen.at(self.sides[lane]):
                pen.line(line, color, 1.6 if colors[lane] else 0.8)
        for crosswalk in self.near_crosswalks.query(center, self.meters * 0.75).tolist():
            outline = pen.at(road.outlines[crosswalk][:, :2])
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
        likely = tracks.interest[places] > OF_INTEREST
        for name, labels, color in (("others", range(17), OTHER), *KINDS):
            among = np.isin(tracks.kind[places], list(labels)) & (likely if name != "others" else ~likely)
            mine = places[among]
            for place in mine.tolist() if name != "others" else ():
                end = int(tracks.bounds[tracks.track[place], 1])
                until = place + int(np.searchsorted(tracks.frame[place:end], tracks.frame[place] + self.ahead, "right"))
                pen.line(pen.at(tracks.xy[place:until]), mixed(color, 0.45), 1)
            pen.boxes(tracks.xy[mine], tracks.extent[mine], tracks.yaw[mine], color, name != "others")
            counts[name] = len(mine)
        return {name: counts[name] for name in [*(name for name, _, _ in KINDS), "others"]}

    def _predicted(self, pen: Pen, frame: int, rows: IntArray) -> None:
        """Modes that have any confidence, the most probable darkest."""
        if self.predictions is None:
            return
        ids = self.scene.agents["track_id"][rows].astype(np.int64)
        begins = {
            EGO_TRACK: self.timeline.ego[frame, :2],
            **dict(zip(ids.tolist(), self.scene.agents["centroid"][rows], strict=True)),
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
        """Filled."""
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
    """`share` of a colour, the rest of another.

    >>> mixed((0, 0, 0), 0.5, (100, 200, 50))
    (50, 100, 25)
    """
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
