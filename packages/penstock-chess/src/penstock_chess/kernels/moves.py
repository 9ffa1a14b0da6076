"""The move that leads from one position of a game to the next, found from the two boards and checked.

A move is what changed between two positions: one piece of the side to move is gone from a square, and one has come to
another. Castling is looked for first, because its king and rook may end where they were. `play` makes the move on the
board before it. Where this gives the next board, the frame follows; where it does not, the fault is `continuity`.

Boards are 12 words of 64 bits (`bitboards`), and states are rows of int64 (`state`). No index leaves an array, whatever
the words are: squares are numbers of bits. The caller does not play on boards that are no positions. Two rows of
`words` behind the last frame are room for the next board and the board after the move.

Reference: the same rules on boards of 64 squares, in `tests/games/reference/games.py`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import IntArray, UInt64Array
from penstock.kernels.jit import uncounted_helper
from penstock_chess.kernels.bitboards import (
    BETWEEN,
    BISHOP,
    KING,
    KNIGHT,
    PAWN,
    QUEEN,
    ROOK,
    THEIRS,
    other_side,
)
from penstock_chess.kernels.faults import fault_bit
from penstock_chess.kernels.lanes import lowest, ones
from penstock_chess.kernels.layout import (
    BLACK,
    CASTLE,
    CLOCK,
    EN_PASSANT,
    FROM,
    INDEX,
    PROMOTES,
    TO,
    TRANSFORM,
)

_0 = np.uint64(0)
_1 = np.uint64(1)
_8 = np.uint64(8)
_SECOND = np.uint64(0xFF00)
_SIXTH = np.uint64(0xFF0000000000)
_LAST = np.uint64(0xFF00000000000000)
_FIRST_FILE = np.uint64(0x0101010101010101)
_LAST_FILE = np.uint64(0x8080808080808080)
_CONTINUITY = fault_bit("continuity")
_UNKNOWN = fault_bit("move_unknown")
_ILLEGAL = fault_bit("move_illegal")


@uncounted_helper
def occupied_by(words: UInt64Array, i: int) -> np.uint64:
    """Return the squares of board `i` that have a piece."""
    taken = _0
    for k in range(12):
        taken |= words[i, k]
    return taken


@uncounted_helper
def _attacked(square: int, words: UInt64Array, i: int, reached: UInt64Array) -> bool:
    """Whether a piece of the other side attacks a square, given as the number of its bit."""
    pawns = words[i, THEIRS + PAWN]
    knights = words[i, THEIRS + KNIGHT]
    kings = words[i, THEIRS + KING]
    near = reached[PAWN, square] & pawns | reached[KNIGHT, square] & knights | reached[KING, square] & kings
    if near:
        return True
    bishops = words[i, THEIRS + BISHOP]
    rooks = words[i, THEIRS + ROOK]
    queens = words[i, THEIRS + QUEEN]
    far = reached[BISHOP, square] & (bishops | queens) | reached[ROOK, square] & (rooks | queens)
    occupied = occupied_by(words, i)
    while far:
        if reached[BETWEEN + square, lowest(far)] & occupied == _0:
            return True
        far &= far - _1
    return False


@uncounted_helper
def _castles(words: UInt64Array, i: int, after: int, states: IntArray) -> int:
    """Return the file of the rook with which castling makes the board `after`, or -1."""
    king, occupied = lowest(words[i, KING]) ^ 7, occupied_by(words, i)
    for side in range(2):
        rook = states[i, CASTLE + side]
        king_to = 6 if side else 2
        rook_to = 5 if side else 3
        if rook < 0 or king >= 8:
            continue
        if not words[after, KING] >> np.uint64(king_to ^ 7) & words[after, ROOK] >> np.uint64(rook_to ^ 7) & _1:
            continue
        own = _1 << np.uint64(king ^ 7) | _1 << np.uint64(rook ^ 7)
        goals = _1 << np.uint64(king_to ^ 7) | _1 << np.uint64(rook_to ^ 7)
        if goals & occupied & ~own == _0:
            return rook
    return -1


@uncounted_helper
def _may_castle(words: UInt64Array, i: int, king: int, rook: int, reached: UInt64Array) -> bool:
    """Whether nothing stands between, and nothing attacks the king on its way; its goal is looked at afterwards.
    `king` and `rook` are squares."""
    king_to, rook_to = 6 if rook > king else 2, 5 if rook > king else 3
    low, high = king, king
    for square in (king_to, rook, rook_to):
        low = square if square < low else low
        high = square if square > high else high
    own = _1 << np.uint64(king ^ 7) | _1 << np.uint64(rook ^ 7)
    others = occupied_by(words, i) & ~own
    for square in range(low, high + 1):
        if others >> np.uint64(square ^ 7) & _1:
            return False
    if king == king_to and _attacked(king ^ 7, words, i, reached):
        return False
    step, safe = 1 if king_to > king else -1, True
    for square in range(king, king_to, step):
        safe = safe and not _attacked(square ^ 7, words, i, reached)
    return safe


@uncounted_helper
def _moves_so(
    words: UInt64Array, i: int, piece: int, source: int, to: int, promotes: bool, passing: int, reached: UInt64Array
) -> bool:
    """Whether a piece may go from bit `source` to bit `to`, but for checks and castling. `passing` is the file that may
    be taken en passant."""
    come = _1 << np.uint64(to)
    occupied = occupied_by(words, i)
    ours = _0
    for k in range(6):
        ours |= words[i, k]
    if come & (ours | words[i, THEIRS + KING]) or promotes != (piece == PAWN and come & _LAST != _0):
        return False
    takes = come & occupied != _0
    if piece != PAWN:
        return reached[piece, source] & come != _0 and reached[BETWEEN + source, to] & occupied == _0
    if reached[PAWN, source] & come:
        return takes or (come & _SIXTH != _0 and to & 7 == 7 - passing)
    gone = _1 << np.uint64(source)
    ahead = gone << _8
    return not takes and (come == ahead or (come == ahead << _8 and gone & _SECOND != _0 and ahead & occupied == _0))


@uncounted_helper
def play(
    i: int,
    index: IntArray,
    turns: IntArray,
    reached: UInt64Array,
    words: UInt64Array,
    states: IntArray,
) -> int:
    """Write the move that leads from position `i` to the next into its state, and what follows from it into the next
    state. Returns its faults; its index is looked at later."""
    after, moved = len(words) - 2, len(words) - 1  # the next board as this side sees it, and the board after the move
    ours = mine = changed = _0
    for k in range(12):
        word = other_side(words[i + 1, k + THEIRS if k < THEIRS else k - THEIRS])
        words[after, k] = word
        changed |= word ^ words[i, k]
        if k < THEIRS:
            ours |= words[i, k]
            mine |= word
    gone = ours & changed & ~mine
    come = mine & changed
    rook = _castles(words, i, after, states)
    states[i, PROMOTES] = 0
    piece = becomes = KING
    if rook >= 0:
        gone, come = words[i, KING], _1 << np.uint64(rook ^ 7)
    elif ones(gone) != 1 or ones(come) != 1:
        return _UNKNOWN
    else:
        for k in range(THEIRS):
            piece = k if words[i, k] & gone else piece
            becomes = k if words[after, k] & come else becomes
        if piece != becomes:
            states[i, PROMOTES] = becomes + 1 if piece == PAWN else 0
            if piece != PAWN or becomes == KING:
                return _UNKNOWN
    source = lowest(gone)
    to = lowest(come)
    promotes = piece != becomes
    states[i, FROM], states[i, TO] = source ^ 7, to ^ 7
    castling = piece == KING and words[i, ROOK] & come != _0
    takes = not castling and occupied_by(words, i) & come != _0
    if castling:
        far = to ^ 7 > source ^ 7  # to the king's side
        fine = _may_castle(words, i, source ^ 7, to ^ 7, reached)
        _castle(words, i, gone | come, far)
    else:
        fine = _moves_so(words, i, piece, source, to, promotes, states[i, EN_PASSANT], reached)
        if piece == PAWN and not takes and (source ^ to) & 7:
            gone |= come >> _8  # taken en passant
        _move(words, i, gone, come, becomes)
    beside = (come & ~_LAST_FILE) << _1 | (come & ~_FIRST_FILE) >> _1
    _follow(states, i, piece, takes, words[i, THEIRS + PAWN] & beside != _0)
    fine = fine and not _attacked(lowest(words[moved, KING]), words, moved, reached)
    different = _0
    for k in range(12):
        different |= words[moved, k] ^ words[after, k]
    promoted = states[i, PROMOTES]
    transform = states[i, TRANSFORM]
    states[i, INDEX] = index[
        6 - promoted if promoted > 2 else 0, turns[transform, source ^ 7], turns[transform, to ^ 7]
    ]
    return (0 if fine else _ILLEGAL) | (_CONTINUITY if different else 0)


@uncounted_helper
def _move(words: UInt64Array, i: int, gone: np.uint64, come: np.uint64, becomes: int) -> None:
    """Write the board after a move to the last row of `words`: squares `gone` are empty, and `come` has the piece."""
    moved = len(words) - 1
    for k in range(12):
        words[moved, k] = words[i, k] & ~(gone | come)
    words[moved, becomes] |= come


@uncounted_helper
def _castle(words: UInt64Array, i: int, gone: np.uint64, kings_side: bool) -> None:
    """Write the board after castling to the last row of `words`. `gone` are the squares of the king and the rook."""
    moved = len(words) - 1
    king, rook = _1 << np.uint64(6 ^ 7 if kings_side else 2 ^ 7), _1 << np.uint64(5 ^ 7 if kings_side else 3 ^ 7)
    for k in range(12):
        words[moved, k] = words[i, k] & ~(gone | king | rook)
    words[moved, KING] |= king
    words[moved, ROOK] |= rook


@uncounted_helper
def _follow(states: IntArray, i: int, piece: int, takes: bool, beside: bool) -> None:
    """Write the state after the move of state `i`; `beside` says whether one of their pawns stands on a neighbouring
    square of the destination."""
    after = i + 1
    source = states[i, FROM]
    to = states[i, TO]
    for side in range(2):
        ours, theirs = states[i, CASTLE + side], states[i, CASTLE + 2 + side]
        states[after, CASTLE + 2 + side] = -1 if piece == KING or source == ours else ours
        states[after, CASTLE + side] = -1 if theirs >= 0 and to == 56 + theirs else theirs
    states[after, EN_PASSANT] = to & 7 if piece == PAWN and to - source == 16 and beside else -1
    states[after, CLOCK] = 0 if piece == PAWN or takes else states[i, CLOCK] + 1
    states[after, BLACK] = 1 - states[i, BLACK]
