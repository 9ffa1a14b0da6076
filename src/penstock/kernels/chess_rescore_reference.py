"""Reference implementation of rescoring chess games: the compiled kernels in `chess_rescore` must equal it."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.chess_trace_reference import (
    BLACK,
    CASTLE,
    CLOCK,
    EN_PASSANT,
    FAULTS,
    INDEX,
    SEEN,
    exchanged,
    trace,
)

POLICY = 1858
FIELDS = {name: 2070 + k for k, name in enumerate(("root_q", "best_q", "root_d", "best_d", "root_m", "best_m"))}
"""Which 4 bytes of a record are a float, counted in fours."""
FIELDS.update(
    {
        name: 2076 + k
        for k, name in enumerate(
            ("plies_left", "result_q", "result_d", "played_q", "played_d", "played_m", "orig_q", "orig_d", "orig_m")
        )
    }
)
SUM_BELOW, SUM_ABOVE = 0.99, 1.01  # between which the probabilities of a policy must sum up

TAIL = 8272
"""Where the small fields of a frame begin, from `castling_us_ooo` on."""

_PLANES, _HISTORY = 7440, 8
_PLAYED_AT, _NO_MOVE = 8344, 65535
# Within the tail: indices of moves, the one played and the two after it, and floats, counted in fours.
_PLAYED, _AHEAD, _INFO = _PLAYED_AT - TAIL, 8360 - TAIL, 8278 - TAIL
_ROOT_Q, _BEST_Q, _ROOT_D, _BEST_D, _BEST_M = 2, 3, 4, 5, 7
_LEFT, _RESULT_Q, _RESULT_D, _PLAYED_Q, _Q_ST, _D_ST = 8, 9, 10, 11, 20, 21


def _bit(name: str) -> int:
    return 1 << FAULTS.index(name)


def frame_faults(rows: Any, words: Any, faults: Any) -> None:
    """Add to `faults[n]` what is wrong with the values of each frame `rows[n, 8396]`, of which `words[n, 2099]` float32
    is a view. Frames without a search (`visits` 0) need neither values nor the index of the move played.
    """

    def value(name: str) -> Any:
        return words[:, FIELDS[name]]

    def number(at: int, size: int) -> Any:
        return sum(rows[:, at + k].astype(np.int64) << 8 * k for k in range(size))

    def add(name: str, bad: Any) -> None:
        faults[bad] |= _bit(name)

    policy, form, visits = words[:, 2 : 2 + POLICY], number(4, 4), number(8340, 4)
    played, best = number(8344, 2), number(8346, 2)
    add("input_format", ~np.isin(form, (1, 2, 3, 4, 5, 132, 133)))
    for name in ("root", "best", "played", "result", "orig"):
        q, d = value(f"{name}_q"), value(f"{name}_d")
        bad = (~(np.abs(q) <= 1), ~((d >= 0) & (d <= 1)))
        if name == "orig":
            bad = (bad[0] & ~np.isnan(q), bad[1] & ~np.isnan(d))
        searched = (visits > 0) if name == "played" else True
        add(name, (bad[0] | bad[1]) & searched)
    add("result_fraction", ~np.isin(value("result_q"), (-1, 0, 1)))
    for name in ("root_m", "best_m", "plies_left", "played_m", "orig_m"):
        bad = ~(value(name) >= 0)
        bad &= ~np.isnan(value(name)) if name == "orig_m" else (visits > 0) | (name != "played_m")
        add("plies", bad)
    rights, side = rows[:, 8272:8276].astype(np.int64), number(8276, 1)
    several = np.any(rights & (rights - 1), axis=1)
    add("castling", np.where(form == 1, np.any(rights > 1, axis=1), several))
    add("side", np.where(form >= 3, (side & (side - 1)) != 0, side > 1))
    add("rule50", rows[:, 8277] > 100)
    add("probability", np.any(~((policy >= 0) & (policy <= 1)) & (policy != -1) & ~np.isnan(policy), axis=1))
    total = np.where(policy >= 0, policy, 0).sum(axis=1, dtype=np.float64)
    add("probability_sum", ~((total >= SUM_BELOW) & (total <= SUM_ABOVE)))
    for name, place in (("best_illegal", best), ("played_illegal", played)):
        add("index", (place > POLICY) & (visits > 0))
        within = np.minimum(place, POLICY - 1)
        add(name, (visits > 0) & (place < POLICY) & ~(policy[np.arange(len(rows)), within] >= 0))


def inspect(rows: Any, words: Any, index: Any, back: Any, turns: Any, boards: Any, states: Any, faults: Any) -> None:
    """`trace` and `frame_faults`."""
    trace(rows, words[:, 2:], index, back, turns, boards, states, faults)
    frame_faults(rows, words, faults)


def complete(tails: Any, words: Any, states: Any) -> None:
    """Fill in what frames do not tell, in their `tails[n, 124]`, of which `words[n, 31]` float32 is a view: as the move
    that was played the one that `states[n, STATE]` of `trace` have, as plies left, where these are 0, the rest of the
    game."""
    for i in range(len(tails)):
        told = np.int64(tails[i, _PLAYED]) + 256 * np.int64(tails[i, _PLAYED + 1])
        if told == _NO_MOVE and states[i, INDEX] >= 0:
            tails[i, _PLAYED], tails[i, _PLAYED + 1] = states[i, INDEX] & 255, states[i, INDEX] >> 8
        if words[i, _LEFT] == 0:
            words[i, _LEFT] = len(tails) - i


def lacks_short_term(tails: Any, words: Any) -> bool:
    """Whether no frame has a `d_st`, or none tells a move that follows."""
    zero = nan = True
    for i in range(len(tails)):
        nan = nan and np.isnan(words[i, _D_ST])
        for k in range(4):
            zero = zero and tails[i, _AHEAD + k] == 0
    return zero or nan


def short_term(tails: Any, words: Any, theta: Any) -> None:
    """Write `q_st` and `d_st`, backwards running means of `root_q`, seen by the side to move of each frame, and of
    `root_d`, by `theta` float32; and the moves played in the next frame and in that after it."""
    one, beta, end = np.float32(1), np.float32(1) - theta, len(tails) - 1
    mean_q, mean_d = np.float32(0), np.float32(0)
    for i in range(end, -1, -1):
        sign = -one if i % 2 else one
        root_q, root_d = words[i, _ROOT_Q] * sign, words[i, _ROOT_D]
        mean_q = root_q if i == end else theta * mean_q + beta * root_q
        mean_d = root_d if i == end else theta * mean_d + beta * root_d
        words[i, _Q_ST], words[i, _D_ST] = mean_q * sign, max(mean_d, np.float32(0))
        for k in range(4):
            ahead = i + 1 + k // 2
            tails[i, _AHEAD + k] = tails[ahead, _PLAYED + k % 2] if ahead <= end else 255


def deblunder(tails: Any, words: Any, last: int, threshold: Any, width: Any) -> None:
    """Bring what a game came to back over blunders, from frame `last` to the first: `result_q`, `result_d` and
    `plies_left` before a blunder become the best move's values, softly over `width`, a float32 as `threshold` is."""
    one, half, end = np.float32(1), np.float32(0.5), len(tails) - 1
    z_q, z_d, z_m = words[end, _RESULT_Q], words[end, _RESULT_D], words[end, _LEFT]
    trigger, begun = np.float64(threshold) - np.float64(width) / 2, False
    for i in range(last, -1, -1):
        best, played = words[i, _BEST_Q], words[i, _PLAYED_Q]
        proven = best == 1 and (tails[i, _INFO] & 8) != 0
        forced = best > -1 and played < 1 and (proven or played == -1)
        if np.float64(best - played) > trigger or forced:
            ratio = one
            if width > 0 and not forced:
                ratio = min(one, (best - played - threshold) / width + half)
            z_q = (one - ratio) * z_q + ratio * best
            z_d = (one - ratio) * z_d + ratio * words[i, _BEST_D]
            z_m = (one - ratio) * z_m + ratio * words[i, _BEST_M]
            begun = True
        if begun:
            words[i, _RESULT_Q], words[i, _RESULT_D], words[i, _LEFT] = z_q, z_d, z_m
        z_q, z_m = -z_q, z_m + one


