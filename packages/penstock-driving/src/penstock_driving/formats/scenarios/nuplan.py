"""nuPlan: SQLite databases, one a log, whose scenes are stretches of at most 20 s."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.errors import FormatError
from penstock.files.sqlite import database
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.signatures import is_nuplan_database
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE
from penstock_driving.formats.scenarios.scenario import (
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

REAR_AXLE_TO_CENTER = 1.461
"""Metres from the rear axle, whose pose is stored, to the middle of the car, whose pose frames have."""
LABELS = labels_of(
    {
        "vehicle": "CAR",
        "bicycle": "CYCLIST",
        "pedestrian": "PEDESTRIAN",
        **dict.fromkeys(("traffic_cone", "barrier", "czone_sign", "generic_object"), "DONTCARE"),
    }
)
LIGHTS = {"red": 0, "yellow": 1, "green": 2, "unknown": UNKNOWN}
TABLES = ("lidar_pc", "ego_pose", "lidar_box", "track", "category", "scene", "lidar", "log", "traffic_light_status")
_SCENES = """
SELECT rowid, MIN(timestamp) FROM lidar_pc WHERE scene_token IS NOT NULL
GROUP BY scene_token, lidar_token ORDER BY 2, scene_token, lidar_token
"""
_FRAMES = """
SELECT lp.token, lp.timestamp, ep.x, ep.y, ep.z, ep.qw, ep.qx, ep.qy, ep.qz
FROM lidar_pc AS lp LEFT JOIN ego_pose AS ep ON ep.token = lp.ego_pose_token
WHERE lp.scene_token = ? AND lp.lidar_token IS ? ORDER BY lp.timestamp, lp.rowid
"""
_BOXES = """
SELECT lb.lidar_pc_token, lb.track_token, c.name, lb.x, lb.y, lb.length, lb.width, lb.height, lb.yaw, lb.vx, lb.vy
FROM lidar_pc AS lp JOIN lidar_box AS lb ON lb.lidar_pc_token = lp.token
LEFT JOIN track AS t ON t.token = lb.track_token LEFT JOIN category AS c ON c.token = t.category_token
WHERE lp.scene_token = ? AND lp.lidar_token IS ? ORDER BY lp.timestamp, lb.rowid
"""
_LIGHTS = """
SELECT tl.lidar_pc_token, tl.lane_connector_id, tl.status
FROM lidar_pc AS lp JOIN traffic_light_status AS tl ON tl.lidar_pc_token = lp.token
WHERE lp.scene_token = ? AND lp.lidar_token IS ? ORDER BY lp.timestamp, tl.rowid
"""
_LOG = """
SELECT l.vehicle_name, l.logfile, l.location, l.map_version
FROM lidar JOIN log AS l ON l.token = lidar.log_token WHERE lidar.token = ?
"""


class NuPlan(ScenarioKind):
    """SQLite databases of nuPlan. A scene is what one lidar of one car saw: some files hold two cars."""

    name: ClassVar[str] = "nuplan"
    title: ClassVar[str] = "nuPlan"
    description: ClassVar[str] = "nuPlan: SQLite databases of logs, *.db"
    depth: ClassVar[int] = 4
    step: ClassVar[float | None] = 0.05

    @override
    def is_named(self, name: str) -> bool:
        return name.endswith(".db")

    @override
    def holds(self, file: Path) -> bool:
        return is_nuplan_database(file)

    @override
    def scenarios(self, file: Path) -> Iterator[tuple[int, Scenario]]:
        with _opened(file) as opened:
            for key, _ in opened.execute(_SCENES).fetchall():
                yield key, _scenario(opened, key)

    @override
    def read(self, file: Path, key: int) -> Scenario:
        with _opened(file) as opened:
            return _scenario(opened, key)

    @override
    def left_out(self, path: Path, files: Sequence[Path]) -> list[LeftOut]:
        return unused_files(self.names_beside(path, files), "databases")


@contextmanager
def _opened(file: Path) -> Generator[sqlite3.Connection]:
    """A database for reading, which has the tables. Opening never makes a file."""
    if file.stat().st_size == 0:
        message = "expected a database of nuPlan, got an empty file; SQLite makes one when a wrong path is opened"
        raise FormatError(message, path=file)
    with database(file) as opened:
        names = {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
        if missing := [name for name in TABLES if name not in names]:
            raise FormatError(f"expected a database of nuPlan, got none of the tables {missing}", path=file)
        yield opened


def _scenario(database: sqlite3.Connection, key: int) -> Scenario:
    chosen = database.execute("SELECT scene_token, lidar_token FROM lidar_pc WHERE rowid = ?", (key,)).fetchone()
    if chosen is None:
        raise FormatError(f"expected row {key} of lidar_pc, got none")
    frames = database.execute(_FRAMES, chosen).fetchall()
    tokens = {row[0]: t for t, row in enumerate(frames)}
    known = np.array([None not in row[2:] for row in frames])
    poses = np.array([row[2:] if None not in row[2:] else (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0) for row in frames], float)
    rotation = rotation_of(poses[:, 3:])
    yaw = rotation33_as_yaw(rotation)
    ahead = np.stack([np.cos(yaw), np.sin(yaw), np.zeros(len(yaw))], axis=1)  # in the plane, as nuPlan's devkit does
    boxes = database.execute(_BOXES, chosen).fetchall()
    names, numbers = numbered([bytes(row[1]).hex() for row in boxes])
    agents = np.zeros(len(boxes), AGENT_DTYPE)
    if unknown := {row[2] for row in boxes} - LABELS.keys():
        raise FormatError(f"expected a category among {sorted(LABELS)}, got {unknown.pop()!r}")
    values = np.array([row[3:] for row in boxes], np.float64).reshape(-1, 8)
    agents["centroid"], agents["extent"], agents["yaw"] = values[:, :2], values[:, 2:5], values[:, 5]
    agents["velocity"], agents["track_id"] = values[:, 6:], numbers
    agents["label_probabilities"] = one_hot(np.array([LABELS[row[2]] for row in boxes], np.int64))
    lights = database.execute(_LIGHTS, chosen).fetchall()
    if unknown := {row[2] for row in lights} - LIGHTS.keys():
        raise FormatError(f"expected a status among {list(LIGHTS)}, got {unknown.pop()!r}")
    vehicle, entries = _entries(database, *chosen)
    return scenario_of(
        Moments(
            nanoseconds(np.array([row[1] for row in frames], np.int64), 1000),
            poses[:, :3] + ahead * REAR_AXLE_TO_CENTER,
            rotation,
            known,
        ),
        agents,
        np.array([tokens[row[0]] for row in boxes], np.int64),
        faces_of([str(row[1]) for row in lights], [LIGHTS[row[2]] for row in lights]),
        np.array([tokens[row[0]] for row in lights], np.int64),
        track_ids=names,
        host=vehicle,
        metadata=entries,
    )


def _entries(database: sqlite3.Connection, scene: bytes, lidar: bytes) -> tuple[str, dict[str, Any]]:
    """The car, and what the scene and its log are called."""
    log = database.execute(_LOG, (lidar,)).fetchone() or ("", "", "", "")
    named = database.execute("SELECT name, roadblock_ids FROM scene WHERE token = ?", (scene,)).fetchone() or ("", "")
    entries = {"scenario_id": bytes(scene).hex(), "scene": named[0], "roadblocks": named[1]}
    entries |= dict(zip(("log", "location", "map_version"), log[1:], strict=True))
    return log[0] or "", {name: value for name, value in entries.items() if value}
