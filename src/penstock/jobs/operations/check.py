"""Checks of a dataset: the check of each format is a block, then the episodes by the blocks of `Examination`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.data.chosen import ChosenDataset
from penstock.doctor.block import Hits
from penstock.doctor.check import format_findings, merged_report, open_damaged
from penstock.doctor.examine import CheckedBlock, Examination, Report
from penstock.doctor.measures import BlockMeasures
from penstock.doctor.stored import ColumnSums
from penstock.doctor.thresholds import CheckThresholds
from penstock.errors import ChecksumError, FormatError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.formats.base.findings import Finding
from penstock.jobs.operation import Operation, pack, unpack
from penstock.jobs.work_plan import MOST_BYTES


class CheckOperation(Operation):
    """`penstock.check` of a dataset."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._deep = bool(arguments.get("deep", False))
        self._options = dict(arguments.get("options") or {})
        self._located = ChosenDataset.of(arguments).locate()
        self._formats = len(self._located.datasets)
        thresholds = CheckThresholds.of(arguments.get("thresholds") or {})
        self._examination: Examination | None = None
        self._source = None
        try:
            self._source = open_damaged(self._located, self._options)
            self._examination = Examination(self._source, deep=self._deep, thresholds=thresholds)
        except FormatError as error:  # a finding, not a failure
            self._unreadable = error

    @property
    @override
    def fingerprint(self) -> str:
        return "" if self._source is None else self._source.fingerprint

    @override
    def weights(self) -> IntArray:
        """The check of a format counts as a whole range, because it may read every byte."""
        values = np.zeros(0, np.int64) if self._examination is None else self._examination.weights()
        return np.concatenate([np.full(self._formats, MOST_BYTES), values])

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        formats = self._located.datasets[first:last]
        findings = [[asdict(each) for each in format_findings(one, self._deep, self._options)] for one in formats]
        blocks = range(max(first - self._formats, 0), max(last - self._formats, 0))
        checked: list[dict[str, Any]] = []
        if self._examination is not None:
            with OrderedMap(self._examination.check, blocks, PrefetchLimits(threads)) as done:
                checked = [_plain_block(block) for block in done]
        return pack({"findings": findings, "blocks": checked})

    @override
    def finish(self, results: Iterable[bytes]) -> Report:
        findings: list[Finding] = []

        def checked() -> Iterator[CheckedBlock]:
            for result in results:
                entries: dict[str, Any] = unpack(result)
                findings.extend(_finding(each) for one in entries["findings"] for each in one)
                yield from map(_checked_block, entries["blocks"])

        if self._examination is None:
            for _ in checked():
                raise FormatError("expected no blocks of data that cannot be read, got some")
            return merged_report(self._located, findings, self._unreadable)
        report = self._examination.report(checked())
        return merged_report(self._located, findings, report)

    @override
    def describe(self, first: int, last: int) -> str:
        if first < self._formats or self._examination is None:
            return f"the check of the format {self._located.datasets[min(first, self._formats - 1)].format.name}"
        begin, _ = self._examination.episodes(first - self._formats)
        _, end = self._examination.episodes(last - self._formats - 1)
        return f"episodes {begin} to {end - 1}"

    @override
    def close(self) -> None:
        if self._source is not None:
            self._source.close()


def _plain_block(block: CheckedBlock) -> dict[str, Any]:
    """The results of a block as plain values and arrays."""
    return {
        "hits": [vars(each) for each in block.hits],
        "measures": [{**vars(each), "values": dict(each.values)} for each in block.measures],
        "unreadable": [[e, str(error), isinstance(error, ChecksumError)] for e, error in block.unreadable],
        "sums": {path: vars(each) for path, each in block.sums.items()},
    }


def _checked_block(entries: dict[str, Any]) -> CheckedBlock:
    """The results that `_plain_block` made plain."""
    return CheckedBlock(
        [Hits(**each) for each in entries["hits"]],
        [BlockMeasures(**each) for each in entries["measures"]],
        [(e, (ChecksumError if corrupt else FormatError)(text)) for e, text, corrupt in entries["unreadable"]],
        {path: ColumnSums(**each) for path, each in entries["sums"].items()},
    )


def _finding(entries: dict[str, Any]) -> Finding:
    places = {name: tuple(entries[name]) for name in ("episodes", "rows")}
    return replace(Finding(**entries), **places)
