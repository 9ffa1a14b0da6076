"""Short-term targets: what the search thinks in the next few moves, and which moves are played then."""

from __future__ import annotations

import numpy as np

from penstock.domains.chess.boards import Bytes, as_frames
from penstock.formats.lc0.records import FRAME, NO_MOVE
from penstock.kernels.dispatch import kernels

THETA = 5 / 6


def lacks_short_term(frames: Bytes) -> bool:
    """Whether a chunk of frames `[n, 8396]` uint8 comes from records before version 7: no frame has a `d_st`, or none
    tells a move that follows, where the last frame at least would say that there is none.

    >>> lacks_short_term(np.zeros((3, 8396), np.uint8))
    True
    """
    rows = as_frames(frames).view(FRAME)[:, 0]
    zero = not np.any(rows["opp_played_idx"]) and not np.any(rows["next_played_idx"])
    return zero or bool(np.all(np.isnan(rows["d_st"])))


def fill_short_term(frames: Bytes, theta: float = THETA) -> None:
    """Write `q_st`, `d_st`, `opp_played_idx` and `next_played_idx` into the frames `[n, 8396]` uint8 of a game.

    Backwards, `q_st` is `theta` times that of the next frame, seen from the other side, and `1 - theta` times `root_q`,
    in the last frame `root_q` itself; `d_st` the same of `root_d`, without a change of side, at least 0. All in
    float32, in the order of the original rescorer, whose bits these are. Past the end, indices are `NO_MOVE`.

    >>> frames = np.zeros((2, 8396), np.uint8)
    >>> rows = frames.view(FRAME)[:, 0]
    >>> rows["root_q"], rows["played_idx"] = (0.5, 0.25), (7, 9)
    >>> fill_short_term(frames, 0.5)
    >>> rows["q_st"].tolist(), rows["opp_played_idx"].tolist()
    ([0.125, 0.25], [9, 65535])
    """
    rows = frames.view(FRAME)[:, 0]
    q, d = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
    root_q, root_d = np.ascontiguousarray(rows["root_q"]), np.ascontiguousarray(rows["root_d"])
    with np.errstate(all="ignore"):
        kernels().short_term(root_q, root_d, np.float32(theta), q, d)
    rows["q_st"], rows["d_st"] = q, d
    played = rows["played_idx"].copy()
    for name, ahead in (("opp_played_idx", 1), ("next_played_idx", 2)):
        rows[name] = NO_MOVE
        rows[name][:-ahead] = played[ahead:]
    rows["version"] = 7
