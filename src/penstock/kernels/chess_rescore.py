# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels that rescore chess games (numba, GIL released, cached on disk).

Functions that take a few steps a frame are compiled from their definitions in `chess_rescore_reference`. Functions that
scan whole policies are written here, with vectors. The sum of a policy may be taken in any order; its check allows for
more than float32 loses in a sum of all moves. The caller owns all arrays.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from penstock.kernels import chess_rescore_reference
from penstock.kernels.chess_lanes import differing16, lowest, store8
from penstock.kernels.chess_rescore_reference import FIELDS, POLICY, SUM_ABOVE, SUM_BELOW
from penstock.kernels.chess_trace import DEFINED, other_side, read_words, replay_words, squares_of, words_of
from penstock.kernels.chess_trace_reference import FAULTS
from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import helper, kernel, uncounted_helper

# The sum of a policy may be taken in any order, so that several moves are added in one step.
_any_order: Any = partial(helper, counted=False, any_order=True)
called_for: Any = DEFINED["called_for"]
complete: Any = DEFINED["complete"]
lacks_short_term: Any = DEFINED["lacks_short_term"]
short_term: Any = DEFINED["short_term"]
deblunder: Any = DEFINED["deblunder"]
encode_rest: Any = DEFINED["encode_rest"]
turn_policies: Any = DEFINED["turn_policies"]

_FORMAT, _ROOT, _BEST, _PLAYED, _ORIG, _RESULT, _PLIES, _CASTLING, _SIDE, _RULE50 = (1 << k for k in range(10))
_PROBABILITY, _SUM, _INDEX, _NO_BEST, _NO_PLAYED = (1 << k for k in range(10, 15))
_FRACTION = 1 << FAULTS.index("result_fraction")
_ROOT_Q, _BEST_Q, _ROOT_D, _BEST_D, _ROOT_M, _BEST_M = (FIELDS[name] for name in list(FIELDS)[:6])
_LEFT, _RESULT_Q, _RESULT_D, _PLAYED_Q, _PLAYED_D, _PLAYED_M, _ORIG_Q, _ORIG_D, _ORIG_M = list(FIELDS.values())[6:]
_ILLEGAL, _ONE = np.uint32(0xBF800000), np.uint32(0x3F800000)  # the bits of -1.0 and 1.0
_PLANES, _TAIL, _NEWEST = 7440, 832, 2  # bytes of planes; lines of memory that hold the newest, and all else
_ROUNDED = 1e-4  # more than float32 loses in a sum of all moves


@uncounted_helper
def _bad_pair(q: Any, d: Any) -> Any:
    return not (abs(q) <= 1) or not (d >= 0 and d <= 1)


@_any_order
def _glance(words: Any, bits: Any, i: int) -> Any:
    """The greatest of the bits of a policy and its sum, but for moves that are -1; without branches, so that several
    moves are looked at in one step. Meanwhile what is looked at next is fetched."""
    top, total = np.uint32(0), np.float32(0)
    behind = np.int64(words.ctypes.data) + 4 * (i * words.shape[1] + 2 + POLICY)
    for k in range(_NEWEST):
        prefetch(behind + 64 * k)
        prefetch(behind + _TAIL + 64 * k)
    for j in range(2, 2 + POLICY):
        illegal = bits[i, j] == _ILLEGAL
        top = max(top, np.uint32(0) if illegal else bits[i, j])
        total += np.float32(0) if illegal else words[i, j]
    return top, total


@uncounted_helper
def _bad_policy(words: Any, bits: Any, i: int) -> Any:
    top, rounded = _glance(words, bits, i)
    if top <= _ONE and SUM_BELOW + _ROUNDED <= rounded <= SUM_ABOVE - _ROUNDED:
        return np.int64(0)
    total, faults = np.float64(0), np.int64(0)
    for j in range(2, 2 + POLICY):
        p = words[i, j]
        if (p < 0 and p != -1) or p > 1:
            faults = _PROBABILITY
        total += p if p >= 0 else np.float32(0)
    return faults if SUM_BELOW <= total <= SUM_ABOVE else faults | _SUM


