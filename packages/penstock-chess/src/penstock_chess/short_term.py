"""Short-term targets: the search's values in the next few moves, and which moves are played then."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray
from penstock_chess.kernels import rescoring
from penstock_chess.kernels.layout import TAIL

THETA = 5 / 6
VERSION = np.array([7, 0, 0, 0], np.uint8)
"""The first bytes of frames with these targets."""


def fill_short_term(frames: ByteArray, theta: float = THETA) -> None:
    """Write `q_st`, `d_st`, `opp_played_idx` and `next_played_idx` into the frames `[n, 8396]` uint8 of a game.

    Backwards, `q_st` is `theta` times the next frame's, seen from the other side, and `1 - theta` times `root_q`,
    in the last frame `root_q` itself; `d_st` the same for `root_d`, without a change of side, at least 0. All in
    float32, in the order of the original rescorer, whose bits these are. Past the end, indices are `NO_MOVE`.
    """
    rescoring.fill_short_term(frames, TAIL, theta)
    frames[:, :4] = VERSION
