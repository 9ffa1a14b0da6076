"""`write_rerun`: an episode as a recording of Rerun, a file `.rrd` that its viewer opens.

Each column becomes an entity of the column's path. Two timelines count: `step`, and `time` in seconds. Rows are sent by
columns, and pictures by chunks, so that memory is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.data.dataset import EpisodeDataset
from penstock.data.loaded_episodes import flattened
from penstock.doctor.block import is_clock
from penstock.errors import require
from penstock.files.replace import atomic_path
from penstock_studio.viewer.episode_contents import EpisodeContents
from penstock_studio.views import RerunTarget, check_options

MOST_NUMBERS = 256  # of a row that is drawn as curves


@dataclass(frozen=True)
class RerunRecording:
    """Contents of a recording."""

    path: Path
    episode: int
    columns: tuple[str, ...]
    left_out: dict[str, str]


def write_rerun(
    data: EpisodeDataset,
    episode: int,
    out: str | os.PathLike[str],
    *,
    view: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> RerunRecording:
    """Write an episode as a recording of Rerun.

    Numbers become curves (float64), pictures JPEG, text and metadata documents. A view of the data adds what it draws.
    """
    rerun: Any = require("rerun", "rerun", "penstock-studio")
    contents = EpisodeContents(data, view)
    check_options(view or {}, [contents.view_name])
    e = episode + len(data) if episode < 0 else episode
    contents.number(e)
    with atomic_path(out, overwrite=overwrite) as path:
        stream = rerun.RecordingStream("penstock", recording_id=f"{data.episodes.fingerprint}-{e}")
        stream.save(str(path))
        drawn = _EpisodeStream(rerun, stream, data, contents, e)
        columns, left_out = drawn.write()
        stream.flush()
        stream.disconnect()
    return RerunRecording(Path(out), e, columns, left_out)


class _EpisodeStream:
    """Sends the contents of one episode to a stream of Rerun."""

    def __init__(self, rerun: Any, stream: Any, data: EpisodeDataset, contents: EpisodeContents, e: int) -> None:
        self._rerun = rerun
        self._stream = stream
        self._data = data
        self._contents = contents
        self._e = e
        self._number = contents.number(e)
        self._seconds = self._times()

    def write(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Send everything. Returns the columns, and why others are left out."""
        columns: list[str] = []
        left_out: dict[str, str] = {}
        for path, field in self._data.spec.items():
            if path in self._contents.cameras and field.align != "episode":
                self._pictures(path)
            elif field.kind == "text":
                self._texts(path)
            elif field.kind != "array" or field.dtype.kind not in "biuf":
                left_out[path] = f"{field.kind} rows of {field.dtype} are no curves"
                continue
            elif int(np.prod(field.shape, dtype=np.int64)) > MOST_NUMBERS:
                left_out[path] = f"rows of more than {MOST_NUMBERS} numbers are no curves"
                continue
            else:
                self._curves(path)
            columns.append(path)
        self._metadata()
        if self._contents.view is not None:
            recording = RerunTarget(self._rerun, self._stream, self._send)
            self._contents.view.record(recording, self._number)
        return tuple(columns), left_out

    def _times(self) -> FloatArray:
        """`[T + 1]` seconds since the first step: by the timestamps of the episode, or by its rate."""
        steps = int(self._data.episodes.length[self._e])
        rate = self._contents.rate(self._number)
        for path, field in self._data.spec.items():
            if is_clock(path, field) and field.dtype.kind in "fi" and field.align == "step" and field.shape == ():
                begin, end = self._data.source.episode_rows("step", self._number)
                stamps = self._contents.rows(path, begin, end)
                times = (stamps - stamps[:1]).astype(np.float64) * (1 if field.dtype.kind == "f" else 1e-9)
                if steps and np.isfinite(times).all() and (np.diff(times) > 0).all():
                    return np.append(times, times[-1] + 1 / rate)
        return np.arange(steps + 1) / rate

    def _indexes(self, first: int, last: int) -> list[Any]:
        column: Any = self._rerun.TimeColumn
        return [column("step", sequence=range(first, last)), column("time", duration=self._seconds[first:last])]

    def _send(self, path: str, first: int, last: int, columns: Any) -> None:
        self._stream.send_columns(path, indexes=self._indexes(first, last), columns=columns)

    def _document(self, path: str, text: str) -> None:
        self._stream.log(path, self._rerun.TextDocument(text), static=True)

    def _curves(self, path: str) -> None:
        field = self._data.spec[path]
        begin, end = self._data.source.episode_rows(field.align, self._number)
        rows = flattened(self._contents.rows(path, begin, end)).astype(np.float64)
        if field.align == "episode":
            self._document(path, str(rows[0].tolist()))
        elif len(rows) and rows.shape[1]:
            columns = self._rerun.Scalars.columns(scalars=rows.ravel())
            self._send(path, 0, len(rows), columns.partition([rows.shape[1]] * len(rows)))

    def _pictures(self, path: str) -> None:
        begin, end = self._data.source.episode_rows(self._data.spec[path].align, self._number)
        size = self._contents.chunk_rows(path)
        for first in range(0, end - begin, size):
            blobs = self._contents.encoded(self._e, path, first, min(first + size, end - begin))
            kinds = ["image/jpeg"] * len(blobs)
            columns = self._rerun.EncodedImage.columns(blob=blobs, media_type=kinds)
            self._send(path, first, first + len(blobs), columns)

    def _texts(self, path: str) -> None:
        field = self._data.spec[path]
        begin, end = self._data.source.episode_rows(field.align, self._number)
        rows = self._data.source.read_ragged(path, Selection.consecutive(begin, end))
        texts = list(Ragged(rows.values, rows.offsets).strings())
        if field.align == "episode":
            self._document(path, "\n".join(texts))
        elif texts:
            self._send(path, 0, len(texts), self._rerun.TextDocument.columns(text=texts))

    def _metadata(self) -> None:
        entries = self._data.source.episode_metadata([self._number])[0]
        self._document("metadata", "\n".join(f"{key}: {value}" for key, value in entries.items()))
