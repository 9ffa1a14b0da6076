"""Scenes written as each data set has them, by its documented layout, for the contracts of formats."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from penstock.containers.tfrecord import record_of
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged, offsets_of
from penstock.testing.examples import Example
from penstock_driving.formats.l5kit import SPEC
from penstock_driving.formats.l5kit.columns import tables_of
from penstock_driving.formats.scenarios.argoverse2 import EXTENTS
from penstock_driving.formats.scenarios.nuplan import REAR_AXLE_TO_CENTER
from penstock_driving.formats.scenarios.scenario import faces_of, labels_of, one_hot
from penstock_driving.geometry import rotation33_as_yaw, yaw_as_rotation33

NAMES = {
    "argoverse2": {"vehicle": "CAR", "pedestrian": "PEDESTRIAN", "cyclist": "CYCLIST"},
    "waymo": {1: "CAR", 2: "PEDESTRIAN", 3: "CYCLIST"},
    "nuplan": {"vehicle": "CAR", "pedestrian": "PEDESTRIAN", "bicycle": "CYCLIST"},
    "py123d": {0: "CAR", 2: "PEDESTRIAN", 1: "CYCLIST"},
}
"""Some of the names of each data set."""
STEP = 100_000_000
VEHICLE = "a name of more than 16 characters"


@dataclass(frozen=True, eq=False)
class Drives(Example):
    """Random scenes that the data set called `name` can hold."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        rng = np.random.default_rng(seed)
        return [self._drive(rng, steps, e, seed) for e, steps in enumerate(self.lengths)]

    def _drive(self, rng: np.random.Generator, steps: int, e: int, seed: int) -> Episode:
        start = 0 if self.name == "waymo" else (10**6 + seed * 1000 + e) * 10**9
        tracks: list[list[int]] = []
        for _ in range(steps):  # each frame has some of the known tracks, and new ones in the order of their numbers
            most = max((max(frame, default=0) for frame in tracks), default=0)
            tracks.append([k for k in range(1, most + 1) if rng.random() < 0.7] + list(range(most + 1, most + 3)))
        track = np.array([k for frame in tracks for k in frame], np.uint64)
        kinds = list(NAMES[self.name])
        kind = np.array([(int(k) + e) % len(kinds) for k in track], np.int64)
        n = len(track)
        extent = rng.uniform(0.5, 5, (n, 3)).astype(np.float32)
        if self.name == "argoverse2":
            extent = np.array([EXTENTS[kinds[k]] for k in kind], np.float32).reshape(n, 3)
        turned = self.name in ("argoverse2", "waymo")
        yaw = rng.uniform(-3, 3, n).astype(np.float32) if turned else np.zeros(n, np.float32)
        ego = rng.integers(-99, 99, (steps, 3)) * np.array([1, 1, self.name != "argoverse2"], float)
        ego += [REAR_AXLE_TO_CENTER * (self.name == "nuplan"), 0.0, 0.0]
        lights = np.zeros(steps, np.int64) if self.name == "argoverse2" else rng.integers(3, size=steps)
        lit = int(lights.sum())
        faces = faces_of([str(lane) for lane in rng.integers(1, 99, lit)], rng.choice([0, 1, 2, 4], lit).tolist())
        labels = np.array(list(labels_of(NAMES[self.name]).values()))
        agents = {
            "centroid": rng.normal(size=(n, 2)) * 50,
            "extent": extent,
            "yaw": yaw,
            "velocity": rng.normal(size=(n, 2)).astype(np.float32),
            "track_id": track,
            "label_probabilities": one_hot(labels[kind]),
        }
        heading = rng.uniform(-3, 3, steps).astype(np.float32).astype(float) * turned
        columns: dict[str, Any] = {
            "timestamp": start + np.arange(steps) * STEP,
            "ego_translation": ego,
            "ego_rotation": yaw_as_rotation33(heading) if turned else np.tile(np.eye(3), (steps, 1, 1)),
        }
        counts = {"agents": np.array([len(frame) for frame in tracks]), "tl_faces": lights}
        for name, values in {**agents, **{name: faces[name] for name in faces.dtype.names or ()}}.items():
            table = "agents" if name in agents else "tl_faces"
            flat = np.ascontiguousarray(values).reshape(-1)
            width = SPEC_WIDTHS[name]
            columns[f"{table}/{name}"] = Ragged(flat, offsets_of(counts[table] * width))
        times = columns["timestamp"].tolist()
        entries = {"host": "", "start_time": times[0], "end_time": times[-1], **self._entries(e, seed)}
        return Episode(SPEC, columns, e, entries)

    def _entries(self, e: int, seed: int) -> dict[str, Any]:
        """What a scene of the data set says of itself, as the functions below write it."""
        name = f"{seed:04d}{e:04d}"
        if self.name == "argoverse2":
            entries = {"city": "austin", "focal_track": "t1", "tracks_to_predict": ["t1"]}
            return {"scenario_id": name, "current_frame": 0, **entries}
        if self.name == "waymo":
            entries = {"ego_track": "7", "objects_of_interest": ["101"], "tracks_to_predict": ["101"]}
            return {"scenario_id": name, "current_frame": 0, "difficulties": [2], **entries}
        if self.name == "nuplan":
            return {"scenario_id": name.encode().hex(), "scene": f"scene-{e}", "host": "car", "log": "log"}
        return {
            "scenario_id": name,
            "dataset": "made",
            "split": "train",
            "log_name": name,
            "vehicle": VEHICLE,
        }


