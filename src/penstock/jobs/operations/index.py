"""Indexes of datasets: the headers of each tar shard are a block; a dataset of another format is one block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.data.located import DatasetFiles
from penstock.files.remote import file_state
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.formats.webdataset.indexing import (
    index_shards,
    is_indexed,
    members_from,
    members_of,
    state_of_archives,
)
from penstock.formats.webdataset.shards import shards_of
from penstock.jobs.dataset import ChosenDataset
from penstock.jobs.operation import Operation
from penstock.jobs.packed import pack, unpack


class _IndexBlock(NamedTuple):
    """A tar shard, or a whole dataset of another format."""

    dataset: int
    path: Path
    is_shard: bool


class IndexOperation(Operation):
    """`penstock index`: the index of each dataset at a location, in the user's cache.

    Args:
        arguments: `location`, `storage_options`; `force`, whether an index that is up to date is built again.
        survey: Not used.
    """

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._force = bool(arguments.get("force", False))
        self._datasets = ChosenDataset.of(arguments).locate().datasets
        self._blocks: list[_IndexBlock] = []
        for number, dataset in enumerate(self._datasets):
            shards = self._shards_to_read(dataset)
            self._blocks += [_IndexBlock(number, path, True) for path in shards]
            if not shards:
                self._blocks.append(_IndexBlock(number, dataset.paths[0], False))

    def _shards_to_read(self, dataset: DatasetFiles) -> list[Path]:
        """The tar shards whose headers must be read for the index."""
        if dataset.format.name != "webdataset" or (not self._force and is_indexed(dataset.paths)):
            return []
        return [shard for path in dataset.paths for shard in shards_of(path)]

    @property
    @override
    def fingerprint(self) -> str:
        return state_of_archives([block.path for block in self._blocks])

    @override
    def weights(self) -> IntArray:
        return np.array([file_state(block.path).size for block in self._blocks], np.int64)

    @property
    @override
    def least_bytes(self) -> int:
        """An archive of any size is a part: reading headers skips most of its bytes."""
        return 1

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        with OrderedMap(self._read, self._blocks[first:last], PrefetchLimits(threads)) as results:
            return pack(list(results))

    def _read(self, block: _IndexBlock) -> dict[str, Any]:
        if block.is_shard:
            return members_of(block.path)
        dataset = self._datasets[block.dataset]
        return dataset.format.build_index(dataset.paths, force=self._force)

    @override
    def finish(self, results: Iterable[bytes]) -> list[dict[str, Any]]:
        values: list[list[dict[str, Any]]] = [[] for _ in self._datasets]
        blocks = iter(self._blocks)
        for result in results:
            for each in unpack(result):
                values[next(blocks).dataset].append(each)
        summaries: list[dict[str, Any]] = []
        for dataset, read in zip(self._datasets, values, strict=True):
            is_read = "names" in read[0]
            summary = index_shards(dataset.paths, [members_from(each) for each in read]) if is_read else read[0]
            summaries.append({"path": str(dataset), "format": dataset.format.name, **summary})
        return summaries

    @override
    def describe(self, first: int, last: int) -> str:
        names = [block.path.name for block in self._blocks[first:last]]
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
