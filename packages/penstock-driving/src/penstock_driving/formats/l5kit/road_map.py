"""A `MapFragment` as columns: the elements, and the ranges of their points. Coordinates come later.

Only what drives a raster or a sample is kept: lanes (boundaries, frame, controls), crosswalks (outline, frame), and
which kind of traffic control the other elements are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock.core.arrays import Int32Array
from penstock.core.boundary import parsing
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import FormatError
from penstock.files.remote import read_bytes
from penstock_driving.formats.l5kit import wire

KINDS = {1: "segment", 2: "node", 3: "lane", 4: "control", 5: "junction", 6: "segment_sequence", 8: "annotated_shape"}
FACE_COLORS = {
    **dict.fromkeys((11, 30, 32, 38, 41), "RED"),
    **dict.fromkeys((12, 36, 37, 39, 42), "YELLOW"),
    **dict.fromkeys((13, 31, 33, 40, 43), "GREEN"),
}  # the plain face, then the left, right, upper left and upper right arrow
CROSSWALK, TRAFFIC_LIGHT = 16, 29
NO_TYPE = {2, 3, 4, 5, 6, 48}  # fields of a control that do not say which control it is


@dataclass(frozen=True)
class MapElement:
    """One element of the map: its `id`, its `kind` (`lane`, `control`, `junction`, ...), and of a control
    which it is.

    `control` is the number of the control's type in the map's schema, 0 for anything else: 16 a crosswalk, 29 a
    traffic light, others faces and signs. `outlined` says whether a control has points.
    """

    id: str
    kind: str
    control: int = 0
    outlined: bool = False

    @property
    def color(self) -> str | None:
        """`RED`, `YELLOW` or `GREEN` of a traffic light's face, None of everything else."""
        return FACE_COLORS.get(self.control)


@dataclass(frozen=True, eq=False)
class RoadMap:
    """The elements of a map as they are stored; centimetres from point to point, in their own frames.

    `elements` in the order of the file. Lanes: `lane_ids`, `lane_frame` `[lanes, 2]` int32 latitude and longitude
    times 1e7, `boundaries` of `2 * lanes` rows (left, right, left, ...) `[points, 3]` int64 centimetres, `controls` (a
    list of ids a lane). Crosswalks alike: `crosswalk_ids`, `crosswalk_frame`, `outlines`.
    """

    elements: list[MapElement]
    lane_ids: list[str]
    lane_frame: Int32Array
    boundaries: Ragged
    controls: list[list[str]]
    crosswalk_ids: list[str]
    crosswalk_frame: Int32Array
    outlines: Ragged

    @classmethod
    def read(cls, path: str | Path) -> RoadMap:
        """The map in the protobuf file at `path`.

        Cost: one pass in Python over the fields, none over the points; some 0.1 ms an element at most.
        """
        with parsing(path):
            road = cls.parse(read_bytes(path))
        if not road.elements:  # rasters of it would be white, vectors zeros
            raise FormatError("expected a map with elements, got none; is the file complete?", path=path)
        return road

    @classmethod
    def parse(cls, data: bytes) -> RoadMap:
        """The map in `data`, the bytes of a `MapFragment`."""
        reader = _MapParser(data)
        for part in wire.fields(data, (0, len(data))):
            if part[0] == 2:
                reader.element(reader.message(part))
        return reader.finish()


