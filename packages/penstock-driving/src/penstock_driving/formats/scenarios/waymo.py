"""Waymo Open Motion: TFRecord files of `Scenario` messages, read without TensorFlow and without Waymo's package."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.tfrecord import index_records, map_records
from penstock.core.arrays import AnyArray, ByteArray, FloatArray, IntArray
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.signatures import is_motion_records
from penstock.kernels.crc32c import HEAD, TAIL, first_damaged
from penstock_driving.formats.l5kit import wire
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE
from penstock_driving.formats.scenarios.scenario import (
    UNKNOWN,
    Moments,
    Scenario,
    ScenarioKind,
    faces_of,
    labels_of,
    nanoseconds,
    one_hot,
    scenario_of,
)
from penstock_driving.geometry import yaw_as_rotation33
from penstock_driving.kernels.scenarios import DOUBLES, FIELDS, find_states

LABELS = labels_of({0: "NOT_SET", 1: "CAR", 2: "PEDESTRIAN", 3: "CYCLIST", 4: "UNKNOWN"})
"""By `Track.ObjectType`."""
_R, _Y, _G = range(3)
LIGHTS = (UNKNOWN, _R, _Y, _G, _R, _Y, _G, _R, _Y)
"""Colour by `TrafficSignalLaneState.State`; arrows and flashing lights are as the others of their colour."""
EXAMPLE_KEYS = (b"roadgraph_samples/", b"state/current/x", b"scenario/id")
_UNREAD = {
    8: (
        "map_features",
        "unread-part",
        "lanes, road lines and edges, crosswalks, stop signs, speed bumps and driveways are not read",
    ),
    12: ("compressed_frame_laser_data", "unread-part", "points of the lidar are not read"),
    13: ("frame_camera_tokens", "unread-part", "tokens of the cameras are not read"),
}


@dataclass
class _Message:
    """The fields of a `Scenario` as they are met."""

    scenario_id: str = ""
    times: list[float] = field(default_factory=list[float])
    current: int = 0
    ego: int = 0
    tracks: list[wire.Span] = field(default_factory=list[wire.Span])
    lights: list[wire.Span] = field(default_factory=list[wire.Span])
    of_interest: list[int] = field(default_factory=list[int])
    to_predict: list[wire.Span] = field(default_factory=list[wire.Span])
    unread: set[int] = field(default_factory=set[int])


class WaymoMotion(ScenarioKind):
    """TFRecord files of Waymo Open Motion."""

    name: ClassVar[str] = "waymo"
    title: ClassVar[str] = "Waymo Open Motion"
    description: ClassVar[str] = "Waymo Open Motion: TFRecord files of Scenario messages"
    depth: ClassVar[int] = 3

    @override
    def is_named(self, name: str) -> bool:
        return ".tfrecord" in name

    @override
    def holds(self, file: Path) -> bool:
        return is_motion_records(file)

    @override
    def scenarios(self, file: Path) -> Iterator[tuple[int, Scenario]]:
        data = map_records(file)
        index = index_records(data)
        for begin in index.begin.tolist():
            yield begin, self.read(file, begin)
        if index.end != len(data):
            message = f"expected {counted(len(index.begin), 'whole record')} and the end, got a damaged or cut one"
            raise FormatError(message, path=file, where=f"byte {index.end}")

    @override
    def read(self, file: Path, key: int) -> Scenario:
        data = map_records(file)
        if not HEAD <= key <= len(data) - TAIL:
            raise FormatError("expected a record, got the end of the file", path=file, where=f"byte {key}")
        begin, size = np.array([key]), np.array([int.from_bytes(bytes(data[key - HEAD : key - 4]), "little")])
        if size[0] > len(data) - TAIL - key or first_damaged(data, begin, size) >= 0:
            raise FormatError("expected a record as its checksum says, got other bytes", path=file, where=f"byte {key}")
        record = bytes(data[key : key + int(size[0])])
        if record[:1] == b"\x0a" and any(key in record for key in EXAMPLE_KEYS):
            raise FormatError(
                "expected Scenario messages, got tf.Example messages of Waymo Open Motion; download the folder "
                "`scenario` of the data set instead of `tf_example`",
                path=file,
            )
        return _scenario(record)

    @override
    def left_out(self, path: Path, files: Sequence[Path]) -> list[LeftOut]:
        return unused_files(self.names_beside(path, files), "TFRecord files")


def _message(record: bytes) -> _Message:
    """The fields of a `Scenario`; what is not used is not looked into."""
    message = _Message()
    for number, kind, low, high in wire.fields(record, (0, len(record))):
        if number == 1 and kind in (wire.FIXED64, wire.BYTES) and (high - low) % 8 == 0:
            message.times += struct.unpack(f"<{(high - low) // 8}d", record[low:high])
        elif number == 4 and kind in (wire.VARINT, wire.BYTES):
            message.of_interest += _varints(record, low, high)
        elif number in (6, 10) and kind == wire.VARINT:
            setattr(message, "ego" if number == 6 else "current", _int32(record, low, high))
        elif number in (2, 7, 11) and kind == wire.BYTES:
            {2: message.tracks, 7: message.lights, 11: message.to_predict}[number].append((low, high))
        elif number == 5 and kind == wire.BYTES:
            message.scenario_id = record[low:high].decode()
        elif number in _UNREAD:
            message.unread.add(number)
        elif number in (1, 2, 4, 5, 6, 7, 10, 11):
            raise FormatError(f"expected a Scenario, got wire type {kind} in field {number}", where=f"byte {low}")
    return message


def _varints(record: bytes, low: int, high: int) -> list[int]:
    values: list[int] = []
    while low < high:
        value, low = wire.varint(record, low, high)
        values.append(_signed(value))
    return values


def _int32(record: bytes, low: int, high: int) -> int:
    return _signed(wire.varint(record, low, high)[0])


def _signed(value: int) -> int:
    """Protobuf writes negative numbers as 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _scenario(record: bytes) -> Scenario:
    message = _message(record)
    steps, tracks = len(message.times), len(message.tracks)
    if not 0 <= message.ego < tracks:
        raise FormatError(f"expected sdc_track_index within 0:{tracks}, got {message.ego}")
    if 2 * steps * tracks > len(record):  # a state has two bytes at least
        raise FormatError(f"expected room for {tracks} tracks of {counted(steps, 'state')}, got {len(record)} bytes")
    data = np.frombuffer(record, np.uint8)
    places, heads = np.empty((tracks, steps, FIELDS), np.int64), np.zeros((tracks, 2), np.int64)
    for i, (low, high) in enumerate(message.tracks):
        count = find_states(data, low, high, places[i], heads[i])
        if count != steps:
            got = "a malformed one" if count < 0 else counted(count, "state")
            raise FormatError(f"expected a track of {counted(steps, 'state')}, got {got}", where=f"track {i}")
    if unknown := set(heads[:, 1].tolist()) - LABELS.keys():
        raise FormatError(f"expected an object_type among {list(LABELS)}, got {min(unknown)}")
    values, valid = _values(data, places), places[..., -1] != 0
    ids = [str(number) for number in heads[:, 0].tolist()]
    others = np.arange(tracks) != message.ego
    frame, track = np.nonzero((valid & others[:, None]).T)
    chosen = values[track, frame]
    agents = np.zeros(len(frame), AGENT_DTYPE)
    agents["centroid"], agents["extent"], agents["yaw"] = chosen[:, :2], chosen[:, 3:6], chosen[:, 6]
    agents["velocity"], agents["track_id"] = chosen[:, 7:], np.cumsum(others)[track]
    agents["label_probabilities"] = one_hot(np.array([LABELS[kind] for kind in heads[:, 1].tolist()])[track])
    ego, known = values[message.ego], valid[message.ego]
    faces, face_frames = _lights(record, message, steps)
    entries = {"scenario_id": message.scenario_id, "ego_track": ids[message.ego]}
    entries |= {"objects_of_interest": [str(each) for each in message.of_interest], **_to_predict(record, message, ids)}
    return scenario_of(
        Moments(
            nanoseconds(np.array(message.times, np.float64), 10**9),
            np.where(known[:, None], ego[:, :3], 0.0),
            yaw_as_rotation33(np.where(known, ego[:, 6], 0.0)),
            known,
        ),
        agents,
        frame,
        faces,
        face_frames,
        track_ids=[name for name, other in zip(ids, others.tolist(), strict=True) if other],
        current=message.current,
        metadata=entries,
        unread=tuple(LeftOut("member", *_UNREAD[number]) for number in sorted(message.unread)),
    )


