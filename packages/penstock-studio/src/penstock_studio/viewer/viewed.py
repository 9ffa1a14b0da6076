"""`ViewedDataset`: contents of the pages of one dataset, as plain data and arrays.

Everything comes from the dataset and the report of its check; nothing of the data is executed. The table of episodes
and the order by each column are computed once, so that listing 10^6 episodes takes some milliseconds. The check runs in
another thread, and its measures join the table when it is done. Methods may be called from any thread.
"""

from __future__ import annotations

import json
import logging
import shlex
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.cli.info import bytes_at
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_mapping
from penstock.core.spec import is_camera
from penstock.data.curated import curation_columns, excluded_rows, excluded_steps
from penstock.data.curation import Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.dataset_facts import column_figures, first_texts, text_counts
from penstock.data.episode_marks import EpisodeMarks
from penstock.doctor.examine import CheckedBlock, Examination, Report
from penstock.errors import ArgumentError, PenstockError
from penstock.flow import OrderedMap, PrefetchLimits, cores
from penstock.formats.base.findings import finding_kind
from penstock.formats.base.infos import plain
from penstock_studio.viewer.agreement import agreement
from penstock_studio.viewer.episode_contents import EpisodeContents
from penstock_studio.viewer.episode_table import Asked, EpisodeTable
from penstock_studio.viewer.predictions import Predictions
from penstock_studio.viewer.thumbnails import shown_episodes

