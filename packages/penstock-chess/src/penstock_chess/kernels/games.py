"""Replay a game from its frames: the position of each frame, and the move that leads to the next.

The first frame of a game tells its state (`state`). Each move is found from two boards and made on the first one
(`moves`). If that gives the second board, the next state follows from the state before: its castling rights, clock and
repetitions are computed, and the fields of the frame are compared with them. If it does not, a new game begins.

Boards are 12 words of 64 bits (`bitboards`). Nothing is refused: all errors are bits of `faults.FAULTS`. Whatever the
bytes of frames are, no index leaves an array: squares come from bits, transforms have 3 bits, and a board with a fault
is not played on.

Values are looked at in the same pass (`faults`), as most of the time goes into fetching frames. Reference: the same
rules on boards of 64 squares in Python, in `tests/games/reference`, which are tested with python-chess.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Float32Array, IntArray, UInt32Array, UInt64Array, read_only
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock_chess.kernels.bitboards import (
    KING,
    PAWN,
    ROOK,
    THEIRS,
    board_of_words,
    reach,
    turned_word,
)
from penstock_chess.kernels.faults import bad_values, fault_bit
from penstock_chess.kernels.lanes import lowest, ones
from penstock_chess.kernels.layout import (
    BLACK,
    CASTLE,
    CLOCK,
    EN_PASSANT,
    INDEX,
    INFO,
    PLAYED,
    RIGHTS,
    RULE50,
    SEEN,
    SHORT,
    SIDE,
    STATE,
    TRANSFORM,
    VISITS,
    WIDTH,
)
from penstock_chess.kernels.moves import occupied_by, play
from penstock_chess.kernels.transforms import check_transforms

_CASTLING = fault_bit("castling")
_BOARD = fault_bit("board")
_CONTINUITY = fault_bit("continuity")
_UNKNOWN = fault_bit("move_unknown")
_ILLEGAL = fault_bit("move_illegal")
_OTHER = fault_bit("move_other")
_UNMARKED = fault_bit("move_unmarked")
_RIGHTS = fault_bit("rights")
_CLOCK = fault_bit("clock")
_TURN = fault_bit("turn")
_PASSING = fault_bit("en_passant")
_AGAIN = fault_bit("repetition")

_POSITION, _BEFORE = 7440 // 4, 7440 // 4 + 2 * 13  # words of 4 bytes: the newest position and the one before it
_0 = np.uint64(0)
_1 = np.uint64(1)
_8 = np.uint64(8)
_16 = np.uint64(16)
_32 = np.uint64(32)
_ENDS = np.uint64(0xFF000000000000FF)
_SEVENTH = np.uint64(0xFF000000000000)


def inspect(
    rows: ByteArray, tables: tuple[IntArray, IntArray, IntArray], *, values: bool = True
) -> tuple[ByteArray, IntArray, IntArray]:
    """Replay the frames of a game, and look at their values."""
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
        check_transforms(bits, boards, states, back, faults)
    return boards, states, faults


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
            before = i - 1
            if faults[before] & _BOARD:
                start = i
                continue
            faults[before] |= _check(rows, bits, before, start, words, states)
            if i < len(rows) and not faults[i] & _BOARD:
                bits_of_move = play(before, index, turns, reached, words, states)
                if not bits_of_move & _UNKNOWN:
                    bits_of_move |= _check_index(rows, values, bits, before, states[before, INDEX])
                faults[before] |= bits_of_move
                if bits_of_move & (_UNKNOWN | _CONTINUITY):
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
        plane = _BEFORE + 2 * (THEIRS + PAWN)
        before = np.uint64(bits[i, plane]) | np.uint64(bits[i, plane + 1]) << _32
        gone, come = before & ~now & _SEVENTH, now & ~before
        if ones(before ^ now) == 2 and gone and come == gone >> _16:
            file = 55 - lowest(gone)
    if file < 0:
        return -1
    pawn = _1 << np.uint64(39 - file)
    free = (pawn << _8 | pawn << _16) & occupied_by(words, i) == _0
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
def _check_index(rows: ByteArray, values: Float32Array, bits: UInt32Array, i: int, index: int) -> int:
    """Return the faults of the index of a move: none, another than the frame tells, or one marked as illegal."""
    faults, played = 0, np.int64(rows[i, PLAYED]) + 256 * np.int64(rows[i, PLAYED + 1])
    if bits[i, VISITS // 4] and played != index:
        faults |= _OTHER
    if index < 0:
        return faults | _ILLEGAL | _UNMARKED
    return faults if values[i, 2 + index] >= 0 or rows[i, INFO] & 64 else faults | _UNMARKED
