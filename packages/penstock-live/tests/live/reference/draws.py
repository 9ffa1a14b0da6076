"""Definitions of `penstock_live.kernels.draws`, written to be read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from tests.kernels.reference.permute import GOLDEN, mix, permute


def draw_ranges(left: IntArray, key: Any, counter: int, out: IntArray) -> int:
    total = int(left.sum())
    n = min(len(out), total)
    with np.errstate(over="ignore"):
        draws = mix(np.uint64(key) + (np.arange(n, dtype=np.uint64) + np.uint64(counter)) * np.uint64(GOLDEN))
    for i in range(n):
        place = int(draws[i]) % (total - i)
        out[i] = np.searchsorted(np.cumsum(left), place, side="right")
        left[out[i]] -= 1
    return n


def shuffle_places(
    key: Any, number: IntArray, n: IntArray, begin: IntArray, endless: bool, cuts: IntArray, out: IntArray
) -> None:
    for c, (lo, hi) in enumerate(pairwise(cuts.tolist())):
        at = np.arange(begin[c], begin[c] + hi - lo)
        mixed = mix(np.array([number[c]], np.uint64) * np.uint64(GOLDEN) + key)[0]
        stream = at // n[c] if endless else np.zeros(len(at), np.int64)
        out[lo:hi] = permute(at % n[c], np.full(len(at), n[c]), stream, int(mixed))
