"""Comparison of a dataset with its certificate: digests of episodes, which are compared when all are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from typing_extensions import override

from penstock.conversion.certificate import Certificate
from penstock.conversion.verify import Side, certified_episodes, compare_digests, digests_of
from penstock.core.arrays import IntArray
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.dataset import EpisodeDataset
from penstock.jobs.operation import Operation, pack, unpack


class VerifyOperation(Operation):
    """`penstock certificate --verify`. A block is an episode of the target, and of the source if it is compared too."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        given: dict[Side, Any] = {"target": arguments, "source": arguments.get("source")}
        self._certificate = Certificate.read(arguments["location"], arguments.get("storage_options") or None)
        self._opened: dict[Side, EpisodeDataset] = {}
        with ExitStack() as undo:
            for side, entries in given.items():
                if entries is not None:
                    data = undo.enter_context(ChosenDataset.of(entries).open())
                    self._opened[side] = certified_episodes(self._certificate, side, data)
            self._closing = undo.pop_all()

    @property
    @override
    def fingerprint(self) -> str:
        opened = (data.episodes.fingerprint for data in self._opened.values())
        return " ".join([str(self._certificate.target["fingerprint"]), *opened])

    @override
    def weights(self) -> IntArray:
        target = self._opened["target"]
        row_bytes = sum(field.row_bytes for field in target.spec.values())
        return (target.episodes.length + 1) * max(row_bytes, 64) * len(self._opened)

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        by_side = {
            side: digests_of(self._certificate, side, one, range(first, last)) for side, one in self._opened.items()
        }
        return pack({side: {path: bytes(each) for path, each in by.items()} for side, by in by_side.items()})

    @override
    def finish(self, results: Iterable[bytes]) -> list[str]:
        digests: dict[Side, dict[str, bytearray]] = {side: {} for side in self._opened}
        for result in results:
            by_side: dict[Side, dict[str, bytes]] = unpack(result)
            for side, by_column in by_side.items():
                for path, joined in by_column.items():
                    digests[side].setdefault(path, bytearray()).extend(joined)
        return [
            message
            for side, opened in self._opened.items()
            for message in compare_digests(self._certificate, side, opened, digests[side])
        ]

    @override
    def describe(self, first: int, last: int) -> str:
        return f"episodes {first} to {last - 1} of {counted(len(self._opened['target']), 'episode')}"

    @override
    def close(self) -> None:
        self._closing.close()