def sharpen(words: Any, offset: Any, power: Any, boosted: Any, boost: Any) -> int:
    """Add `offset`, and `boost[n]` to the moves `boosted[n, 1858]`, to what each legal move has, raise it to a power,
    and bring the sum to 1 again. All are float32 but `boosted`, which is uint8, and may have no rows where none is.

    Gives how many frames have nothing left to bring to 1; these are not what they were.
    """
    zero, lost = np.float32(0), 0
    for i in range(len(words)):
        policy, total = words[i, 2 : 2 + POLICY], zero
        for j in range(POLICY):
            if policy[j] >= 0:
                add = offset + boost[i] if len(boosted) and boosted[i, j] else offset
                policy[j] = max(zero, policy[j] + add) ** power
                total += policy[j]
        if not (total > 0 and total < np.inf):
            lost += 1
            continue
        for j in range(POLICY):
            if policy[j] >= 0:
                policy[j] /= total
    return lost


def put_board(row: Any, step: int, board: Any, there: Any, transform: int, again: bool) -> None:
    """Write the 13 planes of a position of the history."""
    at = _PLANES + 8 * 13 * step
    for square in range(64):
        piece = np.int64(board[square])
        if piece:
            to = there[transform, square]
            row[at + 8 * (piece - 1) + to // 8] |= 128 >> (to % 8)
    if again:
        row[at + 8 * 12 : at + 8 * 13] = 255


def take_back(board: Any, came: int, gone: int) -> None:
    """Put a pawn back to where it had gone from."""
    board[gone], board[came] = board[came], 0


def seen_from(board: Any, turned: bool, view: Any) -> None:
    """A board as one of the two sides sees it."""
    for square in range(64):
        view[square] = exchanged(board[square ^ 56]) if turned else board[square]


def same_rights(state: Any, other: Any, turned: bool) -> bool:
    """Whether the same sides may castle the same ways, `other` being seen by the other side if `turned`."""
    same = True
    for side in range(4):
        same = same and (state[CASTLE + side] >= 0) == (other[CASTLE + (side ^ (2 if turned else 0))] >= 0)
    return same


def encode_planes(boards: Any, states: Any, form: int, transforms: Any, there: Any, rows: Any) -> None:
    """Write the 104 planes of each frame of a game in an input format. `transforms[n]` says how each is turned, and
    `there[8, 64]` where that takes squares. `boards` and `states` are what `trace` fills."""
    canonical, repeats_only = form >= 3, form in (5, 133)
    view = np.zeros(boards.shape[1], boards.dtype)
    for i in range(len(rows)):
        rows[i, _PLANES : _PLANES + 8 * 13 * _HISTORY] = 0
        h, step, turned = i, 0, False
        while step < _HISTORY:
            at = max(h, 0)
            passing, again = states[at, EN_PASSANT], states[at, SEEN] > 0
            if canonical and (not same_rights(states[i], states[at], turned) or (h != i and passing >= 0)):
                break
            if h < -1 or (h == -1 and passing < 0):
                break
            if again or step == 0 or not repeats_only:
                seen_from(boards[at], turned, view)
                if h < 0:
                    take_back(view, (24 if turned else 32) + passing, (8 if turned else 48) + passing)
                put_board(rows[i], step, view, there, transforms[i], again)
                step += 1
            if h > 0:
                turned = not turned
            if canonical and states[at, CLOCK] == 0:
                break
            h -= 1


def encode_rest(states: Any, form: int, transforms: Any, rows: Any) -> None:
    """Write format, castling, side to move or en passant, and transform of each frame, in an input format."""
    for i in range(len(rows)):
        row = rows[i]
        row[4], row[5], row[6], row[7] = form, 0, 0, 0
        for side in range(4):
            file = states[i, CASTLE + side]
            row[8272 + side] = 0 if file < 0 else (1 if form == 1 else 1 << file)
        kept, passing = row[8278] & 0x78, states[i, EN_PASSANT]
        if form >= 3:
            row[8276] = 0 if passing < 0 else 1 << (7 - passing if transforms[i] & 1 else passing)
            row[8278] = transforms[i] | kept | (128 if states[i, BLACK] else 0)
        else:
            row[8276], row[8278] = states[i, BLACK], kept


def turn_policies(rows: Any, words: Any, old: Any, new: Any, turned: Any) -> None:
    """Bring policies and indices of frames from the transforms `old[n]` to `new[n]`; `turned[8, 1858]` is the index
    that each move has after a transform, or -1. Moves that no other becomes are illegal."""
    policy, becomes = np.zeros(POLICY, np.float32), np.zeros(POLICY, np.int64)
    for i in range(len(rows)):
        if old[i] == new[i]:
            continue
        policy[:], becomes[:] = words[i, 2 : 2 + POLICY], -1
        words[i, 2 : 2 + POLICY] = -1
        for j in range(POLICY):
            before, after = turned[old[i], j], turned[new[i], j]
            if before >= 0 and after >= 0:
                words[i, 2 + after], becomes[before] = policy[before], after
        for at in (_PLAYED_AT, _PLAYED_AT + 2):
            told = rows[i, at] + 256 * np.int64(rows[i, at + 1])
            if told < POLICY and becomes[told] >= 0:
                rows[i, at], rows[i, at + 1] = becomes[told] & 255, becomes[told] >> 8