@uncounted_helper
def _bad_values(words: Any, i: int, searched: Any) -> Any:
    faults = np.int64(0)
    faults |= _ROOT if _bad_pair(words[i, _ROOT_Q], words[i, _ROOT_D]) else 0
    faults |= _BEST if _bad_pair(words[i, _BEST_Q], words[i, _BEST_D]) else 0
    faults |= _RESULT if _bad_pair(words[i, _RESULT_Q], words[i, _RESULT_D]) else 0
    faults |= _PLAYED if searched and _bad_pair(words[i, _PLAYED_Q], words[i, _PLAYED_D]) else 0
    faults |= _ORIG if abs(words[i, _ORIG_Q]) > 1 or words[i, _ORIG_D] < 0 or words[i, _ORIG_D] > 1 else 0
    result = words[i, _RESULT_Q]
    faults |= 0 if result in (-1, 0, 1) else _FRACTION
    fine = words[i, _ROOT_M] >= 0 and words[i, _BEST_M] >= 0 and words[i, _LEFT] >= 0
    fine = fine and (words[i, _PLAYED_M] >= 0 or not searched) and not words[i, _ORIG_M] < 0
    return faults | (0 if fine else _PLIES)


@uncounted_helper
def _bad_position(rows: Any, i: int) -> Any:
    large = rows[i, 5] != 0 or rows[i, 6] != 0 or rows[i, 7] != 0
    form = np.int64(0) if large else np.int64(rows[i, 4])
    faults = np.int64(0 if 1 <= form <= 5 or 132 <= form <= 133 else _FORMAT)
    for k in range(4):
        told = np.int64(rows[i, 8272 + k])
        faults |= _CASTLING if (told > 1 if form == 1 else told & (told - 1)) else 0
    side = np.int64(rows[i, 8276])
    faults |= _SIDE if ((side & (side - 1)) != 0 if form >= 3 or large else side > 1) else 0
    return faults | (_RULE50 if rows[i, 8277] > 100 else 0)


@uncounted_helper
def _bad_frame(rows: Any, words: Any, bits: Any, i: int) -> Any:
    searched = rows[i, 8340] != 0 or rows[i, 8341] != 0 or rows[i, 8342] != 0 or rows[i, 8343] != 0
    found = _bad_policy(words, bits, i) | _bad_position(rows, i) | _bad_values(words, i, searched)
    for k in range(2 if searched else 0):
        place = np.int64(rows[i, 8344 + 2 * k]) + 256 * np.int64(rows[i, 8345 + 2 * k])
        if place > POLICY:
            found |= _INDEX
        elif place < POLICY and not words[i, 2 + place] >= 0:
            found |= _NO_PLAYED if k == 0 else _NO_BEST
    return found


@kernel
def frame_faults(rows: Any, words: Any, faults: Any) -> Any:
    """See `chess_rescore_reference.frame_faults`."""
    bits = words.view(np.uint32)
    for i in range(len(rows)):
        faults[i] |= _bad_frame(rows, words, bits, i)


@kernel
def inspect(rows: Any, words: Any, index: Any, back: Any, turns: Any, boards: Any, states: Any, faults: Any) -> None:
    """See `chess_rescore_reference.inspect`: in one pass, as most of the time goes into fetching frames."""
    bits, pieces, start = words.view(np.uint32), np.empty((len(rows), 12), np.uint64), 0
    for i in range(len(rows) + 1):
        if i < len(rows):
            faults[i] |= _bad_frame(rows, words, bits, i)
            read_words(rows, back, pieces, states, faults, i)
            squares_of(pieces[i], boards[i])
        if i > 0:
            start = replay_words(rows, words[:, 2:], index, back, turns, pieces, states, faults, i - 1, start)


