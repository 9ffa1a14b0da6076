"""`ViewedDataset`: contents of the pages of one dataset, as plain data and arrays.

Everything comes from the dataset and the report of its check; nothing of the data is executed. The table of episodes
and the order by each column are computed once, so that listing 10^6 episodes takes some milliseconds. The check runs in
another thread, and its measures join the table when it is done. Methods may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, Int32Array, IntArray
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.data.curated import curation_columns, excluded_rows, excluded_steps
from penstock.data.curation import Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.episode_marks import EpisodeMarks
from penstock.data.statistics import equal_bins
from penstock.doctor.block import is_camera
from penstock.doctor.examine import CheckedBlock, Examination, Report
from penstock.errors import ArgumentError, PenstockError, PlanError, suggestion
from penstock.flow import OrderedMap, PrefetchLimits, cores
from penstock.plan.where import evaluate
from penstock_studio.viewer.column_figures import column_figures
from penstock_studio.viewer.episode_contents import EpisodeContents
from penstock_studio.viewer.predictions import Predictions

MOST_ROWS = 1000  # of one answer
MOST_WORDS = 100  # columns of tags, and of spans, that the table of episodes has
_LOG = logging.getLogger(__name__)


class ViewedDataset:
    """A dataset with the answers for its pages."""

    def __init__(
        self,
        name: str,
        location: str,
        format: str,
        data: EpisodeDataset,
        *,
        curation: Path | None = None,
        no_curation: str = "",
        view: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._location = location
        self._format = format
        self._data = data
        self.contents = EpisodeContents(data, view)
        self._lock = threading.Lock()
        self._figuring = threading.Lock()
        self._figures: dict[str, Any] = {}
        self._table: dict[str, AnyArray] = {
            name: np.asarray(values) for name, values in data.table().flat.items() if name != "id"
        }
        self._orders: dict[str, tuple[Int32Array, int]] = {}  # by column, see `_ranked`
        self._file = curation
        self._no_curation = no_curation
        self._curation = Curation.of(data.source)
        self._version: tuple[int, ...] = ()  # of the file of the curation
        self._mark_columns = self._columns_of_marks()
        self._read_marks()
        self._report: Report | None = None
        self._failure = ""
        self._checking: threading.Thread | None = None
        self._stopping = threading.Event()
        self._progress = 0.0  # share of the check that is done

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the source."""
        return self._data.source.fingerprint

    def add_predictions(self, predicted: EpisodeDataset, place: str) -> None:
        """Draw what a policy predicts over the curves."""
        self.contents.predictions = Predictions(predicted, self._data, place)

    def summary(self) -> dict[str, Any]:
        """Name, format and size."""
        return {
            "name": self.name,
            "location": self._location,
            "format": self._format,
            "episodes": len(self._data),
            "steps": self._data.total_steps,
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
            "cameras": self.contents.cameras,
            "spaces": {
                "observations": _text(self._data.spec.observation_space),
                "actions": _text(self._data.spec.action_space),
            },
            "metadata": {str(key): _text(value) for key, value in self._data.metadata.items()},
            "curation": self._curation_place(),
        }

    def figures(self) -> dict[str, Any]:
        """Means, extremes and histograms of the columns, computed once: see `column_figures`."""
        with self._figuring:
            self._figures = self._figures or column_figures(self._data)
            return self._figures

    def mark(self, e: int, after: object, before: object = None) -> dict[str, Any]:
        """Change the marks of an episode in the file of the curation, the only file that the viewer writes."""
        number = self.contents.number(e)
        if self._file is None:
            raise ArgumentError(f"expected a file for marks: {self._no_curation}")
        marks = EpisodeMarks.from_json(after)
        seen = None if before is None else EpisodeMarks.from_json(before)
        steps = int(self._data.episodes.length[e])
        if wrong := [span for span in (*marks.spans, *marks.excluded_spans) if span[1] >= steps]:
            raise ArgumentError(f"expected spans within the {steps} steps of the episode, got {wrong[0]}")
        with self._lock:
            try:
                with Curation.edit(self._file, self._data.source) as curation:
                    if seen is not None:
                        marks = curation[number].changed(seen, marks)
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
            if not self._version:
                return
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
        self._orders = {name: order for name, order in self._orders.items() if name in self._table}

    def _curation_place(self) -> dict[str, str]:
        path = "" if self._file is None else str(self._file)
        words = {tag for _, marks in self._curation.marks() for tag in marks.tags}
        if self._no_curation or len(words) <= MOST_WORDS:
            return {"path": path, "message": self._no_curation}
        return {
            "path": path,
            "message": f"the table has the {MOST_WORDS} tags of most episodes, of {len(words):,} tags",
        }

    def _columns_of_marks(self) -> dict[str, AnyArray]:
        """Columns of the table for marks: none without a file."""
        if self._file is None:
            return {}
        index = self._data.episodes.index
        columns: dict[str, AnyArray] = {"excluded": excluded_rows(self._curation, index)}
        steps = excluded_steps(self._curation, index)
        if steps.any():
            columns["excluded_steps"] = steps
        return {**columns, **curation_columns(self._curation, index, MOST_WORDS)}

    def check(self) -> dict[str, Any]:
        """Findings, or how far the check is. The first call starts it in a thread."""
        with self._lock:
            if self._checking is None:
                self._checking = threading.Thread(target=self._check, name="penstock-check", daemon=True)
                self._checking.start()
            if self._failure:
                return {"state": "failed", "message": self._failure, "findings": []}
            if self._report is None:
                return {"state": "running", "progress": self._progress, "findings": []}
            return {"state": "done", "findings": [finding.to_json() for finding in self._report.findings]}

    def _check(self) -> None:
        examination = Examination(self._data.source)
        blocks = range(len(examination.weights()))
        limits = PrefetchLimits(max(cores() // 2, 1))  # the other cores answer requests
        try:
            with OrderedMap(examination.check, blocks, limits, name="penstock-check") as checked:
                report = examination.report(self._counted(checked, len(blocks)))
        except Exception as error:  # noqa: BLE001 - any error ends the check, and the page has to say so
            if not isinstance(error, PenstockError | _StoppedCheck):
                _LOG.exception("the check of %s failed", self._location)
            with self._lock:
                self._failure = str(error) or type(error).__name__
            return
        index = self._data.episodes.index
        measures = {name: np.asarray(values)[index] for name, values in report.measures.flat.items()}
        shown = {name: values for name, values in measures.items() if name != "length" and " of " not in name}
        listed = np.concatenate([np.zeros(0, np.int64), *(np.unique(each.episodes) for each in report.findings)])
        shown["findings"] = np.bincount(listed.astype(np.int64), minlength=len(self._data.source))[index]
        orders = {name: _ranked(values) for name, values in shown.items()}  # before requests need them
        with self._lock:
            self._table = {**self._table, **shown}
            self._orders = orders
            self._report = report

    def _counted(self, checked: Iterable[CheckedBlock], count: int) -> Iterator[CheckedBlock]:
        """The blocks. Sets the progress, and raises `_StoppedCheck` after `stop_check`."""
        for number, block in enumerate(checked, 1):
            if self._stopping.is_set():
                raise _StoppedCheck("the check was stopped")
            self._progress = number / count
            yield block

    def stop_check(self) -> None:
        """Stop the check, if one is in work, and wait until it has stopped: some seconds at most."""
        self._stopping.set()
        self.wait_for_check()

    def wait_for_check(self, timeout: float | None = None) -> None:
        """Wait until the check is done, if it was started."""
        if self._checking is not None:
            self._checking.join(timeout)

    def episodes(
        self, *, where: str = "", sort: str = "", descending: bool = False, offset: int = 0, limit: int = 100
    ) -> dict[str, Any]:
        """Return a part of the table of episodes."""
        with self._lock:
            self._read_marks()
            table = self._listed()
            order = self._order(sort, descending=descending)
            measured = self._report is not None
        if where:
            order = order[_mask(where, table, len(self._data))[order]]
        rows = order[max(offset, 0) : max(offset, 0) + min(max(limit, 0), MOST_ROWS)]
        values = [[_plain(value) for value in column[rows].tolist()] for column in table.values()]
        listed = [[int(row), *each] for row, *each in zip(rows.tolist(), *values, strict=True)]
        return {"total": len(order), "columns": ["episode", *table], "rows": listed, "measured": measured}

    def _order(self, sort: str, *, descending: bool) -> IntArray | Int32Array:
        """`[E]` episodes by a column. Missing values are last."""
        if not sort or sort == "episode":
            every = np.arange(len(self._data))
            return every[::-1] if descending and sort else every
        table = self._listed()
        if sort not in table:
            known = list(table)
            raise ArgumentError(f"no column {sort!r} to sort by{suggestion(sort, known)}; there are {known}")
        if sort not in self._orders:
            self._orders[sort] = _ranked(table[sort])
        ranked, known_rows = self._orders[sort]
        return np.concatenate([ranked[:known_rows][::-1], ranked[known_rows:]]) if descending else ranked

    def _listed(self) -> dict[str, AnyArray]:
        """Columns of the table and of marks. A column of metadata with the name of a mark stays."""
        return self._table | {name: v for name, v in self._mark_columns.items() if name not in self._table}

    def histogram(self, column: str, *, where: str = "", bins: int = 40) -> dict[str, Any]:
        """Return a histogram of a column of the table: `edges` `[bins + 1]` and `counts` `[bins]`."""
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
        counts, edges = equal_bins(values, min(max(bins, 1), 200), float(values.min()), float(values.max()))
        return {"edges": edges.tolist(), "counts": counts.tolist()}

    def episode(self, e: int) -> dict[str, Any]:
        """Return length, metadata, cameras and curves of an episode."""
        number = self.contents.number(e)
        entries: Mapping[str, Any] = self._data.source.episode_metadata([number])[0]
        steps = int(self._data.episodes.length[e])
        with self._lock:
            self._read_marks()
            is_checked = self._report is not None
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
            "episodes": len(self._data),
            "steps": steps,
            "rate": self.contents.rate(number),
            "metadata": {str(key): _text(value) for key, value in entries.items()},
            "cameras": self.contents.cameras_of(number),
            "curves": self.contents.curves,
            "columns": self.contents.columns,
            "text_columns": self.contents.texts,
            "predicted": {} if self.contents.predictions is None else self.contents.predictions.steps,
            "view": self.contents.view_name,
            "texts": self._texts(number),
            "findings": findings,
            "checked": is_checked,
            "marks": marks,
            "curation": self._curation_place(),
        }

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


class _StoppedCheck(Exception):
    """The viewer closes."""


def _ranked(values: AnyArray) -> tuple[Int32Array, int]:
    """`[E]` episodes by their values, missing values last, and how many are not missing. Cost: a sort."""
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)
    ranked = np.argsort(values, kind="stable").astype(np.int32)  # NaN is sorted last
    return ranked, len(values) - int(np.count_nonzero(missing))


def _mask(where: str, table: Mapping[str, AnyArray], episodes: int) -> AnyArray:
    """`[E]` bool."""
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
