"""The value targets: six evaluations of a position, or the older winner, best q and plies left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.core.arrays import Float32Array
from penstock.domains.chess.expansion import VALUES, Rows, expand
from penstock.errors import DataError

ROWS = ("result", "best", "played", "orig", "root", "st")
COLUMNS = ("q", "d", "moves_left")


class Outcomes(NamedTuple):
    """The targets of the older five-tuple: `winner` and `best_q` `[n, 3]` float32, the chances of a win, a draw and a
    loss of the side to move; `plies_left` `[n, 1]` float32."""

    winner: Float32Array
    best_q: Float32Array
    plies_left: Float32Array


def values(rows: Rows, out: Float32Array | None = None) -> Float32Array:
    """`[n, 6, 3]` float32 the values of frames `[n, 8396]` uint8 or of compact rows, in `out` where there is one.

    Rows are `ROWS`, columns are `COLUMNS`: the evaluation seen by the side to move, in -1 to 1, the chance of a draw,
    and the plies left. NaN where the record has NaN (a position that was not in the engine's cache), and always in the
    last place: there is no short-term estimate of plies left.

    Raises `DataError` for rows or an `out` of another form, and for an input format that does not exist.

    >>> frames = np.zeros((1, 8396), np.uint8)
    >>> frames[0, 4] = 1
    >>> values(frames)[0, 5].tolist()
    [0.0, 0.0, nan]
    """
    filled = np.empty((len(rows), *VALUES), np.float32) if out is None else out
    expand(rows, values=filled)
    return filled


def outcomes(values: Float32Array) -> Outcomes:
    """Winner, best q and plies left, of `[n, 6, 3]` values. Computed in float64 and rounded once.

    Raises `DataError` for values of another shape.

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
