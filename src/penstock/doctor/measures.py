"""Measures of episodes: one number an episode, and what they say once all episodes are known.

A viewer sorts episodes by them, and `judge` reports the episodes that differ from the others. A measure of an episode
depends on the rows of that episode alone, so blocks may be read by any thread.

Two episodes are duplicates if their digests are equal, which are made of every value of every column that was read,
but for columns that number episodes and rows.
Near duplicates have the same number of steps, and means and standard deviations of their columns that differ by at most
`near_share` of the spread over the dataset. Candidates are neighbours in the order of one random projection (fixed
seed), so near duplicates cost a sort instead of all pairs. A pair that is more than `NEIGHBOURS` apart in that order is
not found.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, FloatArray, IntArray
from penstock.core.ragged import Ragged
from penstock.doctor.block import EpisodeBlock, Hits, flattened, is_camera, is_numbering, sums
from penstock.doctor.rows import clock_changes
from penstock.doctor.thresholds import CheckThresholds
from penstock.files.arrays import scratch_zeros

DIGEST_BYTES = 16
PARTITION = 1 << 20  # digests that are compared together
FEATURES = 8  # elements of a column that count for near duplicates
NEIGHBOURS = 4
# Measures of a column are named by its path behind one of these:
STEP = "step of "
PACE = "mean step of "
CHANGE = "largest change of "
UNIT_SHARE = 0.02  # how near the ratio of two clocks is to a power of ten, if it is one


@dataclass(frozen=True, eq=False)
class BlockMeasures:
    """Measures of the episodes of one block.

    Args:
        first: Number of the first episode.
        lengths: `[n]` int64 steps.
        digests: `[n, 16]` uint8 digest of all values, or None if not all columns were read.
        values: `[n]` float64 by name of the measure, NaN where it has no value.
        features: `[n, k]` float64 means and standard deviations.
    """

    first: int
    lengths: IntArray
    digests: ByteArray | None
    values: Mapping[str, FloatArray]
    features: FloatArray


@dataclass(eq=False)
class Measures:
    """Measures of all episodes of a dataset, filled block by block.

    Args:
        episodes: Number of episodes.
    """

    episodes: int
    lengths: IntArray = field(init=False)
    digests: ByteArray = field(init=False)
    known: ByteArray = field(init=False)  # 0: not looked at, 1: without a digest, 2: with one
    values: dict[str, FloatArray] = field(init=False, default_factory=dict[str, FloatArray])
    features: FloatArray | None = None

    def __post_init__(self) -> None:
        self.lengths = np.zeros(self.episodes, np.int64)
        self.digests = scratch_zeros((self.episodes, DIGEST_BYTES), np.uint8)
        self.known = np.zeros(self.episodes, np.uint8)

    def add(self, block: BlockMeasures) -> None:
        """Add the measures of a block."""
        here = slice(block.first, block.first + len(block.lengths))
        self.lengths[here] = block.lengths
        self.known[here] = 1
        if block.digests is not None:
            self.digests[here] = block.digests
            self.known[here] = 2
        for name, values in block.values.items():
            self.values.setdefault(name, np.full(self.episodes, np.nan))[here] = values
        if self.features is None:
            self.features = np.full((self.episodes, block.features.shape[1]), np.nan)
        self.features[here] = block.features


def measured(block: EpisodeBlock, thresholds: CheckThresholds, *, complete: bool) -> BlockMeasures:
    """Return the measures of a block.

    Args:
        block: The episodes.
        thresholds: CheckThresholds of what counts as a change.
        complete: Whether the block has all columns, so that digests tell episodes apart.
    """
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
    return BlockMeasures(block.first, block.lengths, digests_of(block) if complete else None, values, _features(block))


def _pace(change: FloatArray, usual: FloatArray, bounds: IntArray, thresholds: CheckThresholds) -> FloatArray:
    """`[n]` mean time between rows, where gaps and steps back count as a usual step; NaN for episodes of one row."""
    owner = np.repeat(np.arange(len(usual)), np.diff(bounds))
    strange = (change <= 0) | (change > thresholds.gap_factor * usual[owner])
    counted = np.where(strange, usual[owner], change)
    counted[np.isnan(change)] = 0  # the first row of each episode
    count = np.diff(bounds) - 1
    pace = np.full(len(usual), np.nan)
    some = count > 0
    pace[some] = sums(counted, bounds)[some] / count[some]
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
    some = np.flatnonzero(lengths > 0)
    if len(some):
        largest[some] = np.maximum.reduceat(first, bounds[some])
    largest[lengths < 2] = np.nan
    moved = sums(first, bounds)
    smooth = (lengths > 2) & (moved > 0)
    with np.errstate(invalid="ignore"):
        jerk[smooth] = sums(second, bounds)[smooth] / moved[smooth]
    return largest, jerk


def digests_of(block: EpisodeBlock) -> ByteArray:
    """`[n, 16]` BLAKE2b of all columns but numberings, each with its path, dtype and number of bytes."""
    digests = [hashlib.blake2b(digest_size=DIGEST_BYTES) for _ in range(len(block))]
    for path in sorted(path for path in block.columns if not is_numbering(path, block.spec[path])):
        rows = block.columns[path]
        bounds = block.bounds(block.spec[path].align)
        if isinstance(rows, Ragged):
            for digest, a, b in zip(digests, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                digest.update((rows.offsets[a : b + 1] - rows.offsets[a]).tobytes())
            bounds, rows = rows.offsets[bounds], rows.values
        head = f"{path} {rows.dtype.str} {rows.shape[1:]} ".encode()
        raw = np.ascontiguousarray(flattened(rows)).view(np.uint8)
        for digest, a, b in zip(digests, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            digest.update(head + str(b - a).encode())
            digest.update(raw[a:b].data)
    return np.frombuffer(b"".join(digest.digest() for digest in digests), np.uint8).reshape(-1, DIGEST_BYTES)


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


def standardized(features: FloatArray) -> FloatArray:
    """Return features with mean 0 and standard deviation 1 over the episodes; features that do not vary are 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.where(np.isfinite(features), features, 0.0)
        spread = finite.std(axis=0)
        return np.where(spread > 0, (finite - finite.mean(axis=0)) / np.where(spread > 0, spread, 1), 0.0)


