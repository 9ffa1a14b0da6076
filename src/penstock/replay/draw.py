"""`Draw`: the samples of one batch, before their rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Float32Array, IntArray


@dataclass(frozen=True, eq=False)
class Draw:
    """Samples of one batch.

    Args:
        number: Number of its first draw.
        anchors: `[n]` int64 numbers of samples.
        weights: `[n]` float32 importance weights, or None.
        episodes: Episodes that had arrived.

    Example:
        >>> Draw.of_state(Draw(8, np.arange(2), None, 3).to_state()).anchors.tolist()
        [0, 1]
    """

    number: int
    anchors: IntArray
    weights: Float32Array | None
    episodes: int

    def to_state(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        return {
            "number": self.number,
            "anchors": self.anchors.copy(),
            "weights": None if self.weights is None else self.weights.copy(),
            "episodes": self.episodes,
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Draw:
        """Return the draw of saved values.

        Args:
            state: Output of `to_state`.
        """
        weights = None if state["weights"] is None else np.array(state["weights"], np.float32)
        return cls(int(state["number"]), np.array(state["anchors"], np.int64), weights, int(state["episodes"]))
