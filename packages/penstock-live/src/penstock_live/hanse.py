"""`HanseSampling`: accepts chunks of large weight more often, decided in the order of the draws."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock_live.seeds import chances, key

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


class HanseSampling:
    """Accepts a draw with probability `(weight / largest weight so far) ** gamma`.

    `largest` is over all draws up to and including this one, so decisions are a function of the seed and of the weights
    in the order of the draws. Source: the chunk pool of Leela Chess Zero's loader.

    Args:
        gamma: Exponent, 0 or more. 0 accepts every draw. The default is 1.
        seed: 0 to 2^64 - 1. The default is 0.

    Raises:
        PlanError: `gamma` is negative or infinite.

    Example:
        >>> hanse = HanseSampling(gamma=1.0, seed=1)
        >>> hanse.accept(np.arange(4), np.array([8.0, 8.0, 0.0, 8.0])).tolist(), hanse.largest
        ([True, True, False, True], 8.0)
    """

    def __init__(self, gamma: float = 1.0, seed: int = 0) -> None:
        if not 0 <= gamma < np.inf:
            raise PlanError(f"expected a gamma of zero or more, got {gamma}")
        self._gamma, self._key = gamma, key(seed, "hanse")
        self.largest = 0.0

    def accept(self, seq: Int, weights: Float) -> npt.NDArray[np.bool_]:
        """Return `[n]` whether each draw is accepted. `seq[n]` are numbers of draws, `weights[n]` NaN if missing.

        Args:
            seq: `[n]` int64 numbers of the draws.
            weights: `[n]` weights of their chunks, NaN if missing.
        """
        known = np.nan_to_num(weights, nan=0.0)
        largest = np.maximum.accumulate(np.append(self.largest, known))[1:]
        if len(largest):
            self.largest = float(largest[-1])
        return (known > 0) & self._below(seq, known, largest)

    def hopeless(self, seq: Int, weights: Float) -> npt.NDArray[np.bool_]:
        """Return `[n]` whether draws will be rejected, also NaN: the largest weight can only grow.

        Args:
            seq: `[n]` int64 numbers of the draws.
            weights: `[n]` weights of their chunks, NaN if unknown.
        """
        known = np.nan_to_num(weights, nan=0.0)
        below = (known >= self.largest) | self._below(seq, known, self.largest)
        return (known <= 0) | ~below

    def _below(self, seq: Int, weights: Float, largest: Float | float) -> npt.NDArray[np.bool_]:
        chance = (weights / np.where(np.asarray(largest) > 0, largest, 1.0)) ** self._gamma
        return chances(self._key, seq) < chance
