"""What samples are made of: the four arrays of a dataset, its frames at a glance, and its agents track by track."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from penstock.core.arrays import (
    AnyArray,
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
    UInt64Array,
)
from penstock.core.cache import Cache
from penstock.errors import DataError, PenstockError
from penstock_driving.formats.l5kit.columns import intervals
from penstock_driving.formats.l5kit.source import offsets_in
from penstock_driving.geometry import rotation33_as_yaw
from penstock_driving.kernels.agents import OF_INTEREST

EGO_EXTENT = (4.87, 1.85, 1.8)  # metres: length, width, height with the sensors
"""Length, width and height of the car that records, in metres."""
EGO_LABEL = 3
"""What the ego is among the labels: a car."""
LIKELY = 0.5
"""How probable agents around an agent must be, whatever the threshold of a configuration: as in l5kit."""
HOST_BYTES = 70
"""A host's name as ASCII, padded with zeros."""
TRACK_BYTES = 512 << 20
_BLOCK = 1 << 16
_OBSERVATION_BYTES = 53  # of a table of tracks


class NoSuchRowError(PenstockError, IndexError, ValueError, AssertionError):
    """A scene, frame, sample or track does not exist.

    It is also each of the builtin errors that l5kit raises in such places.
    """


@runtime_checkable
class Logs(Protocol):
    """The four structured arrays of a dataset: `penstock_driving.formats.l5kit.L5KitSource`, or anything that has them.

    Each has a length, and gives copies or views for slices and for arrays of row numbers.
    """

    @property
    def scenes(self) -> Any:
        """Their frames, host, begin and end."""
        ...

    @property
    def frames(self) -> Any:
        """The pose of the ego, the time, and which agents and faces belong to each."""
        ...

    @property
    def agents(self) -> Any:
        """One row for each agent of each frame."""
        ...

    @property
    def tl_faces(self) -> Any:
        """One row for each face of a traffic light of each frame."""
        ...


@dataclass(frozen=True, eq=False)
class Arrays:
    """The four arrays of a dataset in memory."""

    scenes: AnyArray
    frames: AnyArray
    agents: AnyArray
    tl_faces: AnyArray


def scene_logs(logs: Logs, scene: int) -> Arrays:
    """One scene in memory, its intervals counted from 0; a negative number counts from the end."""
    row = logs.scenes[checked(scene, len(logs.scenes), "scene")]
    first, last = (int(x) for x in row["frame_index_interval"])
    frames = np.array(logs.frames[first:last])
    cuts: list[slice] = []
    for field in ("agent_index_interval", "traffic_light_faces_index_interval"):
        counts = frames[field][:, 1] - frames[field][:, 0]
        full = frames[field][counts > 0]
        begin, end = (int(full[0, 0]), int(full[-1, 1])) if len(full) else (0, 0)
        # Empty intervals stand where the rows of the frame would be, so that the rows from one frame to another are
        # the rows from the start of the first interval to the end of the last.
        frames[field] = intervals(counts)
        cuts.append(slice(begin, end))
    scenes = np.array(row).reshape(1).copy()
    scenes["frame_index_interval"] = [0, len(frames)]
    return Arrays(scenes, frames, np.array(logs.agents[cuts[0]]), np.array(logs.tl_faces[cuts[1]]))


def checked(number: int, count: int, what: str) -> int:
    """A number within `0 : count`, negative ones counted from the end."""
    if not -count <= number < count:
        raise NoSuchRowError(f"expected a {what} within 0:{count}, got {number}")
    return int(number) % count


