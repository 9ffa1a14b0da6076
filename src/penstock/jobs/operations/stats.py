"""Statistics of columns. Counters are whole numbers, so the ranges of the jobs change no bit of the result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.column_counters import MOST_HISTOGRAMS
from penstock.data.statistics import Statistics
from penstock.data.summarize import count_blocks, episode_blocks
from penstock.jobs.operation import LEAST_BYTES, Operation, pack, unpack
from penstock.kernels.histograms import BUCKETS


class StatisticsOperation(Operation):
    """`penstock.statistics` of a dataset. A block is about 1 MiB of rows, also a part of a long episode."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._data = ChosenDataset.of(arguments).open()
        final = arguments.get("final_observations", True)
        self._blocks = episode_blocks(self._data, arguments.get("columns"), arguments.get("by"), final)

    @property
    @override
    def fingerprint(self) -> str:
        return self._data.episodes.fingerprint

    @override
    def weights(self) -> IntArray:
        return self._blocks.weights

    @property
    @override
    def least_bytes(self) -> int:
        """Bytes of rows that take ten times as long to count as the histograms of a job take to merge."""
        numbers = sum(min(math.prod(f.shape), MOST_HISTOGRAMS) for f in self._data.spec.values() if f.dtype != np.uint8)
        return max(LEAST_BYTES, numbers * BUCKETS * 64)

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        return pack(count_blocks(self._blocks, range(first, last), threads).to_arrays())

    @override
    def finish(self, results: Iterable[bytes]) -> Statistics:
        merged = Statistics({}, skipped=self._blocks.skipped)
        for result in results:
            merged |= Statistics.from_json(unpack(result))
        return merged

    @override
    def describe(self, first: int, last: int) -> str:
        return f"blocks {first} to {last - 1} of {counted(len(self.weights()), 'block')}"

    @override
    def close(self) -> None:
        self._data.close()
