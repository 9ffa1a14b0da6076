"""`EpisodeContents`: curves, texts, paths, pictures and the view of a domain for the page of an episode.

Pictures are sent one by one, or by chunks of consecutive rows: a chunk is read at once, so that each group of pictures
of a video is decoded once, and encoded by several threads. Small pictures are PNG, so the page shows the rows to the
last bit; larger ones are JPEG unless the exact ones are asked for. The last chunks stay in memory, at most
`CHUNK_BYTES` of them. One chunk of a dataset is read at a time, so that at most `RAW_BYTES` of decoded pictures are in
memory. Methods may be called from any thread.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from penstock.containers.images import encode
from penstock.core.arrays import AnyArray, ByteArray, IntArray
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
from penstock_studio.viewer.column_facts import column_facts, unit_of, wire_type
from penstock_studio.viewer.depth_colors import SAMPLED, colored, described, is_depth, maps, scale_of, sides_of
from penstock_studio.viewer.packets import packets_of, stored_frames
from penstock_studio.viewer.predictions import Predictions
from penstock_studio.views import DomainView, view_of

MOST_ELEMENTS = 16  # curves of one column
QUALITY = 90  # of pictures
SMALL = 256  # longest side of a picture that is sent without loss
FAST = 3  # compression of PNG: twice as quick as the default, and a tenth larger
CHUNK_ROWS = 32  # most pictures of a chunk
RAW_BYTES = 64 << 20  # of the decoded pictures of a chunk
CHUNK_BYTES = 128 << 20  # of the encoded chunks that are kept
EXACT = 1 << 53  # beyond, float64 has not all integers
PATH_POINTS = 4000  # of a path
MOST_TEXTS = 2000  # changes of a text in an episode
LONGEST = 4000  # characters of a text
NOT_FINITE = 1
OUTSIDE = 2
Encoding = Literal["png", "jpeg"]


class AlignedEpisode(NamedTuple):
    """An episode of any dataset next to a first one: its row `zero` is at row `first` there, its rows `step` apart."""

    contents: EpisodeContents
    e: int
    first: int
    zero: int
    step: float

    def values(self, column: str, rows: IntArray, width: int) -> AnyArray:
        """`[n, width]` values of a column next to `[n]` rows of the first episode; NaN where there are none."""
        return self.contents.at(self.e, column, np.rint(self.zero + (rows - self.first) / self.step), width)


class EpisodeContents:
    """Values of episodes, ready to be drawn."""

    def __init__(self, data: EpisodeDataset, view: Mapping[str, str] | None = None) -> None:
        self._data = data
        self.predictions: Predictions | None = None
        self._spaces = spaces_of(data.spec)
        self._chunks = Cache(CHUNK_BYTES)
        self._scales: dict[tuple[int, str], tuple[float, float]] = {}  # of depth, by episode and column
        self._reading = threading.Lock()  # one chunk at a time
        self.view_name, self.view = view_of(data, view or {})
        self._depths = [path for path, field in data.spec.items() if is_depth(path, field)]
        self.cameras = [path for path, field in data.spec.items() if is_camera(field) or path in self._depths]
        curves = [path for path, field in data.spec.items() if self._is_curve(path, field)]
        # A view draws the state, often integers: measured values come before it.
        self.curves = sorted(curves, key=lambda path: data.spec[path].dtype.kind != "f") if self.view else curves
        drawn = (*self.curves, *self.cameras)
        # What nothing draws is text. A view draws what belongs to its domain.
        self.texts = [
            path
            for path, field in data.spec.items()
            if field.align != "episode" and path not in drawn and (self.view is None or field.kind == "text")
        ]
        drawn = (*drawn, *self.texts)
        self.has_boundary = any(data.spec[path].align == "boundary" for path in drawn)
        self.columns = {path: column_facts(path, data.spec[path], data.metadata) for path in self.curves}

    def _is_curve(self, path: str, field: Field) -> bool:
        if field.kind != "array" or field.align == "episode" or field.dtype.kind not in "biuf" or path in self.cameras:
            return False
        return self.view is None or self.view.is_curve(field)

    def cameras_of(self, number: int) -> list[dict[str, Any]]:
        """Return each camera in an episode: `path`, number of `rows`, rows of a `chunk`, its `encoding`, whether its
        frames are stored as `video`, and the scale of its `depth` or None.
        """
        return [self._camera(path, number) for path in self.cameras]

    def _camera(self, path: str, number: int) -> dict[str, Any]:
        begin, end = self._data.source.episode_rows(self._data.spec[path].align, number)
        is_map = path in self._depths
        unit = unit_of(path, self._data.spec[path], self._data.metadata)
        stored = None if is_map or self._encoding(path) == "png" else stored_frames(self._data.source, path)
        return {
            "path": path,
            "rows": end - begin,
            "size": list(self._size(path)),
            "chunk": self.chunk_rows(path),
            "encoding": self._encoding(path),
            "video": stored is not None,
            "depth": described(self._scale(path, number), unit) if is_map else None,
        }

    def _size(self, camera: str) -> tuple[int, ...]:
        """Height and width of a picture."""
        shape = self._data.spec[camera].shape
        return sides_of(shape) if camera in self._depths else pictures(np.zeros((1, *shape), np.uint8)).shape[2:4]

    def _encoding(self, camera: str) -> Encoding:
        return "png" if max(self._data.spec[camera].shape) <= SMALL else "jpeg"

    def _scale(self, camera: str, number: int) -> tuple[float, float]:
        if (known := self._scales.get((number, camera))) is None:
            begin, end = self._data.source.episode_rows(self._data.spec[camera].align, number)
            frames = np.unique(np.linspace(begin, max(end - 1, begin), SAMPLED).astype(np.int64)) if end > begin else ()
            rows = [self.rows(camera, int(row), int(row) + 1) for row in frames]
            known = self._scales[number, camera] = scale_of(np.concatenate(rows) if rows else np.zeros(0))
        return known

    def chunk_rows(self, camera: str) -> int:
        """Return how many pictures a chunk of a camera has."""
        return max(1, min(CHUNK_ROWS, RAW_BYTES // max(self._data.spec[camera].row_bytes, 1)))

    def series(
        self,
        e: int,
        column: str,
        *,
        first: int = 0,
        last: int | None = None,
        points: int = 2000,
        minus: AlignedEpisode | None = None,
        predicted: bool = False,
    ) -> tuple[AnyArray, ByteArray]:
        """Return rows of a column as curves: the values, their difference from another episode, or what is predicted
        for each.
        """
        start, stop = self._span(e, column, first, last)
        begin, _ = self._column_rows(e, column)
        rows = self.rows(column, start, stop)
        values = flattened(rows)[:, :MOST_ELEMENTS].astype(wire_type(rows.dtype))
        flags = self._flags(column, rows) if minus is None and not predicted else np.zeros(len(rows), np.uint8)
        if predicted:
            values = self.predicted(e, column, start - begin, stop - begin)[:, 0]
        if minus is not None:
            beside = minus.values(column, np.arange(start - begin, stop - begin), values.shape[1])
            with np.errstate(over="ignore", invalid="ignore"):
                values = values.astype(np.float64) - beside
        if len(values) <= max(points, 1):
            return np.stack([values, values], axis=1), flags
        cuts = np.linspace(0, len(values), max(points, 1), endpoint=False).astype(np.int64)
        least, most = np.fmin.reduceat(values, cuts), np.fmax.reduceat(values, cuts)
        return np.stack([least, most], axis=1), np.bitwise_or.reduceat(flags, cuts)

    def predicted(self, e: int, column: str, first: int, last: int) -> AnyArray:
        """Return `[n, H, k]` what is predicted at rows of a column: see `Predictions`."""
        self.number(e)
        if self.predictions is None:
            raise ArgumentError("expected a viewer with predictions, got none; start it with --predictions PATH")
        return self.predictions.chunks(e, column, first, last)[:, :, :MOST_ELEMENTS]

    def values(self, e: int, row: int) -> dict[str, list[Any]]:
        """Return the exact values at a row, or at the last row, of every curve. Integers that JavaScript does
        not have are text, and so are numbers that JSON does not have.
        """
        values: dict[str, list[Any]] = {}
        for path in self.curves:
            begin, end = self._column_rows(e, path)
            if end > begin:
                place = min(begin + max(row, 0), end - 1)
                numbers = flattened(self.rows(path, place, place + 1))[0, :MOST_ELEMENTS].tolist()
                values[path] = [_plain(number) for number in numbers]
        return values

    def at(self, e: int, column: str, places: AnyArray, width: int) -> AnyArray:
        """Return `[n, width]` float64 values of a column at `[n]` rows of an episode; NaN outside of it."""
        begin, end = self._column_rows(e, column)
        values = np.full((len(places), width), np.nan)
        there = (places >= 0) & (places < end - begin)
        if there.any():
            inside = places[there].astype(np.int64)
            low = int(inside.min())
            rows = flattened(self.rows(column, begin + low, begin + int(inside.max()) + 1))
            if rows.shape[1] < width:
                raise ArgumentError(f"expected {column!r} with {width} numbers in both episodes, got {rows.shape[1]}")
            values[there] = rows[inside - low, :width]
        return values

    def changes(self, e: int, column: str) -> dict[str, int | None]:
        """Return the `first` row of an episode at which a column is another than at the row before, and the `last`."""
        begin, end = self._column_rows(e, column)
        rows = flattened(self.rows(column, begin, end))
        same = (rows[1:] == rows[:-1]) | ((rows[1:] != rows[1:]) & (rows[:-1] != rows[:-1]))  # NaN is as NaN
        places = (np.flatnonzero(~same.all(axis=1)) + 1).tolist()
        return {"first": places[0] if places else None, "last": places[-1] if places else None}

    def path(self, e: int, column: str) -> AnyArray:
        """Return the positions `[n, 2 or 3]` that a column goes through, and before them the row of each."""
        start, stop = self._span(e, column, 0, None)
        if not (elements := self.columns[column]["path"]):
            known = [path for path, facts in self.columns.items() if facts["path"]]
            raise ArgumentError(f"expected a column of positions among {known}, got {column!r}")
        steps = np.unique(np.linspace(0, stop - start, PATH_POINTS, endpoint=False).astype(np.int64))
        steps = steps[steps < stop - start]
        rows = flattened(self.rows(column, start, stop))[steps][:, elements]
        return np.concatenate([steps[:, None], rows], axis=1).astype(np.float64)

    def text(self, e: int, column: str) -> dict[str, Any]:
        """Return the texts of a column, or its rows as text, where they change: `[row, text]`, and whether there are
        `more` of them.
        """
        if column not in self.texts:
            raise ArgumentError(f"no text {column!r}{suggestion(column, self.texts)}")
        field = self._data.spec[column]
        begin, end = self._data.source.episode_rows(field.align, self.number(e))
        texts: list[list[Any]] = []
        for first in range(begin, end, MOST_TEXTS):
            for i, words in enumerate(self._words(column, first, min(first + MOST_TEXTS, end))):
                if not texts or texts[-1][1] != words:
                    if len(texts) == MOST_TEXTS:
                        return {"texts": texts, "more": True}
                    texts.append([first - begin + i, words])
        return {"texts": texts, "more": False}

    def _words(self, column: str, first: int, last: int) -> list[str]:
        """Rows of a column of the source, each as text."""
        field = self._data.spec[column]
        if field.ragged:
            rows = self._data.source.read_ragged(column, Selection.consecutive(first, last)).reshape(last - first)
            is_text = field.kind == "text"
            words = rows.strings() if is_text else [rows[i : i + 1].preview(1)[1:-1] for i in range(last - first)]
        else:
            words = [str(row) for row in self.rows(column, first, last).tolist()]
        return [text if len(text) <= LONGEST else text[:LONGEST] + "..." for text in words]

    def _flags(self, column: str, rows: AnyArray) -> ByteArray:
        wrong = any_value(~np.isfinite(rows)) if rows.dtype.kind == "f" else np.zeros(len(rows), np.bool_)
        flags = wrong.astype(np.uint8) * np.uint8(NOT_FINITE)
        space = self._spaces.get(column)
        if space is not None:
            outside = ~space.contains(rows) & ~wrong
            flags |= outside.astype(np.uint8) * np.uint8(OUTSIDE)
        return flags

    def pixel(self, e: int, camera: str, row: int, x: int, y: int) -> dict[str, Any]:
        """Return the `values` of a pixel of a camera, and their `unit`: one number of depth, three of a colour."""
        begin, end = self._camera_rows(e, camera)
        if not 0 <= row < end - begin:
            raise ArgumentError(f"expected a row within 0:{end - begin}, got {row}")
        rows = self.rows(camera, begin + row, begin + row + 1)
        picture = maps(rows)[0] if camera in self._depths else pictures(rows)[0, -1]
        height, width = picture.shape[:2]
        if not (0 <= x < width and 0 <= y < height):
            raise ArgumentError(f"expected a pixel of {width} x {height}, got x={x}, y={y}")
        numbers: list[Any] = np.atleast_1d(picture[y, x]).tolist()
        unit = unit_of(camera, self._data.spec[camera], self._data.metadata)
        return {"values": [_plain(number) for number in numbers], "unit": unit}

    def picture(self, e: int, camera: str, row: int, encoding: Encoding | None = None) -> bytes:
        """Return the picture of a camera at a row. Of a stack of frames, the newest."""
        begin, end = self._camera_rows(e, camera)
        if not 0 <= row < end - begin:
            raise ArgumentError(f"expected a row within 0:{end - begin}, got {row}")
        return self.encoded(e, camera, row, row + 1, encoding or self._encoding(camera))[0]

    def chunk(self, e: int, camera: str, number: int, encoding: Encoding | None = None) -> bytes:
        """Return a chunk of consecutive pictures of a camera."""
        first, last = self._chunk(e, camera, number)
        kind = encoding or self._encoding(camera)

        def make() -> tuple[bytes, int]:
            with self._reading:
                blobs = self.encoded(e, camera, first, last, kind)
            content = struct.pack(f"<{len(blobs) + 1}I", len(blobs), *map(len, blobs)) + b"".join(blobs)
            return content, len(content)

        return self._chunks.get((e, camera, number, kind), make)

    def packets(self, e: int, camera: str, number: int) -> bytes:
        """Return what a decoder needs to show a chunk of a camera whose frames are stored as video."""
        first, last = self._chunk(e, camera, number)
        begin, _ = self._camera_rows(e, camera)
        if (frames := stored_frames(self._data.source, camera)) is None:
            raise ArgumentError(f"expected a camera in video files on this machine, got {camera!r}")
        return packets_of(frames, np.arange(begin + first, begin + last))

    def _chunk(self, e: int, camera: str, number: int) -> tuple[int, int]:
        """First row of a chunk in its episode, and the one behind the last."""
        begin, end = self._camera_rows(e, camera)
        size = self.chunk_rows(camera)
        if not 0 <= number * size < end - begin:
            raise ArgumentError(f"expected a chunk within 0:{-(-(end - begin) // size)}, got {number}")
        return number * size, min((number + 1) * size, end - begin)

    def encoded(self, e: int, camera: str, first: int, last: int, encoding: Encoding = "jpeg") -> list[bytes]:
        """Return pictures of a camera, encoded by several threads."""
        work = partial(encode, encoding=encoding, quality=QUALITY, compression=FAST)
        return map_on_threads(work, list(self.frames(e, camera, first, last)), name="penstock-pictures")

    def frames(self, e: int, camera: str, first: int, last: int) -> ByteArray:
        """Return pictures of a camera, `[n, H, W, channels]`: of a stack of frames the newest, depth in colour."""
        begin, end = self._camera_rows(e, camera)
        if not 0 <= first <= last <= end - begin:
            raise ArgumentError(f"expected rows within 0:{end - begin}, got {first}:{last}")
        rows = self.rows(camera, begin + first, begin + last)
        return colored(rows, self._scale(camera, self.number(e))) if camera in self._depths else pictures(rows)[:, -1]

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
        return np.asarray(self._data.source.read([column], Selection.consecutive(first, last))[column])[0]

    def number(self, e: int) -> int:
        """Return the number of an episode in the source."""
        if not 0 <= e < len(self._data):
            if not len(self._data):
                raise ArgumentError("the dataset has no episodes")
            raise ArgumentError(f"expected an episode within 0:{len(self._data)}, got {e}")
        return int(self._data.episodes.index[e])

    def _column_rows(self, e: int, column: str) -> tuple[int, int]:
        number = self.number(e)
        if column not in self.curves:
            raise ArgumentError(f"no curve {column!r}{suggestion(column, self.curves)}")
        return self._data.source.episode_rows(self._data.spec[column].align, number)

    def _span(self, e: int, column: str, first: int, last: int | None) -> tuple[int, int]:
        begin, end = self._column_rows(e, column)
        stop = end if last is None else min(begin + max(last, 0), end)
        return min(begin + max(first, 0), stop), stop

    def camera_rows(self, e: int, camera: str) -> int:
        """Return how many pictures of a camera an episode has."""
        begin, end = self._camera_rows(e, camera)
        return end - begin

    def _camera_rows(self, e: int, camera: str) -> tuple[int, int]:
        number = self.number(e)
        if camera not in self.cameras:
            raise ArgumentError(f"no camera {camera!r}{suggestion(camera, self.cameras)}")
        return self._data.source.episode_rows(self._data.spec[camera].align, number)

    def _view(self) -> DomainView:
        if self.view is None:
            raise ArgumentError("expected data that a view draws, got other data")
        return self.view


def _plain(number: Any) -> Any:
    if isinstance(number, bool):
        return int(number)
    if isinstance(number, float) and not math.isfinite(number):
        return str(number)
    return str(number) if isinstance(number, int) and abs(number) > EXACT else number
