"""Definition of the sums of `penstock.kernels.digest`, written to be read."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import UInt64Array

STEP, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def sums_of(words: UInt64Array) -> list[int]:
    x = words + np.arange(len(words), dtype=np.uint64) * STEP
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    first = (x ^ (x >> np.uint64(31))).sum(dtype=np.uint64)
    second = ((x ^ (x >> np.uint64(29))) * STEP).sum(dtype=np.uint64)
    return [int(first), int(second)]
