"""What the kernels of live data compute, in Python and NumPy: the compiled ones in `live` must equal these."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.cipher_reference import GOLDEN, mix

Int = npt.NDArray[np.int64]


def draw_ranges(left: Int, key: Any, counter: int, out: Int) -> int:
    """Which range each draw is from: range `s` with probability `left[s]` by the sum of all, which then is one less.

    Draw `i` is decided by `mix(key + (counter + i) * GOLDEN)` alone. `left[S]` is counted down; `out[n]` gets ranges.
    Gives how many draws there were: fewer than `n` where nothing is left.

    >>> left, out = np.array([1, 0, 2]), np.zeros(5, np.int64)
    >>> draw_ranges(left, np.uint64(7), 0, out), sorted(out[:3].tolist()), left.tolist()
    (3, [0, 2, 2], [0, 0, 0])
    """
    total = int(left.sum())
    n = min(len(out), total)
    with np.errstate(over="ignore"):
        draws = mix(np.uint64(key) + (np.arange(n, dtype=np.uint64) + np.uint64(counter)) * np.uint64(GOLDEN))
    for i in range(n):
        place = int(draws[i]) % (total - i)
        out[i] = np.searchsorted(np.cumsum(left), place, side="right")
        left[out[i]] -= 1
    return n