@dataclass
class _Lines:
    """Polylines as they are met: for each of x, y, z the bytes of its numbers, decoded all at once in the end."""

    frames: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    deltas: list[bytes] = field(default_factory=list[bytes])  # three a line
    names: list[str] = field(default_factory=list[str])  # of each line, for errors

    def points(self) -> Ragged:
        """All lines, `[points, 3]` centimetres each."""
        ends = np.cumsum([0, *map(len, self.deltas)])
        values, begins = wire.zigzags(b"".join(self.deltas))
        place = np.searchsorted(begins, ends)  # the first number of each part
        if np.any(begins[place] != ends):
            raise FormatError("expected whole numbers in the deltas of a line, got one that is cut off")
        counts = np.diff(place).reshape(-1, 3)
        uneven = np.flatnonzero((counts != counts[:, :1]).any(axis=1) | (counts[:, 0] == 0))
        if len(uneven):
            line = int(uneven[0])
            raise FormatError(
                f"expected equal numbers of x, y and z deltas, at least 1, got {counts[line].tolist()}",
                where=self.names[line],
            )
        offsets = offsets_of(counts[:, 0])
        # number k of part 3 * line + axis is row offsets[line] + k of column axis
        part = np.repeat(np.arange(counts.size), counts.ravel())
        rows = np.arange(len(values)) - place[:-1][part] + offsets[part // 3]
        points = np.empty((int(offsets[-1]), 3), np.int64)
        points[rows, part % 3] = values
        return Ragged(points, offsets)


class _MapParser:
    """Walks one buffer. Which field numbers mean what stands here and nowhere else."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.elements: list[MapElement] = []
        self.controls: list[list[str]] = []
        self.lane_ids: list[str] = []
        self.crosswalk_ids: list[str] = []
        self.boundaries, self.outlines = _Lines(), _Lines()

    def message(self, part: wire.Field) -> wire.Span:
        """Range of a field's message."""
        number, kind, low, high = part
        if kind != wire.BYTES:
            raise FormatError(f"expected a message in field {number}, got wire type {kind}", where=f"byte {low}")
        return low, high

    def identity(self, span: wire.Span) -> str:
        """The text of a `GlobalId`."""
        text = b""
        for part in wire.fields(self.data, span):
            if part[0] == 1:
                low, high = self.message(part)
                text = self.data[low:high]
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"expected an id in UTF-8, got {text[:40]!r}", where=f"byte {span[0]}") from error

    def element(self, span: wire.Span) -> None:
        """One `MapElement`: its id, and the one thing it is."""
        name, inner = "", None
        for part in wire.fields(self.data, span):
            if part[0] == 1:
                name = self.identity(self.message(part))
            elif part[0] == 2:
                inner = self.message(part)
        kind, body = "none", None
        for part in wire.fields(self.data, inner) if inner else ():
            if part[0] in KINDS:
                kind, body = KINDS[part[0]], self.message(part)
        control, outlined = 0, False
        if body is not None and kind == "lane":
            self.lane(name, body)
        elif body is not None and kind == "control":
            control, outlined = self.control(name, body)
        self.elements.append(MapElement(name, kind, control, outlined))

    def lane(self, name: str, span: wire.Span) -> None:
        """Its frame, both boundaries, and the controls it obeys."""
        frame = (0, 0)
        controls = list[str]()
        sides = {3: list[bytes](), 4: list[bytes]()}
        for part in wire.fields(self.data, span):
            if part[0] == 2:
                frame = self.frame(self.message(part))
            elif part[0] in sides:
                sides[part[0]] = self.deltas(self.message(part), 1)
            elif part[0] == 8:
                controls.append(self.identity(self.message(part)))
        for side, deltas in zip(("left", "right"), sides.values(), strict=True):
            self.boundaries.deltas += deltas or [b"", b"", b""]
            self.boundaries.names.append(f"{side} boundary of lane {name!r}")
        self.boundaries.frames.append(frame)
        self.lane_ids.append(name)
        self.controls.append(controls)

    def control(self, name: str, span: wire.Span) -> tuple[int, bool]:
        """Which control it is, and whether it has points; a crosswalk that has is kept."""
        kind, frame = 0, (0, 0)
        for part in wire.fields(self.data, span):
            if part[0] == 2:
                frame = self.frame(self.message(part))
            elif part[0] not in NO_TYPE:
                kind = part[0]
        deltas = self.deltas(span, 3)
        if kind == CROSSWALK and deltas[0]:
            self.outlines.frames.append(frame)
            self.outlines.deltas += deltas
            self.outlines.names.append(f"outline of crosswalk {name!r}")
            self.crosswalk_ids.append(name)
        return kind, bool(deltas[0])

    def frame(self, span: wire.Span) -> tuple[int, int]:
        """Latitude and longitude of a `GeoFrame`, times 1e7."""
        place = {1: 0, 2: 0}
        for part in wire.fields(self.data, span):
            if part[0] == 1:
                for inner in wire.fields(self.data, self.message(part)):
                    if inner[0] in place:
                        place[inner[0]] = wire.signed32(self.data, inner)
        return place[1], place[2]

    def deltas(self, span: wire.Span, first: int) -> list[bytes]:
        """The bytes of the numbers in fields `first` (x), + 1 (y), + 2 (z), packed or one by one: the same bytes."""
        parts: list[list[bytes]] = [[], [], []]
        for number, kind, low, high in wire.fields(self.data, span):
            if first <= number < first + 3:
                if kind not in (wire.BYTES, wire.VARINT):
                    raise FormatError(f"expected numbers in field {number}, got wire type {kind}", where=f"byte {low}")
                parts[number - first].append(self.data[low:high])
        return [b"".join(part) for part in parts]

    def finish(self) -> RoadMap:
        return RoadMap(
            elements=self.elements,
            lane_ids=self.lane_ids,
            lane_frame=np.array(self.boundaries.frames, np.int32).reshape(-1, 2),
            boundaries=self.boundaries.points(),
            controls=self.controls,
            crosswalk_ids=self.crosswalk_ids,
            crosswalk_frame=np.array(self.outlines.frames, np.int32).reshape(-1, 2),
            outlines=self.outlines.points(),
        )
