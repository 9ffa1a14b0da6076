"""Replay a game from its frames: the position of each frame, and the move that leads to the next.

Boards are 12 words of 64 bits (`bitboards`). A move is what changed between two positions: one piece of the side to
move is gone from a square, and one has come to another; castling is looked for first, as its king and rook may end
where they were. The move is then made on the board before it. Where this gives the next board, the frame follows
(`continuity`), and rights, clock and repetitions follow from the state before, so the fields of frames are checked and
not believed. Where it does not, a new game begins. Nothing is refused: all errors are bits of `faults.FAULTS`. Whatever
the bytes of frames are, no index leaves an array: squares come from bits, transforms have 3 bits, and a board with a
fault is not played on.

The state of a position is a row of int64:

=======  =============================================================================================
0 to 3   file of the rook that may still castle: ours on the queen's side and king's side, theirs; or -1
4        file of the pawn that may be taken en passant, or -1
5, 6, 7  plies since a capture or a pawn's move; earlier occurrences; 1 for black to move
8        the transform that the frame says
9, 10    squares from and to of the move made (castling: king and rook), -1 past the end
11, 12   what it promotes to, 0 for nothing; its index in the policy as the frame turns it, or -1
=======  =============================================================================================

Values are looked at in the same pass (`faults`), as most of the time goes into fetching frames. Reference: the same
rules on boards of 64 squares in Python, in `tests/domains/chess/reference`, which are tested with python-chess.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Float32Array, IntArray, UInt32Array, UInt64Array, read_only
from penstock.domains.chess.kernels.bitboards import (
    BETWEEN,
    BISHOP,
    KING,
    KNIGHT,
    PAWN,
    QUEEN,
    ROOK,
    THEIRS,
    board_of_words,
    other_side,
    reach,
    turned_word,
)
from penstock.domains.chess.kernels.faults import FAULTS, bad_values
from penstock.domains.chess.kernels.lanes import lowest, ones
from penstock.domains.chess.kernels.layout import INFO, PLAYED, RIGHTS, RULE50, SHORT, SIDE, VISITS, WIDTH
from penstock.kernels.jit import uncounted_helper, uncounted_kernel

# Columns of a state, see above.
CASTLE = 0
EN_PASSANT = 4
CLOCK = 5
SEEN = 6
BLACK = 7
TRANSFORM = 8
FROM = 9
TO = 10
PROMOTES = 11
INDEX = 12
STATE = 13  # number of columns


def _bit(name: str) -> int:
    return 1 << FAULTS.index(name)


_CASTLING, _BOARD, _CONTINUITY, _UNKNOWN = (_bit(name) for name in ("castling", "board", "continuity", "move_unknown"))
_ILLEGAL = _bit("move_illegal")
_OTHER = _bit("move_other")
_UNMARKED = _bit("move_unmarked")
_RIGHTS = _bit("rights")
_CLOCK = _bit("clock")
_TURN = _bit("turn")
_PASSING = _bit("en_passant")
_AGAIN, _TURNED = _bit("repetition"), _bit("transform")

_POSITION, _BEFORE = 7440 // 4, 7440 // 4 + 2 * 13  # words of 4 bytes: the newest position and the one before it
_0, _1, _8, _16, _32 = (np.uint64(k) for k in (0, 1, 8, 16, 32))
_ENDS = np.uint64(0xFF000000000000FF)
_SECOND = np.uint64(0xFF00)
_SIXTH = np.uint64(0xFF0000000000)
_SEVENTH, _LAST = np.uint64(0xFF000000000000), np.uint64(0xFF00000000000000)
_FIRST_FILE, _LAST_FILE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


def inspect(
    rows: ByteArray, tables: tuple[IntArray, IntArray, IntArray], *, values: bool = True
) -> tuple[ByteArray, IntArray, IntArray]:
    """Replay the frames of a game, and look at their values.

    Args:
        rows: `[n, 8396]` frames or `[n, 8356]` records of version 6, uint8, C-contiguous at a multiple of 4.
        tables: `[4, 64, 64]` int64 the index of each move by promotion, from and to; `[8, 64]` int64 the squares that
            transforms of planes are undone to, and `[8, 64]` int64 the same for moves. All C-contiguous and read-only.
        values: Whether values are looked at, too. Without them, only positions and moves have faults.

    Returns:
        `[n, 64]` uint8 boards, `[n, 13]` int64 states and `[n]` int64 faults.

    Raises:
        ValueError: The rows are no such array.
    """
    aligned = rows.flags.c_contiguous and rows.ctypes.data % 4 == 0
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] not in (SHORT, WIDTH) or not aligned:
        raise ValueError(f"expected aligned frames [n, {WIDTH}] uint8, got {list(rows.shape)} {rows.dtype}")
    n = len(rows)
    rows = read_only(rows)
    bits = rows.view(np.uint32)
    boards = np.empty((n, 64), np.uint8)
    states = np.empty((n, STATE), np.int64)
    faults = np.zeros(n, np.int64)
    words = np.empty((n + 2, 12), np.uint64)
    index, back, turns = tables
    if _inspect(rows, rows.view(np.float32), bits, index, back, turns, reach(), values, words, boards, states, faults):
        _check_transforms(bits, boards, states, back, faults)
    return boards, states, faults


def transforms(boards: ByteArray, states: IntArray, back: IntArray) -> IntArray:
    """Return the transform that canonical formats give each position of a game.

    Args:
        boards: `[n, 64]` uint8, of `inspect`.
        states: `[n, 13]` int64, of `inspect`.
        back: `[8, 64]` int64, read-only: the squares that transforms are undone to.

    Returns:
        `[n]` int64: bits 1, 2 and 4 for files, ranks and the diagonal turned.
    """
    out = np.empty(len(boards), np.int64)
    _transforms(boards, states, back, out)
    return out


@uncounted_kernel("u1[2Cr] f4[2Cr] u4[2Cr] i8[3Cr] i8[2Cr] i8[2Cr] u8[2Cr] b1 u8[2C] u1[2C] i8[2C] i8[1C]")
def _inspect(
    rows: ByteArray,
    values: Float32Array,
    bits: UInt32Array,
    index: IntArray,
    back: IntArray,
    turns: IntArray,
    reached: UInt64Array,
    look: bool,
    words: UInt64Array,
    boards: ByteArray,
    states: IntArray,
    faults: IntArray,
) -> np.bool_ | bool:
    """Return whether a frame is of a canonical format. `words` has a row for each frame, and two to make moves on."""
    start, canonical = 0, False
    for i in range(len(rows) + 1):
        if i < len(rows):
            form = np.int64(bits[i, 1])
            form = 0 if form > 255 else form
            canonical |= form >= 3
            if look:
                faults[i] |= bad_values(rows, values, bits, i)
            for k in range(STATE):
                states[i, k] = -1
            states[i, TRANSFORM] = rows[i, INFO] & 7 if form >= 3 else 0
            if not _read(bits, i, back, states[i, TRANSFORM], words):
                faults[i] |= _BOARD
            board_of_words(words, i, boards)
        if i > 0:  # the frame before: its move needs this one's board
            at = i - 1
            if faults[at] & _BOARD:
                start = i
                continue
            faults[at] |= _check(rows, bits, at, start, words, states)
            if i < len(rows) and not faults[i] & _BOARD:
                found = _play(at, index, turns, reached, words, states)
                if not found & _UNKNOWN:
                    found |= _check_index(rows, values, bits, at, states[at, INDEX])
                faults[at] |= found
                if found & (_UNKNOWN | _CONTINUITY):
                    start = i
    return canonical


@uncounted_helper
def _read(bits: UInt32Array, i: int, back: IntArray, transform: int, words: UInt64Array) -> bool:
    """Read the newest planes of frame `i`. Returns whether they are a position: a king for each side, no square taken
    twice, no pawn on the first or last rank."""
    taken = twice = _0
    for k in range(12):
        word = np.uint64(bits[i, _POSITION + 2 * k]) | np.uint64(bits[i, _POSITION + 2 * k + 1]) << _32
        if transform:
            word = turned_word(word, back, transform)
        words[i, k] = word
        twice |= taken & word
        taken |= word
    if twice or (words[i, PAWN] | words[i, THEIRS + PAWN]) & _ENDS:
        return False
    return ones(words[i, KING]) == 1 and ones(words[i, THEIRS + KING]) == 1


@uncounted_helper
def _occupied(words: UInt64Array, i: int) -> np.uint64:
    taken = _0
    for k in range(12):
        taken |= words[i, k]
    return taken


@uncounted_helper
def _check(rows: ByteArray, bits: UInt32Array, i: int, start: int, words: UInt64Array, states: IntArray) -> int:
    """Return the faults of the state of frame `i` of a game that begins with frame `start`. The first frame tells its
    state; each later state follows from the frame before, and is compared."""
    form = bits[i, 1]
    side = np.int64(rows[i, SIDE])
    faults = 0
    canonical, classical = 3 <= form < 256, form == 1
    black = np.int64(rows[i, INFO]) >> 7 if canonical else side
    if i == start:
        for k in range(4):
            right = np.int64(rows[i, RIGHTS + k])
            states[i, CASTLE + k] = _rook_of(words, i, k, right, classical) if right else -1
            if right and states[i, CASTLE + k] < 0:
                faults |= _CASTLING
        states[i, EN_PASSANT] = _passing_of(bits, i, words, side, states[i, TRANSFORM], canonical)
        if canonical and states[i, EN_PASSANT] < 0 and side:
            faults |= _PASSING
        states[i, CLOCK], states[i, SEEN] = rows[i, RULE50], 0
        states[i, BLACK] = 1 if black else 0
        return faults
    states[i, SEEN] = _occurrences(words, states, i, start)
    for k in range(4):
        file = states[i, CASTLE + k]
        wanted = 0 if file < 0 else 1 if classical else 1 << file
        if rows[i, RIGHTS + k] != wanted:
            faults |= _RIGHTS
    if rows[i, RULE50] != states[i, CLOCK]:
        faults |= _CLOCK
    if black != states[i, BLACK]:
        faults |= _TURN
    file = states[i, EN_PASSANT]
    if file >= 0 and states[i, TRANSFORM] & 1:
        file = 7 - file
    if canonical and side != (0 if file < 0 else 1 << file):
        faults |= _PASSING
    again, clock = rows[i, 4 * _POSITION + 8 * 12] != 0, states[i, CLOCK]
    if again != (states[i, SEEN] > 0) and (not again or clock <= i - start):
        faults |= _AGAIN
    return faults


@uncounted_helper
def _rook_of(words: UInt64Array, i: int, side: int, right: np.int64, classical: bool) -> int:
    """Return the file of the rook that right `side` is about: the bit of its mask, or in the classical format the
    outermost rook; -1 where the board has none that could castle."""
    first, rank = THEIRS if side > 1 else 0, 56 if side > 1 else 0
    king = (lowest(words[i, first + KING]) - rank) ^ 7
    if not 0 <= king < 8:
        return -1
    rooks = words[i, first + ROOK] >> np.uint64(rank)
    for k in range(8):
        file = 7 - k if side & 1 else k
        outside = file > king if side & 1 else file < king
        if outside and rooks >> np.uint64(file ^ 7) & _1 and (classical or right == 1 << file):
            return file
    return -1


@uncounted_helper
def _passing_of(bits: UInt32Array, i: int, words: UInt64Array, side: np.int64, transform: int, canonical: bool) -> int:
    """Return the file that may be taken en passant: stored in canonical formats, else found in the past; or -1."""
    file = -1
    if canonical:
        for k in range(8):
            if side & (1 << k):
                file = 7 - k if transform & 1 else k
    else:
        now = words[i, THEIRS + PAWN]
        at = _BEFORE + 2 * (THEIRS + PAWN)
        before = np.uint64(bits[i, at]) | np.uint64(bits[i, at + 1]) << _32
        gone, come = before & ~now & _SEVENTH, now & ~before
        if ones(before ^ now) == 2 and gone and come == gone >> _16:
            file = 55 - lowest(gone)
    if file < 0:
        return -1
    pawn = _1 << np.uint64(39 - file)
    free = (pawn << _8 | pawn << _16) & _occupied(words, i) == _0
    return file if free and words[i, THEIRS + PAWN] & pawn else -1


@uncounted_helper
def _occurrences(words: UInt64Array, states: IntArray, i: int, start: int) -> int:
    """Return how often position `i` has been before, looking back to frame `start`."""
    if states[i, CLOCK] < 4:
        return 0
    j = i - 4
    while j >= start:
        different = _0
        for k in range(12):
            different |= words[i, k] ^ words[j, k]
        same = different == _0
        for k in range(5):
            same = same and states[i, k] == states[j, k]
        if same:
            return states[j, SEEN] + 1
        if states[j, CLOCK] < 2:
            return 0
        j -= 2
    return 0


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
    occupied = _occupied(words, i)
    while far:
        if reached[BETWEEN + square, lowest(far)] & occupied == _0:
            return True
        far &= far - _1
    return False


@uncounted_helper
def _castles(words: UInt64Array, i: int, after: int, states: IntArray) -> int:
    """Return the file of the rook with which castling makes the board `after`, or -1."""
    king, occupied = lowest(words[i, KING]) ^ 7, _occupied(words, i)
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
    others = _occupied(words, i) & ~own
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
    occupied = _occupied(words, i)
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
def _play(
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
    takes = not castling and _occupied(words, i) & come != _0
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


@uncounted_helper
def _check_index(rows: ByteArray, values: Float32Array, bits: UInt32Array, i: int, index: int) -> int:
    """Return the faults of the index of a move: none, another than the frame tells, or one marked as illegal."""
    faults, played = 0, np.int64(rows[i, PLAYED]) + 256 * np.int64(rows[i, PLAYED + 1])
    if bits[i, VISITS // 4] and played != index:
        faults |= _OTHER
    if index < 0:
        return faults | _ILLEGAL | _UNMARKED
    return faults if values[i, 2 + index] >= 0 or rows[i, INFO] & 64 else faults | _UNMARKED


@uncounted_kernel("u1[2C] i8[2C] i8[2Cr] i8[1C]")
def _transforms(boards: ByteArray, states: IntArray, back: IntArray, out: IntArray) -> None:
    for i in range(len(boards)):
        out[i] = _transform_of(boards, states, i, back)


@uncounted_kernel("u4[2Cr] u1[2C] i8[2C] i8[2Cr] i8[1C]")
def _check_transforms(bits: UInt32Array, boards: ByteArray, states: IntArray, back: IntArray, faults: IntArray) -> None:
    """Add the fault of frames in canonical formats that are turned otherwise than their boards call for."""
    for i in range(len(boards)):
        if (
            3 <= bits[i, 1] < 256
            and not faults[i] & _BOARD
            and _transform_of(boards, states, i, back) != states[i, TRANSFORM]
        ):
            faults[i] |= _TURNED


@uncounted_helper
def _transform_of(boards: ByteArray, states: IntArray, i: int, back: IntArray) -> int:
    """Return the transform that canonical formats give position `i`."""
    transform = 0
    pawns = False
    king = -1
    for k in range(4):
        if states[i, CASTLE + k] >= 0:
            return 0
    for square in range(64):
        piece = boards[i, square]
        pawns |= piece == 1 or piece == 7
        king = square if piece == 6 and king < 0 else king
    file, rank = king & 7, king >> 3
    if file < 4:
        transform, file = 1, 7 - file
    if pawns:
        return transform
    if rank >= 4:
        transform, rank = transform + 2, 7 - rank
    diagonal = rank - (7 - file)
    return transform + 4 if diagonal > 0 or (diagonal == 0 and _later(boards, i, back, transform)) else transform


@uncounted_helper
def _later(boards: ByteArray, i: int, back: IntArray, transform: int) -> bool:
    """Whether a board comes after the same board transposed: kinds of pieces are compared in order, each
    as a number whose bits are squares."""
    for turn in range(7):
        # all pieces, ours, kings, queens, rooks, knights, bishops
        kind = -1 if turn == 0 else 0 if turn == 1 else 8 - turn if turn < 5 else turn - 3
        for square in range(63, -1, -1):
            other = 8 * (7 - square % 8) + 7 - square // 8
            one = _is_kind(boards[i, back[transform, square]], kind)
            if one != _is_kind(boards[i, back[transform, other]], kind):
                return one
    return False


@uncounted_helper
def _is_kind(piece: int, kind: int) -> bool:
    """Kinds: -1 any piece, 0 ours, 2 to 6 knights to kings of either side."""
    if piece == 0 or kind < 0:
        return piece != 0
    if kind == 0:
        return piece <= 6
    return piece == kind or piece == kind + 6
