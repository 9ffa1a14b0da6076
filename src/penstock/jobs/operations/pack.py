"""Plans of packs: a block is a window of sequences, which is packed for itself, and sums of packs are joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_list
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.jobs.operation import Operation, pack, unpack
from penstock.plan.pack import PackedPlan
from penstock.plan.packing.tally import PackingStats

LENGTH_BYTES = 8  # of a sequence that is planned
LEAST = 8 << 20  # bytes of lengths of a job: a million sequences, some ten milliseconds


class PackOperation(Operation):
    """The packs of `data.sequences().pack(...)`, written where `pack(cache=folder)` finds them."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._data = ChosenDataset.of(arguments).open()
        options: dict[str, Any] = {**arguments["pack"], "keep": "recompute"}
        self._plan = cast(PackedPlan, self._data.sequences().pack(**options).plan)
        self._index = self._plan.unplanned()
        self._folder = Path(arguments["folder"])

    @property
    @override
    def fingerprint(self) -> str:
        return self._plan.fingerprint

    @override
    def weights(self) -> IntArray:
        return LENGTH_BYTES * self._index.window_items

    @property
    @override
    def least_bytes(self) -> int:
        return LEAST

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        counts, stats = self._index.count_windows(first, last, threads)
        return pack({"counts": counts, "stats": vars(stats)})

    @override
    def finish(self, results: Iterable[bytes]) -> dict[str, Any]:
        parts: list[tuple[IntArray, PackingStats]] = []
        for result in results:
            part: dict[str, Any] = unpack(result)
            stats: dict[str, Any] = {name: tuple(v) if is_list(v) else v for name, v in part["stats"].items()}
            parts.append((part["counts"], PackingStats(**stats)))
        index = self._plan.unplanned().with_windows(parts)
        file = self._plan.store(index, self._folder)
        return {"packs": len(index), "sequences": index.n, "file": str(file), "bytes": file.stat().st_size}

    @override
    def describe(self, first: int, last: int) -> str:
        return f"windows {first} to {last - 1} of {counted(len(self._index.window_items), 'window')}"

    @override
    def close(self) -> None:
        self._data.close()
