"""The map in world coordinates, under the names that L5Kit's map API has, and as arrays for whole rasters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, FloatArray, Int32Array
from penstock.core.boundary import json_object
from penstock.core.ragged import Ragged
from penstock.errors import DataError, FormatError
from penstock_driving.formats.l5kit.road_map import CROSSWALK, TRAFFIC_LIGHT, MapElement, RoadMap
from penstock_driving.geometry import enu_to_ecef, transform_points
from penstock_driving.map.resample import every_metres, resampled

Points = FloatArray
COLORS = ("RED", "GREEN", "YELLOW")
PRIORITY = {"unknown": 0, "green": 1, "yellow": 2, "red": 3, "none": 4}


class InterpolationMethod(IntEnum):
    """How a lane is resampled: every so many metres, or at a number of points."""

    INTER_METER = 0
    INTER_ENSURE_LEN = 1


class DataManager(Protocol):
    """What finds files by key: anything with `require`."""

    def require(self, key: str) -> str:
        """The path of the file that `key` names."""
        ...


class MapAPI:
    """A semantic map, in metres of the world frame that `world_to_ecef` `[4, 4]` maps to the globe.

    All points are moved to world coordinates once, when the map is opened; every call returns new arrays, so that
    nothing a caller does to them comes back. Elements are in the order of the file: `map[3]`, `map["id"]`.

    Cost: some 0.1 ms an element.
    """

    def __init__(self, protobuf_map_path: str | Path, world_to_ecef: npt.ArrayLike) -> None:
        self.protobuf_map_path = str(protobuf_map_path)
        self.road = RoadMap.read(protobuf_map_path)
        self.world_to_ecef = np.asarray(world_to_ecef, np.float64)
        self.ecef_to_world = np.linalg.inv(self.world_to_ecef)
        self.elements = self.road.elements
        self.ids_to_el = {element.id: place for place, element in enumerate(self.elements)}
        self.boundaries = self._world(self.road.boundaries, np.repeat(self.road.lane_frame, 2, axis=0))
        self.outlines = self._world(self.road.outlines, self.road.crosswalk_frame)
        self._lanes = {name: place for place, name in enumerate(self.road.lane_ids)}
        self._crosswalks = {name: place for place, name in enumerate(self.road.crosswalk_ids)}
        self.bounds_info = self.get_bounds()
        self.interpolated_lanes = cache(self._interpolated_lanes)

    def __reduce__(self) -> tuple[type[MapAPI], tuple[Any, ...]]:
        return MapAPI, (self.protobuf_map_path, self.world_to_ecef)

    @staticmethod
    def from_cfg(data_manager: DataManager | str | Path, cfg: Mapping[str, Any]) -> MapAPI:
        """The map that a configuration names. `data_manager` has `require(key)`, or is the folder of the files."""
        raster = cfg["raster_params"]
        meta = load_metadata(required(data_manager, raster["dataset_meta_key"]))
        return MapAPI(required(data_manager, raster["semantic_map_key"]), matrix_of(meta, "world_to_ecef"))

    def _world(self, lines: Ragged, frames: Int32Array) -> Ragged:
        """Centimetre steps in local frames (degrees times 1e7), as points of the world."""
        offsets, metres = lines.offsets, lines.values / 100
        walked = np.empty_like(metres)
        for points in np.unique(lines.lengths):  # lines of equal length at once: a running sum for each, on its own
            rows = lines.offsets[np.flatnonzero(lines.lengths == points), None] + np.arange(points, dtype=np.int64)
            walked[rows] = np.cumsum(metres[rows], axis=1)
        degrees = np.repeat(frames / 1e7, lines.lengths, axis=0)
        return Ragged(transform_points(enu_to_ecef(walked, degrees[:, 0], degrees[:, 1]), self.ecef_to_world), offsets)

    @staticmethod
    def id_as_str(element_id: str) -> str:
        """The id of an element as text, as which elements have it here."""
        return element_id

    @staticmethod
    def is_lane(element: MapElement) -> bool:
        return element.kind == "lane"

    @staticmethod
    def is_crosswalk(element: MapElement) -> bool:
        return element.control == CROSSWALK and element.outlined

    def is_traffic_light(self, element_id: str) -> bool:
        return self[element_id].control == TRAFFIC_LIGHT

    def is_traffic_face(self, element_id: str) -> bool:
        """Whether it is a face of a traffic light, of any colour."""
        return self[element_id].color is not None

    def is_traffic_face_color(self, element_id: str, color: str) -> bool:
        """Whether it is a face of `color`: red, green or yellow."""
        if color.upper() not in COLORS:
            raise DataError(f"expected a colour among {', '.join(COLORS)}, got {color!r}")
        return self[element_id].color == color.upper()

    def get_color_for_face(self, face_id: str) -> str:
        """`RED`, `GREEN` or `YELLOW`."""
        color = self[face_id].color
        if color is None:
            raise DataError(f"expected a traffic light's face of {', '.join(COLORS)}, got element {face_id!r}")
        return color

    def get_lane_coords(self, element_id: str) -> dict[str, Points]:
        """`xyz_left` and `xyz_right`, `[points, 3]` each."""
        lane = self._lane(element_id)
        return {"xyz_left": self.boundaries[2 * lane].copy(), "xyz_right": self.boundaries[2 * lane + 1].copy()}

    def get_lane_as_interpolation(self, element_id: str, step: float, method: InterpolationMethod) -> dict[str, Points]:
        """`xyz_left`, `xyz_right` and `xyz_midlane`, `[k, 3]` each, resampled along their lengths.

        `INTER_ENSURE_LEN`: at `step` points. `INTER_METER`: every `step` metres, so long lines have more points.
        """
        lane = self._lane(element_id)
        left, right = self.boundaries[2 * lane], self.boundaries[2 * lane + 1]
        even = _known(method) == InterpolationMethod.INTER_ENSURE_LEN
        both = resampled(Ragged.from_rows([left, right]), int(step) if even else max(len(left), len(right)))
        middle = both.mean(axis=0)
        if even:
            middle = resampled(Ragged.from_rows([middle]), int(step))[0]
            return {"xyz_left": both[0], "xyz_right": both[1], "xyz_midlane": middle}
        lines = {"xyz_left": left, "xyz_right": right, "xyz_midlane": middle}
        return {name: every_metres(line, step) for name, line in lines.items()}

    @staticmethod
    def interpolate(xyz: AnyArray, step: float, method: InterpolationMethod) -> Points:
        """A line `[points, 3]`, resampled as in `get_lane_as_interpolation`: `[k, 3]`."""
        if _known(method) == InterpolationMethod.INTER_METER:
            return every_metres(np.asarray(xyz, np.float64), step)
        return resampled(Ragged.from_rows([np.asarray(xyz, np.float64)]), int(step))[0]

    def _interpolated_lanes(self, steps: int) -> Points:
        """`[lanes, 2, steps, 3]` both boundaries of all lanes at `steps` points, left first; worked out once."""
        points = resampled(self.boundaries, steps).reshape(-1, 2, steps, 3)
        points.flags.writeable = False
        return points

    def get_crosswalk_coords(self, element_id: str) -> dict[str, Points]:
        """`xyz` `[points, 3]`, the outline."""
        if element_id not in self._crosswalks:
            raise DataError(f"expected a crosswalk, got {self[element_id]}")
        return {"xyz": self.outlines[self._crosswalks[element_id]].copy()}

    def get_lane_traffic_control_ids(self, element_id: str) -> set[str]:
        """The ids of the controls (lights, faces, signs) that a lane obeys."""
        return set(self.road.controls[self._lane(element_id)])

    def get_tl_feature_for_lane(self, lane_id: str, active_tl_face_to_color: Mapping[str, str]) -> int:
        """0 for lights of unknown state, 1 green, 2 yellow, 3 red (the strictest active one), 4 without a light."""
        controls = self.get_lane_traffic_control_ids(lane_id)
        if not any(self.is_traffic_light(control) for control in controls):
            return PRIORITY["none"]
        colors = [active_tl_face_to_color[face] for face in controls & active_tl_face_to_color.keys()]
        return max((PRIORITY[color] for color in colors), default=PRIORITY["unknown"])

    def get_bounds(self) -> dict[str, dict[str, Any]]:
        """For `lanes` and `crosswalks`: `ids`, and `bounds` `[n, 2, 2]`: smallest and largest x and y."""
        return {
            "lanes": {"bounds": _bounds(self.boundaries, 2), "ids": list(self.road.lane_ids)},
            "crosswalks": {"bounds": _bounds(self.outlines, 1), "ids": list(self.road.crosswalk_ids)},
        }

    def _lane(self, element_id: str) -> int:
        if element_id not in self._lanes:
            raise DataError(f"expected a lane, got {self[element_id]}")
        return self._lanes[element_id]

    def __getitem__(self, item: int | str | bytes) -> MapElement:
        if isinstance(item, int):
            return self.elements[item]
        name = item.decode("utf-8") if isinstance(item, bytes) else item
        if name not in self.ids_to_el:
            raise KeyError(f"expected an element of {self.protobuf_map_path}, got {name!r}")
        return self.elements[self.ids_to_el[name]]

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[MapElement]:
        return iter(self.elements)


def _known(method: int) -> InterpolationMethod:
    try:
        return InterpolationMethod(method)
    except ValueError as error:
        raise DataError(f"expected a method among {[*InterpolationMethod.__members__]}, got {method!r}") from error


def _bounds(lines: Ragged, group: int) -> Points:
    """`[n, 2, 2]` smallest and largest x, y of each `group` lines; no line is empty."""
    starts, xy = lines.offsets[:-1:group], lines.values[:, :2]
    if len(starts) == 0:
        return np.empty((0, 2, 2))
    return np.stack([np.minimum.reduceat(xy, starts), np.maximum.reduceat(xy, starts)], axis=1)


def required(data_manager: DataManager | str | Path, key: str) -> Path:
    """The file that `key` names: what `data_manager.require` says, or the one below a folder."""
    if not isinstance(data_manager, str | Path):
        return Path(data_manager.require(key))
    path = Path(data_manager) / key
    if not path.exists():
        raise FileNotFoundError(f"expected {key!r}, which the configuration names, in {data_manager}")
    return path


def load_metadata(path: str | Path) -> dict[str, Any]:
    """The dataset's `meta.json`."""
    return json_object(Path(path).read_bytes(), path)


def matrix_of(meta: Mapping[str, Any], name: str) -> FloatArray:
    """The 4 by 4 matrix `name` of the dataset's metadata."""
    try:
        matrix = np.array(meta[name], np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"expected a matrix of 4 by 4 numbers, got {meta.get(name)!r}", where=name) from error
    if matrix.shape != (4, 4) or not np.all(np.isfinite(matrix)):
        raise FormatError(f"expected a matrix of 4 by 4 numbers, got {matrix.tolist()}", where=name)
    return matrix
