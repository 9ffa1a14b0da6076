"""Inputs of rasters, as arrays: the rows of a log (`Scenes`), and from where each raster looks at them (`Views`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.errors import DataError
from penstock_driving.geometry import box_corners, rotation33_as_yaw
from penstock_driving.logs import EGO_EXTENT
from penstock_driving.rasterize.context import Circles

LABELS = list(range(3, 16))  # the kinds of agent that are drawn: cars, ..., pedestrians, animals
BLOCK = 1 << 16  # agents whose labels are looked at at once


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes of the `K` agents that pass a threshold, and of the vehicle in `F` frames."""

    corners: FloatArray  # `[K + F, 4, 2]` metres in the world: agents, then the vehicle
    circles: Circles
    rows: IntArray  # `[K]` of the agents
    track: IntArray
    spans: IntArray  # `[F, 2]`: frame `f` owns the agents `spans[f, 0]:spans[f, 1]` of the `K`


@dataclass(frozen=True, eq=False)
class Scenes:
    """Rows of a driving log from which rasters are drawn.

    Corners of boxes, and which agents pass a threshold, are computed once and serve all rasters of the same `Scenes`.
    Make one of a whole log that is in memory, or one for each batch. Threads may share it.

    Args:
        frames: `[F]` rows of frames.
        agents: Rows of agents.
        faces: Rows of faces of traffic lights.
        agent_spans: `[F, 2]` int64 range of the agents of each frame.
        face_spans: `[F, 2]` int64 range of the faces of each frame.

    Raises:
        DataError: A range is outside the rows.

    Example:
        >>> from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, TL_FACE_DTYPE
        >>> frames, agents, faces = (np.zeros(2, dtype) for dtype in (FRAME_DTYPE, AGENT_DTYPE, TL_FACE_DTYPE))
        >>> frames["agent_index_interval"] = [[0, 1], [1, 2]]
        >>> Scenes.of(frames, agents, faces).agent_spans.tolist()
        [[0, 1], [1, 2]]
    """

    frames: AnyArray
    agents: AnyArray
    faces: AnyArray
    agent_spans: IntArray
    face_spans: IntArray
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)
    _boxes: dict[float, Boxes] = field(default_factory=dict[float, Boxes], init=False, repr=False)

    def __post_init__(self) -> None:
        for name, spans, rows in (("agents", self.agent_spans, self.agents), ("faces", self.face_spans, self.faces)):
            wrong = np.flatnonzero((spans[:, 0] < 0) | (spans[:, 1] < spans[:, 0]) | (spans[:, 1] > len(rows)))
            if spans.shape != (len(self.frames), 2) or len(wrong):
                place = f"{spans[wrong[0]].tolist()} of frame {wrong[0]}" if len(wrong) else f"spans {spans.shape}"
                raise DataError(f"expected an interval within {len(rows)} {name} for each frame, got {place}")

    def __reduce__(self) -> tuple[type[Scenes], tuple[Any, ...]]:
        return Scenes, (self.frames, self.agents, self.faces, self.agent_spans, self.face_spans)

    @classmethod
    def of(cls, frames: AnyArray, agents: AnyArray, faces: AnyArray) -> Scenes:
        """Make scenes of contiguous frames of a log.

        Args:
            frames: `[F]` frames. Their intervals are numbers of the whole log. Frames of the format's first version
                have no faces.
            agents: The agents of these frames.
            faces: The faces of these frames.

        Raises:
            DataError: An interval is outside the rows.
        """
        spans: dict[str, IntArray] = {}
        for name in ("agent_index_interval", "traffic_light_faces_index_interval"):
            known = name in (frames.dtype.names or ())
            intervals = frames[name].astype(np.int64) if known else np.zeros((len(frames), 2), np.int64)
            spans[name] = intervals - (intervals[0, 0] if len(intervals) else 0)
        return cls(frames, agents, faces, *spans.values())

    @classmethod
    def of_lists(cls, frames: AnyArray, agents: Sequence[AnyArray], faces: Sequence[AnyArray]) -> Scenes:
        """Make scenes of frames with a list of agents and faces for each. The shortest list sets the number of frames.

        Args:
            frames: `[F]` frames.
            agents: For each frame, its agents.
            faces: For each frame, its faces.

        Raises:
            DataError: There is no frame.
        """
        count = min(len(frames), len(agents))
        if count == 0:
            raise DataError("expected at least the current frame and its agents, got an empty history")
        spans = [_spans(list(rows)[:count], count) for rows in (agents, faces)]
        rows = np.concatenate(list(agents)[:count])
        lights = np.concatenate(list(faces)[:count]) if len(faces) else np.empty(0, [("face_id", "U16")])
        return cls(np.asarray(frames)[:count], rows, lights, *spans)

    def boxes(self, threshold: float) -> Boxes:
        """Return the boxes of agents that pass a threshold, computed once.

        Args:
            threshold: Agents pass if their labels of interest have a probability above this.
        """
        with self._lock:
            if threshold not in self._boxes:
                self._boxes[threshold] = self._work_out(threshold)
            return self._boxes[threshold]

    def _work_out(self, threshold: float) -> Boxes:
        blocks = [self.agents[low : low + BLOCK]["label_probabilities"] for low in range(0, len(self.agents), BLOCK)]
        passed = [np.sum(block[:, LABELS], axis=1) > threshold for block in blocks]
        kept = np.flatnonzero(np.concatenate(passed)) if passed else np.empty(0, np.int64)
        agents = self.agents[kept]
        corners = box_corners(agents["centroid"], agents["extent"], agents["yaw"])
        # The vehicle has the form of an agent's row: its numbers are rounded as for agents.
        centroid = self.frames["ego_translation"][:, :2].astype(agents["centroid"].dtype)
        extent = np.broadcast_to(np.array(EGO_EXTENT, agents["extent"].dtype), (len(self.frames), 3))
        yaw = rotation33_as_yaw(self.frames["ego_rotation"]).astype(agents["yaw"].dtype)
        corners = np.concatenate([corners, box_corners(centroid, extent, yaw)])
        return Boxes(
            corners=corners,
            circles=Circles.around(corners),
            rows=kept,
            track=agents["track_id"].astype(np.int64),
            spans=np.searchsorted(kept, self.agent_spans),
        )


