"""Duplicates among many episodes: equal digests, and nearly equal features.

Both take bounded memory: tables of a row for each episode are scratch files, and work on them is by blocks.

Near duplicates have the same number of steps, and means and standard deviations of their columns that differ by at most
`near_share` of the spread over the dataset. Candidates are neighbours in the order of one random projection (fixed
seed), so near duplicates cost a sort instead of all pairs. A pair that is more than `NEIGHBOURS` apart in that order is
not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, FloatArray, IntArray
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
