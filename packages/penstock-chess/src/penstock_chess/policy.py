"""The policy target: a share of visits for each of 1858 moves."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import Float32Array
from penstock_chess.expansion import Rows, expand
from penstock_chess.formats.lc0.records import POLICY


def probabilities(rows: Rows, out: Float32Array | None = None) -> Float32Array:
    """Return the policy targets of positions as they are stored: -1 for an illegal move, the bits of NaN kept.

    Args:
        rows: Frames `[n, 8396]` uint8, or `n` compact rows.
        out: Contiguous array `[n, 1858]` float32. The default is None: a new array.

    Returns:
        `[n, 1858]` float32: the share of visits of each move.

    Raises:
        DataError: Rows or `out` have another shape or dtype, or an input format is unknown.

    Example:
        >>> frames = np.zeros((1, 8396), np.uint8)
        >>> frames[0, 4] = 1
        >>> probabilities(frames).shape
        (1, 1858)
    """
    filled = np.empty((len(rows), POLICY), np.float32) if out is None else out
    expand(rows, probabilities=filled)
    return filled
