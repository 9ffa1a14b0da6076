"""Indexes of datasets: what opening learns of a file is a block; a dataset without a survey of files is one block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.ragged import offsets_of
from penstock.core.text import counted
from penstock.data.located import DatasetFiles
from penstock.files.remote import file_state
from penstock.formats.base.file_facts import FileSurvey, FileTable, ReadFacts, digest_of_files
from penstock.jobs.dataset import ChosenDataset
from penstock.jobs.operation import Operation
from penstock.jobs.packed import pack, unpack


class IndexOperation(Operation):
    """`penstock index`: the index of each dataset at a location, in the user's cache.

    Args:
        arguments: `location`, `storage_options`; `force`, whether an index that is up to date is built again.
        survey: The files to read, as another process found them; otherwise their states are compared here.
    """

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

    def _paths(self, first: int, last: int) -> list[Path]:
        """A path for each block: the file, or the whole dataset."""
        return [self._path(*self._place(block)) for block in range(first, last)]

    def _place(self, block: int) -> tuple[int, int]:
        """Dataset of a block, and its number among the blocks of the dataset."""
        dataset = int(np.searchsorted(self._first, block, side="right")) - 1
        return dataset, block - int(self._first[dataset])

    def _path(self, dataset: int, block: int) -> Path:
        survey, numbers = self._surveys[dataset], self._numbers[dataset]
        if survey is None or not len(numbers):
            return self._datasets[dataset].paths[0]
        return survey.files[int(numbers[block])]

    @property
    @override
    def fingerprint(self) -> str:
        return digest_of_files(self._paths(0, int(self._first[-1])))

    @override
    def weights(self) -> IntArray:
        return np.array([file_state(path).size for path in self._paths(0, int(self._first[-1]))], np.int64)

    @property
    @override
    def least_bytes(self) -> int:
        """A file of any size is a part: what opening learns of it is a small part of its bytes."""
        return 1

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
        names = [path.name for path in (*self._paths(first, first + 1), *self._paths(last - 1, last))]
        return names[0] if last - first == 1 else f"{counted(last - first, 'file')}, {names[0]} to {names[1]}"