SPEC_WIDTHS = {"centroid": 2, "extent": 3, "yaw": 1, "velocity": 2, "track_id": 1, "label_probabilities": 17} | {
    "face_id": 1,
    "traffic_light_id": 1,
    "traffic_light_face_status": 3,
}


def write(name: str, folder: Path, episodes: Sequence[Episode]) -> Path:
    """Write episodes below a folder; return the path to open."""
    path = folder / name
    path.mkdir(parents=True)
    {"argoverse2": _argoverse2, "waymo": _waymo, "nuplan": _nuplan, "py123d": _py123d}[name](path, episodes)
    return path


def _rows(episode: Episode, kinds: Iterable[Any]) -> list[tuple[int, int, Any, Any]]:
    """Frame, track, kind and row of each agent."""
    frames, agents, _ = tables_of(episode)
    of_label = {label: kind for kind, label in labels_of(NAMES[_name(kinds)]).items()}
    owners = np.repeat(np.arange(len(frames)), np.diff(frames["agent_index_interval"], axis=1)[:, 0])
    return [
        (int(t), int(row["track_id"]), of_label[int(row["label_probabilities"].argmax())], row)
        for t, row in zip(owners, agents, strict=True)
    ]


def _name(kinds: Iterable[Any]) -> str:
    return next(name for name, known in NAMES.items() if known is kinds)


def _headings(frames: Any) -> list[float]:
    """Yaws of the ego, which are numbers of float32."""
    return rotation33_as_yaw(frames["ego_rotation"]).astype(np.float32).tolist()


def _argoverse2(path: Path, episodes: Sequence[Episode]) -> None:
    for episode in episodes:
        frames, _, _ = tables_of(episode)
        sid = episode.metadata["scenario_id"]
        ego = zip(frames["ego_translation"], _headings(frames), strict=True)
        rows = [(t, "AV", "vehicle", xyz[0], xyz[1], yaw, 0.0, 0.0, 1) for t, (xyz, yaw) in enumerate(ego)]
        for t, track, kind, row in sorted(_rows(episode, NAMES["argoverse2"]), key=lambda each: each[1]):
            values = (*row["centroid"].tolist(), float(row["yaw"]), *row["velocity"].tolist())
            rows.append((t, f"t{track}", kind, *values, 3 if track == 1 else 0))
        names = (
            "timestep",
            "track_id",
            "object_type",
            "position_x",
            "position_y",
            "heading",
            "velocity_x",
            "velocity_y",
        )
        table = {n: [row[i] for row in rows] for i, n in enumerate((*names, "object_category"))}
        table["observed"] = [row[0] == 0 for row in rows]
        start, end = episode.metadata["start_time"], episode.metadata["end_time"]
        constants = {"scenario_id": sid, "start_timestamp": start, "end_timestamp": end, "num_timestamps": len(frames)}
        constants |= {"focal_track_id": "t1", "city": "austin"}
        (path / sid).mkdir()
        table |= {n: [value] * len(rows) for n, value in constants.items()}
        pyarrow.parquet.write_table(pa.table(table), path / sid / f"scenario_{sid}.parquet")


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def message(*fields: tuple[int, int | float | bytes], single: Sequence[int] = ()) -> bytes:
    """A protobuf message; floats have 8 bytes, those whose numbers are in `single` 4."""
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            out += _varint(number << 3 | 2) + _varint(len(value)) + value
        elif isinstance(value, float):
            out += _varint(number << 3 | (5 if number in single else 1))
            out += struct.pack("<f" if number in single else "<d", value)
        else:
            out += _varint(number << 3) + _varint(value)
    return out


