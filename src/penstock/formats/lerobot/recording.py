"""Recording into a LeRobot dataset: `LeRobotTarget` is the target of a `Recorder` or `Collector`.

LeRobot has no observation after the last action, so that one and its infos are left out. While an episode is recorded,
each camera has a `VideoWriter`, whose files are in a hidden folder until the episode is saved. An episode that is
dropped takes its files along, and a recording that is killed loses the open episode and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, SpecError
from penstock.files import scratch_folder
from penstock.formats.base.writer import RowStream, Writer, check_columns
from penstock.formats.lerobot.creation import WriteOptions
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.info import read_info
from penstock.formats.lerobot.source import LeRobotSource
from penstock.formats.lerobot.video import EncoderSettings
from penstock.formats.lerobot.writer import LeRobotWriter, create


class LeRobotTarget:
    """Target of a recorder that writes a LeRobot dataset, with cameras as video that is encoded during recording."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        fps: float,
        *,
        robot_type: str | None = None,
        codec: str | None = None,
        crf: float | None = None,
        g: int | None = None,
        pix_fmt: str | None = None,
        codec_options: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self._fps = float(fps)
        settings = {"codec": codec, "crf": crf, "g": g, "pix_fmt": pix_fmt, "codec_options": codec_options}
        self._encoders = EncoderSettings.of({name: value for name, value in settings.items() if value is not None})
        if os.path.lexists(self.path):
            info = read_info(self.path)
            self._encoders = EncoderSettings.of(info.internal)
            given = {"fps": fps, "robot_type": robot_type, **settings}
            known = {"fps": info.fps, "robot_type": info.entries.get("robot_type"), **vars(self._encoders)}
            if other := [name for name, value in given.items() if value not in (None, known[name])]:
                message = f"expected {other[0]}={known[other[0]]!r}, as in {self.path}, got {given[other[0]]!r}"
                raise ArgumentError(f"{message}; leave it out, or choose another path")
        self._options = WriteOptions(fps=fps, robot_type=robot_type, cameras="video", **vars(self._encoders))
        self._stream: CameraStream | None = None

    def __call__(self, spec: Spec) -> Writer:
        """Create or continue the dataset for the columns of a recorder."""
        stored = stored_spec(spec)
        if not os.path.lexists(self.path):
            return RecordingWriter(create(self.path, stored, {}, self._options), spec, self)
        with LeRobotSource(self.path) as source:
            existing = source.written_spec
        if dict(existing.fields) != dict(stored.fields):
            raise SpecError(f"expected the columns {dict(existing.fields)} of {self.path}, got {dict(stored.fields)}")
        return RecordingWriter(LeRobotWriter(self.path, existing), spec, self)

    def row_stream(self, fields: Mapping[str, Field]) -> RowStream | None:
        """Begin to encode the cameras of an episode. A stream that is open is dropped."""
        if self._stream is not None:
            self._stream.discard()
        names = [path for path, field in fields.items() if is_camera(field)]
        self._stream = CameraStream(self.path, names, self._fps, self._encoders) if names else None
        return self._stream

    def encoded(self, episode: Episode) -> CameraStream | None:
        """Return the stream that has the frames of an episode, or None. It is not the target's any more."""
        stream = self._stream
        if stream is None or not stream.is_of(episode.columns, len(episode)):
            return None
        self._stream = None
        return stream


class CameraStream(RowStream):
    """Encoders of the cameras of one episode, each in a thread."""

    def __init__(
        self,
        path: Path,
        names: list[str],
        fps: float,
        settings: EncoderSettings,
        depths: Mapping[str, Depth | None] = {},
    ) -> None:
        self._close = ExitStack()
        folder = self._close.enter_context(scratch_folder(path))
        self._depths = depths
        self._writers = {
            name: settings.open(folder / f"{number}.mp4", fps, depths.get(name)) for number, name in enumerate(names)
        }
        self._ends: dict[str, tuple[AnyArray, AnyArray]] = {}  # first and last frame
        self._open = True

    @property
    @override
    def columns(self) -> list[str]:
        return list(self._writers)

    @override
    def append(self, rows: Mapping[str, AnyArray]) -> None:
        for name, writer in self._writers.items():
            frame, depth = rows[name], self._depths.get(name)
            writer.append(frame if depth is None else depth.codes(frame))
            last = frame.copy()
            first = self._ends[name][0] if name in self._ends else last
            self._ends[name] = first, last

    def is_of(self, columns: Mapping[str, Array], steps: int) -> bool:
        """Return whether an episode with these columns has the frames: the same number, the same first and last one."""
        if not self._open or any(writer.frames != steps for writer in self._writers.values()):
            return False
        camera_frames = {name: np.asarray(columns[name]) for name in self._writers if name in columns}
        return len(camera_frames) == len(self._writers) and all(
            np.array_equal(self._ends[name][0], frames[0]) and np.array_equal(self._ends[name][1], frames[steps - 1])
            for name, frames in camera_frames.items()
        )

    def finish(self) -> dict[str, Path]:
        """Encode what waits, and return the files by column. They exist until `discard`."""
        for writer in self._writers.values():
            writer.close()
        return {name: writer.path for name, writer in self._writers.items()}

    @override
    def discard(self) -> None:
        self._open = False
        for writer in self._writers.values():
            writer.abort()
        self._close.close()


class RecordingWriter(Writer):
    """Writer of recorded episodes, without the observation after the last action."""

    def __init__(self, writer: LeRobotWriter, spec: Spec, target: LeRobotTarget) -> None:
        self._writer = writer
        self._spec = spec
        self._target = target

    @override
    def write(self, episode: Episode) -> int:
        check_columns(episode, self._spec)
        n = len(episode)
        columns = {path: episode.columns[path][:n] for path in self._writer.spec}
        stored = Episode(self._writer.spec, columns, episode.id, dict(episode.metadata))
        stream = self._target.encoded(stored)
        if stream is None:
            return self._writer.write(stored)
        try:
            return self._writer.write(stored, videos=stream.finish())
        finally:
            stream.discard()

    @override
    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        self._writer.update_metadata(metadata)

    @override
    def close(self) -> None:
        self._writer.close()


def is_camera(field: Field) -> bool:
    """Return whether rows of a column are pictures in colour."""
    return field.kind == "array" and field.dtype == np.uint8 and len(field.shape) == 3 and field.shape[2] == 3


def stored_spec(spec: Spec) -> Spec:
    """Return the columns of the dataset for the columns of a recorder: all with one row for each step."""
    fields = {path: replace(field, align="step") for path, field in spec.fields.items()}
    return Spec(fields, spec.observation_space, spec.action_space)