@dataclass(frozen=True, eq=False)
class Timeline:
    """All frames of a dataset at a glance, some 100 bytes each: `[F]` times, poses of the ego, intervals.

    `offsets[S + 1]` are the frames where scenes begin, `ego[F, 3]` x, y, yaw (metres, radians), `agents[F + 1]` and
    `faces[F + 1]` where the rows of each frame begin, `hosts[S, 70]` uint8.
    """

    offsets: IntArray
    timestamps: IntArray
    ego: FloatArray
    agents: IntArray
    faces: IntArray
    hosts: ByteArray

    @classmethod
    def of(cls, logs: Logs) -> Timeline:
        """Read once, in blocks."""
        scenes = logs.scenes[:]
        offsets = offsets_in(scenes["frame_index_interval"], len(logs.frames), "scenes.frame_index_interval")
        n = int(offsets[-1])
        timestamps, ego = np.empty(n, np.int64), np.empty((n, 3))
        agents, faces = np.zeros((n, 2), np.int64), np.zeros((n, 2), np.int64)
        for lo in range(0, n, _BLOCK):
            rows = logs.frames[lo : min(lo + _BLOCK, n)]
            part = slice(lo, lo + len(rows))
            if "traffic_light_faces_index_interval" not in (rows.dtype.names or ()):
                raise DataError(
                    "expected frames with traffic_light_faces_index_interval, got frames of format version 1; open the "
                    "dataset with penstock.open, which upgrades them"
                )
            timestamps[part], ego[part, :2] = rows["timestamp"], rows["ego_translation"][:, :2]
            ego[part, 2] = rotation33_as_yaw(rows["ego_rotation"])
            agents[part], faces[part] = rows["agent_index_interval"], rows["traffic_light_faces_index_interval"]
        agent_offsets = offsets_in(agents, len(logs.agents), "frames.agent_index_interval")
        face_offsets = offsets_in(faces, len(logs.tl_faces), "frames.traffic_light_faces_index_interval")
        return cls(offsets, timestamps, ego, agent_offsets, face_offsets, _hosts(scenes["host"]))

    def __len__(self) -> int:
        return len(self.timestamps)

    @cached_property
    def step_time(self) -> float:
        """Median time in seconds from a frame to the next one of its scene, of the first frames; NaN without any."""
        scene = self.scene_of(np.arange(min(len(self), _BLOCK)))
        ahead = np.diff(self.timestamps[:_BLOCK])[scene[1:] == scene[:-1]]
        return float(np.median(ahead)) / 1e9 if len(ahead) else float("nan")

    @property
    def scenes(self) -> int:
        return len(self.offsets) - 1

    def scene_of(self, frames: IntArray) -> IntArray:
        """`[n]` the scene of each frame."""
        return np.searchsorted(self.offsets, frames, side="right") - 1

    def frame_of(self, agents: IntArray) -> IntArray:
        """`[n]` the frame of each row of agents."""
        return np.searchsorted(self.agents, agents, side="right") - 1

    @cached_property
    def intervals(self) -> IntArray:
        """`[F, 2]` the agents of each frame."""
        return np.stack([self.agents[:-1], self.agents[1:]], axis=1)

    @cached_property
    def track(self) -> Tracks:
        """The ego as a table of tracks, one a scene."""
        n = len(self)
        scene = self.scene_of(np.arange(n)).astype(np.int32)
        return Tracks(
            0,
            np.arange(n, dtype=np.int32),
            np.arange(n),
            scene,
            np.stack([self.offsets[:-1], self.offsets[1:]], axis=1),
            self.ego[:, :2].copy(),
            self.ego[:, 2].astype(np.float32),
            np.tile(np.array(EGO_EXTENT, np.float32), (n, 1)),
            np.ones(n, np.float32),
            np.full(n, EGO_LABEL, np.uint8),
            np.zeros(self.scenes, np.uint64),
        )


def _hosts(names: AnyArray) -> ByteArray:
    """`[S, 70]` uint8."""
    hosts = np.zeros((len(names), HOST_BYTES), np.uint8)
    unique, inverse = np.unique(names, return_inverse=True)
    for number, name in enumerate(unique.tolist()):
        if not name.isascii() or len(name) > HOST_BYTES:
            raise DataError(f"expected hosts of at most {HOST_BYTES} ASCII characters, got {name!r}")
        hosts[inverse == number, : len(name)] = np.frombuffer(name.encode(), np.uint8)
    return hosts


