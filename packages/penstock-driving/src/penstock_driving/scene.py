"""One scene as it is drawn from above: who is where in each frame, lanes with their lights, crosswalks."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, FloatArray, IntArray
from penstock_driving.logs import Arrays, Timeline, Tracks
from penstock_driving.map.api import MapAPI
from penstock_driving.rasterize.context import SpatialIndex

POINTS = 20  # of a side of a lane
OF_INTEREST = 0.5  # the least probability that an agent takes part in traffic
KINDS: tuple[tuple[str, range], ...] = (
    ("vehicles", range(3, 10)),
    ("cycles", range(10, 14)),
    ("pedestrians and animals", range(14, 16)),
)
"""Names of the kinds of agents, and their labels."""
OTHERS = len(KINDS)
"""Number of the kind of all other agents, and of those that are hardly of interest."""
LIGHTS = ("RED", "YELLOW", "GREEN")
"""Colours of lights. Of several on one lane, the first counts."""


class SceneFromAbove:
    """What is drawn of one scene: its frames, agents, and the map around it."""

    def __init__(self, scene: Arrays, road: MapAPI | None = None) -> None:
        self.scene = scene
        self.road = road
        self.timeline = Timeline.of(scene)
        self.tracks = Tracks.of(scene.agents, 0, self.timeline, 0)

    def __len__(self) -> int:
        return len(self.timeline)

    def seconds(self, frame: int) -> float:
        """Since the first frame."""
        return float(self.timeline.timestamps[frame] - self.timeline.timestamps[0]) / 1e9

    @cached_property
    def kinds(self) -> ByteArray:
        """`[m]` uint8 kind of the agent at each place of `tracks`: the number in `KINDS`, or `OTHERS`."""
        of_label = np.full(256, OTHERS, np.uint8)
        for number, (_, labels) in enumerate(KINDS):
            of_label[list(labels)] = number
        return np.where(self.tracks.interest > OF_INTEREST, of_label[self.tracks.kind], np.uint8(OTHERS))

    def rows(self, frame: int) -> IntArray:
        first, last = self.timeline.agents[frame : frame + 2].tolist()
        return np.arange(first, last, dtype=np.int64)

    @cached_property
    def sides(self) -> FloatArray:
        """`[lanes, 2, POINTS, 2]` left and right sides of all lanes of the map."""
        return self._map().interpolated_lanes(POINTS)[..., :2]

    @cached_property
    def _lanes(self) -> SpatialIndex:
        return SpatialIndex(self._map().bounds_info["lanes"]["bounds"])

    @cached_property
    def _crosswalks(self) -> SpatialIndex:
        return SpatialIndex(self._map().bounds_info["crosswalks"]["bounds"])

    def lanes_near(self, center: AnyArray, reach: float) -> list[int]:
        """Numbers of the lanes that meet the square of half side `reach`; none without a map."""
        return [] if self.road is None else self._lanes.query(center, reach).tolist()

    def crosswalks_near(self, center: AnyArray, reach: float) -> list[int]:
        """Numbers of the crosswalks that meet the square of half side `reach`; none without a map."""
        return [] if self.road is None else self._crosswalks.query(center, reach).tolist()

    def crosswalk(self, number: int) -> FloatArray:
        """`[points, 2]` the outline of a crosswalk."""
        return self._map().outlines[number][:, :2]

    def lights(self, frame: int, lanes: list[int]) -> dict[int, str]:
        """The colour of each of the lanes that has a lit light in a frame."""
        if self.road is None:
            return {}
        rows = self.scene.tl_faces[slice(*self.timeline.faces[frame : frame + 2].tolist())]
        lit = rows["face_id"][rows["traffic_light_face_status"][:, 0] > 0].tolist()
        faces = {face: self.road.get_color_for_face(face) for face in lit if face in self.road.ids_to_el}
        shown = {lane: {faces[face] for face in self.road.road.controls[lane] if face in faces} for lane in lanes}
        return {lane: min(colors, key=LIGHTS.index) for lane, colors in shown.items() if colors}

    def _map(self) -> MapAPI:
        if self.road is None:
            raise ValueError("expected a scene with a map")
        return self.road
