"""Scenes of driving logs as plain data and arrays, in metres from where the ego begins."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array
from penstock_driving.formats.l5kit import L5KitSource
from penstock_driving.logs import EGO_EXTENT, scene_logs
from penstock_driving.map import MapAPI
from penstock_driving.scene import KINDS, LIGHTS, SceneFromAbove

REACH = 150.0  # metres around the way of the ego in which the map is sent
KEPT = 2  # scenes in memory, of two episodes side by side
DIGITS = 2  # of metres in JSON


class DrivingScenes:
    """Scenes of a driving log for the page of an episode. Threads may call it."""

    def __init__(self, source: L5KitSource, road: MapAPI | None = None) -> None:
        self._source = source
        self._road = road
        self._lock = threading.Lock()
        self._scenes: OrderedDict[int, SceneFromAbove] = OrderedDict()

    def scene(self, number: int) -> dict[str, Any]:
        """Return what `scene.js` draws but the agents: the way of the ego, and the map with its lights."""
        above = self._scene(number)
        ego = above.timeline.ego
        origin = _origin(above)
        lanes, crosswalks = _around(above)
        known = {lane: i for i, lane in enumerate(lanes)}
        lights = [
            [[known[lane], LIGHTS.index(color)] for lane, color in above.lights(frame, lanes).items()]
            for frame in range(len(above))
        ]
        sides: list[Any] = [] if not lanes else np.round(above.sides[lanes] - origin, DIGITS).tolist()
        return {
            "ego": np.round(ego - [*origin, 0], DIGITS + 2).tolist(),
            "extent": list(EGO_EXTENT[:2]),
            "seconds": [above.seconds(frame) for frame in range(len(above))],
            "offsets": above.timeline.agents.tolist(),
            "kinds": [name for name, _ in KINDS],
            "lanes": sides,
            "crosswalks": [np.round(above.crosswalk(i) - origin, DIGITS).tolist() for i in crosswalks],
            "lights": lights,
            "map": self._road is not None,
        }

    def agents(self, number: int) -> Float32Array:
        """Return the agents of all frames, `[m, 7]`: x, y, yaw, length, width, number of the kind, number
        of the track.
        """
        above = self._scene(number)
        tracks = above.tracks
        place = tracks.place
        columns: list[AnyArray] = [
            tracks.xy[place] - _origin(above),
            tracks.yaw[place, None],
            tracks.extent[place, :2],
            above.kinds[place, None],
            tracks.track[place, None],
        ]
        return np.concatenate([column.astype(np.float32) for column in columns], axis=1)

    def _scene(self, number: int) -> SceneFromAbove:
        with self._lock:
            if number not in self._scenes:
                self._scenes[number] = SceneFromAbove(scene_logs(self._source, number), self._road)
            self._scenes.move_to_end(number)
            while len(self._scenes) > KEPT:
                self._scenes.popitem(last=False)
            return self._scenes[number]


def _origin(above: SceneFromAbove) -> AnyArray:
    return above.timeline.ego[0, :2] if len(above) else np.zeros(2)


def _around(above: SceneFromAbove) -> tuple[list[int], list[int]]:
    """Lanes and crosswalks near the way of the ego."""
    lanes: set[int] = set()
    crosswalks: set[int] = set()
    last: AnyArray | None = None
    for center in above.timeline.ego[:, :2]:
        if last is None or np.abs(center - last).max() > REACH / 10:
            lanes.update(above.lanes_near(center, REACH))
            crosswalks.update(above.crosswalks_near(center, REACH))
            last = center
    return sorted(lanes), sorted(crosswalks)
