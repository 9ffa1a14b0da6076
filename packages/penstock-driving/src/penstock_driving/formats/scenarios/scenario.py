"""One scene of a data set of scenarios as rows of L5Kit's tables, and how one kind of data set is read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from penstock.core.order import natural
from penstock.errors import FormatError
from penstock.formats.base.account import LeftOut
from penstock_driving.formats.l5kit.columns import intervals
from penstock_driving.formats.l5kit.dtypes import (
    AGENT_DTYPE,
    FRAME_DTYPE,
    PERCEPTION_LABEL_TO_INDEX,
    TL_FACE_DTYPE,
    TL_FACE_LABEL_TO_INDEX,
)

NO_EGO = "frames without a pose of the ego"
"""What is lost of a scene where the car that records was not seen: a frame needs its pose."""
LOOKS = 8  # files and folders that are looked at to recognise a data set
NAME = 16  # characters of a host, of a traffic light and of one of its faces
COLORS = ("R", "Y", "G")  # red, yellow, green
OFF, UNKNOWN = 3, 4  # behind the colours
_FACES = (*COLORS, "-", "-")
_STATUS = tuple(TL_FACE_LABEL_TO_INDEX[name] for name in ("ACTIVE", "ACTIVE", "ACTIVE", "INACTIVE", "UNKNOWN"))


@dataclass(frozen=True, eq=False)
class Scenario:
    """One scene: intervals of `frames` count from 0. `agents` have the track id `n` where `track_ids[n - 1]` is the id
    in the file. `lost` counts what could not become rows, by what it is; `unread` names what is not looked at.
    """

    frames: AnyArray
    agents: AnyArray
    tl_faces: AnyArray
    track_ids: Sequence[str]
    host: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lost: Mapping[str, int] = field(default_factory=dict[str, int])
    unread: tuple[LeftOut, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self.frames.nbytes + self.agents.nbytes + self.tl_faces.nbytes

    @property
    def span(self) -> tuple[int, int]:
        """Time of the first frame and of the last in ns; zeros without frames."""
        times = self.frames["timestamp"]
        return (int(times[0]), int(times[-1])) if len(times) else (0, 0)


class ScenarioKind(ABC):
    """How the files of one kind of data set are found and read. Without state."""

    name: ClassVar[str]
    description: ClassVar[str]
    title: ClassVar[str]
    depth: ClassVar[int]  # folders below the path in which files may be
    step: ClassVar[float | None] = 0.1  # seconds from a frame to the next; None where a data set has any

    @abstractmethod
    def is_named(self, name: str) -> bool:
        """Whether a file with scenarios may have the name."""

    @abstractmethod
    def holds(self, file: Path) -> bool:
        """Whether a file that is named so has such data. Cost: one small read."""

    @abstractmethod
    def scenarios(self, file: Path) -> Iterator[tuple[int, Scenario]]:
        """The scenarios of a file in order, each with a number by which `read` finds it again."""

    @abstractmethod
    def read(self, file: Path, key: int) -> Scenario:
        """One scenario."""

    @abstractmethod
    def left_out(self, path: Path, files: Sequence[Path]) -> list[LeftOut]:
        """What the data set has besides, which is not read: maps, files of sensors, other files."""

    def companions(self, file: Path) -> list[Path]:
        """Other files that `read` reads. The default is none."""
        return []

    def recognises(self, path: Path) -> bool:
        """Whether one of the first files with the right name has such data. Cost: lists of some folders."""
        return any(self.holds(file) for file in islice(self._found(path, LOOKS), LOOKS))

    def files(self, path: Path) -> list[Path]:
        """Files with scenarios at a path, in natural order."""
        return sorted(self._found(path), key=lambda file: natural(str(file)))

    def names_beside(self, path: Path, files: Sequence[Path]) -> list[str]:
        """Names within the data set of the other files in the folders of its files; none where it is one file."""
        if not path.is_dir():
            return []
        known = {*map(str, files), *(str(other) for file in files for other in self.companions(file))}
        names: list[str] = []
        for folder in dict.fromkeys(str(file.parent) for file in files):
            with os.scandir(folder) as entries:
                names += [entry.path for entry in entries if entry.path not in known and entry.is_file()]
        return [name.removeprefix(f"{path}/") for name in names]

    def _found(self, path: Path, most: int | None = None) -> Iterator[Path]:
        """Files with the right name, of the first depth that has some; in the first `most` folders of each depth."""
        if not path.is_dir():
            if self.is_named(path.name):
                yield path
            return
        level, has_files = [str(path)], False
        for _ in range(self.depth + 1):
            below: list[str] = []
            for folder in level[:most]:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.name[0] == ".":
                            continue
                        if entry.is_dir():
                            below.append(entry.path)
                        elif self.is_named(entry.name):
                            has_files = True
                            yield Path(entry.path)
            if has_files:
                return  # folders of sensors below may have millions of files
            level = below


@dataclass(frozen=True, eq=False)
class Moments:
    """The frames of a scene as columns: `times` `[T]` ns ascending, `ego` `[T, 3]` metres, `rotation` `[T, 3, 3]`, and
    in which frames the ego `is_known` `[T]`."""

    times: IntArray
    ego: FloatArray
    rotation: FloatArray
    is_known: BoolArray


def scenario_of(
    moments: Moments,
    agents: AnyArray,
    agent_frames: IntArray,
    tl_faces: AnyArray,
    face_frames: IntArray,
    *,
    track_ids: Sequence[str],
    current: int | None = None,
    host: str = "",
    metadata: Mapping[str, Any] | None = None,
    unread: tuple[LeftOut, ...] = (),
) -> Scenario:
    """Put rows with the numbers of their frames together to a scene, in the order of frames.

    Frames without a pose of the ego are left out with their rows. `current` is the last frame of the past, which
    becomes the entry `current_frame`.
    """
    known = moments.is_known
    number = np.cumsum(known) - 1
    frames = np.zeros(int(known.sum()), FRAME_DTYPE)
    frames["timestamp"] = moments.times[known]
    frames["ego_translation"], frames["ego_rotation"] = moments.ego[known], moments.rotation[known]
    tables: list[AnyArray] = []
    for rows, owners, name in (
        (agents, agent_frames, "agent_index_interval"),
        (tl_faces, face_frames, "traffic_light_faces_index_interval"),
    ):
        chosen = np.flatnonzero(known[owners])
        chosen = chosen[np.argsort(owners[chosen], kind="stable")]
        frames[name] = intervals(np.bincount(number[owners[chosen]], minlength=len(frames))[: len(frames)])
        tables.append(rows[chosen])
    entries: dict[str, Any] = dict(metadata or {})
    if current is not None and 0 <= current < len(known):
        entries["current_frame"] = max(int(number[current]), 0)
    if not (len(host) <= NAME and host.isascii() and host.isprintable()):
        entries["vehicle"], host = host, ""
    lost = len(known) - len(frames)
    return Scenario(frames, tables[0], tables[1], track_ids, host, entries, {NO_EGO: lost} if lost else {}, unread)


def nanoseconds(times: AnyArray, unit: int) -> IntArray:
    """`[T]` int64 of times in units of so many ns, rounded; they must be numbers that int64 has room for."""
    if not (np.abs(times) < (1 << 63) // unit).all():  # also of NaN
        raise FormatError(f"expected times within 2**63 ns, got one of {np.abs(times).max()} times {unit} ns")
    return np.round(times * unit).astype(np.int64) if times.dtype.kind == "f" else times * unit


def labels_of(names: Mapping[Any, str]) -> dict[Any, int]:
    """The number of L5Kit's label of each kind of road user."""
    return {kind: PERCEPTION_LABEL_TO_INDEX[f"PERCEPTION_LABEL_{name}"] for kind, name in names.items()}


