"""Counter-based randomness: one key for each sample, a function of seed and position."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import IntArray, UInt64Array


def keys(seed: int, positions: IntArray) -> UInt64Array:
    """Return random keys by SplitMix64 of the position, on a stream chosen by the seed. Cost: some
    nanoseconds a key.
    """
    stream = mixed(np.array([seed % (1 << 64)], np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    steps = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return mixed(stream + steps)


def mixed(z: UInt64Array) -> UInt64Array:
    """Return the words after the finish of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