@dataclass(frozen=True, eq=False)
class Views:
    """Poses around which `n` rasters are drawn, and the `S` frames of each.

    Args:
        steps: `[n, S]` int64 rows of the frames: the current one first, then back in time; -1 for none.
        position: `[n, 3]` float64 metres.
        yaw: `[n]` float64 radians.
        track: `[n]` int64 track id of the agent that is drawn as the ego, -1 for the vehicle.
        ego: `[n, S, 3]` x, y and yaw of the vehicle at each step, in samples that were perturbed. The default is None:
            as in the frames.

    Raises:
        DataError: Shapes do not fit, or a view has no current frame.

    Example:
        >>> views = Views(np.array([[1, 0], [0, -1]]), np.zeros((2, 3)), np.zeros(2), np.full(2, -1))
        >>> len(views), views.part(1, 2).steps.tolist()
        (2, [[0, -1]])
    """

    steps: IntArray
    position: FloatArray
    yaw: FloatArray
    track: IntArray
    ego: FloatArray | None = None

    def __post_init__(self) -> None:
        n = len(self.steps)
        if self.ego is not None and self.ego.shape != (*self.steps.shape, 3):
            raise DataError(f"expected ego [n, S, 3] for steps {list(self.steps.shape)}, got {list(self.ego.shape)}")
        forms = self.steps.ndim == 2 and self.position.shape == (n, 3) and self.yaw.shape == self.track.shape == (n,)
        if not forms or self.steps.shape[1] == 0:
            raise DataError(
                f"expected steps [n, S], position [n, 3], yaw [n], track [n], got {list(self.steps.shape)}, "
                f"{list(self.position.shape)}, {list(self.yaw.shape)}, {list(self.track.shape)}"
            )
        if n and self.steps[:, 0].min() < 0:
            raise DataError(f"expected a current frame in every view, got none in view {self.steps[:, 0].argmin()}")

    @classmethod
    def of_ego(cls, scenes: Scenes, steps: npt.ArrayLike) -> Views:
        """Return the views of the vehicle.

        Args:
            scenes: Rows of a log.
            steps: `[n, S]` rows of the frames, -1 for none.

        Raises:
            DataError: A frame does not exist.
        """
        rows = _checked(scenes, steps)
        frames = scenes.frames[rows[:, 0]]
        yaw = rotation33_as_yaw(frames["ego_rotation"])
        return cls(rows, frames["ego_translation"].astype(np.float64), yaw, np.full(len(rows), -1, np.int64))

    @classmethod
    def of_agents(cls, scenes: Scenes, steps: npt.ArrayLike, agents: AnyArray) -> Views:
        """Return the views of agents, each in its current frame.

        Args:
            scenes: Rows of a log.
            steps: `[n, S]` rows of the frames, -1 for none.
            agents: `[n]` rows of the agents' dtype.

        Raises:
            DataError: A frame does not exist.
        """
        rows = _checked(scenes, steps)
        position = np.empty((len(rows), 3))
        position[:, :2] = agents["centroid"]
        position[:, 2] = scenes.frames["ego_translation"][rows[:, 0], 2]
        return cls(rows, position, agents["yaw"].astype(np.float64), agents["track_id"].astype(np.int64))

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, low: int, high: int) -> Views:
        """Return a range of views.

        Args:
            low: First view.
            high: End of the range.
        """
        ego = None if self.ego is None else self.ego[low:high]
        return Views(self.steps[low:high], self.position[low:high], self.yaw[low:high], self.track[low:high], ego)


def ranges(spans: IntArray) -> tuple[IntArray, IntArray]:
    """The rows of intervals `spans` `[m, 2]` in order, and which interval each is of."""
    counts = spans[:, 1] - spans[:, 0]
    owner = np.repeat(np.arange(len(spans)), counts)
    return np.arange(len(owner)) - (offsets_of(counts)[:-1] - spans[:, 0])[owner], owner


def _spans(rows: list[AnyArray], count: int) -> IntArray:
    offsets = offsets_of([*map(len, rows), *[0] * (count - len(rows))])
    return np.stack([offsets[:-1], offsets[1:]], axis=1)


def _checked(scenes: Scenes, steps: npt.ArrayLike) -> IntArray:
    rows = np.asarray(steps)
    if rows.ndim != 2 or rows.dtype.kind not in "iu":
        raise DataError(f"expected steps [n, S] of integers, got {list(rows.shape)} {rows.dtype}")
    if rows.size and not -1 <= rows.min() <= rows.max() < len(scenes.frames):
        raise DataError(f"expected frames within -1:{len(scenes.frames)}, got {rows.min()} to {rows.max()}")
    return rows.astype(np.int64)
