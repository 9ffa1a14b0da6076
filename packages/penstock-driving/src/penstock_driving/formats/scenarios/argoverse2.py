"""Argoverse 2 motion forecasting: a folder a scenario, with a Parquet file of a row for each track and step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.arrow import arrow
from penstock.core.arrays import AnyArray, IntArray
from penstock.errors import FormatError, require
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.signatures import is_scenario_table
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, TL_FACE_DTYPE
from penstock_driving.formats.scenarios.scenario import Moments, Scenario, ScenarioKind, labels_of, one_hot, scenario_of
from penstock_driving.geometry import yaw_as_rotation33

EGO = "AV"
"""Track id of the car that records."""
MOST_STEPS = 1 << 16
LABELS = labels_of(
    {
        "vehicle": "CAR",
        "bus": "BUS",
        "pedestrian": "PEDESTRIAN",
        "cyclist": "CYCLIST",
        "motorcyclist": "MOTORCYCLIST",
        "riderless_bicycle": "BICYCLE",
        "static": "DONTCARE",
        "background": "DONTCARE",
        "construction": "DONTCARE",
        "unknown": "UNKNOWN",
    }
)
EXTENTS = {
    **dict.fromkeys(("vehicle", "unknown"), (4.0, 2.0, 1.6)),
    "bus": (12.0, 2.5, 3.2),
    "pedestrian": (0.7, 0.7, 1.7),
    **dict.fromkeys(("cyclist", "motorcyclist", "riderless_bicycle"), (2.0, 0.7, 1.7)),
    **dict.fromkeys(("static", "background", "construction"), (0.5, 0.5, 1.0)),
}
"""Length, width and height in metres that agents get by their type, for the files have none. Those of vehicles and of
cyclists are the ones that Argoverse's own pictures have."""
COLUMNS = (
    *("observed", "track_id", "object_type", "object_category", "timestep", "position_x", "position_y", "heading"),
    *("velocity_x", "velocity_y", "scenario_id", "start_timestamp", "end_timestamp", "num_timestamps"),
    *("focal_track_id", "city"),
)
OPTIONAL = ("map_id", "slice_id")
SCORED = 2  # `object_category` from which on a track is one to predict


class Argoverse2(ScenarioKind):
    """Parquet files of Argoverse 2 motion forecasting."""

    name: ClassVar[str] = "argoverse2"
    title: ClassVar[str] = "Argoverse 2 motion forecasting"
    description: ClassVar[str] = "Argoverse 2 motion forecasting: folders with scenario_*.parquet"
    depth: ClassVar[int] = 2

    @override
    def is_named(self, name: str) -> bool:
        return name.startswith("scenario_") and name.endswith(".parquet")

    @override
    def holds(self, file: Path) -> bool:
        return is_scenario_table(file)

    @override
    def scenarios(self, file: Path) -> Iterator[tuple[int, Scenario]]:
        yield 0, self.read(file, 0)

    @override
    def read(self, file: Path, key: int) -> Scenario:
        with require("pyarrow.parquet", "arrow").ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            if missing := sorted(set(COLUMNS) - set(names)):
                raise FormatError(f"expected the columns of Argoverse 2, got none of {missing}", path=file)
            table = parquet.read([*COLUMNS, *(name for name in OPTIONAL if name in names)], use_threads=False)
        if table.num_rows == 0:
            raise FormatError("expected rows of tracks, got none", path=file)
        others = [name for name in names if name not in (*COLUMNS, *OPTIONAL) and not name.startswith("__")]
        unread = [LeftOut("column", name, "unused-array", "not a column of Argoverse 2") for name in others]
        return _scenario(table, tuple(unread))

    @override
    def left_out(self, path: Path, files: Sequence[Path]) -> list[LeftOut]:
        names = self.names_beside(path, files)
        maps = [name for name in names if name.rpartition("/")[2].startswith("log_map_archive_")]
        message = "lanes, crosswalks and drivable areas are not read"
        entries = [LeftOut("file", maps[0], "unread-part", message, len(maps))] if maps else []
        return [*entries, *unused_files(set(names) - set(maps), "scenario_*.parquet and a map")]


def _scenario(table: Any, unread: tuple[LeftOut, ...]) -> Scenario:
    head = {name: table.column(name)[0].as_py() for name in table.column_names if name in COLUMNS[10:] + OPTIONAL}
    steps, start, end = (int(head[name]) for name in ("num_timestamps", "start_timestamp", "end_timestamp"))
    if not 0 < steps <= MOST_STEPS:
        raise FormatError(f"expected 1 to {MOST_STEPS} steps, got num_timestamps = {steps}")
    step = _column(table, "timestep").astype(np.int64)
    if step.min() < 0 or step.max() >= steps:
        raise FormatError(f"expected steps within 0:{steps}, got {step.min()} to {step.max()}")
    ids, track = _strings(table, "track_id")
    kinds, kind = _strings(table, "object_type")
    if unknown := sorted(set(kinds) - LABELS.keys()):
        raise FormatError(f"expected an object_type among {sorted(LABELS)}, got {unknown[0]!r}")
    place = np.stack([_column(table, name) for name in ("position_x", "position_y")], axis=1)
    heading = _column(table, "heading")
    is_ego = track == (ids.index(EGO) if EGO in ids else -1)
    rows = np.flatnonzero(~is_ego)
    agents = np.zeros(len(rows), AGENT_DTYPE)
    agents["centroid"], agents["yaw"] = place[rows], heading[rows]
    agents["velocity"] = np.stack([_column(table, name)[rows] for name in ("velocity_x", "velocity_y")], axis=1)
    agents["extent"] = np.array([EXTENTS[name] for name in kinds])[kind[rows]]
    agents["label_probabilities"] = one_hot(np.array([LABELS[name] for name in kinds])[kind[rows]])
    number = np.cumsum([name != EGO for name in ids])
    agents["track_id"] = number[track[rows]]
    ego, yaw = np.zeros((steps, 3)), np.zeros(steps)
    ego[step[is_ego], :2] = place[is_ego]
    yaw[step[is_ego]] = heading[is_ego]
    known = np.bincount(step[is_ego], minlength=steps) > 0
    times = start + (np.arange(steps) * (end - start) + (steps - 1) // 2) // max(steps - 1, 1)
    scored = np.unique(track[_column(table, "object_category") >= SCORED])
    entries = {"scenario_id": head["scenario_id"], "city": head["city"], "focal_track": head["focal_track_id"]}
    entries |= {"tracks_to_predict": [ids[i] for i in scored], **{n: head[n] for n in OPTIONAL if n in head}}
    seen = step[_column(table, "observed").astype(np.bool_)]
    return scenario_of(
        Moments(times, ego, yaw_as_rotation33(yaw), known),
        agents,
        step[rows],
        np.zeros(0, TL_FACE_DTYPE),
        np.zeros(0, np.int64),
        track_ids=[name for name in ids if name != EGO],
        current=int(seen.max()) if len(seen) else None,
        metadata=entries,
        unread=unread,
    )


def _column(table: Any, name: str) -> AnyArray:
    """A column without missing values."""
    column = table.column(name)
    if column.null_count:
        raise FormatError(f"expected a value in every row, got {column.null_count} missing in {name}")
    return column.to_numpy()


def _strings(table: Any, name: str) -> tuple[list[str], IntArray]:
    """Distinct texts of a column in the order in which they appear, and which of them each row has."""
    column = table.column(name)
    if column.null_count or not (arrow().types.is_string(column.type) or arrow().types.is_large_string(column.type)):
        raise FormatError(f"expected a text in every row of {name}, got {column.type}")
    coded = column.combine_chunks().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)
