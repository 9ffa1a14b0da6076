"""py123d 0.7: a folder of Arrow files for each log, joined by the rows of `sync.arrow`."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import arrow
from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.errors import FormatError, require
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.signatures import is_sync_table
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE
from penstock_driving.formats.scenarios.scenario import (
    OFF,
    UNKNOWN,
    Moments,
    Scenario,
    ScenarioKind,
    faces_of,
    labels_of,
    nanoseconds,
    numbered,
    one_hot,
    rotation_of,
    scenario_of,
)
from penstock_driving.geometry import rotation33_as_yaw

_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True))
_SIZES = dict(zip((*range(0xC4, 0xC7), *range(0xD9, 0xE0)), (*(">B", ">H", ">I") * 2, *(">H", ">I") * 2), strict=True))


def unpacked(raw: bytes) -> Any:
    """The value in a message. Extension types are refused."""
    value, end = _value(raw, 0)
    if end != len(raw):
        raise FormatError(f"expected one value, got {len(raw) - end} more bytes", where=f"byte {end}")
    return value


def _value(raw: bytes, place: int) -> tuple[Any, int]:
    kind, place = _number(raw, place, ">B")
    if kind <= 0x7F or kind >= 0xE0:
        return kind if kind <= 0x7F else kind - 256, place
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], place
    if kind in _NUMBERS:
        return _number(raw, place, _NUMBERS[kind])
    if kind <= 0xBF:
        size = kind & (0x1F if kind >= 0xA0 else 0x0F)
        family = "text" if kind >= 0xA0 else "list" if kind >= 0x90 else "map"
    elif kind in _SIZES:
        size, place = _number(raw, place, _SIZES[kind])
        family = "bytes" if kind <= 0xC6 else "text" if kind <= 0xDB else "list" if kind <= 0xDD else "map"
    else:
        raise FormatError(f"expected a plain value, got type {kind:#x}", where=f"byte {place - 1}")
    if family in ("text", "bytes"):
        part = raw[place : place + size]
        if len(part) != size:
            raise FormatError(f"expected {size} bytes, got {len(part)}", where=f"byte {place}")
        return part.decode() if family == "text" else part, place + size
    reader: Callable[[bytes, int], tuple[Any, int]] = _value if family == "list" else _pair
    entries: list[Any] = []
    for _ in range(size):
        entry, place = reader(raw, place)
        entries.append(entry)
    return entries if family == "list" else dict(entries), place


def _pair(raw: bytes, place: int) -> tuple[tuple[Any, Any], int]:
    key, place = _value(raw, place)
    value, place = _value(raw, place)
    return (key, value), place


def _number(raw: bytes, place: int, code: str) -> tuple[Any, int]:
    size = struct.calcsize(code)
    if place + size > len(raw):
        raise FormatError("expected a value, got the end", where=f"byte {place}")
    return struct.unpack_from(code, raw, place)[0], place + size


SYNC = "sync"
EGO = "ego_state_se3"
BOXES = "box_detections_se3"
LIGHTS = "traffic_light_detections"
STATES = (2, 1, 0, OFF, UNKNOWN)
"""Green, yellow, red, off, unknown: what a number of py123d means, as a number of `faces_of`."""
LABELS = labels_of(
    {"V": "CAR", "T": "TRAM", "W": "CYCLIST", "P": "PEDESTRIAN", "A": "ANIMAL", "D": "DONTCARE", "?": "UNKNOWN"}
)
CLASSES = {
    "DefaultBoxDetectionLabel": "EVTWPADDDDDD",
    "AV2SensorBoxDetectionLabel": "AVWPDVVDDAVVDWPPPTVVDDDVVVVDDP",
    "KITTI360BoxDetectionLabel": "WDVVVDWPDPDDDDVTDVD",
    "NuPlanBoxDetectionLabel": "VWPDDDD",
    "NureasoningBoxDetectionLabel": "VWPDDDDVVWWPD",
    "NuScenesBoxDetectionLabel": "VVVVVVVVWWPPPPPPPDDDDDA",
    "PandasetBoxDetectionLabel": "AAWVVDDVVWWVVVPPDVDDDVDDVTT",
    "WODPerceptionBoxDetectionLabel": "DVPDW",
    "WODMotionBoxDetectionLabel": "DVPWD",
    "PhysicalAIAVBoxDetectionLabel": "VPVVVDWDVATV",
    "GriffinBoxDetectionLabel": "PVVVWW",
}
"""By class of labels and number: vehicle, train, two-wheeler, person, animal, ego, or what is none of them, as py123d's
`to_default` says."""


class Py123D(ScenarioKind):
    """Logs that py123d wrote."""

    name: ClassVar[str] = "py123d"
    title: ClassVar[str] = "py123d"
    description: ClassVar[str] = "py123d 0.7: folders of logs with sync.arrow"
    depth: ClassVar[int] = 3
    step: ClassVar[float | None] = None

    @override
    def is_named(self, name: str) -> bool:
        return name == f"{SYNC}.arrow"

    @override
    def holds(self, file: Path) -> bool:
        return is_sync_table(file)

    @override
    def companions(self, file: Path) -> list[Path]:
        places = (file.with_name(f"{name}.arrow") for name in (EGO, BOXES, LIGHTS))
        return [place for place in places if place.is_file()]

    @override
    def scenarios(self, file: Path) -> Iterator[tuple[int, Scenario]]:
        yield 0, self.read(file, 0)

    @override
    def read(self, file: Path, key: int) -> Scenario:
        return _scenario(file)

    @override
    def left_out(self, path: Path, files: Sequence[Path]) -> list[LeftOut]:
        names = Counter(name.rpartition("/")[2] for name in self.names_beside(path, files))
        used = {f"{name}.arrow" for name in (SYNC, EGO, BOXES, LIGHTS)}
        unread = sorted(name for name in names if name.endswith(".arrow") and name not in used)
        message = "maps, routes, cameras and other sensors are not read"
        entries = [LeftOut("file", name, "unread-part", message, names[name]) for name in unread]
        return [*entries, *unused_files(set(names) - used - set(unread), "Arrow files of py123d")]


def _table(file: Path) -> Any:
    """All rows of an Arrow file, mapped."""
    with arrow().memory_map(str(file), "r") as source:
        return arrow().ipc.open_file(source).read_all()


def _metadata(table: Any) -> Mapping[str, Any]:
    entries: dict[bytes, bytes] = table.schema.metadata or {}
    return unpacked(entries[b"metadata"]) if b"metadata" in entries else {}


def _scenario(file: Path) -> Scenario:
    sync = _table(file)
    log = _metadata(sync)
    times = _integers(sync, f"{SYNC}.timestamp_us")
    ego_file = file.with_name(f"{EGO}.arrow")
    if not ego_file.is_file() or EGO not in sync.column_names:
        message = f"expected {EGO}.arrow and the column {EGO}, got none: a scene needs the pose of the ego"
        raise FormatError(message, path=file)
    car, vehicle = _ego(ego_file, _integers(sync, EGO))
    boxes, owners, ids = _boxes(file, sync)
    faces, face_owners = _faces(file, sync)
    entries = {name: log[name] for name in ("dataset", "split", "log_name", "location") if log.get(name)}
    return scenario_of(
        Moments(nanoseconds(times, 1000), *car),
        boxes,
        owners,
        faces,
        face_owners,
        track_ids=ids,
        host=str(vehicle.get("vehicle_name", "")),
        metadata={"scenario_id": str(log.get("log_name", file.parent.name)), **entries},
    )


def _ego(file: Path, rows: IntArray) -> tuple[tuple[FloatArray, FloatArray, AnyArray], Mapping[str, Any]]:
    """Places and rotations of the middle of the car, and in which frames they are known; what the car is."""
    table = _table(file)
    vehicle = _metadata(table)
    known = rows >= 0
    _require_rows(rows, table.num_rows, EGO)
    poses = _vectors(table.column(f"{EGO}.imu_se3").combine_chunks(), 7)[rows[known]]
    rotation, place = np.tile(np.eye(3), (len(rows), 1, 1)), np.zeros((len(rows), 3))
    offset = np.array(vehicle.get("center_to_imu_se3", [0, 0, 0, 1, 0, 0, 0]), np.float64)
    world = rotation_of(poses[:, 3:])
    rotation[known] = world @ rotation_of(offset[None, 3:])[0]
    place[known] = poses[:, :3] + world @ offset[:3]
    return (place, rotation, known), vehicle


def _boxes(file: Path, sync: Any) -> tuple[AnyArray, IntArray, list[str]]:
    """Agents, the frame of each, and the ids of tracks."""
    entries = _listed(file, sync, BOXES)
    if entries is None:
        return np.zeros(0, AGENT_DTYPE), np.zeros(0, np.int64), []
    table, owners, values = entries
    boxes, labels = _vectors(values("bounding_box_se3"), 10), values("label").to_numpy(zero_copy_only=False)
    tokens = values("track_token").to_pylist()
    name = str(_metadata(table).get("box_detection_label_class", "")).rpartition(".")[2]
    known = CLASSES.get(name, "")
    letters = [known[number] if number < len(known) else "?" for number in labels.astype(np.int64).tolist()]
    kept = np.array([letter != "E" for letter in letters], np.bool_)
    boxes, owners = boxes[kept], owners[kept]
    tokens = [token for token, keep in zip(tokens, kept, strict=True) if keep]
    ids, numbers = numbered(tokens)
    agents = np.zeros(len(boxes), AGENT_DTYPE)
    agents["centroid"], agents["extent"] = boxes[:, :2], boxes[:, 7:]
    agents["yaw"] = rotation33_as_yaw(rotation_of(boxes[:, 3:7]))
    agents["velocity"], agents["track_id"] = _vectors(values("velocity_3d"), 3)[kept, :2], numbers
    agents["label_probabilities"] = one_hot(np.array([LABELS[letter] for letter in letters if letter != "E"], np.int64))
    return agents, owners, ids


def _faces(file: Path, sync: Any) -> tuple[AnyArray, IntArray]:
    """Faces of lights, and the frame of each."""
    entries = _listed(file, sync, LIGHTS)
    if entries is None:
        return faces_of([], []), np.zeros(0, np.int64)
    _, owners, values = entries
    states = values("status").fill_null(len(STATES)).to_numpy(zero_copy_only=False).astype(np.int64)
    if len(states) and states.max() >= len(STATES):
        raise FormatError(f"expected a status of a light within 0:{len(STATES)}, got {states.max()}", path=file)
    lanes: list[Any] = values("lane_id").to_pylist()
    return faces_of(list(map(str, lanes)), np.array(STATES)[states].tolist()), owners


def _listed(file: Path, sync: Any, name: str) -> tuple[Any, IntArray, Any] | None:
    """The table of a modality with lists, the frame of each entry, and how a column gives its entries in that order;
    None where the log has no such file."""
    place = file.with_name(f"{name}.arrow")
    if not place.is_file() or name not in sync.column_names:
        return None
    table, rows = _table(place), _integers(sync, name)
    _require_rows(rows, table.num_rows, name)
    frames = np.flatnonzero(rows >= 0)
    compute = require("pyarrow.compute", "arrow")

    def lists(column: str) -> Any:
        return table.column(f"{name}.{column}").combine_chunks().take(arrow().array(rows[frames]))

    first = "lane_id" if name == LIGHTS else "track_token"
    counts = compute.fill_null(compute.list_value_length(lists(first)), 0).to_numpy(zero_copy_only=False)

    def values(column: str) -> Any:
        entries = compute.list_flatten(lists(column))
        if len(entries) != counts.sum():
            raise FormatError(f"expected {counts.sum()} entries of {column}, got {len(entries)}", path=place)
        return entries

    return table, np.repeat(frames, counts), values


def _require_rows(rows: IntArray, count: int, name: str) -> None:
    if len(rows) and rows.max() >= count:
        raise FormatError(f"expected rows of {name} within 0:{count}, got {rows.max()} in {SYNC}.arrow")


def _integers(table: Any, name: str) -> IntArray:
    """A column of numbers, -1 where there is none."""
    return require("pyarrow.compute", "arrow").fill_null(table.column(name), -1).to_numpy().astype(np.int64)


def _vectors(array: Any, width: int) -> FloatArray:
    """`[n, width]` of lists of numbers; zeros where there is none."""
    there = np.asarray(array.is_valid())
    out = np.zeros((len(array), width))
    out[there] = (
        require("pyarrow.compute", "arrow").list_flatten(array).to_numpy(zero_copy_only=False).reshape(-1, width)
    )
    return out
