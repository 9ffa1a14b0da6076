"""`ViewedDataset`: contents of the pages of one dataset, as plain data and arrays.

Everything comes from the dataset and the report of its check; nothing of the data is executed. The table of episodes
and the order by each column are computed once, so that listing 10^6 episodes takes some milliseconds. The check runs in
another thread, and its measures join the table when it is done. Methods may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.images import encode
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.columns import Columns
from penstock.core.frames import pictures
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Field
from penstock.data.curated import curation_columns, excluded_rows
from penstock.data.curation import Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.episode_marks import EpisodeMarks
from penstock.doctor.block import is_camera, is_clock
from penstock.doctor.check import check
from penstock.doctor.examine import Report
from penstock.errors import ArgumentError, PenstockError, PlanError, suggestion
from penstock.plan.where import evaluate

MOST_ELEMENTS = 16  # curves of one column
MOST_ROWS = 1000  # of one answer
QUALITY = 90  # of pictures


class ViewedDataset:
    """A dataset with the answers for its pages.

    Args:
        name: Name in the address of its pages.
        location: Location as the user gave it, for the title.
        format: Name of the format.
        data: The open dataset. The caller closes it.
        curation: File of the curation, which is made with the first mark. The default is None: no marks.
        no_curation: Why there is no file, for the page. The default is empty.

    Raises:
        FormatError: The file is no curation.
        StateError: The curation is for another dataset.
    """

    def __init__(
        self,
        name: str,
        location: str,
        format: str,
        data: EpisodeDataset,
        *,
        curation: Path | None = None,
        no_curation: str = "",
    ) -> None:
        self.name = name
        self._location = location
        self._format = format
        self._data = data
        self._lock = threading.Lock()
        self._table: dict[str, AnyArray] = {
            name: np.asarray(values) for name, values in data.table().flat.items() if name != "id"
        }
        self._orders: dict[str, IntArray] = {}
        self._file = curation
        self._no_curation = no_curation
        self._curation = Curation.of(data.source)
        self._version: tuple[int, ...] = ()  # of the file of the curation
        self._mark_columns = self._columns_of_marks()
        self._read_marks()
        self._report: Report | None = None
        self._failure = ""
        self._checking: threading.Thread | None = None

    def summary(self) -> dict[str, Any]:
        """Name, format and size."""
        return {
            "name": self.name,
            "location": self._location,
            "format": self._format,
            "episodes": len(self._data),
            "steps": self._data.steps,
        }

    def info(self) -> dict[str, Any]:
        """Summary, columns, cameras and metadata."""
        return {
            **self.summary(),
            "columns": [
                {
                    "path": path,
                    "dtype": "text" if field.kind == "text" else str(field.dtype),
                    "shape": list(field.shape),
                    "align": field.align,
                    "kind": "camera" if is_camera(field) else field.kind,
                }
                for path, field in self._data.spec.items()
            ],
            "cameras": self._cameras(),
            "spaces": {
                "observations": _text(self._data.spec.observation_space),
                "actions": _text(self._data.spec.action_space),
            },
            "metadata": {str(key): _text(value) for key, value in self._data.metadata.items()},
            "curation": self._curation_place(),
        }

    def mark(self, e: int, stated: object) -> dict[str, Any]:
        """Set the marks of an episode in the file of the curation, the only file that the viewer writes.

        Args:
            e: Number of the episode.
            stated: Marks as in the file.

        Returns:
            The marks.

        Raises:
            ArgumentError: There is no such episode, the marks are wrong, or there is no file for them.
            FormatError: The file is no curation.
            StateError: The file is for another dataset.
        """
        number = self._number(e)
        if self._file is None:
            raise ArgumentError(f"expected a file for marks: {self._no_curation}")
        marks = EpisodeMarks.from_json(stated)
        steps = int(self._data.episodes.length[e])
        if wrong := [span for span in marks.spans if span[1] >= steps]:
            raise ArgumentError(f"expected spans within the {steps} steps of the episode, got {wrong[0]}")
        with self._lock:
            try:
                with Curation.edit(self._file, self._data.source) as curation:
                    curation[number] = marks
            except OSError as error:
                raise ArgumentError(f"expected a file that can be written, got {error}") from error
            self._read_marks()
        return marks.to_json()

    def _read_marks(self) -> None:
        """Read the file of the curation again if somebody changed it. Each change makes another file (`files.atomic`).

        Cost: one call of the system if nothing changed.
        """
        if self._file is None:
            return
        try:
            status = self._file.stat()
        except FileNotFoundError:
            curation, version = Curation.of(self._data.source), ()
        else:
            version = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if version == self._version:
                return
            curation = Curation.read(self._file)
            curation.require(self._data.source)
        self._curation = curation
        self._version = version
        self._mark_columns = self._columns_of_marks()
        self._orders.clear()

    def _curation_place(self) -> dict[str, str]:
        return {"path": "" if self._file is None else str(self._file), "message": self._no_curation}

    def _columns_of_marks(self) -> dict[str, AnyArray]:
        """Columns of the table for marks: none without a file."""
        if self._file is None:
            return {}
        index = self._data.episodes.index
        return {"excluded": excluded_rows(self._curation, index), **curation_columns(self._curation, index)}

    def check(self) -> dict[str, Any]:
        """Findings, or how far the check is. The first call starts it in a thread."""
        with self._lock:
            if self._checking is None:
                self._checking = threading.Thread(target=self._check, name="penstock-check", daemon=True)
                self._checking.start()
            if self._failure:
                return {"state": "failed", "message": self._failure, "findings": []}
            if self._report is None:
                return {"state": "running", "findings": []}
            return {"state": "done", "findings": [finding.to_json() for finding in self._report.findings]}

    def _check(self) -> None:
        try:
            report = check(self._data, progress=False)
        except PenstockError as error:
            with self._lock:
                self._failure = str(error)
            return
        with self._lock:
            index = self._data.episodes.index
            measures = {name: np.asarray(values)[index] for name, values in report.measures.flat.items()}
            shown = {name: values for name, values in measures.items() if name != "length" and " of " not in name}
            self._table = {**self._table, **shown}
            self._orders.clear()
            self._report = report

    def wait_for_check(self, timeout: float | None = None) -> None:
        """Wait until the check is done, if it was started."""
        if self._checking is not None:
            self._checking.join(timeout)

    def episodes(
        self, *, where: str = "", sort: str = "", descending: bool = False, offset: int = 0, limit: int = 100
    ) -> dict[str, Any]:
        """Return a part of the table of episodes.

        Args:
            where: Condition, as for `EpisodeDataset.where`. The default is empty: all.
            sort: Column to sort by. The default is empty: the order of the dataset.
            descending: Whether the largest comes first; missing values are last in any case.
            offset: Rows to skip.
            limit: Most rows, at most 1,000.

        Returns:
            `total` rows that meet the condition, `columns`, and `rows`, whose first value is the number of the episode.

        Raises:
            PlanError: The condition is wrong.
            ArgumentError: There is no such column.
        """
        with self._lock:
            self._read_marks()
            table = self._listed()
            order = self._order(sort, descending=descending)
        if where:
            order = order[_mask(where, table, len(self._data))[order]]
        rows = order[max(offset, 0) : max(offset, 0) + min(max(limit, 0), MOST_ROWS)]
        values = [[_plain(value) for value in column[rows].tolist()] for column in table.values()]
        listed = [[int(row), *each] for row, *each in zip(rows.tolist(), *values, strict=True)]
        return {"total": len(order), "columns": ["episode", *table], "rows": listed}

    def _order(self, sort: str, *, descending: bool) -> IntArray:
        """`[E]` episodes by a column. Missing values are last."""
        if not sort or sort == "episode":
            every = np.arange(len(self._data))
            return every[::-1] if descending and sort else every
        table = self._listed()
        if sort not in table:
            known = list(table)
            raise ArgumentError(f"no column {sort!r} to sort by{suggestion(sort, known)}; there are {known}")
        key = f"{sort} {descending}"
        if key not in self._orders:
            values = table[sort]
            missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)
            ranked = np.argsort(values, kind="stable")
            ranked = ranked[::-1] if descending else ranked
            self._orders[key] = np.concatenate([ranked[~missing[ranked]], ranked[missing[ranked]]])
        return self._orders[key]

    def _listed(self) -> dict[str, AnyArray]:
        """Columns of the table and of marks. A column of metadata with the name of a mark stays."""
        return self._table | {name: v for name, v in self._mark_columns.items() if name not in self._table}

    def histogram(self, column: str, *, where: str = "", bins: int = 40) -> dict[str, Any]:
        """Return a histogram of a column of the table: `edges` `[bins + 1]` and `counts` `[bins]`.

        Raises:
            ArgumentError: There is no such column.
            PlanError: The condition is wrong.
        """
        with self._lock:
            self._read_marks()
            table = self._listed()
        if column not in table:
            raise ArgumentError(f"no column {column!r}{suggestion(column, table)}; there are {list(table)}")
        values = table[column].astype(np.float64)
        if where:
            values = values[_mask(where, table, len(self._data))]
        values = values[np.isfinite(values)]
        if not len(values):
            return {"edges": [], "counts": []}
        counts, edges = np.histogram(values, bins=min(max(bins, 1), 200))
        return {"edges": edges.tolist(), "counts": counts.tolist()}

    def episode(self, e: int) -> dict[str, Any]:
        """Return length, metadata, cameras and curves of an episode.

        Raises:
            ArgumentError: There is no such episode.
        """
        number = self._number(e)
        entries: Mapping[str, Any] = self._data.source.episode_metadata([number])[0]
        steps = int(self._data.episodes.length[e])
        with self._lock:
            self._read_marks()
            all_findings = () if self._report is None else self._report.findings
            known = number < self._curation.episodes  # others were appended since the file was written
            marks = self._curation[number].to_json() if known else {}
        findings = [
            {"name": f.name, "level": f.level, "message": f.message, "column": f.column, "row": row}
            for f in all_findings
            for episode, row in zip(f.episodes, f.rows or (0,) * len(f.episodes), strict=True)
            if episode == number
        ]
        return {
            "episode": e,
            "steps": steps,
            "rate": self._rate(number),
            "metadata": {str(key): _text(value) for key, value in entries.items()},
            "cameras": self._cameras(),
            "curves": [path for path, field in self._data.spec.items() if _is_curve(field)],
            "texts": self._texts(number),
            "findings": findings,
            "marks": marks,
            "curation": self._curation_place(),
        }

    def series(self, e: int, column: str, *, first: int = 0, last: int | None = None, points: int = 2000) -> AnyArray:
        """Return rows of a column as curves.

        Args:
            e: Number of the episode.
            column: Path of a column of numbers.
            first: First row.
            last: Row after the last. The default is None: the end.
            points: Most points of a curve. With more rows, each point has the smallest and largest value of its rows.

        Returns:
            `[n, 2, k]` float32: smallest and largest value of each point, for the first `k <= 16` elements of a row.

        Raises:
            ArgumentError: There is no such episode or curve.
        """
        number = self._number(e)
        field = self._data.spec.fields.get(column)
        if field is None or not _is_curve(field):
            raise ArgumentError(f"no curve {column!r}{suggestion(column, self._data.spec)}")
        begin, end = self._data.source.episode_rows(field.align, number)
        stop = end if last is None else min(begin + max(last, 0), end)
        start = min(begin + max(first, 0), stop)
        rows = self._rows(column, start, stop).reshape(stop - start, -1)[:, :MOST_ELEMENTS].astype(np.float32)
        if len(rows) <= max(points, 1):
            return np.stack([rows, rows], axis=1)
        cuts = np.linspace(0, len(rows), max(points, 1), endpoint=False).astype(np.int64)
        with np.errstate(invalid="ignore"):
            return np.stack([np.minimum.reduceat(rows, cuts), np.maximum.reduceat(rows, cuts)], axis=1)

    def picture(self, e: int, camera: str, row: int) -> bytes:
        """Return the picture of a camera at a row as JPEG. Of a stack of frames, the newest.

        Raises:
            ArgumentError: There is no such episode, camera or row.
            MissingExtraError: Pillow is not installed.
        """
        number = self._number(e)
        if camera not in self._cameras():
            raise ArgumentError(f"no camera {camera!r}{suggestion(camera, self._cameras())}")
        begin, end = self._data.source.episode_rows(self._data.spec[camera].align, number)
        if not 0 <= row < end - begin:
            raise ArgumentError(f"expected a row within 0:{end - begin}, got {row}")
        frame = pictures(self._rows(camera, begin + row, begin + row + 1))[0, -1]
        return encode(frame, "jpeg", quality=QUALITY)

    def _rows(self, column: str, first: int, last: int) -> AnyArray:
        one = np.ones(1, np.int64)
        selection = Selection(one * 0, one * first, one * (last - first), one * 0, (1, last - first))
        rows = self._data.source.read([column], selection)[column]
        return np.asarray(rows)[0]

    def _number(self, e: int) -> int:
        """The number of an episode in the source."""
        if not 0 <= e < len(self._data):
            raise ArgumentError(f"expected an episode within 0:{len(self._data)}, got {e}")
        return int(self._data.episodes.index[e])

    def _cameras(self) -> list[str]:
        return [path for path, field in self._data.spec.items() if is_camera(field)]

    def _texts(self, number: int) -> dict[str, str]:
        """The first row of each column of text."""
        texts: dict[str, str] = {}
        for path, field in self._data.spec.items():
            begin, end = self._data.source.episode_rows(field.align, number)
            if field.kind == "text" and end > begin:
                one = np.ones(1, np.int64)
                rows = self._data.source.read_ragged(path, Selection(one * 0, one * begin, one, one * 0, (1, 1)))
                texts[path] = Ragged(rows.values, rows.offsets).strings()[0]
        return texts

    def _rate(self, number: int) -> float:
        """Steps a second: as the dataset states it, or by the timestamps in seconds of the episode; else 10."""
        stated = self._data.metadata.get("fps")
        if isinstance(stated, int | float) and stated > 0:
            return float(stated)
        for path, field in self._data.spec.items():
            if is_clock(path, field) and field.dtype.kind == "f":
                begin, end = self._data.source.episode_rows(field.align, number)
                times = self._rows(path, begin, min(end, begin + 1000)).astype(np.float64).reshape(-1)
                usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
                if 1e-3 < usual < 10:
                    return 1 / usual
        return 10.0


def _is_curve(field: Field) -> bool:
    return field.kind == "array" and field.align != "episode" and field.dtype.kind in "biuf" and not is_camera(field)


def _mask(where: str, table: Mapping[str, AnyArray], episodes: int) -> AnyArray:
    """`[E]` bool. Raises `PlanError`."""
    mask = np.asarray(evaluate(where, Columns(dict(table))))
    if mask.dtype != np.bool_:
        raise PlanError(f"expected a condition, got {where!r}; compare with something")
    return np.broadcast_to(mask, episodes)


def _plain(value: Any) -> Any:
    """A number for JSON: None in place of NaN and infinity."""
    return value if not isinstance(value, float) or np.isfinite(value) else None


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= MOST_ROWS else text[: MOST_ROWS - 3] + "..."
