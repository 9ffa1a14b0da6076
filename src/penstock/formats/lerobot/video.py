"""Camera columns in video files: each row is the frame at the row's timestamp.

The frame of a row is the nearest one of the episode's own frames to `start + timestamp`, and an error if it is further
away than the tolerance and the rounding of timestamps. LeRobot looks for the nearest frame in the whole file, so a row
behind the end of its episode gets a picture of the next one there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.video import VideoFiles, VideoWriter
from penstock.containers.video.files import DecoderName
from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.narrowing import is_dict
from penstock.core.ragged import Ragged, ranges
from penstock.core.selection import Selection
from penstock.errors import FormatError
from penstock.files.remote import Wanted, filled
from penstock.formats.base.pieces import spread
from penstock.formats.lerobot.columns import CountedRagged, StoredColumn
from penstock.formats.lerobot.depth import Depth
from penstock.formats.lerobot.episodes import VideoPlace
from penstock.formats.lerobot.info import Feature

ROUNDING = 2.0**-24  # of a time that is stored as float32
_PART = 4096  # rows whose packets are read at a time
_NO_LOSS = {"x265-params": "lossless=1:log-level=error"}


@dataclass(frozen=True)
class FrameOptions:
    """How the frames of all cameras are read."""

    tolerance: float
    size: tuple[int, int] | None = None
    decoder: DecoderName = "pyav"
    device: str = "cpu"
    cache_bytes: int = 0

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        return stored if self.size is None else (*self.size, stored[-1])


@dataclass(frozen=True, eq=False)
class VideoColumn(CountedRagged):
    """Frames of one camera."""

    files: VideoFiles
    file: IntArray
    start: FloatArray
    within: FloatArray
    offsets: IntArray
    timestamp: StoredColumn
    shape: tuple[int, ...]
    tolerance: float
    depth: AnyArray | None

    @classmethod
    def of(
        cls,
        places: Sequence[VideoPlace],
        offsets: IntArray,
        timestamp: StoredColumn,
        feature: Feature,
        options: FrameOptions,
        fps: float,
    ) -> VideoColumn:
        numbers: dict[Path, int] = {}
        file = np.array([numbers.setdefault(place.file, len(numbers)) for place in places], np.int64)
        files = VideoFiles(
            list(numbers),
            size=options.size,
            pixels="rgb24" if feature.depth is None else "gray12le",
            decoder=options.decoder if feature.depth is None else "pyav",
            device=options.device if feature.depth is None else "cpu",
            cache_bytes=options.cache_bytes,
        )
        start = np.array([place.start for place in places], np.float64)
        within = np.array([bounds(place, options.tolerance, fps) for place in places], np.float64).T
        depth = None if feature.depth is None else feature.depth.values
        shape = options.shape(feature.shape)
        return cls(files, file, start, within, offsets, timestamp, shape, options.tolerance, depth)

    def locate(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the file number and the frame number of rows."""
        seconds = np.empty(len(rows), np.float64)
        self.timestamp.read(Selection.of_rows(rows), seconds)
        episode = np.searchsorted(self.offsets, rows, side="right") - 1
        files, first, last = self.file[episode], *self.within[:, episode]
        times, tolerance = self.start[episode] + seconds, self.tolerance + np.abs(seconds) * ROUNDING
        return files, self.files.frame_numbers(files, times, tolerance, within=(first, last))

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the packets behind a URL that reading rows fetches. Cost: their timestamps, and indexes of packets."""
        if not self.files.remote:
            return []
        times = self.timestamp.remote_ranges(selection)
        with filled(times):
            files, frames = self.locate(np.unique(ranges(selection.start, selection.length)))
        return [*times, *self.files.remote_ranges(files, frames)]

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Decode each wanted frame once, and copy it to its places."""
        rows = ranges(selection.start, selection.length)
        files, frames = self.locate(rows)
        if self.files.shape != self.shape:
            raise FormatError(f"expected frames of {self.shape}, got {self.files.shape}", path=self.files.paths[0])
        places, target = ranges(selection.destination, selection.length), out.reshape(-1, *self.shape)
        if self.depth is None:
            self.files.read(files, frames, places, target)
            return
        codes = np.empty((len(rows), *self.shape), np.uint16)
        self.files.read(files, frames, np.arange(len(rows)), codes)
        target[places] = self.depth.take(codes, mode="clip")

    def read_ragged(self, selection: Selection) -> Ragged:
        """Gather the packets of frames, as they are in the files."""
        return spread(self.files.packets(*self.locate(ranges(selection.start, selection.length))), selection)

    def lengths(self) -> IntArray:
        rows = int(self.offsets[-1])
        parts = [
            self.read_ragged(Selection.consecutive(first, min(first + _PART, rows))).lengths
            for first in range(0, rows, _PART)
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])


def bounds(place: VideoPlace, tolerance: float, fps: float) -> tuple[float, float]:
    """The seconds in its file between which an episode's frames are, a little earlier, because times are rounded."""
    end = math.inf if place.end is None else place.end
    first, last = (time - min(tolerance + abs(time) * ROUNDING, 0.5 / fps) for time in (place.start, end))
    return first, last


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of the encoders of a dataset, see `VideoWriter`. Depth is encoded without loss with all of them."""

    codec: str = "libsvtav1"
    crf: float | None = None
    g: int = 2
    pix_fmt: str | None = None
    codec_options: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> EncoderSettings:
        """Return the settings that a dataset has in its metadata, where it has them."""
        crf, g, pixels, options = (entry.get(name) for name in ("crf", "g", "pix_fmt", "codec_options"))
        return cls(
            str(entry.get("codec", "libsvtav1")),
            crf if type(crf) in (int, float) else None,
            g if type(g) is int and g else 2,
            pixels if isinstance(pixels, str) else None,
            {str(name): str(value) for name, value in options.items()} if is_dict(options) else {},
        )

    def open(self, path: Path, fps: float, depth: Depth | None = None) -> VideoWriter:
        """Begin a file, which replaces an existing one."""
        if depth is not None:
            return VideoWriter(path, fps, codec="libx265", pix_fmt="gray12le", options=_NO_LOSS, overwrite=True)
        quality = {} if self.crf is None else {"crf": str(self.crf)}
        options = {**quality, **self.codec_options}
        return VideoWriter(path, fps, codec=self.codec, g=self.g, pix_fmt=self.pix_fmt, options=options, overwrite=True)

    def described(self, depth: Depth | None = None) -> dict[str, Any]:
        """Return what LeRobot notes about the encoder under `info` of a camera."""
        options = dict(self.codec_options if depth is None else _NO_LOSS)
        preset = options.pop("preset", None)
        crf = 30 if self.crf is None and self.codec == "libsvtav1" else self.crf
        return {
            "video.g": self.g if depth is None else 2,
            "video.crf": crf if depth is None else None,
            "video.preset": int(preset) if preset is not None and preset.isdigit() else preset,
            "video.fast_decode": 0,
            "video.video_backend": "pyav",
            "video.extra_options": options,
        }


def encode_cameras(frames: Mapping[Path, tuple[Depth | None, AnyArray]], fps: float, settings: EncoderSettings) -> None:
    """Encode the frames of cameras at the same time."""
    with ExitStack() as stack:
        depths = [depth for depth, _ in frames.values()]
        writers = [stack.enter_context(settings.open(path, fps, depth)) for path, (depth, _) in frames.items()]
        for rows in zip(*(pixels for _, pixels in frames.values()), strict=True):
            for writer, depth, row in zip(writers, depths, rows, strict=True):
                writer.append(np.asarray(row) if depth is None else depth.codes(row))