def novelty(measures: Measures) -> FloatArray:
    """`[E]` distance of the means of an episode to the means of all, in standard deviations; NaN if unknown."""
    result = np.full(measures.episodes, np.nan)
    seen = np.flatnonzero(measures.known)
    if measures.features is not None and len(seen) and measures.features.shape[1]:
        result[seen] = np.sqrt(np.mean(np.square(standardized(measures.features[seen])), axis=1))
    return result


def judge(measures: Measures, rates: Mapping[str, float], thresholds: CheckThresholds) -> Iterator[Hits]:
    """Yield the episodes whose measures differ from the usual ones.

    Args:
        measures: Measures of all episodes.
        rates: Stated steps a second by column of timestamps. Others are compared with the usual rate.
        thresholds: CheckThresholds.
    """
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
        # The other clock is named: without a stated rate, nobody knows which of both is right.
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


def first_of_equals(digests: ByteArray) -> IntArray:
    """`[n]` the first row with the same digest.

    Equal digests begin with the same bytes. So rows are divided by these into partitions of about `PARTITION` rows, in
    order, and each partition is compared for itself. Memory: a partition at a time, some 100 MB; 32 bytes a row are in
    a scratch file.

    Example:
        >>> first_of_equals(np.array([[1], [2], [1]], np.uint8)).tolist()
        [0, 1, 0]
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
    if measures.features is None or not measures.features.shape[1] or len(single) < 3:
        return
    features = standardized(measures.features[single])
    projected = np.asarray(features @ np.random.default_rng(0).standard_normal(features.shape[1]), np.float64)
    order = np.lexsort((projected, measures.lengths[single]))
    near = np.zeros(measures.episodes, np.bool_)
    for step in range(1, NEIGHBOURS + 1):
        a, b = order[:-step], order[step:]
        close = measures.lengths[single[a]] == measures.lengths[single[b]]
        close &= np.abs(features[a] - features[b]).max(axis=1) <= thresholds.near_share
        near[single[np.maximum(a, b)[close]]] = True
    yield from _marked("near-duplicate", "", near)