def scenario(episode: Episode) -> bytes:
    """A `Scenario` of Waymo, whose states that are not valid have nonsense in them."""
    frames, _, faces = tables_of(episode)
    steps, floats = len(frames), range(5, 11)
    nonsense = message((2, -1.0), (8, -1.0), (11, 0), single=floats)
    states: dict[tuple[int, int], list[bytes]] = {(7, 1): []}
    for t, yaw in enumerate(_headings(frames)):
        xyz = frames["ego_translation"][t].tolist()
        states[7, 1].append(message(*zip((2, 3, 4), xyz, strict=True), (8, yaw), (11, 1), single=floats))
    for t, track, kind, row in _rows(episode, NAMES["waymo"]):
        mine = states.setdefault((100 + track, kind), [nonsense] * steps)
        values = [*row["centroid"].tolist(), 0.0, *row["extent"].tolist(), float(row["yaw"]), *row["velocity"].tolist()]
        mine[t] = message((11, 1), *zip(range(2, 11), values, strict=True), single=floats)
    tracks = [message((1, tid), (2, kind), *((3, state) for state in each)) for (tid, kind), each in states.items()]
    colors = {"R": 4, "Y": 5, "G": 6, "-": 0}
    lights: list[bytes] = []
    for low, high in frames["traffic_light_faces_index_interval"].tolist():
        named = [name.split(":") for name in faces["face_id"][low:high].tolist()]
        lights.append(b"".join(message((1, message((1, int(lane)), (2, colors[c])))) for lane, c in named))
    seconds = [(1, time / 1e9) for time in frames["timestamp"].tolist()]
    parts = [*((2, track) for track in tracks), *((7, each) for each in lights)]
    head = [(5, episode.metadata["scenario_id"].encode()), (6, 0), (4, 101), (11, message((1, 1), (2, 2)))]
    return message(*seconds, *parts, *head, (10, 0))


def _waymo(path: Path, episodes: Sequence[Episode]) -> None:
    for number, part in enumerate((episodes[:1], episodes[1:])):
        records = b"".join(record_of(scenario(episode)) for episode in part)
        (path / f"training.tfrecord-{number:05d}-of-00002").write_bytes(records)


_SCHEMA = """
CREATE TABLE log (token BLOB, vehicle_name, logfile, location, map_version);
CREATE TABLE lidar (token BLOB, log_token BLOB);
CREATE TABLE scene (token BLOB, log_token BLOB, name, roadblock_ids);
CREATE TABLE ego_pose (token BLOB PRIMARY KEY, x FLOAT, y FLOAT, z FLOAT, qw FLOAT, qx FLOAT, qy FLOAT, qz FLOAT);
CREATE TABLE lidar_pc (token BLOB PRIMARY KEY, ego_pose_token, lidar_token, scene_token, timestamp INTEGER);
CREATE TABLE category (token BLOB PRIMARY KEY, name);
CREATE TABLE track (token BLOB PRIMARY KEY, category_token BLOB);
CREATE TABLE lidar_box (lidar_pc_token, track_token, x FLOAT, y FLOAT, length FLOAT, width FLOAT, height FLOAT,
  yaw FLOAT, vx FLOAT, vy FLOAT);
CREATE TABLE traffic_light_status (lidar_pc_token, lane_connector_id INTEGER, status);
INSERT INTO log VALUES (x'01', 'car', 'log', NULL, NULL);
INSERT INTO lidar VALUES (x'02', x'01');
"""


def _nuplan(path: Path, episodes: Sequence[Episode]) -> None:
    with closing(sqlite3.connect(path / "log.db")) as database:
        database.executescript(_SCHEMA)
        for name in NAMES["nuplan"]:
            database.execute("INSERT INTO category VALUES (?, ?)", (name.encode(), name))
        for episode in reversed(episodes):  # rows have no order of their own
            frames, _, faces = tables_of(episode)
            scene = bytes.fromhex(episode.metadata["scenario_id"])
            database.execute("INSERT INTO scene VALUES (?, x'01', ?, NULL)", (scene, episode.metadata["scene"]))
            for t in np.random.default_rng(0).permutation(len(frames)).tolist():
                x, y, z = frames["ego_translation"][t].tolist()
                token, stamp = scene + bytes([t]), int(frames["timestamp"][t]) // 1000
                pose = (token, round(x - REAR_AXLE_TO_CENTER), y, z)
                database.execute("INSERT INTO ego_pose VALUES (?, ?, ?, ?, 1, 0, 0, 0)", pose)
                database.execute("INSERT INTO lidar_pc VALUES (?, ?, x'02', ?, ?)", (token, token, scene, stamp))
                for face in faces[slice(*frames["traffic_light_faces_index_interval"][t].tolist())]["face_id"].tolist():
                    lane, color = face.split(":")
                    status = {"R": "red", "Y": "yellow", "G": "green", "-": "unknown"}[color]
                    database.execute("INSERT INTO traffic_light_status VALUES (?, ?, ?)", (token, int(lane), status))
            for t, track, kind, row in _rows(episode, NAMES["nuplan"]):
                tid = scene + b"t" + bytes([track])
                database.execute("INSERT OR IGNORE INTO track VALUES (?, ?)", (tid, kind.encode()))
                values = (
                    *row["centroid"].tolist(),
                    *row["extent"].tolist(),
                    float(row["yaw"]),
                    *row["velocity"].tolist(),
                )
                box = (scene + bytes([t]), tid, *values)
                database.execute(f"INSERT INTO lidar_box VALUES ({','.join('?' * len(box))})", box)
        database.commit()