def _values(data: ByteArray, places: IntArray) -> FloatArray:
    """`[tracks, steps, 9]` float64: what the messages say, 0 where they say nothing."""
    values = np.zeros((*places.shape[:2], FIELDS - 1))
    for fields, dtype in ((slice(0, DOUBLES), "<f8"), (slice(DOUBLES, FIELDS - 1), "<f4")):
        starts = places[..., fields]
        there = starts >= 0
        raw = data[starts[there][:, None] + np.arange(np.dtype(dtype).itemsize)]
        values[..., fields][there] = np.ascontiguousarray(raw).view(dtype)[:, 0]
    return values


def _lights(record: bytes, message: _Message, steps: int) -> tuple[AnyArray, IntArray]:
    """Faces, and the frame of each."""
    if len(message.lights) > steps:
        raise FormatError(f"expected at most {steps} dynamic_map_states, got {len(message.lights)}")
    lanes: list[str] = []
    states: list[int] = []
    frames: list[int] = []
    for frame, span in enumerate(message.lights):
        for number, kind, low, high in wire.fields(record, span):
            if number != 1 or kind != wire.BYTES:
                continue
            values = {1: 0, 2: 0}
            for inner, inner_kind, first, last in wire.fields(record, (low, high)):
                if inner in values and inner_kind == wire.VARINT:
                    values[inner] = _int32(record, first, last)
            if not 0 <= values[2] < len(LIGHTS):
                raise FormatError(f"expected a state of a light within 0:{len(LIGHTS)}, got {values[2]}")
            lanes.append(str(values[1]))
            states.append(LIGHTS[values[2]])
            frames.append(frame)
    return faces_of(lanes, states), np.array(frames, np.int64)


def _to_predict(record: bytes, message: _Message, ids: Sequence[str]) -> dict[str, list[str] | list[int]]:
    """Ids of the tracks to predict, which the message names by their numbers, and how difficult each is."""
    tracks: list[str] = []
    difficulties: list[int] = []
    for span in message.to_predict:
        values = {1: 0, 2: 0}
        for number, kind, low, high in wire.fields(record, span):
            if number in values and kind == wire.VARINT:
                values[number] = _int32(record, low, high)
        if not 0 <= values[1] < len(ids):
            raise FormatError(f"expected tracks_to_predict within 0:{len(ids)}, got {values[1]}")
        tracks.append(ids[values[1]])
        difficulties.append(values[2])
    return {"tracks_to_predict": tracks, "difficulties": difficulties}
