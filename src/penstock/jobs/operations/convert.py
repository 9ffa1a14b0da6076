"""Conversion in parts: a job writes and compares the episodes of its range, and `finish` moves the parts together.

A job writes to `<out>.parts/<digest>/<first>-<last>`, a folder that appears when the part is complete and compared. A
second copy of the job finds it, and returns its summary. No values are copied when the parts are joined, so `finish`
takes seconds, and the certificate has the digests that the jobs made of the parts when they read them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.conversion.certificate import Certificate, Comparison
from penstock.conversion.job import (
    ConversionJob,
    ConversionProgress,
    check_kept,
    check_lossless,
    check_options,
    column_bytes,
    conversion_job,
    write_episodes,
)
from penstock.conversion.mark import check_apart, found_at
from penstock.conversion.report import ConversionReport, Note
from penstock.conversion.targets import target_of
from penstock.core.arrays import IntArray
from penstock.core.ragged import offsets_of
from penstock.errors import DataError, FormatError
from penstock.files import atomic_path, move
from penstock.formats.base.format import PartStart, format_to_write
from penstock.jobs.dataset import ChosenDataset
from penstock.jobs.operation import Operation
from penstock.jobs.packed import pack, unpack
from penstock.jobs.staging import StagingFolder, local_target

LEAST_PART = 64 << 20
SUMMARY = "summary"
JOINED = "joined"
VALUES = "values"


class ConvertOperation(Operation):
    """`penstock.convert` of a dataset. A block is an episode.

    Args:
        arguments: Fields of `ChosenDataset`; `out`, `to`, `writer`, `drop`, `rename`, `fill_missing`, `certificate` and
            `require` as `out`, `format`, `options` and others of `penstock.convert`.
    """

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._out = place = local_target(arguments["out"])
        self._format = format_to_write(place, arguments.get("to"))
        self._options = dict(arguments.get("writer") or {})
        if (refusal := self._format.parts_refusal(place, **self._options)) is not None:
            raise DataError(f"expected a target that can be written in parts, got {self._format.name!r}: {refusal}")
        self._certified = bool(arguments.get("certificate", True))
        self._lossless = arguments.get("require") is not None
        self._data = ChosenDataset.of(arguments).open()
        self._staging = StagingFolder(arguments["out"], arguments, self.fingerprint)
        self._answers: dict[str, Any] = unpack(survey) if survey else {}
        try:
            self._job = self._make_job(arguments)
        except BaseException:
            self._data.close()
            raise

    def _make_job(self, arguments: Mapping[str, Any]) -> ConversionJob:
        data = self._data
        if not len(data):
            raise DataError(f"expected episodes to convert in parts, got none: {data.episodes.reason}")
        check_apart(arguments["location"], data.source, self._out)
        if self._staging.is_closed:
            found_at(self._out, self._format)  # refuses what no conversion wrote, before the data are read
        target = target_of(self._format.name, self._options)
        check_options(target, self._options)
        rename, fill = dict(arguments.get("rename") or {}), bool(arguments.get("fill_missing"))
        drop = arguments.get("drop") or ()
        job = conversion_job(data, target, self._options, drop, rename, fill=fill, answers=self._answers)
        if self._lossless:
            check_lossless(job, arguments["require"], certificate=self._certified)
        self._steps = offsets_of(data.episodes.length)
        self._values = self._values_before(job) if self._format.places_values else {}
        return job

    def _values_before(self, job: ConversionJob) -> dict[str, IntArray]:
        """For each ragged column that stays as it is, how many values are before each episode. None if spans of
        episodes are excluded: the format then does with less."""
        if VALUES not in self._answers:
            episodes, source = self._data.episodes, self._data.source
            kept = {path: job.draft.origins.get(path, path) for path, field in job.spec.items() if field.ragged}
            whole = episodes.first_step is None
            self._answers[VALUES] = {
                path: offsets_of(
                    np.diff(source.value_offsets(origin)[source.rows(source.spec[origin].align)])[episodes.index]
                )
                for path, origin in kept.items()
                if whole and origin in source.spec and source.spec[origin].ragged
            }
        return self._answers[VALUES]

    @property
    @override
    def fingerprint(self) -> str:
        return self._data.episodes.fingerprint

    @property
    @override
    def least_bytes(self) -> int:
        return LEAST_PART

    @override
    def weights(self) -> IntArray:
        row_bytes = sum(field.row_bytes for field in self._data.spec.values())
        return (self._data.episodes.length + 1) * max(row_bytes, 64)

    @override
    def survey(self) -> bytes:
        return pack(self._answers)

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        part = self._staging.make() / f"{first:012d}-{last:012d}"
        if not part.exists():
            with suppress(FileExistsError), atomic_path(part, durable="folder") as folder:  # or a second copy was first
                folder.mkdir()
                (folder / SUMMARY).write_bytes(self._write(folder / self._out.name, first, last))
        return (part / SUMMARY).read_bytes()

    def _write(self, path: Path, first: int, last: int) -> bytes:
        """Write a part, read it again, and return its summary."""
        job = replace(self._job, notes=dict(self._job.notes))  # notes of this range alone
        tally = ConversionProgress(first, 0, 0)
        start = PartStart(
            first, int(self._steps[first]), {path: int(counts[first]) for path, counts in self._values.items()}
        )
        with self._format.begin_part(path, job.spec, job.metadata, start, **self._options) as writer:
            write_episodes(job, writer, tally, last)
        compared: dict[str, Any] = {}
        if self._certified:
            with self._format.open_part(path) as written:
                begin = len(written) - (last - first)  # other episodes may be before them, with their places
                if begin not in (0, first) or written.steps - written.offsets[begin] != tally.steps:
                    raise FormatError(f"expected {last - first} episodes of {tally.steps} steps, got others", path=path)
                comparison = Comparison(self._data, written, job.draft, job.draft.notes)
                comparison.compare(written.episodes(range(begin, len(written))), first, last)
                compared = comparison.state()
        notes = [astuple(note) for note in job.notes]
        return pack({"part": path.parent.name, "bytes": tally.bytes, "notes": notes, "compared": compared})

    @override
    def has_part(self, result: bytes) -> bool:
        return self._staging.has_part(unpack(result)["part"])

    @override
    def finish(self, results: Iterable[bytes]) -> ConversionReport:
        notes = dict(self._job.notes)
        total = 0
        parts: list[Path] = []
        compared: list[dict[str, Any]] = []
        for result in results:
            summary: dict[str, Any] = unpack(result)
            parts.append(self._staging.path / summary["part"] / self._out.name)
            total += summary["bytes"]
            notes.update(dict.fromkeys(Note(*note) for note in summary["notes"]))
            compared.append(summary["compared"])
        with self._staging.merging():
            self._join(parts)
            return self._report(total, tuple(notes), compared)

    def _report(self, total: int, notes: tuple[Note, ...], compared: list[dict[str, Any]]) -> ConversionReport:
        """Look at the target, write its certificate, and return the report."""
        episodes, steps = len(self._data), self._data.steps
        report = ConversionReport(self._out, self._format.name, "converted", episodes, steps, total, 0, notes)
        with self._format.open(self._out) as target:
            if len(target) != episodes or target.steps != steps:
                raise FormatError(f"expected {episodes} episodes of {steps} steps, got others", path=self._out)
            if self._certified:
                comparison = Comparison(self._data, target, self._job.draft, notes)
                for state in compared:
                    comparison.add(state)
                proof = comparison.certificate(target, notes)
                check_kept(proof, self._out, lossless=self._lossless)
                proof.write(self._out)
                report = replace(report, certificate=proof)
        return report

    @override
    def finished(self) -> ConversionReport | None:
        if not self._staging.is_closed or (mark := found_at(self._out, self._format)) is None:
            return None
        with self._format.open(self._out) as target:
            episodes, steps = len(target), target.steps
        if mark != self._job.mark or episodes != len(self._data):
            raise FileExistsError(
                f"expected nothing at {self._out}, got the dataset of another conversion, or of one without jobs that "
                "was interrupted; remove it, or choose another place"
            )
        proof = Certificate.read(self._out) if self._certified else None
        if proof is not None:
            check_kept(proof, self._out, lossless=self._lossless)
        total = column_bytes(self._job.spec, episodes, steps)
        notes = tuple(dict.fromkeys((*self._job.notes, *(() if proof is None else proof.notes))))
        self._staging.remove()  # leftovers of a killed process
        return ConversionReport(
            self._out, self._format.name, "complete", episodes, steps, total, episodes, notes, proof
        )

    def _join(self, parts: list[Path]) -> None:
        """Move the parts together; nothing if an earlier call, which was killed, did so."""
        if self._out.exists() or self._out.is_symlink():
            mark = found_at(self._out, self._format)
            if mark is None:
                raise FileExistsError(f"expected nothing at {self._out}, got a dataset that no conversion wrote")
            self._job.mark.check(mark, self._out)
            return
        staged = self._staging.path / JOINED / self._out.name
        staged.parent.mkdir(exist_ok=True)
        self._format.join_parts(parts, staged, self._out)
        move(staged, self._out, overwrite=False)

    @override
    def describe(self, first: int, last: int) -> str:
        return f"episodes {first} to {last - 1}"

    @override
    def close(self) -> None:
        self._data.close()