@dataclass(frozen=True, eq=False)
class Tracks:
    """Observations in the order of (scene, track, frame), so that an agent's past and future are adjacent.

    Row `first + i` of the agents is at `place[i]` int32; of the `M` places, `frame` is the frame of the dataset,
    `track` int32 counts tracks, whose places are `bounds[K, 2]` and whose ids in their scenes are `names[K]` uint64.
    `xy[M, 2]` float64, `yaw[M]`, `extent[M, 3]` float32; `interest[M]` float32 is the probability that it takes part in
    traffic, `kind[M]` uint8 the most probable label. Of a track seen twice in one frame the first observation counts.
    """

    first: int
    place: Int32Array
    frame: IntArray
    track: Int32Array
    bounds: IntArray
    xy: FloatArray
    yaw: Float32Array
    extent: Float32Array
    interest: Float32Array
    kind: ByteArray
    names: UInt64Array

    @classmethod
    def of(cls, agents: AnyArray, first: int, timeline: Timeline, scene: int) -> Tracks:
        """The table of one scene, whose agents are rows `first : first + len(agents)`. Cost: a sort."""
        frames = slice(int(timeline.offsets[scene]), int(timeline.offsets[scene + 1]))
        counts = np.diff(timeline.agents[frames.start : frames.stop + 1])
        frame = np.repeat(np.arange(frames.start, frames.stop), counts)
        names = agents["track_id"].astype(np.uint64)
        order = np.argsort(names, kind="stable")
        name, when = names[order], frame[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = name[1:] != name[:-1]
        fresh = new.copy()
        fresh[1:] |= when[1:] != when[:-1]
        place = np.empty(len(order), np.int32)
        place[order] = np.cumsum(fresh) - 1
        order, new = order[fresh], new[fresh]
        begins = np.flatnonzero(new)
        ends = np.append(begins[1:], len(order))[: len(begins)]
        track = (np.cumsum(new) - 1).astype(np.int32)
        return _table(first, place, agents[order], frame[order], track, np.stack([begins, ends], axis=1))

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))

    @cached_property
    def likely(self) -> BoolArray:
        """`[M]` which observations are of agents that more likely take part in traffic than not."""
        return self.interest > np.float32(LIKELY)

    def bounds_at(self, place: IntArray) -> IntArray:
        """`[n, 2]` the places of the track of each; of none where `place` is below 0."""
        if len(self.bounds) == 0:
            return np.zeros((len(place), 2), np.int64)
        return self.bounds[self.track[np.maximum(place, 0)]]


def _table(first: int, place: AnyArray, agents: AnyArray, frame: IntArray, track: AnyArray, bounds: IntArray) -> Tracks:
    """The table of agents that are in the order of places already."""
    labels = agents["label_probabilities"]
    return Tracks(
        first,
        place,
        frame,
        track,
        bounds,
        agents["centroid"].astype(np.float64),
        agents["yaw"].astype(np.float32),
        agents["extent"].astype(np.float32),
        interest_of(labels),
        labels.argmax(axis=1).astype(np.uint8),
        agents["track_id"][bounds[:, 0]].astype(np.uint64),
    )


def interest_of(labels: AnyArray) -> Float32Array:
    """`[N]` float32 probability of the labels of interest `[N, 17]`, added up in their order."""
    total = np.zeros(len(labels), np.float32)
    for column in range(OF_INTEREST.start, OF_INTEREST.stop):
        total += labels[:, column]
    return total


