"""Parts of a remote file that were fetched so far, for code that goes through a lazy map by jumps."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, read_only
from penstock.files.mapping import mapping_of
from penstock.files.remote import fill


class FetchedParts:
    """Fetches parts of a lazy map, which stay until the end of the block. Does nothing for other bytes."""

    def __init__(self, data: ByteArray, part: int) -> None:
        file = mapping_of(data)
        self._remote = None if file is None else file.remote
        self._size, self._part = len(data), part
        self._marks = np.zeros(0 if self._remote is None else -(-len(data) // part), np.uint8)
        self.present = read_only(self._marks)
        self._releases: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._releases:
            self._releases.pop()()

    def fetch(self, begin: IntArray, end: IntArray) -> None:
        """Fetch the parts that have bytes `begin[j] : end[j]` and were not fetched before."""
        if self._remote is None:
            return
        first = np.maximum(begin, 0) // self._part
        count = np.maximum(-(-np.minimum(end, self._size) // self._part) - first, 0)
        numbers = np.unique(np.repeat(first - np.cumsum(count) + count, count) + np.arange(int(count.sum())))
        numbers = numbers[self._marks[numbers] == 0]
        if len(numbers):
            begins = numbers * self._part
            self._releases.append(fill([(self._remote, begins, np.minimum(begins + self._part, self._size))]))
            self._marks[numbers] = 1
