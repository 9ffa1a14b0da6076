"""One seed for many purposes: each has a key of its own, so that no two of them draw the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, purpose: str) -> np.uint64:
    """A key of 64 bits for a purpose. Seeds are any integers.

    >>> len({key(0, "pool"), key(0, "sampler"), key(1, "pool"), key(0, "pool")})
    3
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
