"""Samples of driving logs, a batch at a time: where something was and will be, seen from where it is.

The keys of a batch of `n` samples, with `H` frames of history and `F` of future; metres, radians and seconds:

* `target_positions` `[n, F, 2]`, `target_yaws` `[n, F, 1]`, `target_velocities` `[n, F, 2]`, `future_extents`
  `[n, F, 2]` (length, width), `target_availabilities` `[n, F]` (0 or 1): float32, in the frame of the current pose;
  yaws within half a turn. Missing values are 0.
* `history_positions`, `history_yaws`, `history_extents`, `history_availabilities`: the same for `H + 1` frames, the
  current one first, then back in time; `history_velocities` `[n, H, 2]`; `curr_speed` `[n]` float32, if `H` is not 0.
* `agent_from_world`, `world_from_agent`, `raster_from_agent`, `raster_from_world` (also as `world_to_image`)
  `[n, 3, 3]` float64; `centroid` `[n, 2]` and `yaw` `[n]` float64 in the world; `extent` `[n, 3]` length, width,
  height.
* `frame_index` (in the scene), `scene_index`, `timestamp` (ns), `track_id` (-1 of the ego): `[n]` int64; `host_id`
  `[n, 70]` uint8, ASCII padded with zeros.

History and future end with the scene.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.columns import Columns
from penstock_driving.config import Sampling
from penstock_driving.geometry import pose_matrix
from penstock_driving.kernels.agents import relative_poses
from penstock_driving.kinematics import velocities
from penstock_driving.logs import (
    EGO_EXTENT,
    TRACK_BYTES,
    Logs,
    NoSuchRowError,
    Timeline,
    Tracks,
    TrackTables,
)
from penstock_driving.perturbation import Perturbation

MATRICES = ("world_to_image", "raster_from_agent", "raster_from_world", "agent_from_world", "world_from_agent")
"""The keys of a sample that say where it, and its raster, are in the world."""
RATE = 0.05  # most relative deviation of `step_time` from that of a log
_FEW = 24  # samples of a scene that cost less alone than the table of their scene


@dataclass(frozen=True, eq=False)
class SampleSubjects:
    """Subjects of a batch of `n` samples: the ego, or an agent. The ego has row and track -1.

    `pose` `[n, 3]` x, y (metres) and yaw (radians) in the world; `extent` `[n, 3]` length, width, height; `ego`
    `[n, history + 1, 3]` poses from the current frame backwards, if the ego was moved; `[n]` int64 all others.
    """

    scene: IntArray
    frame: IntArray
    agent: IntArray
    track: IntArray
    pose: FloatArray
    extent: AnyArray
    ego: FloatArray | None = None

    @classmethod
    def joined(cls, parts: Sequence[SampleSubjects]) -> SampleSubjects:
        """Concatenate subjects in order. The ego is where the frames have it."""
        names = ("scene", "frame", "agent", "track", "pose", "extent")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True, eq=False)
class Poses:
    """Poses of `n` samples over `L` steps, seen from a pose of each.

    `positions` and `extents` (length, width) `[n, L, 2]` metres, `yaws` `[n, L]` radians,
    `there` `[n, L]`, 1 for steps with an observation, else 0.
    """

    positions: AnyArray
    yaws: AnyArray
    extents: AnyArray
    there: AnyArray

    @classmethod
    def empty(cls, n: int, length: int) -> Poses:
        """Allocate float32 arrays without values."""
        shapes = ((n, length, 2), (n, length), (n, length, 2), (n, length))
        return cls(*(np.empty(shape, np.float32) for shape in shapes))

    def put(self, rows: IntArray, other: Poses) -> None:
        """Copy the poses of `k` samples to rows `[k]`."""
        for name in ("positions", "yaws", "extents", "there"):
            getattr(self, name)[rows] = getattr(other, name)


def _check_step_time(stated: float, stored: float) -> None:
    """Warn of a time between frames that is not that of the log, because velocities are divided by it."""
    if stored > 0 and abs(stored / stated - 1) > RATE:
        message = f"expected step_time {stored:g}, the seconds from a frame of the log to the next, got {stated:g}"
        warnings.warn(f"{message}: velocities are {stored / stated:.3g} times what they should be", stacklevel=5)


class Sampler:
    """Makes samples of driving logs, a batch at a time. Thread-safe. Reads the frames when it is made."""

    def __init__(
        self,
        logs: Logs,
        sampling: Sampling,
        perturbation: Perturbation | None = None,
        *,
        timeline: Timeline | None = None,
        track_bytes: int = TRACK_BYTES,
    ) -> None:
        self.logs = logs
        self.sampling = sampling
        self.perturbation = perturbation
        self.timeline = Timeline.of(logs) if timeline is None else timeline
        _check_step_time(sampling.step_time, self.timeline.step_time)
        self.tables = TrackTables(logs, self.timeline, track_bytes)
        self._raster = sampling.raster_from_agent()

    def ego(self, frames: IntArray, positions: IntArray) -> tuple[Columns, SampleSubjects]:
        """Make samples of `[n]` frames, and their subjects; `positions` `[n]` decide random draws.

        Cost: for each step of a sample, about 60 bytes read and some hundred written.
        """
        self._check(frames, len(self.timeline), "frames")
        track, place = self.timeline.track, np.asarray(frames, np.int64)
        ego = None
        if self.perturbation is not None and len(frames):
            track, place, ego = self._moved(self.perturbation, frames, positions)
        targets = self.standing(frames)
        if ego is not None:
            targets = replace(targets, pose=ego[:, 0], ego=ego)
        history, future = (self._poses(track, place, frames, targets.pose, when) for when in (False, True))
        return self._sample(targets, history, future, targets.pose), targets

    def standing(self, frames: IntArray) -> SampleSubjects:
        """Return the ego as subject, where the frames have it."""
        none, extent = np.full(len(frames), -1), np.tile(np.array(EGO_EXTENT), (len(frames), 1))
        return SampleSubjects(self.timeline.scene_of(frames), frames, none, none, self.timeline.ego[frames], extent)

    def agents(self, rows: IntArray, seen_from: FloatArray | None = None) -> tuple[Columns, SampleSubjects]:
        """Make samples of `[n]` rows of agents, and their subjects, relative to poses `[n, 3]` or their own.

        Cost: as for the ego, and the tables of their scenes unless they are cached.
        """
        self._check(rows, int(self.timeline.agents[-1]), "rows of agents")
        n, timeline = len(rows), self.timeline
        frame = timeline.frame_of(rows)
        scene = timeline.scene_of(frame)
        pose, extent = np.empty((n, 3)), np.empty((n, 3), np.float32)
        name = np.empty(n, np.int64)
        history, future = (Poses.empty(n, length) for length in self.sampling.steps)
        for members, tracks, place in self._tracked(rows, frame, scene):
            self._interesting(tracks, place, rows[members])
            pose[members, :2], pose[members, 2] = tracks.xy[place], tracks.yaw[place]
            extent[members], name[members] = tracks.extent[place], tracks.names[tracks.track[place]].astype(np.int64)
            origin = (pose if seen_from is None else seen_from)[members]
            history.put(members, self._poses(tracks, place, frame[members], origin, False))
            future.put(members, self._poses(tracks, place, frame[members], origin, True))
        targets = SampleSubjects(scene, frame, np.asarray(rows, np.int64), name, pose, extent)
        return self._sample(targets, history, future, pose if seen_from is None else seen_from), targets

    def by_table(self, scene: IntArray) -> Iterator[tuple[IntArray, Tracks]]:
        """Yield each table of tracks that samples of `[n]` scenes need, after the samples `[k]` whose tracks it has."""
        page = self.tables.page_of(scene)
        for members in _groups(page):
            yield members, self.tables.page(int(page[members[0]]))

    def _tracked(self, rows: IntArray, frame: IntArray, scene: IntArray) -> Iterator[tuple[IntArray, Tracks, IntArray]]:
        """Which of the samples are in each table, the table, and their places in it.

        Where not all tables fit into memory, the few samples of a scene without a table read their own frames.
        """
        alone: list[IntArray] = []
        page, tables = self.tables.page_of(scene), self.tables
        for members in _groups(page):
            number = int(page[members[0]])
            if tables.whole or len(members) >= _FEW or tables.kept(number):
                tracks = tables.page(number)
                yield members, tracks, tracks.place[rows[members] - tracks.first].astype(np.int64)
            else:
                alone.append(members)
        if alone:
            members = np.concatenate(alone)
            yield members, *tables.around(rows[members], frame[members], self.sampling.history, self.sampling.future)

    def find(self, frame: int, track: int) -> int:
        """Return the row of the agents of a track in a frame."""
        first, last = self.timeline.agents[frame : frame + 2].tolist()
        here = self.logs.agents[first:last]["track_id"] == np.uint64(max(track, 0))
        matches = np.flatnonzero(here & (track >= 0))
        if len(matches) == 0:
            raise NoSuchRowError(f"expected an agent with track {track} in frame {frame}, got none")
        return first + int(matches[0])

    def _poses(self, tracks: Tracks, place: IntArray, frame: IntArray, origin: FloatArray, future: bool) -> Poses:
        length, first, step = (self.sampling.future, 1, 1) if future else (self.sampling.history + 1, 0, -1)
        return relative(tracks, place, frame, origin, first, step, length)

    def _moved(
        self, perturbation: Perturbation, frames: IntArray, positions: IntArray
    ) -> tuple[Tracks, IntArray, FloatArray]:
        """A table with a track a sample: its own frames, some of the poses moved; where each sample is in it, and the
        poses `[n, history + 1, 3]` of history."""
        past, ahead = self.sampling.history, self.sampling.future
        n, width = len(frames), past + 1 + ahead
        frame = frames[:, None] + np.arange(-past, ahead + 1)
        scene = self.timeline.scene_of(frames)
        first, last = self.timeline.offsets[scene], self.timeline.offsets[scene + 1]
        poses = self.timeline.ego[np.clip(frame, first[:, None], last[:, None] - 1)]
        whole = np.flatnonzero((frame[:, -1] < last) & (ahead > 0))
        poses[whole, past:] = perturbation(poses[whole, past:], positions[whole])
        start = np.arange(n) * width
        bounds = np.stack(
            [start + np.maximum(first - frame[:, 0], 0), start + np.minimum(last - frame[:, 0], width)], axis=1
        )
        flat = poses.reshape(-1, 3)
        extent = np.tile(np.array(EGO_EXTENT, np.float32), (len(flat), 1))
        track = np.repeat(np.arange(n, dtype=np.int32), width)
        none: Any = np.zeros(0)
        yaw = flat[:, 2].astype(np.float32)
        tracks = Tracks(0, none, frame.reshape(-1), track, bounds, flat[:, :2].copy(), yaw, extent, none, none, none)
        return tracks, start + past, poses[:, past::-1]

    def _sample(self, targets: SampleSubjects, history: Poses, future: Poses, origin: FloatArray) -> Columns:
        sampling = self.sampling
        speeds, ahead = velocities(history, future, sampling.step_time, sampling.velocities == "masked")
        sample = {
            "frame_index": targets.frame - self.timeline.offsets[targets.scene],
            "target_positions": future.positions,
            "target_yaws": future.yaws[..., None],
            "target_velocities": ahead,
            "target_availabilities": future.there,
            "history_positions": history.positions,
            "history_yaws": history.yaws[..., None],
            "history_velocities": speeds,
            "history_availabilities": history.there,
            **self.matrices(origin),
            "centroid": np.ascontiguousarray(targets.pose[:, :2]),
            "yaw": np.ascontiguousarray(targets.pose[:, 2]),
            "extent": targets.extent,
            "history_extents": history.extents,
            "future_extents": future.extents,
        }
        if sampling.history:
            sample["curr_speed"] = np.linalg.norm(speeds[:, 0], axis=1)
        return Columns({**sample, **self.metadata(targets)})

    def matrices(self, origin: FloatArray) -> dict[str, FloatArray]:
        """Compute the matrices `[n, 3, 3]` by the names of `MATRICES` for rasters around poses `[n, 3]`."""
        moved = transforms(origin)
        raster_from_world = self._raster @ moved["agent_from_world"]
        raster_from_agent = np.broadcast_to(self._raster, raster_from_world.shape).copy()
        values = (raster_from_world, raster_from_agent, raster_from_world, *moved.values())
        return dict(zip(MATRICES, values, strict=True))

    def metadata(self, targets: SampleSubjects) -> dict[str, AnyArray]:
        """Return scene, host, time and track of samples."""
        return {
            "scene_index": targets.scene,
            "host_id": self.timeline.hosts[targets.scene],
            "timestamp": self.timeline.timestamps[targets.frame],
            "track_id": targets.track,
        }

    def _check(self, rows: IntArray, count: int, what: str) -> None:
        if len(rows) and not (rows.min() >= 0 and rows.max() < count):
            raise NoSuchRowError(f"expected {what} within 0:{count}, got {rows.min()}:{rows.max() + 1}")

    def _interesting(self, tracks: Tracks, place: IntArray, rows: IntArray) -> None:
        low = np.flatnonzero(~(tracks.interest[place] > np.float32(self.sampling.threshold)))
        if len(low):
            raise NoSuchRowError(
                f"expected agents more probable than {self.sampling.threshold}, got {tracks.interest[place[low[0]]]} "
                f"in row {rows[low[0]]} of the agents; leave it out of the mask, or lower filter_agents_threshold"
            )


def relative(
    tracks: Tracks, place: IntArray, frame: IntArray, pose: FloatArray, first: int, step: int, length: int
) -> Poses:
    """Return poses of tracks, as seen from `pose` `[n, 3]`, in frames `frame + step * (first + j)`, `j < length`."""
    poses = Poses.empty(len(place), length)
    relative_poses(
        tracks.xy,
        tracks.yaw,
        tracks.extent,
        tracks.frame,
        tracks.bounds_at(place),
        place,
        np.ascontiguousarray(frame),
        np.ascontiguousarray(pose),
        first,
        step,
        poses.positions,
        poses.yaws,
        poses.extents,
        poses.there,
    )
    return poses


def transforms(pose: FloatArray) -> dict[str, FloatArray]:
    """Return the matrices between world and agent."""
    there = pose_matrix(pose[:, :2], pose[:, 2])
    back = np.zeros_like(there)
    back[:, :2, :2] = there[:, :2, :2].transpose(0, 2, 1)
    back[:, :2, 2] = -(back[:, :2, :2] @ pose[:, :2, None])[..., 0]
    back[:, 2, 2] = 1
    return {"agent_from_world": back, "world_from_agent": there}


def _groups(numbers: IntArray) -> Iterator[IntArray]:
    """`[k]` where each number is, one number after the other."""
    order = np.argsort(numbers, kind="stable")
    yield from (members for members in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(members))
