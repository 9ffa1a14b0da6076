"""The policy target: a share of visits for each of 1858 moves."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import Float32Array
from penstock.domains.chess.expansion import Rows, expand
from penstock.formats.lc0.records import POLICY


def probabilities(rows: Rows, out: Float32Array | None = None) -> Float32Array:
    """`[n, 1858]` float32 the policies of frames `[n, 8396]` uint8 or of compact rows, in `out` where there is one.

    As they are stored: -1 for an illegal move, the bits of NaN kept. Raises `DataError` for rows or an `out` of another
    form, and for an input format that does not exist.

    >>> frames = np.zeros((1, 8396), np.uint8)
    >>> frames[0, 4] = 1
    >>> probabilities(frames).shape
    (1, 1858)
    """
    filled = np.empty((len(rows), POLICY), np.float32) if out is None else out
    expand(rows, probabilities=filled)
    return filled