@uncounted_helper
def _moves_of(words: Any, i: int, moves: Any) -> Any:
    """Write the moves of a policy that have 0 or more into `moves`, in order; 16 are looked at in one step. Gives how
    many."""
    first, count = np.int64(words.ctypes.data) + 4 * (i * words.shape[1] + 2), 0
    for j in range(0, POLICY, 16):
        bits = differing16(first + 4 * j, _ILLEGAL)
        if j + 16 > POLICY:
            bits &= (1 << POLICY % 16) - 1  # planes stand behind
        while bits:
            move = j + lowest(bits)
            bits &= bits - 1
            if words[i, 2 + move] >= 0:
                moves[count] = move
                count += 1
    return count


@uncounted_helper
def _raise_moves(words: Any, i: int, moves: Any, offset: Any, power: Any, boosted: Any, boost: Any) -> Any:
    """Whether anything was left."""
    zero = total = np.float32(0)
    for move in moves:
        add = offset + boost[i] if len(boosted) and boosted[i, move] else offset
        words[i, 2 + move] = max(zero, words[i, 2 + move] + add) ** power
        total += words[i, 2 + move]
    if not (total > 0 and total < np.inf):
        return False
    for move in moves:
        words[i, 2 + move] /= total
    return True


@kernel
def sharpen(words: Any, offset: Any, power: Any, boosted: Any, boost: Any) -> Any:
    """See `chess_rescore_reference.sharpen`."""
    moves, lost = np.empty(POLICY, np.int64), 0
    for i in range(len(words)):
        count = _moves_of(words, i, moves)
        lost += 0 if _raise_moves(words, i, moves[:count], offset, power, boosted, boost) else 1
    return lost


@uncounted_helper
def _seen_from_words(words: Any, turned: bool, view: Any) -> None:
    """See `chess_rescore_reference.seen_from`."""
    for k in range(6):
        view[k] = other_side(words[6 + k]) if turned else words[k]
        view[6 + k] = other_side(words[k]) if turned else words[6 + k]


@uncounted_helper
def _take_back_words(words: Any, came: int, gone: int) -> None:
    """See `chess_rescore_reference.take_back`."""
    here, there = np.uint64(1) << np.uint64(came ^ 7), np.uint64(1) << np.uint64(gone ^ 7)
    for k in range(12):
        words[k] = words[k] & ~there if words[k] & here == 0 else (words[k] ^ here) | there


@helper
def _put_turned(row: Any, step: int, words: Any, there: Any, transform: int, again: bool) -> None:
    board = np.empty(64, np.uint8)
    squares_of(words, board)
    _put_board(row, step, board, there, transform, again)


@uncounted_helper
def _put_words(row: Any, step: int, words: Any, there: Any, transform: int, again: bool) -> None:
    """See `chess_rescore_reference.put_board`."""
    if transform:
        _put_turned(row, step, words, there, transform, again)
        return
    at = np.int64(row.ctypes.data) + _PLANES + 8 * 13 * step
    for k in range(12):
        store8(at + 8 * k, words[k])
    store8(at + 8 * 12, ~np.uint64(0) if again else np.uint64(0))


_put_board = DEFINED["put_board"]
_ON_WORDS = {
    **DEFINED,
    "seen_from": _seen_from_words,
    "take_back": _take_back_words,
    "put_board": _put_words,
}
_encode: Any = helper(FunctionType(chess_rescore_reference.encode_planes.__code__, _ON_WORDS, "encode_planes"))


@kernel
def encode_planes(boards: Any, states: Any, form: int, transforms: Any, there: Any, rows: Any) -> None:
    """See `chess_rescore_reference.encode_planes`."""
    words = np.empty((len(boards), 12), np.uint64)
    for i in range(len(boards)):
        words_of(boards[i], words[i])
    _encode(words, states, form, transforms, there, rows)
