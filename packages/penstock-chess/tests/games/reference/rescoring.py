"""Faults of values, sharper policies and planes of formats in NumPy and Python: the kernels must equal these."""

from __future__ import annotations

from typing import Any

import numpy as np

from games.reference.games import exchanged
from penstock_chess.kernels.faults import FAULTS, SUM_ABOVE, SUM_BELOW
from penstock_chess.kernels.layout import CASTLE, CLOCK, EN_PASSANT, FIELDS, POLICY, SEEN, STEP
from penstock_chess.kernels.layout import WORDS as PLANES

_HISTORY = 8


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
    at = PLANES + 8 * 13 * step
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
        rows[i, PLANES : PLANES + 8 * STEP * _HISTORY] = 0
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
