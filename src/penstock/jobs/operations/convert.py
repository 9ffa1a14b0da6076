"""Conversion in parts: a job writes and compares the episodes of its range, and `finish` moves the parts together.

A job writes to `<out>.parts/<digest>/<first>-<last>`, a folder that appears when the part is complete and compared. A
second copy of the job finds it, and returns its summary. No values are copied when the parts are joined, so `finish`
takes seconds, and the certificate has the digests that the jobs made of the parts when they read them again. Parts of a
target at a URL are objects there, which `finish` fetches (`RemoteStaging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.conversion.certificate import Certificate, Comparison
from penstock.conversion.convert import ConversionReport
from penstock.conversion.draft import Note
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
from penstock.core.arrays import IntArray
from penstock.core.ragged import offsets_of
from penstock.core.spec import Field
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.dataset import EpisodeDataset, mapped_episodes, selection_of
from penstock.data.episode_map import EpisodeMap
from penstock.data.mapped import computed_columns
from penstock.errors import DataError, FormatError, SpecError
from penstock.files import move
from penstock.formats.base.format import format_to_write
from penstock.formats.base.writer import PartStart, PartWriter
from penstock.jobs.operation import Operation, pack, unpack
from penstock.jobs.staging import RemoteStaging, StagingFolder
from penstock.locations.hub import DATASETS
from penstock.locations.location import Url, output_place
from penstock.locations.upload import upload_path

LEAST_PART = 64 << 20
LISTED = 5  # episodes, after the first
JOINED = "joined"
VALUES = "values"
FIELDS = "fields"
TARGET = "target"


class ConvertOperation(Operation):
    """`penstock.convert` of a dataset. A block is an episode."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        place = output_place(arguments["out"])
        self._out = upload_path(place) if isinstance(place, Url) else place  # where the parts are joined
        self._answers: dict[str, Any] = unpack(survey) if survey else {}
        self._format = format_to_write(self._out, arguments.get("to") or self._answers.get(TARGET))
        self._answers[TARGET] = self._format.name  # a worker need not import all formats to choose this one
        self._options = dict(arguments.get("writer") or {})
        if (refusal := self._format.parts_refusal(self._out, **self._options)) is not None:
            raise DataError(f"expected a target that can be written in parts, got {self._format.name!r}: {refusal}")
        self._certified = bool(arguments.get("certificate", True))
        self._lossless = arguments.get("require") is not None
        self._data = self._open(arguments)
        self._staging = _staging(arguments, self.fingerprint)
        try:
            self._job = self._make_job(arguments)
        except BaseException:
            self._data.close()
            raise

    def _open(self, arguments: Mapping[str, Any]) -> EpisodeDataset:
        """Open the dataset. If a function changes its episodes, that is found here, on every machine."""
        data = ChosenDataset.of(arguments).open()
        if (entries := arguments.get("map")) is None:
            return data
        try:
            known: dict[str, Any] | None = self._answers.get(FIELDS)
            fields = None if known is None else {path: Field.from_json(field) for path, field in known.items()}
            mapped = mapped_episodes(data, EpisodeMap.of_entries(entries), fields)
            computed = computed_columns(mapped.source)
            self._answers[FIELDS] = {path: mapped.spec[path].to_json() for path in computed}
            return mapped
        except BaseException:
            data.close()
            raise

    @property
    @override
    def runs_user_code(self) -> bool:
        return "map" in self.arguments

    def _make_job(self, arguments: Mapping[str, Any]) -> ConversionJob:
        data = self._data
        if not len(data):
            raise DataError(f"expected episodes to convert in parts, got none: {data.episodes.reason}")
        check_apart(arguments["location"], data.source, self._out)
        if self._staging.is_closed:
            # This refuses what no conversion wrote, before the data are read.
            found_at(self._staging.target_path(), self._format)
        target = self._format.target(self._options)
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
            if computed := [origin for origin in kept.values() if origin in computed_columns(source)]:
                raise DataError(
                    f"expected arrays of one shape from a function for parts of {self._format.name}, got rows of "
                    f"varying length: {computed}; write in one run, or to columns"
                )
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
        name = f"{first:012d}-{last:012d}"
        return self._staging.write_part(name, lambda folder: self._write(folder / self._out.name, name, first, last))

    def _write(self, path: Path, name: str, first: int, last: int) -> bytes:
        """Write a part, read it again, and return its summary."""
        job = replace(self._job, notes=dict(self._job.notes))  # notes of this range alone
        tally = ConversionProgress(first, 0, 0, first)
        start = PartStart(
            first, int(self._steps[first]), {path: int(counts[first]) for path, counts in self._values.items()}
        )
        with self._format.begin_part(path, job.spec, job.metadata, start, **self._options) as writer:
            numbered = isinstance(writer, PartWriter)
            try:
                write_episodes(job, writer, tally, last, on_left_out=self._refuse_left_out if numbered else None)
            except (DataError, SpecError) as error:
                if others := self._broken(tally.position + 1, last):
                    raise DataError(f"{error}; the function also fails at {_listed(others)}") from error
                raise
        compared: dict[str, Any] = {}
        if self._certified:
            with self._format.open_part(path) as written:
                count = tally.episodes - first
                begin = len(written) - count  # other episodes may be before them, with their places
                if begin not in (0, first) or written.steps - written.offsets[begin] != tally.steps:
                    raise FormatError(f"expected {count} episodes of {tally.steps} steps, got others", path=path)
                comparison = Comparison(self._data, written, job.draft, job.draft.notes)
                comparison.compare(written.episodes(range(begin, len(written))), first, last)
                compared = comparison.state()
        notes = [astuple(note) for note in job.notes]
        summary = {"part": name, "bytes": tally.bytes, "notes": notes, "left_out": tally.left_out}
        return pack({**summary, "compared": compared})

    def _broken(self, first: int, last: int) -> list[int]:
        """Numbers of episodes of a range for which the function raises an error, so that one run finds all of them."""
        broken: list[int] = []
        if not self.runs_user_code:
            return broken
        for position in range(first, last):
            try:
                next(selection_of(self._data).read_mapped([position]))
            except (DataError, SpecError):
                broken.append(position)
        return [*self._job.numbers(broken)]

    def _refuse_left_out(self, position: int) -> None:
        (number,) = self._job.numbers([position])
        raise DataError(
            f"expected a function that leaves out no episode, for parts of {self._format.name} have the numbers of "
            f"their episodes before they are written, got one - at episode {number}; write to columns in parts and "
            f"convert those, or to {self._format.name} in one run"
        )

    @override
    def has_part(self, result: bytes) -> bool:
        return self._staging.has_part(unpack(result)["part"])

    @override
    def finish(self, results: Iterable[bytes]) -> ConversionReport:
        if (report := self.finished()) is not None:
            return report
        notes = dict(self._job.notes)
        total = 0
        names: list[str] = []
        left_out: list[int] = []
        compared: list[dict[str, Any]] = []
        for result in results:
            summary: dict[str, Any] = unpack(result)
            names.append(summary["part"])
            total += summary["bytes"]
            notes.update(dict.fromkeys(Note(*note) for note in summary["notes"]))
            left_out += summary["left_out"]
            compared.append(summary["compared"])
        with self._staging.merging():
            self._join(names)
            return self._report(total, (*notes, *self._job.note_left_out(left_out)), left_out, compared)

    def _report(
        self, total: int, notes: tuple[Note, ...], left_out: list[int], compared: list[dict[str, Any]]
    ) -> ConversionReport:
        """Look at the target, write its certificate, and return the report."""
        episodes = len(self._data) - len(left_out)
        steps = self._data.total_steps - int(self._data.episodes.length[left_out].sum())
        report = ConversionReport(self._staging.place, self._format.name, "converted", episodes, steps, total, 0, notes)
        report = replace(report, left_out=self._job.numbers(left_out))
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
        if not self._staging.is_closed:
            return None
        path = self._staging.target_path()
        if (mark := found_at(path, self._format)) is None:
            return None
        with self._format.open(path) as target:
            episodes, steps = len(target), target.steps
        if mark != self._job.mark or (episodes != len(self._data) and not self._job.mappings):
            raise FileExistsError(
                f"expected nothing at {self._staging.place}, got the dataset of another conversion, or of one without "
                "jobs that was interrupted; remove it, or choose another place"
            )
        proof = Certificate.read(self._staging.place, _store_options(self.arguments)) if self._certified else None
        if proof is not None:
            check_kept(proof, path, lossless=self._lossless)
        total = column_bytes(self._job.spec, episodes, steps)
        notes = tuple(dict.fromkeys((*self._job.notes, *(() if proof is None else proof.notes))))
        self._staging.remove()  # leftovers of a killed process
        place, name = self._staging.place, self._format.name
        left_out = () if proof is None else proof.left_out
        return ConversionReport(place, name, "complete", episodes, steps, total, episodes, notes, proof, left_out)

    def _join(self, names: list[str]) -> None:
        """Move the parts together; nothing if an earlier call, which was killed, did so."""
        if self._out.exists() or self._out.is_symlink():
            mark = found_at(self._out, self._format)
            if mark is None:
                raise FileExistsError(f"expected nothing at {self._out}, got a dataset that no conversion wrote")
            self._job.mark.check(mark, self._out)
            return
        staged = self._staging.path / JOINED / self._out.name
        staged.parent.mkdir(parents=True, exist_ok=True)
        parts = [part / self._out.name for part in self._staging.parts(names)]
        self._format.join_parts(parts, staged, self._out)
        move(staged, self._out, overwrite=False)

    @override
    def describe(self, first: int, last: int) -> str:
        return f"episodes {first} to {last - 1}"

    @override
    def close(self) -> None:
        self._data.close()


def _listed(numbers: list[int]) -> str:
    """The first numbers of episodes, and how many there are."""
    shown = f"{counted(len(numbers), 'other episode')} of the job: {', '.join(map(str, numbers[:LISTED]))}"
    return shown if len(numbers) <= LISTED else f"{shown} and so on"


def _staging(arguments: Mapping[str, Any], fingerprint: str) -> StagingFolder:
    """Return where the parts of a target are."""
    place = output_place(arguments["out"])
    if isinstance(place, Url):
        if place.full.startswith(DATASETS):
            hint = "leave out the parts, or write to a path and convert that to the repository"
            raise DataError(f"expected a store that takes parts, {place} takes no parts, but commits; {hint}")
        return RemoteStaging(place, _store_options(arguments), arguments, fingerprint)
    return StagingFolder(arguments["out"], arguments, fingerprint)


def _store_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the store of a target at a URL."""
    target: Mapping[str, Any] = arguments.get("target") or {}
    return dict(target.get("storage_options") or {})
