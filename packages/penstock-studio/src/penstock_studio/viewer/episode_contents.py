"""`EpisodeContents`: curves, pictures and the view of a domain for the page of an episode.

Pictures are sent one by one, or by chunks of consecutive rows: a chunk is read at once, so that each group of pictures
of a video is decoded once, and encoded by several threads. The last chunks stay in memory, at most `CHUNK_BYTES` of
them. One chunk of a dataset is read at a time, so that at most `RAW_BYTES` of decoded pictures are in memory. Methods
may be called from any thread.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.containers.images import encode
from penstock.core.arrays import AnyArray, ByteArray
from penstock.core.cache import Cache
from penstock.core.frames import pictures
from penstock.core.selection import Selection
from penstock.core.spec import Field, is_camera
from penstock.data.dataset import EpisodeDataset
from penstock.data.loaded_episodes import flattened
from penstock.doctor.block import any_value, is_clock
from penstock.doctor.rows import spaces_of
from penstock.errors import ArgumentError, suggestion
from penstock.flow import map_on_threads
from penstock.formats.base.metadata import stated_rate
from penstock_studio.views import DomainView, view_of

MOST_ELEMENTS = 16  # curves of one column
QUALITY = 90  # of pictures
CHUNK_ROWS = 32  # most pictures of a chunk
RAW_BYTES = 64 << 20  # of the decoded pictures of a chunk
CHUNK_BYTES = 128 << 20  # of the encoded chunks that are kept
NOT_FINITE = 1
OUTSIDE = 2


class EpisodeContents:
    """Values of episodes, ready to be drawn."""

    def __init__(self, data: EpisodeDataset, view: Mapping[str, str] | None = None) -> None:
        self._data = data
        self._spaces = spaces_of(data.spec)
        self._chunks = Cache(CHUNK_BYTES)
        self._reading = threading.Lock()  # one chunk at a time
        self.view_name, self.view = view_of(data, view or {})
        self.cameras = [path for path, field in data.spec.items() if is_camera(field)]
        curves = [path for path, field in data.spec.items() if self._is_curve(field)]
        # A view draws the state, often integers: measured values come before it.
        self.curves = sorted(curves, key=lambda path: data.spec[path].dtype.kind != "f") if self.view else curves

    def _is_curve(self, field: Field) -> bool:
        if field.kind != "array" or field.align == "episode" or field.dtype.kind not in "biuf" or is_camera(field):
            return False
        return self.view is None or self.view.is_curve(field)

    def cameras_of(self, number: int) -> list[dict[str, Any]]:
        """Return `path`, number of `rows`, and rows of a `chunk` of each camera in an episode."""
        ranges = {path: self._data.source.episode_rows(self._data.spec[path].align, number) for path in self.cameras}
        return [{"path": p, "rows": end - begin, "chunk": self.chunk_rows(p)} for p, (begin, end) in ranges.items()]

    def chunk_rows(self, camera: str) -> int:
        """Return how many pictures a chunk of a camera has."""
        return max(1, min(CHUNK_ROWS, RAW_BYTES // max(self._data.spec[camera].row_bytes, 1)))

    def series(
        self, e: int, column: str, *, first: int = 0, last: int | None = None, points: int = 2000
    ) -> tuple[AnyArray, ByteArray]:
        """Return rows of a column as curves."""
        number = self.number(e)
        if column not in self.curves:
            raise ArgumentError(f"no curve {column!r}{suggestion(column, self.curves)}")
        begin, end = self._data.source.episode_rows(self._data.spec[column].align, number)
        stop = end if last is None else min(begin + max(last, 0), end)
        start = min(begin + max(first, 0), stop)
        rows = self.rows(column, start, stop)
        flags = self._flags(column, rows)
        with np.errstate(over="ignore", invalid="ignore"):  # numbers that float32 does not have are drawn as none
            values = flattened(rows)[:, :MOST_ELEMENTS].astype(np.float32)
        if len(values) <= max(points, 1):
            return np.stack([values, values], axis=1), flags
        cuts = np.linspace(0, len(values), max(points, 1), endpoint=False).astype(np.int64)
        least, most = np.fmin.reduceat(values, cuts), np.fmax.reduceat(values, cuts)
        return np.stack([least, most], axis=1), np.bitwise_or.reduceat(flags, cuts)

    def _flags(self, column: str, rows: AnyArray) -> ByteArray:
        wrong = any_value(~np.isfinite(rows)) if rows.dtype.kind == "f" else np.zeros(len(rows), np.bool_)
        flags = wrong.astype(np.uint8) * np.uint8(NOT_FINITE)
        space = self._spaces.get(column)
        if space is not None:
            outside = ~space.contains(rows) & ~wrong
            flags |= outside.astype(np.uint8) * np.uint8(OUTSIDE)
        return flags

    def picture(self, e: int, camera: str, row: int) -> bytes:
        """Return the picture of a camera at a row as JPEG. Of a stack of frames, the newest."""
        begin, end = self._camera_rows(e, camera)
        if not 0 <= row < end - begin:
            raise ArgumentError(f"expected a row within 0:{end - begin}, got {row}")
        return _encoded(pictures(self.rows(camera, begin + row, begin + row + 1))[0, -1])

    def chunk(self, e: int, camera: str, number: int) -> bytes:
        """Return a chunk of consecutive pictures of a camera."""
        begin, end = self._camera_rows(e, camera)
        size = self.chunk_rows(camera)
        if not 0 <= number * size < end - begin:
            raise ArgumentError(f"expected a chunk within 0:{-(-(end - begin) // size)}, got {number}")

        def make() -> tuple[bytes, int]:
            with self._reading:
                blobs = self.encoded(e, camera, number * size, min((number + 1) * size, end - begin))
            content = struct.pack(f"<{len(blobs) + 1}I", len(blobs), *map(len, blobs)) + b"".join(blobs)
            return content, len(content)

        return self._chunks.get((e, camera, number), make)

    def encoded(self, e: int, camera: str, first: int, last: int) -> list[bytes]:
        """Return pictures of a camera as JPEG, encoded by several threads. Of a stack of frames, the newest."""
        begin, end = self._camera_rows(e, camera)
        if not 0 <= first <= last <= end - begin:
            raise ArgumentError(f"expected rows within 0:{end - begin}, got {first}:{last}")
        frames = pictures(self.rows(camera, begin + first, begin + last))[:, -1]
        return map_on_threads(_encoded, list(frames), name="penstock-pictures")

    def drawn(self, e: int) -> Mapping[str, Any]:
        """Return what the view draws of an episode."""
        return self._view().contents(self.number(e))

    def drawn_array(self, e: int) -> AnyArray:
        """Return the numbers that the view draws of an episode."""
        return self._view().array(self.number(e))

    def rate(self, number: int) -> float:
        """Return the steps a second: as the dataset states it, or by the timestamps of the episode; else 10.

        Timestamps are seconds if they are floating-point numbers, and nanoseconds if they are integers. A view may
        say it.
        """
        if self.view is not None and self.view.rate is not None:
            return self.view.rate
        if (stated := stated_rate(self._data.metadata)) is not None:
            return stated
        for path, field in self._data.spec.items():
            if is_clock(path, field) and field.dtype.kind in "fi":
                begin, end = self._data.source.episode_rows(field.align, number)
                times = self.rows(path, begin, min(end, begin + 1000)).astype(np.float64).reshape(-1)
                usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
                usual *= 1 if field.dtype.kind == "f" else 1e-9
                if 1e-3 < usual < 10:
                    return 1 / usual
        return 10.0

    def rows(self, column: str, first: int, last: int) -> AnyArray:
        """Return rows `first` to `last` of a column of the source."""
        one = np.ones(1, np.int64)
        selection = Selection(one * 0, one * first, one * (last - first), one * 0, (1, last - first))
        rows = self._data.source.read([column], selection)[column]
        return np.asarray(rows)[0]

    def number(self, e: int) -> int:
        """Return the number of an episode in the source."""
        if not 0 <= e < len(self._data):
            raise ArgumentError(f"expected an episode within 0:{len(self._data)}, got {e}")
        return int(self._data.episodes.index[e])

    def _camera_rows(self, e: int, camera: str) -> tuple[int, int]:
        number = self.number(e)
        if camera not in self.cameras:
            raise ArgumentError(f"no camera {camera!r}{suggestion(camera, self.cameras)}")
        return self._data.source.episode_rows(self._data.spec[camera].align, number)

    def _view(self) -> DomainView:
        if self.view is None:
            raise ArgumentError("expected data that a view draws, got other data")
        return self.view


def _encoded(frame: ByteArray) -> bytes:
    return encode(frame, "jpeg", quality=QUALITY)
