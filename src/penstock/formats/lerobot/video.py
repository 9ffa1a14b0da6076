"""Camera columns in video files: each row is the frame at the row's timestamp.

A file has one episode (version 2) or several (version 3), whose frames begin at `start` seconds. The frame of a row is
the nearest one to `start + timestamp`, as in LeRobot, and an error if it is further away than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.containers.video import VideoFiles
from penstock.containers.video.files import DecoderName
from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.errors import FormatError
from penstock.files.remote import Wanted, filled
from penstock.formats.base.pieces import expand, spread
from penstock.formats.lerobot.columns import StoredColumn, span
from penstock.formats.lerobot.episodes import VideoPlace


@dataclass(frozen=True)
class FrameOptions:
    """How the frames of all cameras are read.

    Args:
        tolerance: Most seconds between a row and its frame.
        size: `(height, width)` to which frames are scaled, or None.
        decoder: `"pyav"` or `"torchcodec"`.
        device: Device on which torchcodec decodes.
        cache_bytes: Decoded frames of each camera that are kept in memory.
    """

    tolerance: float
    size: tuple[int, int] | None = None
    decoder: DecoderName = "pyav"
    device: str = "cpu"
    cache_bytes: int = 0

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a frame that is stored with another one."""
        return stored if self.size is None else (*self.size, 3)


@dataclass(frozen=True, eq=False)
class VideoColumn:
    """Frames of one camera.

    Args:
        files: The video files.
        file: `[E]` int64 file of each episode.
        start: `[E]` float64 seconds in the file at which each episode starts.
        offsets: `[E + 1]` int64 first row of each episode, and the end.
        timestamp: Column with the seconds of each row since the start of its episode.
        shape: `(height, width, 3)`.
        tolerance: Most seconds between a row and its frame.
    """

    files: VideoFiles
    file: IntArray
    start: FloatArray
    offsets: IntArray
    timestamp: StoredColumn
    shape: tuple[int, ...]
    tolerance: float

    @classmethod
    def of(
        cls,
        places: Sequence[VideoPlace],
        offsets: IntArray,
        timestamp: StoredColumn,
        shape: tuple[int, ...],
        options: FrameOptions,
    ) -> VideoColumn:
        """Make the column of a camera.

        Args:
            places: Place of each episode.
            offsets: First row of each episode, and the end.
            timestamp: Column with the seconds of each row.
            shape: `(height, width, 3)`, as stored.
            options: How frames are read.
        """
        numbers: dict[Path, int] = {}
        file = [numbers.setdefault(place.file, len(numbers)) for place in places]
        start = np.array([place.start for place in places], np.float64)
        files = VideoFiles(
            list(numbers),
            size=options.size,
            decoder=options.decoder,
            device=options.device,
            cache_bytes=options.cache_bytes,
        )
        row = options.shape(shape)
        return cls(files, np.array(file, np.int64), start, offsets, timestamp, row, options.tolerance)

    def locate(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the file number and the frame number of rows.

        Args:
            rows: `[n]` int64.

        Raises:
            FormatError: A row has no frame within the tolerance.
        """
        seconds = np.empty(len(rows), np.float64)
        n = len(rows)
        one = np.ones(n, np.int64)
        self.timestamp.read(Selection(one * 0, rows, one, np.arange(n), (n, 1)), seconds)
        episode = np.searchsorted(self.offsets, rows, side="right") - 1
        files = self.file[episode]
        return files, self.files.frame_numbers(files, self.start[episode] + seconds, self.tolerance)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        """Return the packets behind a URL that reading rows fetches. Cost: their timestamps, and indexes of packets."""
        if not self.files.remote:
            return []
        times = self.timestamp.remote_ranges(selection)
        with filled(times):
            files, frames = self.locate(np.unique(expand(selection.start, selection.length)))
        return [*times, *self.files.remote_ranges(files, frames)]

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Decode each wanted frame once, and copy it to its places."""
        rows = expand(selection.start, selection.length)
        files, frames = self.locate(rows)
        if self.files.shape != self.shape:
            raise FormatError(f"expected frames of {self.shape}, got {self.files.shape}", path=self.files.paths[0])
        self.files.read(files, frames, expand(selection.destination, selection.length), out.reshape(-1, *self.shape))

    def read_ragged(self, selection: Selection) -> Ragged:
        """Gather the packets of frames, as they are in the files."""
        return spread(self.files.packets(*self.locate(expand(selection.start, selection.length))), selection)

    def lengths(self) -> IntArray:
        """Return the bytes of each packet, `[rows]`. Cost: reads all packets."""
        rows = int(self.offsets[-1])
        parts = [
            self.read_ragged(span(min(first + _PART, rows) - first, first)).lengths for first in range(0, rows, _PART)
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])


_PART = 4096  # rows whose packets are read at a time
