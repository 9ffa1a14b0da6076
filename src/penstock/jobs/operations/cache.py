"""Columns decoded into the user's cache: a block is a range of episodes of a column.

Jobs write ranges as column stores below the folder of the cached column, and `finish` moves them together to one store.
All jobs must reach this folder. It is in the cache of the process that made the work plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.data.cached import CachedSource, picture_columns
from penstock.data.chosen import ChosenDataset
from penstock.data.derived_values import StoredValues
from penstock.jobs.operation import Operation, pack, unpack


class CacheOperation(Operation):
    """`penstock cache` of some columns of a dataset."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._data = ChosenDataset.of(arguments).open()
        try:
            columns = arguments.get("columns") or picture_columns(self._data.spec)
            self._cached = {name: CachedSource(self._data.source, name) for name in columns}
            folder = Path(arguments["folder"])
            self._stores: list[StoredValues] = [each.stored_values(folder) for each in self._cached.values()]
            self._cuts = [store.cuts() for store in self._stores]
        except BaseException:
            self._data.close()
            raise
        self._first = np.concatenate([[0], np.cumsum([len(cuts) - 1 for cuts in self._cuts], dtype=np.int64)])

    @property
    @override
    def fingerprint(self) -> str:
        return self._data.source.fingerprint

    @override
    def weights(self) -> IntArray:
        weights = [store.range_bytes(cuts) for store, cuts in zip(self._stores, self._cuts, strict=True)]
        return np.concatenate([np.zeros(0, np.int64), *weights])

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        written: list[tuple[int, str]] = []
        for number, store in enumerate(self._stores):
            cuts = self._cuts[number]
            begin, end = np.clip(np.array([first, last]) - self._first[number], 0, len(cuts) - 1).tolist()
            if begin < end:
                written.append((number, store.write_part(cuts[begin : end + 1], threads)))
        return pack(written)

    @override
    def has_part(self, result: bytes) -> bool:
        parts: list[tuple[int, str]] = unpack(result)
        return all(self._stores[number].has_part(name) for number, name in parts)

    @override
    def finish(self, results: Iterable[bytes]) -> dict[str, int]:
        parts = [(int(number), str(name)) for result in results for number, name in unpack(result)]
        for number, store in enumerate(self._stores):
            store.join_parts([name for other, name in parts if other == number])
        return {name: each.nbytes for name, each in self._cached.items()}

    @override
    def describe(self, first: int, last: int) -> str:
        number = int(np.searchsorted(self._first, first, side="right")) - 1
        cuts, begin = self._cuts[number], first - int(self._first[number])
        end = min(last - int(self._first[number]), len(cuts) - 1)
        more = " and other columns" if last > self._first[number + 1] else ""
        return f"{list(self._cached)[number]} of episodes {cuts[begin]} to {cuts[end] - 1}{more}"

    @override
    def close(self) -> None:
        for store in self._stores:
            store.close()
        self._data.close()
