"""`examine`: run all checks on the episodes of a dataset, by blocks, on threads; and `Report`, the result.

Blocks are some MB of consecutive episodes. Threads read and check them, and the results are added in the order of the
blocks, so findings do not depend on threads. Memory: a few blocks and some ten bytes an episode; measures of more than
a million episodes are scratch files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.core.columns import Columns
from penstock.core.spec import is_camera
from penstock.core.text import counted
from penstock.data.progress import tracked
from penstock.doctor.block import EpisodeBlock, Hits, is_clock
from penstock.doctor.measures import BlockMeasures, Measures, first_of_equals, judge, measured, novelty
from penstock.doctor.rows import ROW_CHECKS
from penstock.doctor.stored import ColumnSums, column_sums, narrow_dtypes, stored_statistics, wrong_statistics
from penstock.doctor.thresholds import CheckThresholds
from penstock.errors import ChecksumError, PenstockError
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import QUICK_BYTES
from penstock.formats.base.metadata import stated_rate
from penstock.formats.base.source import Source

BLOCK_BYTES = 4 << 20
SHOWN = 256  # episodes of a finding
LEVELS = ("error", "warning", "note")
RETURNS = ("total_reward", "episode_return", "return", "rewards_total")

MESSAGES = {
    "nan": "NaN in {rows} of {column}, {episodes}",
    "infinite": "infinite values in {rows} of {column}, {episodes}",
    "outside-space": "values outside their space in {rows} of {column}, {episodes}",
    "early-end": "{column} set before the last step, {times} in {episodes}",
    "no-end": "the last step is neither terminated nor truncated, in {episodes}",
    "no-steps": "no steps, in {episodes}",
    "one-step": "one step, in {episodes}",
    "next-observation": "{column} is not the observation of the next step, in {steps} of {episodes}",
    "time-backward": "{column}: goes back {times} in {episodes}",
    "time-repeats": "{column}: repeats a value {times} in {episodes}",
    "time-gap": "{column}: jumps ahead {times} in {episodes}",
    "time-rate": "steps of {column} have another rate than expected, in {episodes}",
    "time-drift": "{column}: runs away from the stated rate or from another clock, in {episodes}",
    "time-precision": "{column}: too few digits for its steps, in {rows} of {episodes}",
    "frozen-sensor": "{column}: no change while actions change, in {rows} of {episodes}",
    "frozen-picture": "{column}: a picture is repeated while actions change, in {rows} of {episodes}",
    "blank-picture": "{column}: one colour in {rows} of {episodes}",
    "constant-actions": "{column}: no change, in {episodes}",
    "clipped-actions": "{column}: most values are at a bound of their space, in {episodes}",
    "action-jump": "{column}: a jump, compared with other episodes, in {episodes}",
    "idle-start": "nothing changes in the first steps, in {episodes}",
    "idle-end": "nothing changes in the last steps, in {episodes}",
    "wrong-return": "the stored {column} is not the sum of rewards, in {episodes}",
    "duplicate-episode": "the same values as an earlier episode, in {episodes}",
    "near-duplicate": "nearly the values of another episode, in {episodes}",
}


@dataclass(frozen=True, eq=False)
class Report:
    """Result of a check.

    Args:
        findings: Findings, errors first.
        measures: A row for each episode: `length`, `return`, `stillness`, `jerk`, `novelty` and others, float64, NaN
            for episodes that were not read.
        digests: `[E, 16]` uint8 digests of the episodes; zeros for episodes that were not read whole.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.array([0.0, np.nan])}, lengths=[2])
        >>> report = penstock.check(data)
        >>> report.sound, report.findings[0].name
        (False, 'nan')
    """

    findings: tuple[Finding, ...]
    measures: Columns
    digests: Any = field(repr=False)

    @property
    def sound(self) -> bool:
        """Whether no finding is an error."""
        return all(finding.level != "error" for finding in self.findings)


@dataclass
class _Total:
    """Hits of one kind and column in all blocks so far: counts, the first place, and the episodes with most rows."""

    rows: int = 0
    episodes: int = 0
    first: tuple[int, int] = (0, 0)
    worst: IntArray = field(default_factory=lambda: np.zeros((3, 0), np.int64))  # episodes, first rows, numbers of rows

    def add(self, hits: Hits) -> None:
        """Add hits of one or more episodes, which follow the hits of earlier blocks."""
        if not self.episodes:
            self.first = int(hits.episodes[0]), int(hits.rows[0])
        self.rows += int(hits.counts.sum())
        self.episodes += len(hits.episodes)
        worst = np.concatenate([self.worst, [hits.episodes, hits.rows, hits.counts]], axis=1)
        self.worst = worst[:, np.argsort(-worst[2], kind="stable")[:SHOWN]]

    def finding(self, name: str, column: str) -> Finding:
        """The finding of all: the episodes with most rows first, the message with the first place."""
        episode, row = self.first
        numbers = {f"{noun}s": counted(self.rows, noun) for noun in ("row", "step", "time")}
        message = MESSAGES[name].format(column=column, episodes=counted(self.episodes, "episode"), **numbers)
        place = f"episode {episode}/{column} row {row}" if column else f"episode {episode}"
        episodes, rows, _ = self.worst.tolist()
        return Finding(name, place, message, column or None, tuple(episodes), tuple(rows))


@dataclass(frozen=True, eq=False)
class CheckedBlock:
    """Results of one block."""

    hits: list[Hits]
    measures: list[BlockMeasures]
    unreadable: list[tuple[int, PenstockError]]
    sums: dict[str, ColumnSums] = field(default_factory=dict[str, ColumnSums])


def examine(
    source: Source,
    *,
    deep: bool = False,
    thresholds: CheckThresholds | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> Report:
    examination = Examination(source, deep=deep, thresholds=thresholds)
    blocks = range(len(examination.weights()))
    with OrderedMap(examination.check, blocks, PrefetchLimits(threads)) as done:
        return examination.report(done.get() for _ in tracked(blocks, "checking", progress))


class Examination:
    """The checks of the episodes of a dataset, by blocks.

    `examine` checks all blocks in this process. Jobs check some blocks each, and `report` takes the results in order.
    """

    def __init__(self, source: Source, *, deep: bool = False, thresholds: CheckThresholds | None = None) -> None:
        self._source = source
        self._thresholds = thresholds or CheckThresholds()
        spec = source.spec
        self._paths = [path for path, f in spec.items() if deep or not (f.ragged or is_camera(f))]
        self._width = max(sum(spec[path].row_bytes for path in self._paths), 64)
        self._chosen = _chosen(source, self._width, deep=deep)
        self._blocks = _blocks(source, self._chosen, self._width) if len(source) else []
        self._stored: Mapping[str, Any] = {}
        if len(self._chosen) == len(source):
            self._stored = stored_statistics(source.metadata)

    def weights(self) -> IntArray:
        """Return `[B]` int64 bytes of each block."""
        rows = [int(self._source.offsets[last] - self._source.offsets[first]) for first, last in self._blocks]
        return np.array(rows, np.int64) * self._width

    def episodes(self, block: int) -> tuple[int, int]:
        """Return the first episode of a block, and the one after its last."""
        return self._blocks[block]

    def check(self, block: int) -> CheckedBlock:
        """Read and check one block. Safe from any thread."""
        return _check_block(self._source, *self._blocks[block], self._paths, self._thresholds, self._stored)

    def report(self, blocks: Iterable[CheckedBlock]) -> Report:
        source = self._source
        findings = [entry.finding() for entry in source.account.left_out]
        if len(source) == 0:
            message = "no episodes: there is nothing to check; is this the format of the data?"
            findings.append(Finding("no-episodes", "dataset", message))
            return Report(tuple(findings), Columns({}), np.zeros((0, 16), np.uint8))
        findings += [*narrow_dtypes(source.spec), *self._partial()]
        sums: dict[str, ColumnSums] = {}
        totals: dict[tuple[str, str], _Total] = {}
        measures = Measures(len(source))
        unreadable: list[tuple[int, PenstockError]] = []
        for checked in blocks:
            for hits in checked.hits:
                totals.setdefault((hits.name, hits.column), _Total()).add(hits)
            for each in checked.measures:
                measures.add(each)
            unreadable += checked.unreadable
            for path, part in checked.sums.items():
                sums[path] = sums[path] | part if path in sums else part
        if not unreadable:
            findings += wrong_statistics(self._stored, sums)
        outliers = judge(measures, _rates(source), self._thresholds)
        for hits in (*outliers, *_wrong_returns(source, measures.values.get("return"), self._thresholds)):
            totals.setdefault((hits.name, hits.column), _Total()).add(hits)
        findings += _unreadable(unreadable)
        findings += [total.finding(name, column) for (name, column), total in totals.items()]
        table = Columns({**measures.values, "novelty": novelty(measures)})
        return Report(tuple(sorted(findings, key=lambda f: LEVELS.index(f.level))), table, measures.digests)

    def _partial(self) -> Iterator[Finding]:
        """Yield a finding that names unread episodes or columns."""
        total = len(self._source)
        if len(self._chosen) < total:
            looked = f"looked at {len(self._chosen):,} of {counted(total, 'episode')}; --deep looks at all"
            yield Finding("partial", "dataset", looked)
        elif left_out := [path for path in self._source.spec if path not in self._paths]:
            message = f"did not read {', '.join(left_out)}; --deep reads all columns"
            yield Finding("partial", "dataset", message)


def leaks(reports: Mapping[str, Report]) -> Iterator[tuple[str, Finding]]:
    """Yield findings of episodes that are in several datasets, with the name of the later dataset."""
    names = list(reports)
    for i, name in enumerate(names):
        mine = reports[name].digests
        for other in names[:i]:
            theirs = reports[other].digests
            first = first_of_equals(np.concatenate([theirs, mine]))[len(theirs) :]
            shared = np.flatnonzero((first < len(theirs)) & mine.any(axis=1))
            if len(shared):
                verb = "is" if len(shared) == 1 else "are"
                example = f"episode {shared[0]} is its episode {first[shared[0]]}"
                message = f"{counted(len(shared), 'episode')} {verb} also in {other}: {example}"
                episodes = tuple(shared[:SHOWN].tolist())
                yield name, Finding("leak", f"episode {shared[0]}", message, None, episodes, (0,) * len(episodes))


def _chosen(source: Source, width: int, *, deep: bool) -> IntArray:
    """`[k]` episodes to check, ascending: all, or runs of episodes that are evenly spread, each of about a block."""
    everything = np.arange(len(source))
    if deep or source.steps * width <= QUICK_BYTES or len(source) < 2:
        return everything
    count = max(int(len(source) * QUICK_BYTES / (source.steps * width)), 1)
    runs = min(count, QUICK_BYTES // BLOCK_BYTES)  # smaller runs cost more than their values
    each = count // runs
    first = np.linspace(0, len(source) - each, runs).astype(np.int64)
    return np.unique(first[:, None] + np.arange(each))


def _blocks(source: Source, chosen: IntArray, width: int) -> list[tuple[int, int]]:
    """Runs of consecutive chosen episodes of about `BLOCK_BYTES`: first episode, and the one after the last."""
    size = np.cumsum((np.diff(source.offsets)[chosen] + 1) * width) // BLOCK_BYTES
    cuts = np.flatnonzero((np.diff(chosen) != 1) | (np.diff(size) > 0)) + 1
    begins = np.concatenate([[0], cuts, [len(chosen)]]).tolist()
    return [(int(chosen[a]), int(chosen[b - 1]) + 1) for a, b in pairwise(begins)]


def _check_block(
    source: Source,
    first: int,
    last: int,
    paths: Sequence[str],
    thresholds: CheckThresholds,
    stored: Mapping[str, Any],
) -> CheckedBlock:
    """Check episodes `first` to `last - 1`; where they cannot be read together, each alone, without damaged columns."""
    try:
        block = EpisodeBlock.read(source, first, last, paths)
    except PenstockError as error:
        if last - first == 1:
            readable, errors = _readable(source, first, paths)
            if not readable or not errors:
                return CheckedBlock([], [], [(first, error)])
            hits = _check_block(source, first, last, readable, thresholds, stored).hits
            return CheckedBlock(hits, [], [(first, each) for each in errors])  # measures are of whole episodes
        parts = [_check_block(source, e, e + 1, paths, thresholds, stored) for e in range(first, last)]
        return CheckedBlock(
            [hits for part in parts for hits in part.hits],
            [each for part in parts for each in part.measures],
            [each for part in parts for each in part.unreadable],
        )
    hits = [hits for check in ROW_CHECKS for hits in check(block, thresholds)]
    complete = len(paths) == len(source.spec)
    return CheckedBlock(hits, [measured(block, thresholds, complete=complete)], [], column_sums(block, stored))


def _readable(source: Source, episode: int, paths: Sequence[str]) -> tuple[list[str], list[PenstockError]]:
    """The columns of an episode that can be read, and the errors of the others."""
    readable: list[str] = []
    errors: list[PenstockError] = []
    for path in paths:
        try:
            EpisodeBlock.read(source, episode, episode + 1, [path])
        except PenstockError as error:
            errors.append(error)
        else:
            readable.append(path)
    return readable, errors


def _unreadable(errors: Sequence[tuple[int, PenstockError]]) -> Iterator[Finding]:
    by_message: dict[str, list[int]] = {}
    corrupt = {str(error) for _, error in errors if isinstance(error, ChecksumError)}
    for episode, error in errors:
        by_message.setdefault(str(error), []).append(episode)
    for message, episodes in by_message.items():
        rows = (0,) * len(episodes[:SHOWN])
        name = "checksum" if message in corrupt else "unreadable"
        yield Finding(name, f"episode {episodes[0]}", message, None, tuple(episodes[:SHOWN]), rows)


def _rates(source: Source) -> dict[str, float]:
    """Steps a second of each clock in seconds, where the dataset states them. Integer clocks count other units."""
    rate = stated_rate(source.metadata)
    if rate is None:
        return {}
    clocks = [path for path, field in source.spec.items() if is_clock(path, field) and field.dtype.kind == "f"]
    return dict.fromkeys(clocks, rate)


def _wrong_returns(source: Source, returns: FloatArray | None, thresholds: CheckThresholds) -> Iterator[Hits]:
    """Compare the returns in the metadata of episodes with the sums of rewards. Missing ones are no findings."""
    if returns is None:
        return
    table = source.table().flat
    for name in RETURNS:
        if name not in table:
            continue
        stored = np.asarray(table[name], np.float64)
        wrong = np.abs(stored - returns) > thresholds.return_share * np.maximum(np.abs(returns), 1)
        if wrong.any():
            episodes = np.flatnonzero(wrong)
            yield Hits("wrong-return", name, episodes, np.zeros_like(episodes), np.ones_like(episodes))