def packed(value: Any) -> bytes:
    """A value as MessagePack."""
    if isinstance(value, dict):
        return bytes([0x80 | len(value)]) + b"".join(packed(k) + packed(v) for k, v in value.items())
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(packed, value))
    if isinstance(value, str):
        return bytes([0xD9, len(value.encode())]) + value.encode()
    return b"\xc0" if value is None else b"\xcb" + struct.pack(">d", value)


def _py123d(path: Path, episodes: Sequence[Episode]) -> None:
    vectors = pa.list_(pa.list_(pa.float64(), 10))
    for episode in episodes:
        frames, _, faces = tables_of(episode)
        steps, rows = len(frames), _rows(episode, NAMES["py123d"])
        folder = path / "logs" / "train" / episode.metadata["log_name"]
        folder.mkdir(parents=True)
        stamps = (frames["timestamp"] // 1000).tolist()
        spans = frames["traffic_light_faces_index_interval"].tolist()
        lit = [[name.split(":") for name in faces["face_id"][low:high].tolist()] for low, high in spans]
        boxed = [t for t in range(steps) if any(row[0] == t for row in rows)]  # frames without boxes have no row

        def per_frame(value: Any, rows: Any = rows, boxed: Any = boxed) -> list[Any]:
            return [[value(*each) for each in rows if each[0] == t] for t in boxed]

        def save(name: str, entries: dict[str, Any], meta: dict[str, Any], folder: Path = folder) -> None:
            table = pa.table(entries).replace_schema_metadata({"metadata": packed(meta)})
            with pa.ipc.new_file(folder / f"{name}.arrow", table.schema) as file:
                file.write_table(table)

        poses = [[*place, 1.0, 0.0, 0.0, 0.0] for place in frames["ego_translation"].tolist()]
        vehicle = {"vehicle_name": VEHICLE, "center_to_imu_se3": [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]}
        ego = {"timestamp_us": stamps, "imu_se3": pa.array(poses, pa.list_(pa.float64(), 7))}
        save("ego_state_se3", {f"ego_state_se3.{k}": v for k, v in ego.items()}, vehicle)
        boxes = {
            "timestamp_us": [stamps[t] for t in boxed],
            "bounding_box_se3": pa.array(
                per_frame(lambda t, k, kind, row: [*row["centroid"].tolist(), 0, 1, 0, 0, 0, *row["extent"].tolist()]),
                vectors,
            ),
            "track_token": pa.array(per_frame(lambda t, k, kind, row: f"t{k}"), pa.list_(pa.string())),
            "label": pa.array(per_frame(lambda t, k, kind, row: kind), pa.list_(pa.uint16())),
            "velocity_3d": pa.array(
                per_frame(lambda t, k, kind, row: [*row["velocity"].tolist(), 0]),
                pa.list_(pa.list_(pa.float64(), 3)),
            ),
        }
        label = {"box_detection_label_class": "py123d.parser.registry.NuPlanBoxDetectionLabel"}
        save("box_detections_se3", {f"box_detections_se3.{k}": v for k, v in boxes.items()}, label)
        numbers = {"G": 0, "Y": 1, "R": 2, "-": 4}
        lights = {
            "timestamp_us": stamps,
            "lane_id": pa.array([[int(lane) for lane, _ in each] for each in lit], pa.list_(pa.int32())),
            "status": pa.array([[numbers[c] for _, c in each] for each in lit], pa.list_(pa.uint8())),
        }
        save("traffic_light_detections", {f"traffic_light_detections.{k}": v for k, v in lights.items()}, {})
        at = {t: i for i, t in enumerate(boxed)}
        sync = {"sync.timestamp_us": stamps, "ego_state_se3": list(range(steps))}
        sync |= {"box_detections_se3": pa.array([at.get(t) for t in range(steps)], pa.int64())}
        sync |= {"traffic_light_detections": list(range(steps))}
        log = {"dataset": "made", "split": "train", "log_name": episode.metadata["log_name"], "location": None}
        save("sync", sync, log)