LONGEST = 1000  # characters of an entry of the metadata
MOST_LEFT_OUT = 100  # entries of the account that are listed
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
        unmarked = EpisodeTable(data)
        self._file = curation
        self._no_curation = no_curation
        self._curation = Curation.of(data.source)
        self._version: tuple[int, ...] = ()  # of the file of the curation
        self._table = unmarked.with_marks(self._columns_of_marks())
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
        stated = self._data.metadata.get("units")
        units: Mapping[str, Any] = stated if is_mapping(stated) else {}
        return {
            **self.summary(),
            "columns": [
                {
                    "path": path,
                    "dtype": "text" if field.kind == "text" else str(field.dtype),
                    "shape": list(field.shape),
                    "align": field.align,
                    "unit": units.get(path, ""),
                    "kind": "camera" if is_camera(field) else field.kind,
                }
                for path, field in self._data.spec.items()
            ],
            "cameras": self.contents.cameras,
            "view": self.contents.view_name,
            "curves": self.contents.curves,
            "spaces": {
                "observations": _text(self._data.spec.observation_space),
                "actions": _text(self._data.spec.action_space),
            },
            "metadata": {str(key): _text(value) for key, value in self._data.metadata.items()},
            "curation": self._curation_place(),
        }

    def overview(self) -> dict[str, Any]:
        """Size, ends of episodes, entries that the reader left out, texts, and frames to show."""
        source = self._data.source
        account, place = source.account, source.location
        return {
            "bytes": bytes_at(place) if isinstance(place, Path) and place.exists() else None,
            "ends": account.ends,
            "left_out": [{**entry.to_json(), "level": entry.level} for entry in account.left_out[:MOST_LEFT_OUT]],
            "left_out_entries": len(account.left_out),
            "texts": text_counts(self._data),
            "frames": shown_episodes(self.contents, self._data.episodes.length),
        }

    def selection(self, asked: Asked) -> dict[str, Any]:
        """Return the episodes that a page shows, and how Python and the command line choose the same ones."""
        table = self.table()
        numbers = sorted(table.numbers(asked).tolist())
        curation = "" if self._file is None or not self._file.exists() else str(self._file)
        opened = f"penstock.open({self._location!r}{f', curation={curation!r}' if curation else ''})"
        is_known = table.in_python(asked)
        if is_known:
            lines = ["import penstock", "", f"data = {opened}"]
            chosen = f"data.filter({asked.where!r})" if asked.where else "data"
        else:
            lines = ["import numpy as np", "import penstock", "", f"data = {opened}"]
            chosen = f"data.filter(lambda table: np.isin(table['id'], {numbers}))"
        words = ["penstock", "convert", self._location, "OUT", *(["--where", asked.where] if asked.where else [])]
        words += ["--curation", curation] if curation else []
        return {
            "python": "\n".join([*lines, f"chosen = {chosen}", ""]),
            "command": shlex.join(words) if is_known else "",
            "export": f"penstock export {shlex.quote(self._location)} -o {self.name}.html",
            "serve": f"penstock serve {shlex.quote(self._location)} --read-only --no-browser",
            "episodes": numbers,
            "excluded": sorted(e for e, marks in self._curation.marks() if marks.excluded),
        }

    def figures(self) -> dict[str, Any]:
        """Means, extremes and histograms of the columns, computed once: see `column_figures`."""
        with self._figuring:
            self._figures = self._figures or column_figures(self._data)
            return self._figures

    def mark(self, e: int, after: object, before: object = None, *, file: str | None = None) -> dict[str, Any]:
        """Change the marks of an episode in the file of the curation, the only file that the viewer writes.

        A change for another `file`, which an earlier server had, is refused.
        """
        number = self.contents.number(e)
        if file is not None and file != str(self._file):
            raise ArgumentError(f"expected a change of {self._file}, got one of {file}; open the page again")
        if self._file is None or self._no_curation:
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

    def agreement(self, stated: object) -> dict[str, Any]:
        """Compare the marks with the file of another person, as plain data."""
        other = Curation.from_json(stated)
        other.require(self._data.source)
        with self._lock:
            self._read_marks()
            return agreement(self._curation, other)

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
        self._table = self._table.with_marks(self._columns_of_marks())

    def _curation_place(self) -> dict[str, str]:
        path = "" if self._file is None or self._no_curation else str(self._file)
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
            return {"state": "done", "findings": self._findings(self._report)}

    def _findings(self, report: Report) -> list[dict[str, Any]]:
        """Findings with their meanings. Findings of the account, which the page also lists, are `left_out`."""
        left_out = {(entry.reason, entry.where) for entry in self._data.source.account.left_out}
        listed: list[dict[str, Any]] = []
        for finding in report.findings:
            kind = finding_kind(finding.name)
            about = {"meaning": kind.meaning, "remedy": kind.remedy}
            listed.append({**finding.to_json(), **about, "left_out": (finding.name, finding.where) in left_out})
        return listed

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
        numbers: dict[str, list[int]] = {}
        for finding in report.findings:
            numbers.setdefault(finding.name, []).extend(finding.episodes)
        of_findings = {name: np.array(episodes, np.int64) for name, episodes in numbers.items()}
        measured = self._table.with_measures(shown, of_findings)  # ranks them before requests need them
        with self._lock:
            self._table = measured.with_marks(self._columns_of_marks())
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

    def table(self) -> EpisodeTable:
        """The table of episodes as it is now: with the marks in the file, and the measures when the check is done."""
        with self._lock:
            self._read_marks()
            return self._table

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
            "boundary": self.contents.has_boundary,
            "rate": self.contents.rate(number),
            "metadata": {str(key): _text(value) for key, value in entries.items()},
            "cameras": self.contents.cameras_of(number),
            "curves": self.contents.curves,
            "columns": self.contents.columns,
            "text_columns": self.contents.texts,
            "predicted": {} if self.contents.predictions is None else self.contents.predictions.steps,
            "view": self.contents.view_name,
            "texts": self._texts(e),
            "findings": findings,
            "checked": is_checked,
            "marks": marks,
            "curation": self._curation_place(),
        }

    def _texts(self, e: int) -> dict[str, str]:
        """The first row of each column of text."""
        paths = [path for path, field in self._data.spec.items() if field.kind == "text"]
        return {path: text for path in paths for text in first_texts(self._data, path, e)}


class _StoppedCheck(Exception):
    """The viewer closes."""


def _text(value: object) -> str:
    """A value of the metadata in the words of a person: lists without brackets, and what is in others as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list | tuple) and all(isinstance(each, str | float | int) for each in value):
        text = ", ".join(map(str, value))
    else:
        text = json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