def one_hot(labels: IntArray) -> AnyArray:
    """`[N, 17]` float32 probabilities, 1 for the label of each agent."""
    return np.eye(AGENT_DTYPE["label_probabilities"].shape[0], dtype=np.float32)[labels]


def faces_of(lanes: Sequence[str], states: Sequence[int]) -> AnyArray:
    """Rows of traffic lights that hold for lanes: each lane is a light, whose face `<lane>:R`, `:Y` or `:G` is lit.

    `states` are numbers of `COLORS`, `OFF` or `UNKNOWN`; the face of these two is `<lane>:-`.
    """
    rows = np.zeros(len(lanes), TL_FACE_DTYPE)
    for row, lane, state in zip(rows, lanes, states, strict=True):
        if len(lane) > NAME - 2:
            raise FormatError(f"expected ids of lanes of at most {NAME - 2} characters, got {lane!r}")
        row["face_id"], row["traffic_light_id"] = f"{lane}:{_FACES[state]}", lane
        row["traffic_light_face_status"][_STATUS[state]] = 1
    return rows


def rotation_of(quaternion: FloatArray) -> FloatArray:
    """`[n, 3, 3]` rotations of `[n, 4]` quaternions w, x, y, z, which need not have length 1."""
    norm = np.linalg.norm(quaternion, axis=1, keepdims=True)
    if not (norm > 0).all():
        raise FormatError("expected quaternions of a length above 0, got one of length 0 or not a number")
    w, x, y, z = (quaternion / norm).T
    entries = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in entries], axis=-2)


def numbered(ids: Sequence[str]) -> tuple[list[str], IntArray]:
    """Distinct ids in the order in which they appear, and `[n]` the number of each row's from 1 on."""
    numbers: dict[str, int] = {}
    rows = [numbers.setdefault(each, len(numbers) + 1) for each in ids]
    return list(numbers), np.array(rows, np.int64)
