"""The value targets: six evaluations of a position, or the older winner, best q and plies left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.core.arrays import Float32Array
from penstock.errors import DataError
from penstock_chess.expansion import VALUES, Rows, expand

ROWS = ("result", "best", "played", "orig", "root", "st")
COLUMNS = ("q", "d", "moves_left")


class Outcomes(NamedTuple):
    """The targets of the older five-tuple, of `n` positions, seen by the side to move.

    Attributes:
        winner: `[n, 3]` float32: chances of a win, a draw and a loss, by the result of the game.
        best_q: `[n, 3]` float32: the same, by the evaluation of the best move.
        plies_left: `[n, 1]` float32: plies until the end of the game.

    Example:
        >>> outcomes(np.zeros((2, 6, 3), np.float32)).winner.tolist()
        [[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]
    """

    winner: Float32Array
    best_q: Float32Array
    plies_left: Float32Array


def values(rows: Rows, out: Float32Array | None = None) -> Float32Array:
    """Return six evaluations of each position: rows as in `ROWS`, columns as in `COLUMNS`.

    The columns are the evaluation seen by the side to move, in -1 to 1, the chance of a draw, and the plies left. A
    value is NaN where the record has NaN, for a position that was not in the engine's cache. The last value is always
    NaN: there is no short-term estimate of the plies left.

    Args:
        rows: Frames `[n, 8396]` uint8, or `n` compact rows.
        out: Contiguous array `[n, 6, 3]` float32. The default is None: a new array.

    Returns:
        `[n, 6, 3]` float32.

    Raises:
        DataError: Rows or `out` have another shape or dtype, or an input format is unknown.

    Example:
        >>> frames = np.zeros((1, 8396), np.uint8)
        >>> frames[0, 4] = 1
        >>> values(frames)[0, 5].tolist()
        [0.0, 0.0, nan]
    """
    filled = np.empty((len(rows), *VALUES), np.float32) if out is None else out
    expand(rows, values=filled)
    return filled


def outcomes(values: Float32Array) -> Outcomes:
    """Compute winner, best q and plies left from evaluations, in float64, rounded once.

    Args:
        values: `[n, 6, 3]` float32, as `values` returns them.

    Returns:
        The three targets.

    Raises:
        DataError: The values have another shape.

    Example:
        >>> targets = outcomes(np.array([[[1, 0, 30], [0.5, 0.5, 0], *[[0, 0, 0]] * 4]], np.float32))
        >>> targets.winner.tolist(), targets.best_q.tolist(), targets.plies_left.tolist()
        ([[1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]], [[30.0]])
    """
    if values.shape[1:] != VALUES:
        raise DataError(f"expected values [n, 6, 3], got {list(values.shape)}")
    return Outcomes(_win_draw_loss(values[:, 0]), _win_draw_loss(values[:, 1]), values[:, 0, 2:3].copy())


def _win_draw_loss(evaluation: Float32Array) -> Float32Array:
    with np.errstate(invalid="ignore", over="ignore"):
        q, d = evaluation[:, 0].astype(np.float64), evaluation[:, 1].astype(np.float64)
        return np.stack([0.5 * (1 - d + q), d, 0.5 * (1 - d - q)], axis=1).astype(np.float32)
