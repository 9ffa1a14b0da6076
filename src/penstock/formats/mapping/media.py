"""Videos and sound: frames and samples as rows that are decoded when they are read, with the time of each."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.video import VideoFiles
from penstock.core.arrays import AnyArray
from penstock.core.boundary import parsing
from penstock.core.ragged import Array
from penstock.core.spec import Field
from penstock.errors import require
from penstock.files.remote import open_file
from penstock.formats.mapping.clocks import TimesRule
from penstock.formats.mapping.images import FRAMES
from penstock.formats.mapping.tree import FileTree, TreeLeaf

VIDEOS = (".mp4", ".mov", ".mkv", ".webm", ".avi")
SOUNDS = (".wav", ".flac", ".ogg")
SAMPLES = "samples"
TIMES = "times"
FRAMES_AT_ONCE = 8  # of a video, which are decoded together
SAMPLES_AT_ONCE = 1 << 16
SOUND_DTYPES = {
    **dict.fromkeys(("PCM_S8", "PCM_U8", "PCM_16"), np.dtype(np.int16)),
    **dict.fromkeys(("PCM_24", "PCM_32"), np.dtype(np.int32)),
    "DOUBLE": np.dtype(np.float64),
}
"""Types of samples by the encoding in the file, other ones are float32. Whole numbers have the full scale of their
type, so samples of 24 bits are those of 32 bits whose lowest byte is 0."""


class TimedTree(FileTree):
    """A file with one array, and the seconds of its rows from its start, which are the array `times`."""

    @override
    def times_of(self, name: str, stated: TimesRule | None) -> TimesRule | None:
        """The file's own times, where nothing else is stated that it has."""
        return stated if stated is not None and stated.array in self.leaves else TimesRule(TIMES)


class VideoTree(TimedTree):
    """Frames in RGB, exact by number. Cost of one: the frames from its key frame to the next ones. Needs `video`."""

    @cached_property
    def _files(self) -> VideoFiles:
        return VideoFiles([self.path])

    def find_leaves(self) -> Mapping[str, TreeLeaf]:
        """Return the frames and their times. Cost: one pass over the packets, or a file of the user's cache."""
        rows = self._files.frame_count(0)
        frames = TreeLeaf(rows, Field(self._files.dtype, self._files.shape), block=FRAMES_AT_ONCE)
        return {FRAMES: frames, TIMES: TreeLeaf(rows, Field(np.dtype(np.float64)), is_time=True)}

    def read(self, name: str, start: int, stop: int) -> Array:
        """Decode frames."""
        if name == TIMES:
            return self._files.timestamps(0)[start:stop]
        out: AnyArray = np.empty((stop - start, *self._files.shape), self._files.dtype)
        self._files.read(np.zeros(stop - start, np.int64), np.arange(start, stop), np.arange(stop - start), out)
        return out


class SoundTree(TimedTree):
    """Samples of all channels, read by number. Needs the extra `audio`."""

    @cached_property
    def _head(self) -> tuple[int, int, int, np.dtype[Any]]:
        with self._opened() as sound:
            dtype = SOUND_DTYPES.get(str(sound.subtype), np.dtype(np.float32))
            return int(sound.frames), int(sound.channels), int(sound.samplerate), dtype

    @contextmanager
    def _opened(self) -> Generator[Any]:
        library = require("soundfile", "audio")
        with parsing(self.path), open_file(self.path) as file, library.SoundFile(file) as sound:
            yield sound

    def find_leaves(self) -> Mapping[str, TreeLeaf]:
        """Return the samples and their times."""
        rows, channels, _, dtype = self._head
        samples = TreeLeaf(rows, Field(dtype, (channels,)), block=SAMPLES_AT_ONCE)
        return {SAMPLES: samples, TIMES: TreeLeaf(rows, Field(np.dtype(np.float64)), is_time=True)}

    def read(self, name: str, start: int, stop: int) -> Array:
        """Decode samples."""
        _, channels, rate, dtype = self._head
        if name == TIMES:
            return np.arange(start, stop) / rate
        with self._opened() as sound:
            sound.seek(start)
            read: AnyArray = sound.read(stop - start, dtype=dtype.name, always_2d=True)
        return read.reshape(-1, channels)

    @property
    def values(self) -> Mapping[str, Any]:
        """Samples a second."""
        return {"samplerate": self._head[2]}
