"""The view of driving logs: scenes as plain data and arrays, in metres from where the ego begins."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.errors import DataError
from penstock_driving.formats.l5kit.source import DrivingSource
from penstock_driving.logs import EGO_EXTENT, scene_logs
from penstock_driving.map import MapAPI
from penstock_driving.map.api import load_metadata, matrix_of
from penstock_driving.scene import KINDS, LIGHTS, SceneFromAbove

REACH = 150.0  # metres around the way of the ego in which the map is sent
KEPT = 2  # scenes in memory, of two episodes side by side
DIGITS = 2  # of metres in JSON
COLORS = ((28, 126, 214), (247, 103, 7), (174, 62, 201), (173, 181, 189), (43, 138, 62))  # kinds of agents, the ego
EGO_HEIGHT = 1.8  # metres


class DrivingView:
    """Scenes of a driving log. Threads may call it."""

    rate: float | None = None

    def __init__(self, source: DrivingSource, road: MapAPI | None = None) -> None:
        self._source = source
        self._road = road
        self._lock = threading.Lock()
        self._scenes: OrderedDict[int, SceneFromAbove] = OrderedDict()

    def contents(self, number: int) -> Mapping[str, Any]:
        """What the script draws but the agents: the way of the ego, and the map with its lights."""
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

    def array(self, number: int) -> Float32Array:
        """The agents of all frames, `[m, 7]`: x, y, yaw, length, width, number of the kind, number of the track."""
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

    def is_curve(self, field: Field) -> bool:
        """All numbers may be curves."""
        return True

    def record(self, recording: Any, number: int) -> None:
        """Boxes of the agents and the ego, its way, and with a map lanes and crosswalks."""
        scene, agents = self.contents(number), self.array(number)
        rerun, stream = recording.rerun, recording.stream
        names = [*scene["kinds"], "others", "ego"]
        kinds = [(i, name, color) for i, (name, color) in enumerate(zip(names, COLORS, strict=True))]
        stream.log("scene", rerun.AnnotationContext(kinds), static=True)
        ego = np.array(scene["ego"], np.float64).reshape(-1, 3)
        extent = np.tile([*scene["extent"], len(names) - 1], (len(ego), 1))
        counts = np.diff(scene["offsets"]).tolist()
        recording.send("scene/agents", 0, len(counts), _boxes(rerun, agents, counts))
        recording.send("scene/ego", 0, len(ego), _boxes(rerun, np.concatenate([ego, extent], axis=1), [1] * len(ego)))
        lines = {"scene/way": [ego[:, :2]], "scene/crosswalks": scene["crosswalks"]}
        lines["scene/lanes"] = [side for lane in scene["lanes"] for side in lane]
        for path, strips in lines.items():
            if strips:
                flat = [np.pad(np.asarray(strip), ((0, 0), (0, 1))) for strip in strips]
                stream.log(path, rerun.LineStrips3D(flat), static=True)

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


def _boxes(rerun: Any, rows: AnyArray, counts: Sequence[int]) -> Any:
    """Boxes `[m, 6]`: x, y, yaw, length, width, kind; `counts` of them in each frame."""
    height = np.full((len(rows), 1), EGO_HEIGHT / 2)
    half = rows[:, 2] / 2
    columns = rerun.Boxes3D.columns(
        centers=np.concatenate([rows[:, :2], height], axis=1),
        half_sizes=np.concatenate([rows[:, 3:5] / 2, height], axis=1),
        quaternions=np.stack([half * 0, half * 0, np.sin(half), np.cos(half)], axis=1),
        class_ids=rows[:, 5].astype(np.uint16),
    )
    return columns.partition(list(counts))


@cache
def _road(map: str, meta: str) -> MapAPI:
    return MapAPI(map, matrix_of(load_metadata(Path(meta)), "world_to_ecef"))


class DrivingViews:
    """Makes the views of driving logs."""

    name = "driving"
    options = ("map", "meta")
    folder = Path(__file__).parent / "view"

    def of(self, data: EpisodeDataset, **options: str) -> DrivingView | None:
        """The view of a driving log, else None. `map` and `meta` are the map's files, semantic_map.pb and meta.json."""
        if not isinstance(data.source, DrivingSource):
            return None
        if options and len(options) < len(self.options):
            raise DataError(f"expected map= and meta= together, got {sorted(options)}")
        return DrivingView(data.source, _road(**options) if options else None)


VIEW = DrivingViews()