def _joined(parts: list[Tracks]) -> Tracks:
    """Tables of scenes in order as one."""
    if len(parts) == 1:
        return parts[0]
    places = np.cumsum([0] + [len(part.frame) for part in parts])[:-1].tolist()
    tracks = np.cumsum([0] + [len(part.names) for part in parts])[:-1].tolist()
    shifted = [
        (part.place + p, part.frame, part.track + t, part.bounds + p)
        for part, p, t in zip(parts, places, tracks, strict=True)
    ]
    head = [np.concatenate(column) for column in zip(*shifted, strict=True)]
    rest = ("xy", "yaw", "extent", "interest", "kind", "names")
    tail = [np.concatenate([getattr(part, name) for part in parts]) for name in rest]
    place, frame, track, bounds, *others = (*head, *tail)
    return Tracks(parts[0].first, place.astype(np.int32), frame, track.astype(np.int32), bounds, *others)


class TrackTables:
    """The tables of tracks of a dataset, made when they are asked for: one for all scenes if `nbytes` have room for it,
    and one a scene otherwise, of which those used last are kept. Thread-safe.
    """

    def __init__(self, logs: Logs, timeline: Timeline, nbytes: int = TRACK_BYTES) -> None:
        self.logs, self.timeline = logs, timeline
        self.whole = int(timeline.agents[-1]) * _OBSERVATION_BYTES <= nbytes
        self.pages: IntArray = np.array([0, timeline.scenes]) if self.whole else np.arange(timeline.scenes + 1)
        self._cache = Cache(max(nbytes, 1) * 2 if self.whole else nbytes)

    def page_of(self, scenes: IntArray) -> IntArray:
        """`[n]` the table that holds each scene."""
        return np.searchsorted(self.pages, scenes, side="right") - 1

    def kept(self, number: int) -> bool:
        """Whether a table costs nothing."""
        return self._cache.peek(number) is not None

    def page(self, number: int) -> Tracks:
        """A table. Cost where it is not kept: reading the agents of its scenes, and sorting them."""
        return self._cache.get(number, lambda: self._made(number))

    def around(self, rows: IntArray, frames: IntArray, before: int, after: int) -> tuple[Tracks, IntArray]:
        """A table of the tracks of `[n]` rows of the agents alone, each from `before` frames before its own to `after`
        frames after it; and the place of each row. Cost: reading those frames, which a few rows of a scene are worth.
        """
        timeline, scene = self.timeline, self.timeline.scene_of(frames)
        low = np.maximum(frames - before, timeline.offsets[scene])
        high = np.minimum(frames + after + 1, timeline.offsets[scene + 1])
        spans = np.stack([timeline.agents[low], timeline.agents[high], rows], axis=1).tolist()
        parts: list[AnyArray] = []
        when: list[IntArray] = []
        for first, last, row in spans:
            agents = self.logs.agents[first:last]
            mine = np.flatnonzero(agents["track_id"] == agents["track_id"][row - first])
            read_frames, once = np.unique(timeline.frame_of(first + mine), return_index=True)
            parts.append(agents[mine[once]])
            when.append(read_frames)
        counts = np.array([len(part) for part in parts], np.int64)
        ends = np.cumsum(counts)
        bounds = np.stack([ends - counts, ends], axis=1)
        owner = np.repeat(np.arange(len(rows), dtype=np.int32), counts)
        pairs: list[tuple[AnyArray, int]] = list(zip(when, frames.tolist(), strict=True))
        inside = [int(np.searchsorted(read_frames, frame)) for read_frames, frame in pairs]
        place = np.array(inside, np.int64) + bounds[:, 0]
        return _table(0, place.astype(np.int32), np.concatenate(parts), np.concatenate(when), owner, bounds), place

    def _made(self, number: int) -> tuple[Tracks, int]:
        tracks = _joined([self._scene(s) for s in range(int(self.pages[number]), int(self.pages[number + 1]))])
        return tracks, tracks.nbytes

    def _scene(self, scene: int) -> Tracks:
        timeline = self.timeline
        first, last = (int(timeline.agents[timeline.offsets[scene + i]]) for i in (0, 1))
        return Tracks.of(self.logs.agents[first:last], first, timeline, scene)
