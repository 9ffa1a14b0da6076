"""`split`: parts of a dataset without leakage: groups, equal times and exact duplicates are never divided.

Episodes that must stay together form a group: those with the same value of `by`, the same time, or the same values
(digests of all columns). Groups are joined where they share an episode. Sizes of parts are exact if no group has two
episodes. Otherwise, groups are drawn in a random order, largest first, and each goes to the part that lacks most of its
share; a part is then off by less than the largest group. A split by time goes through the groups in the order of their
earliest episode, so each part is later than the part before it, but for duplicates of earlier episodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset
from penstock.doctor.block import read_block
from penstock.doctor.measures import DIGEST_BYTES, digests_of
from penstock.errors import ArgumentError, PlanError, suggestion
from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap
from penstock.plan.split import Split

BLOCK_STEPS = 1 << 16


def split(
    data: EpisodeDataset,
    shares: Mapping[str, float] | Mapping[str, int],
    *,
    by: str | None = None,
    time: str | None = None,
    duplicates: bool = False,
    seed: int = 0,
    threads: int | None = None,
) -> dict[str, EpisodeDataset]:
    """Split the episodes of a dataset into named parts, without leakage from one to another.

    Args:
        data: The dataset.
        shares: Fraction of the episodes, or number of episodes, of each part by name. Fractions add up to 1.
        by: Metadata of episodes, or column, whose value must not be in two parts; of a column, the first row of an
            episode counts. The default is None: episodes are drawn one by one.
        time: Metadata of episodes, or column of one number, that orders them: the first part gets the earliest ones.
            The default is None: parts are drawn at random. If it is a column, a warning counts the episodes that go on
            after a later part begins.
        duplicates: Whether episodes with the same values may be in different parts. The default is False, which reads
            all values once.
        seed: Seed of the draw, 0 to 2^64 - 1. The default is 0.
        threads: Threads that look for duplicates. The default is None: the number of cores.

    Returns:
        A dataset for each name, each in the order of the episodes. Every episode is in one part, or in none if the
        shares are numbers that add up to less.

    Raises:
        ArgumentError: There is no such metadata or column, or times are no numbers.
        PlanError: The shares are neither fractions that add up to 1, nor numbers of at most all episodes.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(10.0)}, lengths=[1] * 10)
        >>> parts = split(data, {"train": 0.8, "test": 0.2}, seed=1)
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 8, 'test': 2}
    """
    rule = Split(tuple(shares.values()), 0, seed)  # pyright: ignore[reportArgumentType]  one kind of number
    counts = rule.counts(len(data))
    if sum(counts) > len(data):
        raise PlanError(f"expected shares of at most {len(data)} episodes, got {sum(counts)}")
    group = np.arange(len(data))
    if data.episodes.first_step is not None:  # parts of one stored episode
        group = _numbers(np.asarray(data.episodes.index, np.int64))
    if by is not None:
        group = _joined(group, _numbers(_values(data, by)))
    if not duplicates:
        group = _joined(group, _numbers(_digests(data, threads)))
    if time is None:
        part = _drawn(group, counts, seed)
    else:
        when = _values(data, time)
        if when.dtype.kind not in "iuf" or when.ndim != 1:
            raise ArgumentError(f"expected one number an episode in {time!r}, got {when.dtype}{list(when.shape[1:])}")
        part = _in_order(_joined(group, _numbers(when)), when, counts)
        if time in data.spec:
            _warn_of_overlaps(part, when, _values(data, time, last=True), list(shares))
    return {name: data[np.flatnonzero(part == number)] for number, name in enumerate(shares)}


def _warn_of_overlaps(part: IntArray, begin: AnyArray, end: AnyArray, names: Sequence[str]) -> None:
    """Warn of episodes that go on after a later part begins."""
    for earlier, later in pairwise(range(len(names))):
        starts = begin[part == later]
        over = 0 if not len(starts) else int(np.count_nonzero(end[(part >= 0) & (part <= earlier)] > starts.min()))
        if over:
            message = f"{counted(over, 'episode')} of earlier parts end after {names[later]!r} begins"
            warnings.warn(f"{message}; group what overlaps with by=, or leave it out", stacklevel=3)


def _values(data: EpisodeDataset, name: str, *, last: bool = False) -> AnyArray:
    """`[E, ...]` the value of an entry of metadata, or the first or last row of a column, of each episode."""
    table = data.table().flat
    if name in table:
        return np.asarray(table[name])
    index = np.asarray(data.episodes.index, np.int64)
    if name not in data.spec:
        stored = data.source.episode_metadata(index.tolist())
        if any(name in entries for entries in stored):
            return np.array([str(entries.get(name)) for entries in stored])
        known = list(dict.fromkeys([*table, *(key for entries in stored for key in entries), *data.spec]))
        raise ArgumentError(f"no metadata and no column {name!r}{suggestion(name, known)}; there are {known}")
    bounds = data.source.rows(data.spec[name].align)
    first = bounds[index + 1] - 1 if last else bounds[index]
    order = np.arange(len(index))
    rows = data.source.read([name], Selection(order * 0, first, order * 0 + 1, order, (len(order), 1)))[name]
    if isinstance(rows, Ragged):
        return np.array([blob.hex() for blob in rows.blobs()])
    return np.asarray(rows)[:, 0]


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


def _digests(data: EpisodeDataset, threads: int | None) -> ByteArray:
    """`[E, 16]` digests of all values of the chosen episodes; episodes without steps differ from one another."""
    index = np.asarray(data.episodes.index, np.int64)
    lengths = np.diff(data.source.offsets)[index]
    size = np.cumsum(lengths + 1) // BLOCK_STEPS
    cuts = np.flatnonzero((np.diff(index) != 1) | (np.diff(size) > 0)) + 1
    bounds = np.concatenate([[0], cuts, [len(index)]]).astype(np.int64)
    runs = [(int(index[a]), int(index[b - 1]) + 1) for a, b in pairwise(bounds.tolist()) if b > a]

    def work(number: int) -> ByteArray:
        return digests_of(read_block(data.source, *runs[number], list(data.spec)))

    with OrderedMap(work, range(len(runs)), PrefetchLimits(threads)) as done:
        parts = [np.zeros((0, DIGEST_BYTES), np.uint8), *done]
    return np.concatenate(parts)


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
