"""`partition`: parts of the chosen episodes without leakage: groups, equal times and duplicates are never divided.

Episodes that must stay together form a group: episodes with the same value of `by` or of `groups`, the same time, or
the same values. Groups are joined where they share an episode. Without groups of several episodes, the transform
`Split` makes the parts, and sizes are exact. Otherwise, groups are drawn in a random order, largest first, and each
goes to the part that lacks most of its share; a part is then off by less than the largest group. A split by time goes
through the groups in the order of their earliest episode, so each part is later than the part before it, but for
duplicates of earlier episodes.

Duplicates have the same values in all columns. Most episodes differ in their length or in the first or last row of
columns of few bytes, which are read first; only episodes that agree in these are read whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.text import counted
from penstock.data.episode_selection import EpisodeSelection
from penstock.data.loaded_episodes import DIGEST_BYTES, LoadedEpisodes, flattened, is_numbering
from penstock.errors import ArgumentError, PlanError, suggestion
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.formats.base.source import Source
from penstock.formats.base.state import OverlaySource
from penstock.plan.split import Split
from penstock.plan.where import TakeEpisodes

BLOCK_STEPS = 1 << 16
NARROW_BYTES = 256  # of a row of columns that are read first


@dataclass(frozen=True)
class SplitRules:
    """What must not be divided, and how parts are drawn. See `EpisodeDataset.split`."""

    by: str | None = None
    groups: Sequence[Any] | AnyArray | None = None
    time: str | None = None
    duplicates: bool = False
    seed: int = 0
    threads: int | None = None


def partition(
    selection: EpisodeSelection, sizes: Mapping[str, float] | Mapping[str, int], rules: SplitRules
) -> dict[str, EpisodeSelection]:
    """Divide episodes into named parts."""
    shares: Any = tuple(sizes.values())  # of one kind of number
    splits = [Split(shares, part, rules.seed) for part in range(max(len(sizes), 1))]
    counts = splits[0].counts(len(selection.episodes))
    if sum(counts) > len(selection.episodes):
        raise PlanError(f"expected parts of at most {len(selection.episodes)} episodes, got {sum(counts)}")
    stored = _numbers(np.asarray(selection.episodes.index, np.int64))
    group = _grouped(selection, stored, rules)
    if rules.time is not None:
        part = _by_time(selection, group, counts, rules.time, list(sizes))
    elif group.max(initial=-1) == stored.max(initial=-1):
        return {name: selection.choose(split) for name, split in zip(sizes, splits, strict=True)}
    else:
        part = _drawn(group, counts, rules.seed)
    return {name: selection.choose(TakeEpisodes(np.flatnonzero(part == k))) for k, name in enumerate(sizes)}


def _grouped(selection: EpisodeSelection, stored: IntArray, rules: SplitRules) -> IntArray:
    """`[E]` group of each episode: of parts of one stored episode, and of what the rules keep together."""
    group = stored
    if rules.by is not None:
        group = _joined(group, _numbers(_values(selection, rules.by)))
    if rules.groups is not None:
        labels = np.asarray(rules.groups)
        if labels.ndim != 1 or len(labels) != len(stored):
            raise ArgumentError(
                f"expected groups= with a label for each of {len(stored)} episodes, got {list(labels.shape)}; "
                "by= takes the name of metadata or of a column"
            )
        group = _joined(group, _numbers(labels))
    return group if rules.duplicates else _joined(group, _equal(selection, rules.threads))


def _by_time(
    selection: EpisodeSelection, group: IntArray, counts: list[int], time: str, names: Sequence[str]
) -> IntArray:
    """`[E]` part of each episode, or -1, in the order of a time."""
    when = _values(selection, time)
    if when.dtype.kind not in "iuf" or when.ndim != 1:
        raise ArgumentError(f"expected one number an episode in {time!r}, got {when.dtype}{list(when.shape[1:])}")
    part = _in_order(_joined(group, _numbers(when)), when, counts)
    if time in selection.source.spec:
        _warn_of_overlaps(part, when, _values(selection, time, last=True), names)
    return part


def _warn_of_overlaps(part: IntArray, begin: AnyArray, end: AnyArray, names: Sequence[str]) -> None:
    """Warn of episodes that go on after a later part begins."""
    for earlier, later in pairwise(range(len(names))):
        starts = begin[part == later]
        over = 0 if not len(starts) else int(np.count_nonzero(end[(part >= 0) & (part <= earlier)] > starts.min()))
        if over:
            message = f"{counted(over, 'episode')} of earlier parts end after {names[later]!r} begins"
            warnings.warn(f"{message}; group what overlaps with by=, or leave it out", stacklevel=5)


def _values(selection: EpisodeSelection, name: str, *, last: bool = False) -> AnyArray:
    """`[E, ...]` the value of an entry of metadata, or the first or last row of a column, of each episode."""
    source, table = selection.source, selection.episodes.table().flat
    if name in table:
        return np.asarray(table[name])
    index = np.asarray(selection.episodes.index, np.int64)
    if name not in source.spec:
        stored = source.episode_metadata(index.tolist())
        if any(name in entries for entries in stored):
            return np.array([str(entries.get(name)) for entries in stored])
        known = list(dict.fromkeys([*table, *(key for entries in stored for key in entries), *source.spec]))
        raise ArgumentError(f"no metadata and no column {name!r}{suggestion(name, known)}; there are {known}")
    return _rows(source, name, index, last=last)


def _rows(source: Source, column: str, index: IntArray, *, last: bool) -> AnyArray:
    """`[E, ...]` the first or last row of a column of episodes that have one. Ragged rows are text."""
    bounds = source.rows(source.spec[column].align)
    row = bounds[index + 1] - 1 if last else bounds[index]
    rows = source.read([column], Selection.of_rows(row))[column]
    if isinstance(rows, Ragged):
        return np.array([blob.hex() for blob in rows.blobs()])
    return np.asarray(rows)[0]


def _numbers(values: AnyArray) -> IntArray:
    """`[E]` number of each different value."""
    flat = values.reshape(len(values), -1)
    if values.dtype.kind == "O":
        flat = np.array([[str(value)] for value in values.tolist()])
    if not len(flat):
        return np.zeros(0, np.int64)
    return np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _joined(one: IntArray, other: IntArray) -> IntArray:
    """`[E]` groups of which episodes of one group of either are together: labels spread until nothing changes."""
    label = one.copy()
    while True:
        lowest = np.full(int(other.max(initial=-1)) + 1, len(label))
        np.minimum.at(lowest, other, label)
        spread = lowest[other]
        least = np.full(int(one.max(initial=-1)) + 1, len(label))
        np.minimum.at(least, one, spread)
        new = least[one]
        if np.array_equal(new, label):
            return _numbers(label)
        label = new


def _equal(selection: EpisodeSelection, threads: int | None) -> IntArray:
    """`[E]` group of each episode: episodes of the same values. Episodes without steps differ from one another."""
    source = selection.source
    while isinstance(source, OverlaySource):  # added columns are functions of the others
        source = source.base
    index = np.unique(selection.episodes.index)
    number = np.arange(len(index))
    alike = _alike(source, index)
    if len(alike):
        number[alike] = len(index) + _digest_numbers(source, index[alike], threads)
    return _numbers(number[np.searchsorted(index, selection.episodes.index)])


def _alike(source: Source, index: IntArray) -> IntArray:
    """Numbers in `index` of episodes that agree with another one in their length and some rows of narrow columns."""
    lengths = np.diff(source.offsets)[index]
    left = np.flatnonzero(lengths > 0)
    left, kind = _repeated(left, lengths[left])
    fields = {path: field for path, field in source.spec.items() if not field.ragged and not is_numbering(path, field)}
    narrow = [path for path, field in fields.items() if 0 < field.row_bytes <= NARROW_BYTES]
    for path in sorted(narrow, key=lambda path: -fields[path].row_bytes):
        for last in (False, True):
            if len(left):
                rows = flattened(_rows(source, path, index[left], last=last))
                raw = np.ascontiguousarray(rows).view(np.uint8)
                left, kind = _repeated(left, np.column_stack([kind, _numbers(raw)]))
    return left


def _repeated(left: IntArray, values: AnyArray) -> tuple[IntArray, IntArray]:
    """The entries of `left` whose value another one has too, and a number of each of these values."""
    kind = _numbers(values)
    repeats = np.bincount(kind, minlength=1)[kind] > 1
    return left[repeats], kind[repeats]


def _digest_numbers(source: Source, index: IntArray, threads: int | None) -> IntArray:
    """`[n]` numbers of different digests of all values of ascending episodes."""
    size = np.cumsum(np.diff(source.offsets)[index] + 1) // BLOCK_STEPS
    cuts = np.flatnonzero((np.diff(index) != 1) | (np.diff(size) > 0)) + 1
    bounds = np.concatenate([[0], cuts, [len(index)]]).astype(np.int64)
    runs = [(int(index[a]), int(index[b - 1]) + 1) for a, b in pairwise(bounds.tolist()) if b > a]

    def work(number: int) -> AnyArray:
        return LoadedEpisodes.read(source, *runs[number], list(source.spec)).digests()

    with OrderedMap(work, range(len(runs)), PrefetchLimits(threads)) as done:
        parts = [np.zeros((0, DIGEST_BYTES), np.uint8), *done]
    return _numbers(np.concatenate(parts))


def _drawn(group: IntArray, counts: list[int], seed: int) -> IntArray:
    """`[E]` part of each episode, or -1: groups in a random order, largest first, to the part that lacks most."""
    rng = np.random.default_rng(seed)
    sizes = np.bincount(group)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    lacking = np.array(counts, np.int64)
    part = np.full(len(sizes), -1)
    large = int(np.count_nonzero(sizes > 1))
    for number in order[:large].tolist():
        most = int(np.argmax(lacking))
        if lacking[most] > 0:
            part[number] = most
            lacking[most] -= sizes[number]
    # Groups of one episode: a random order of the places that are left.
    singles = order[large:]
    free = np.repeat(np.arange(len(counts)), np.maximum(lacking, 0))
    free = rng.permutation(free)[: len(singles)]
    part[singles[: len(free)]] = free
    if sum(counts) == len(group):
        part[part < 0] = int(np.argmax(counts))  # groups that fit in no part whole
    return part[group]


def _in_order(group: IntArray, when: AnyArray, counts: list[int]) -> IntArray:
    """`[E]` part of each episode, or -1: groups in the order of their earliest episode."""
    sizes = np.bincount(group)
    first = np.full(len(sizes), len(group))
    rank = np.empty(len(group), np.int64)
    rank[np.argsort(when, kind="stable")] = np.arange(len(group))
    np.minimum.at(first, group, rank)
    order = np.argsort(first, kind="stable")
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    part = np.empty(len(sizes), np.int64)
    part[order] = np.searchsorted(np.cumsum(counts), middle, side="left")
    part[part == len(counts)] = -1
    return part[group]
