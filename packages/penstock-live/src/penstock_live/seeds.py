"""Derives an independent key for each purpose from one seed, so that random numbers differ between purposes."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from penstock.kernels.permute import GOLDEN, mix


def key(seed: int, purpose: str) -> np.uint64:
    """A key of 64 bits for a purpose. Seeds are any integers."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def draws(key: np.uint64, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """`[n]` the draws of a key at its `counters` `[n]`, 64 bits each, independent of earlier draws."""
    return mix(counters.astype(np.uint64) * np.uint64(GOLDEN) + key)


def chances(key: np.uint64, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """`[n]` the same draws as numbers from 0 on below 1, of 53 bits."""
    return (draws(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53
