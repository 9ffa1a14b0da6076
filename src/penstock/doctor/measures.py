"""Measures of episodes: one number an episode, and what they say once all episodes are known.

A viewer sorts episodes by them, and `judge` reports the episodes that differ from the others. A measure of an episode
depends on the rows of that episode alone, so blocks may be read by any thread.

Two episodes are duplicates if their digests are equal, which are made of every value of every column that was read,
but for columns that number episodes and rows.

Near duplicates have the same number of steps, and means and standard deviations of their columns that differ by at most
`near_share` of the spread over the dataset. Candidates are neighbours in the order of one random projection (fixed
seed), so near duplicates cost a sort instead of all pairs. A pair that is more than `NEIGHBOURS` apart in that order is
not found.

The search takes bounded memory: tables of a row for each episode are scratch files, and work on them is by blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, FloatArray, IntArray
from penstock.core.spec import is_camera
from penstock.data.loaded_episodes import DIGEST_BYTES, flattened, is_numbering
from penstock.doctor.block import EpisodeBlock, Hits, sums
from penstock.doctor.rows import clock_changes
from penstock.doctor.thresholds import CheckThresholds
from penstock.files.arrays import scratch_zeros

PARTITION = 1 << 20  # digests that are compared together
BLOCK_VALUES = 1 << 18  # features that are in memory together
NEIGHBOURS = 4


def first_of_equals(digests: ByteArray) -> IntArray:
    """`[n]` the first row with the same digest.

    Equal digests begin with the same bytes. So rows are divided by these into partitions of about `PARTITION` rows, in
    order, and each partition is compared for itself. Memory: a partition at a time, some 100 MB; 32 bytes a row are in
    a scratch file.
    """
    if len(digests) <= PARTITION:
        return _first_of_equals(digests)
    entry = np.dtype([("digest", f"V{digests.shape[1]}"), ("row", np.int64)])
    bits = min(((len(digests) - 1) // PARTITION).bit_length(), 16)
    blocks = [(a, min(a + PARTITION, len(digests))) for a in range(0, len(digests), PARTITION)]
    counts = [np.bincount(_partition(digests[a:b], bits), minlength=1 << bits) for a, b in blocks]
    ends = np.cumsum(np.sum(counts, axis=0))
    free = np.concatenate([[0], ends[:-1]])  # place of the next row of each partition
    entries = scratch_zeros((len(digests),), entry)
    for (a, b), count in zip(blocks, counts, strict=True):
        partition = _partition(digests[a:b], bits)
        order = np.argsort(partition, kind="stable")
        begins = np.cumsum(count) - count
        places = (free - begins)[partition[order]] + np.arange(b - a)
        entries["digest"][places] = np.ascontiguousarray(digests[a:b][order]).view(entry["digest"]).reshape(-1)
        entries["row"][places] = order + a
        free += count
    first = scratch_zeros((len(digests),), np.int64)
    for a, b in pairwise([0, *ends.tolist()]):
        rows = entries["row"][a:b]
        first[rows] = rows[_first_of_equals(entries["digest"][a:b])]
    return first


def _partition(digests: ByteArray, bits: int) -> IntArray:
    """The first bits of each digest."""
    head = digests[:, 0].astype(np.int64) << 8 | digests[:, min(1, digests.shape[1] - 1)]
    return head >> (16 - bits)


def _first_of_equals(digests: AnyArray) -> IntArray:
    width = digests.dtype.itemsize * (digests.shape[1] if digests.ndim > 1 else 1)
    whole = np.ascontiguousarray(digests).view(f"V{width}").reshape(-1)
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    return first[number.reshape(-1)]


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """Mean and standard deviation of features over some episodes. Values that are not finite count as 0."""

    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, features: FloatArray, chosen: IntArray) -> FeatureScale:
        """Return the scale of some episodes, from two passes by blocks."""
        origin = _finite(features[chosen[:1]])[0]  # differences to it are exact for a feature that does not vary
        total, squares = np.zeros_like(origin), np.zeros_like(origin)
        with np.errstate(invalid="ignore", over="ignore"):
            for part in blocks_of(chosen, features):
                total += (_finite(features[part]) - origin).sum(axis=0)
            mean = origin + total / len(chosen)
            for part in blocks_of(chosen, features):
                squares += np.square(_finite(features[part]) - mean).sum(axis=0)
            return cls(mean, np.sqrt(squares / len(chosen)))

    def apply(self, features: FloatArray) -> FloatArray:
        """Return features with mean 0 and standard deviation 1. Features that do not vary are 0."""
        with np.errstate(invalid="ignore", over="ignore"):
            varies = self.spread > 0
            return np.where(varies, (_finite(features) - self.mean) / np.where(varies, self.spread, 1), 0.0)


def near_duplicates(features: FloatArray, chosen: IntArray, lengths: IntArray, share: float) -> BoolArray:
    """Return which episodes are nearly the same as another one before them in the dataset."""
    scale = FeatureScale.of(features, chosen)
    direction = np.asarray(np.random.default_rng(0).standard_normal(features.shape[1]), np.float64)
    projected = scratch_zeros((len(chosen),), np.float64)
    begin = 0
    for part in blocks_of(chosen, features):
        projected[begin : begin + len(part)] = scale.apply(features[part]) @ direction
        begin += len(part)
    ordered = chosen[np.lexsort((projected, lengths[chosen]))]
    near = np.zeros(len(features), np.bool_)
    size = _block_rows(features)
    for begin in range(0, len(ordered), size):
        part = ordered[begin : begin + size + NEIGHBOURS]
        rows = scale.apply(features[part])
        for step in range(1, min(NEIGHBOURS, len(part) - 1) + 1):
            close = lengths[part[:-step]] == lengths[part[step:]]
            close &= np.abs(rows[:-step] - rows[step:]).max(axis=1) <= share
            near[np.maximum(part[:-step], part[step:])[close]] = True
    return near


def blocks_of(chosen: IntArray, features: FloatArray) -> Iterator[IntArray]:
    """Yield consecutive numbers of `chosen` whose features fit in memory."""
    size = _block_rows(features)
    return (chosen[begin : begin + size] for begin in range(0, len(chosen), size))


def _block_rows(features: FloatArray) -> int:
    return max(BLOCK_VALUES // max(features.shape[1], 1), 1)


def _finite(features: FloatArray) -> FloatArray:
    return np.where(np.isfinite(features), features, 0.0)


FEATURES = 8  # elements of a column that count for near duplicates
# Measures of a column are named by its path behind one of these:
STEP = "step of "
PACE = "mean step of "
CHANGE = "largest change of "
UNIT_SHARE = 0.02  # how near the ratio of two clocks is to a power of ten, if it is one


@dataclass(frozen=True, eq=False)
class BlockMeasures:
    """Measures of the episodes of one block."""

    first: int
    lengths: IntArray
    digests: ByteArray | None
    values: Mapping[str, FloatArray]
    features: FloatArray


@dataclass(eq=False)
class Measures:
    """Measures of all episodes of a dataset, filled block by block. Large arrays are scratch files."""

    episodes: int
    lengths: IntArray = field(init=False)
    digests: ByteArray = field(init=False)
    known: ByteArray = field(init=False)  # 0: not looked at, 1: without a digest, 2: with one
    values: dict[str, FloatArray] = field(init=False, default_factory=dict[str, FloatArray])
    features: FloatArray | None = None  # defined where `known` is not 0

    def __post_init__(self) -> None:
        self.lengths = scratch_zeros((self.episodes,), np.int64)
        self.digests = scratch_zeros((self.episodes, DIGEST_BYTES), np.uint8)
        self.known = np.zeros(self.episodes, np.uint8)

    def add(self, block: BlockMeasures) -> None:
        here = slice(block.first, block.first + len(block.lengths))
        self.lengths[here] = block.lengths
        self.known[here] = 1
        if block.digests is not None:
            self.digests[here] = block.digests
            self.known[here] = 2
        if new := [name for name in block.values if name not in self.values]:
            self.values.update(zip(new, _unknown(len(new), self.episodes), strict=True))
        for name, values in block.values.items():
            self.values[name][here] = values
        if self.features is None:
            self.features = scratch_zeros((self.episodes, block.features.shape[1]), np.float64)
        self.features[here] = block.features


def _unknown(measures: int, episodes: int) -> FloatArray:
    """`[measures, E]` NaN, together in one scratch file if it is large."""
    values = scratch_zeros((measures, episodes), np.float64)
    values[:] = np.nan
    return values


def measured(block: EpisodeBlock, thresholds: CheckThresholds, *, complete: bool) -> BlockMeasures:
    values: dict[str, FloatArray] = {"length": block.lengths.astype(np.float64)}
    for _, field_, rewards in block.arrays("rewards"):
        if field_.align == "step" and rewards.dtype.kind in "fiub" and rewards.ndim == 1:
            values.setdefault("return", sums(rewards, block.bounds("step")))
    still = block.still_steps(thresholds.idle_share)
    if still is not None:
        values["stillness"] = sums(still.astype(np.int64), block.bounds("step")) / np.maximum(block.lengths, 1)
    for path, field_, rows in block.arrays("actions"):
        if field_.align == "step" and rows.dtype.kind == "f" and rows.size:
            change, jerk = _roughness(flattened(rows).astype(np.float64), block.bounds("step"))
            values[f"{CHANGE}{path}"] = change
            values["jerk"] = values["jerk"] + jerk if "jerk" in values else jerk
    for path, field_, rows in block.clocks():
        bounds = block.bounds(field_.align)
        change, usual = clock_changes(rows, bounds)
        values[f"{STEP}{path}"] = usual
        values[f"{PACE}{path}"] = _pace(change, usual, bounds, thresholds)
    return BlockMeasures(block.first, block.lengths, block.digests() if complete else None, values, _features(block))


def _pace(change: FloatArray, usual: FloatArray, bounds: IntArray, thresholds: CheckThresholds) -> FloatArray:
    """`[n]` mean time between rows, where gaps and steps back count as a usual step; NaN for episodes of one row."""
    owner = np.repeat(np.arange(len(usual)), np.diff(bounds))
    strange = (change <= 0) | (change > thresholds.gap_factor * usual[owner])
    counted = np.where(strange, usual[owner], change)
    counted[np.isnan(change)] = 0  # the first row of each episode
    count = np.diff(bounds) - 1
    pace = np.full(len(usual), np.nan)
    several = count > 0
    pace[several] = sums(counted, bounds)[several] / count[several]
    return pace


def _roughness(actions: FloatArray, bounds: IntArray) -> tuple[FloatArray, FloatArray]:
    """`[n]` largest change of any element between steps; and the ratio of mean second to mean first differences.

    NaN for episodes of fewer than two and three steps.
    """
    lengths = np.diff(bounds)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(actions)) - bounds[owner]
    first = np.zeros(len(actions))
    second = np.zeros(len(actions))
    with np.errstate(invalid="ignore"):  # infinite values, which are reported by their own check
        first[1:] = np.abs(np.diff(actions, axis=0)).max(axis=1)
        second[2:] = np.abs(np.diff(actions, n=2, axis=0)).max(axis=1)
    first[place < 1] = 0
    second[place < 2] = 0
    largest = np.full(len(lengths), np.nan)
    jerk = largest.copy()
    filled = np.flatnonzero(lengths > 0)
    if len(filled):
        largest[filled] = np.maximum.reduceat(first, bounds[filled])
    largest[lengths < 2] = np.nan
    moved = sums(first, bounds)
    smooth = (lengths > 2) & (moved > 0)
    with np.errstate(invalid="ignore"):
        jerk[smooth] = sums(second, bounds)[smooth] / moved[smooth]
    return largest, jerk


def _features(block: EpisodeBlock) -> FloatArray:
    """`[n, k]` mean and standard deviation of the first elements of columns of numbers; no pictures, no numberings."""
    parts: list[FloatArray] = []
    for path, field_, rows in block.arrays():
        if rows.dtype.kind not in "fiu" or is_camera(field_) or is_numbering(path, field_):
            continue
        bounds = block.bounds(field_.align)
        count = np.maximum(np.diff(bounds), 1)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            flat = flattened(rows)[:, :FEATURES].astype(np.float64)
            mean = sums(flat, bounds) / count
            parts += [mean, np.sqrt(np.maximum(sums(flat * flat, bounds) / count - mean * mean, 0))]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(block), 0))


def novelty(measures: Measures) -> FloatArray:
    """`[E]` distance of the means of an episode to the means of all, in standard deviations; NaN if unknown."""
    (result,) = _unknown(1, measures.episodes)
    features = measures.features
    seen = np.flatnonzero(measures.known)
    if features is not None and len(seen) and features.shape[1]:
        scale = FeatureScale.of(features, seen)
        for part in blocks_of(seen, features):
            result[part] = np.sqrt(np.mean(np.square(scale.apply(features[part])), axis=1))
    return result


def judge(measures: Measures, rates: Mapping[str, float], thresholds: CheckThresholds) -> Iterator[Hits]:
    """Yield the episodes whose measures differ from the usual ones."""
    seen = measures.known > 0
    lengths = measures.lengths
    if seen.any() and float(np.median(lengths[seen])) > 2:
        yield from _marked("one-step", "", seen & (lengths == 1))
    for name, values in measures.values.items():
        if name.startswith(CHANGE):
            usual = float(np.nanmedian(values)) if np.isfinite(values).any() else 0.0
            if usual > 0:
                column = name.removeprefix(CHANGE)
                yield from _marked("action-jump", column, values > thresholds.jump_factor * usual)
    yield from _clocks(measures, rates, thresholds)
    yield from _duplicates(measures, thresholds)


def _clocks(measures: Measures, rates: Mapping[str, float], thresholds: CheckThresholds) -> Iterator[Hits]:
    """Episodes with another rate, and clocks that run away from the stated rate, or from the first clock."""
    steps = {name.removeprefix(STEP): values for name, values in measures.values.items() if name.startswith(STEP)}
    known = {path: values for path, values in steps.items() if (values > 0).any()}
    wrong: dict[str, BoolArray] = {}
    drifting: dict[str, BoolArray] = {}
    for path, values in known.items():
        usual = 1 / rates[path] if path in rates else float(np.nanmedian(values))
        wrong[path] = (
            np.abs(values / usual - 1) > thresholds.rate_share if usual > 0 else np.zeros(len(values), np.bool_)
        )
        pace = measures.values[f"{PACE}{path}"]
        away = np.abs(pace * rates[path] - 1) if path in rates else np.zeros(len(pace))
        drifting[path] = away * measures.lengths > thresholds.drift_steps
    for one, other in zip(list(known)[:1] * (len(known) - 1), list(known)[1:], strict=True):
        ratio = measures.values[f"{PACE}{other}"] / measures.values[f"{PACE}{one}"]
        away = np.abs(ratio / _unit_ratio(ratio) - 1) * measures.lengths
        # The other clock is named: without a stated rate, either may be right.
        drifting[other] |= (away > thresholds.drift_steps) & ~wrong[one] & ~drifting[one]
    for path in known:
        yield from _marked("time-rate", path, wrong[path])
        yield from _marked("time-drift", path, drifting[path] & ~wrong[path])


def _unit_ratio(ratio: FloatArray) -> float:
    """Ratio of the units of two clocks: a power of ten if it is near one, else what is usual."""
    usual = float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else 1.0
    if not usual > 0:
        return 1.0
    power = 10.0 ** round(math.log10(usual))
    return power if abs(usual / power - 1) < UNIT_SHARE else usual


def _marked(name: str, column: str, bad: AnyArray) -> Iterator[Hits]:
    episodes = np.flatnonzero(bad)
    if len(episodes):
        yield Hits(name, column, episodes, np.zeros_like(episodes), np.ones_like(episodes))


def _duplicates(measures: Measures, thresholds: CheckThresholds) -> Iterator[Hits]:
    chosen = np.flatnonzero((measures.known == 2) & (measures.lengths > 1))
    if len(chosen) < 2:
        return
    is_whole = len(chosen) == measures.episodes
    first = first_of_equals(measures.digests if is_whole else measures.digests[chosen])
    copies = first != np.arange(len(chosen))
    marked = np.zeros(measures.episodes, np.bool_)
    marked[chosen[copies]] = True
    yield from _marked("duplicate-episode", "", marked)
    single = chosen[~copies]
    if measures.features is not None and measures.features.shape[1] and len(single) >= 3:
        near = near_duplicates(measures.features, single, measures.lengths, thresholds.near_share)
        yield from _marked("near-duplicate", "", near)
