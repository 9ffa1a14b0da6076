"""Indexes of datasets: what opening learns of a file is a block; a dataset without a survey of files is one block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.ragged import offsets_of
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.located import DatasetFiles
from penstock.files.listing import digest_of_files, file_states
from penstock.formats.base.file_facts import FileSurvey, FileTable, ReadFacts
from penstock.jobs.operation import Operation, pack, unpack

OPENING_BYTES = 1 << 16
"""Bytes that opening a file weighs, next to its size: a job has at most 256 small files."""


class IndexOperation(Operation):
    """`penstock index`: the index of each dataset at a location, in the user's cache."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._force = bool(arguments.get("force", False))
        self._datasets = ChosenDataset.of(arguments).locate().datasets
        self._surveys = [dataset.format.survey(dataset.paths) for dataset in self._datasets]
        known: list[IntArray] = unpack(survey)["numbers"] if survey else list(map(self._unknown, self._surveys))
        self._numbers = known
        counts = [max(len(numbers), 1) for numbers in known]
        self._first = offsets_of(np.array(counts, np.int64))  # first block of each dataset, and the end

    def _unknown(self, survey: FileSurvey | None) -> IntArray:
        """The files of a dataset that must be read for its index."""
        return np.zeros(0, np.int64) if survey is None else survey.unknown(force=self._force)

    @override
    def survey(self) -> bytes:
        return pack({"numbers": self._numbers})

    def _blocks(self) -> Iterator[tuple[Sequence[Path], IntArray]]:
        """Yield the files of each dataset, and the numbers of those that are blocks: all to read, or the first."""
        for dataset, survey, numbers in zip(self._datasets, self._surveys, self._numbers, strict=True):
            if survey is None or not len(numbers):
                yield dataset.paths[:1], np.zeros(1, np.int64)
            else:
                yield survey.listed, numbers

    def _path(self, block: int) -> Path:
        dataset = int(np.searchsorted(self._first, block, side="right")) - 1
        files, numbers = list(self._blocks())[dataset]
        return files[int(numbers[block - int(self._first[dataset])])]

    @property
    @override
    def fingerprint(self) -> str:
        digests = [digest_of_files(files, numbers.tolist()) for files, numbers in self._blocks()]
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    @override
    def weights(self) -> IntArray:
        sizes = [file_states(files, numbers.tolist()).size for files, numbers in self._blocks()]
        return np.concatenate([np.zeros(0, np.int64), *sizes]) + OPENING_BYTES

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        parts: list[dict[str, Any]] = []
        for number, (survey, files) in enumerate(zip(self._surveys, self._numbers, strict=True)):
            low, high = (min(max(block - int(self._first[number]), 0), len(files)) for block in (first, last))
            if survey is not None and high > low:
                header, arrays = survey.facts(files[low:high].tolist(), threads=threads).packed()
                parts.append({"dataset": number, "header": header, "arrays": arrays})
        return pack(parts)

    @override
    def finish(self, results: Iterable[bytes]) -> list[dict[str, Any]]:
        tables: list[list[FileTable]] = [[] for _ in self._datasets]
        for result in results:
            parts: list[dict[str, Any]] = unpack(result)
            for part in parts:
                tables[int(part["dataset"])].append(FileTable.unpacked(part["header"], part["arrays"]))
        return [self._indexed(*each) for each in zip(self._datasets, self._numbers, tables, strict=True)]

    def _indexed(self, dataset: DatasetFiles, numbers: IntArray, tables: list[FileTable]) -> dict[str, Any]:
        """The index of a dataset, with the facts that the jobs read."""
        facts = ReadFacts(numbers, FileTable.concatenate(tables)) if len(numbers) else None
        summary = dataset.format.build_index(dataset.paths, force=self._force, facts=facts)
        return {"path": str(dataset), "format": dataset.format.name, **summary}

    @override
    def describe(self, first: int, last: int) -> str:
        names = [self._path(first).name, self._path(last - 1).name]
        return names[0] if last - first == 1 else f"{counted(last - first, 'file')}, {names[0]} to {names[1]}"
