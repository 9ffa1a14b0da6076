"""The map around a pose as vectors: lanes, midlanes and crosswalks of fixed numbers, nearest first, batches at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, Int32Array, IntArray
from penstock.core.ragged import Ragged
from penstock_driving.config import section
from penstock_driving.kernels.lines import move_lines, nearest_lines
from penstock_driving.logs import Logs, Timeline
from penstock_driving.map.api import PRIORITY, MapAPI
from penstock_driving.map.resample import resampled
from penstock_driving.rasterize.scenes import ranges

_BLOCK = 1 << 16
_ACTIVE = 0


@dataclass(frozen=True)
class Reach:
    """How much of a map a sample has: at most `lanes` of `points` each and `crosswalks` of at most `crosswalk_points`,
    within `distance` metres.
    """

    lanes: int = 30
    points: int = 20
    crosswalks: int = 20
    crosswalk_points: int = 20
    distance: float = 35.0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Reach:
        """From `data_generation_params.lane_params` of a configuration."""
        lanes = section(section(config, "data_generation_params"), "lane_params")
        return cls(
            int(lanes["max_num_lanes"]),
            int(lanes["max_points_per_lane"]),
            int(lanes["max_num_crosswalks"]),
            int(lanes["max_points_per_crosswalk"]),
            float(lanes["max_retrieval_distance_m"]),
        )


class Surroundings:
    """Map elements around poses. Made once for a map; thread-safe. Cost: some passes over all lanes.

    Lanes count whose bounding box comes within `reach.distance` (along x and y) of the pose; the nearest `reach.lanes`
    by the points of their midlanes are given. Crosswalks likewise, in the map's order.
    """

    def __init__(self, map_api: MapAPI, reach: Reach) -> None:
        self.map, self.reach = map_api, reach
        both = map_api.interpolated_lanes(reach.points)
        # Copies, which kernels can write to: of a map without lanes, parts are read-only views.
        self._sides = np.array(both[..., :2], order="C").reshape(-1, reach.points, 2)
        self._full = np.full(len(self._sides), reach.points)
        middles = both.mean(axis=1)
        steps = Ragged(middles.reshape(-1, 3), np.arange(len(middles) + 1) * reach.points)
        self._middles = np.array(resampled(steps, reach.points)[..., :2], order="C")
        bounds = map_api.bounds_info
        self._lane_bounds, self._cross_bounds = bounds["lanes"]["bounds"], bounds["crosswalks"]["bounds"]
        lines = map_api.outlines
        self._outlines = np.zeros((len(lines), reach.crosswalk_points, 2))
        self._outline_lengths = np.minimum(lines.lengths, reach.crosswalk_points)
        for number in range(len(lines)):
            self._outlines[number, : self._outline_lengths[number]] = lines[number][: reach.crosswalk_points, :2]

    def __call__(self, pose: FloatArray, agent_from_world: FloatArray, active: BoolArray) -> dict[str, AnyArray]:
        """The keys of the map of `[n]` poses `[n, 3]`, with which of `faces` are active, `[n, faces]` bool.

        `lanes` `[n, 2 lanes, points, 3]` (left, right, left, ...), `lanes_mid` `[n, lanes, points, 3]`, whose third
        number is the light (0 unknown, 1 green, 2 yellow, 3 red, 4 none), `crosswalks`, all float32 in the frame of the
        pose, and `<key>_availabilities` bool.
        """
        centre = np.ascontiguousarray(pose[:, :2])
        lanes, crossing = self._nearest(centre), self._crossing(centre)
        light = np.where(lanes >= 0, self._lights(np.maximum(lanes, 0), active), 0).astype(np.float32)
        sides = np.stack([np.where(lanes >= 0, 2 * lanes + side, -1) for side in (0, 1)], axis=-1)
        reach, every = self.reach, np.inf
        parts = {
            "lanes": (self._sides, self._full, sides.reshape(len(pose), 2 * self.reach.lanes), None, reach.distance),
            "lanes_mid": (self._middles, self._full, lanes, light, reach.distance),
            "crosswalks": (self._outlines, self._outline_lengths, crossing, None, every),
        }
        outputs: dict[str, AnyArray] = {}
        for name, (lines, lengths, which, third, most) in parts.items():
            shape = (*which.shape, lines.shape[1])
            points, there = np.empty((*shape, 3), np.float32), np.empty(shape, np.bool_)
            values = np.zeros(which.shape, np.float32) if third is None else third
            move_lines(lines, lengths, which, agent_from_world, values, most, points, there)
            outputs[name], outputs[f"{name}_availabilities"] = points, there
        return outputs

    @cached_property
    def faces(self) -> dict[str, int]:
        """The numbers of the faces of traffic lights that the map knows, by their ids."""
        known = [element.id for element in self.map if element.color is not None]
        return {name: number for number, name in enumerate(known)}

    @cached_property
    def _face_values(self) -> AnyArray:
        colors = [self.map.get_color_for_face(name).lower() for name in self.faces]
        return np.array([PRIORITY[color] for color in colors] + [0], np.float32)

    @cached_property
    def _controls(self) -> tuple[IntArray, AnyArray]:
        """`[lanes, k]` the faces that each lane obeys, the last number where there are fewer; `[lanes]` whether to."""
        controls = self.map.road.controls
        lit = np.array([any(self._is_light(c) for c in lane) for lane in controls], np.bool_)
        faces = [sorted(self.faces[c] for c in lane if c in self.faces) for lane in controls]
        table = np.full((len(controls), max(map(len, faces), default=0) + 1), len(self.faces))
        for lane, numbers in enumerate(faces):
            table[lane, : len(numbers)] = numbers
        return table, lit

    def _is_light(self, name: str) -> bool:
        return name in self.map.ids_to_el and self.map.is_traffic_light(name)

    def _lights(self, lanes: IntArray, active: BoolArray) -> AnyArray:
        """`[n, lanes]` float32: the strictest of the active lights of each lane."""
        table, lit = self._controls
        if len(table) == 0:
            return np.zeros(lanes.shape, np.float32)
        on = np.concatenate([active, np.zeros((len(active), 1), np.bool_)], axis=1)
        faces = table[lanes]
        shown = np.where(on[np.arange(len(lanes))[:, None, None], faces], self._face_values[faces], 0).max(axis=-1)
        return np.where(lit[lanes], shown, np.float32(PRIORITY["none"]))

    def _nearest(self, centre: FloatArray) -> IntArray:
        """`[n, lanes]` the nearest lanes, -1 where there are fewer."""
        nearest = np.empty((len(centre), self.reach.lanes), np.int64)
        nearest_lines(self._middles, self._lane_bounds, centre, self.reach.distance, nearest)
        return nearest

    def _crossing(self, centre: FloatArray) -> IntArray:
        """`[n, crosswalks]` the crosswalks near, in the order of the map, -1 where there are fewer."""
        sample, number = np.nonzero(_within(centre, self._cross_bounds, self.reach.distance))
        return _firsts(sample, number, len(centre), self.reach.crosswalks)


class ActiveFaces:
    """Which faces of traffic lights are active in a frame; none if they are not `lit`.

    `numbers` are the numbers of the faces in the map; others are left out. The faces of all frames are read once, when
    first asked for: four bytes each are kept. Thread-safe.
    """

    def __init__(self, logs: Logs, timeline: Timeline, numbers: Mapping[str, int], lit: bool = True) -> None:
        self._logs = logs
        self._timeline = timeline
        self._numbers = numbers
        self._lit = lit
        self._lock = Lock()
        self._face: Int32Array | None = None

    def __call__(self, frames: IntArray) -> BoolArray:
        """`[n, faces]` bool of `[n]` frames of the dataset."""
        active = np.zeros((len(frames), len(self._numbers)), np.bool_)
        if not self._lit:
            return active
        offsets = self._timeline.faces
        rows, sample = ranges(np.stack([offsets[frames], offsets[frames + 1]], axis=1))
        face = self._faces()[rows]
        active[sample[face >= 0], face[face >= 0]] = True
        return active

    def _faces(self) -> Int32Array:
        with self._lock:
            if self._face is None:
                self._face = self._read()
            return self._face

    def _read(self) -> Int32Array:
        """`[T]` the number of each face, -1 where it is not active, or not in the map."""
        n = int(self._timeline.faces[-1])
        face_numbers = np.full(n, -1, np.int32)
        for lo in range(0, n, _BLOCK):
            rows = self._logs.tl_faces[lo : min(lo + _BLOCK, n)]
            names, inverse = np.unique(rows["face_id"], return_inverse=True)
            numbers = np.array([self._numbers.get(str(name), -1) for name in names], np.int32)
            on = rows["traffic_light_face_status"][:, _ACTIVE] > 0
            face_numbers[lo : lo + len(rows)] = np.where(on, numbers[inverse], -1)
        return face_numbers


def _within(pose: FloatArray, bounds: FloatArray, distance: float) -> BoolArray:
    """`[n, m]`: the boxes `[m, 2, 2]` that come within a distance of each pose, along both axes."""
    low, high = bounds[:, 0] - distance, bounds[:, 1] + distance
    x, y = pose[:, :1], pose[:, 1:2]
    return (x > low[:, 0]) & (y > low[:, 1]) & (x < high[:, 0]) & (y < high[:, 1])


def _firsts(sample: IntArray, values: IntArray, n: int, most: int) -> IntArray:
    """`[n, most]` the first values of each sample, -1 where it has fewer; samples rise."""
    begins = np.searchsorted(sample, np.arange(n))
    rank = np.arange(len(sample)) - begins[sample]
    numbers = np.full((n, most), -1)
    kept = rank < most
    numbers[sample[kept], rank[kept]] = values[kept]
    return numbers
