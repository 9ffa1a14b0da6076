"""Write the frames of a game in another input format: planes with their history, policy, castling, side to move.

The history is written from the boards of the game, newest first, each as the side to move of its frame sees it.
Canonical formats end it at a change of castling rights and after a capture or a pawn's move, since no position before
can occur again; some formats have only repetitions in it. Before the first frame there is no game, but a pawn that may
be taken en passant tells one position more. Boards are made words once, so a plane that is not turned is one store. The
caller owns all arrays. Results equal the output of Leela Chess Zero's rescorer, byte for byte.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Float32Array, IntArray, UInt32Array, UInt64Array
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock_chess.kernels.bitboards import THEIRS, other_side, turned_word, words_of_board
from penstock_chess.kernels.layout import (
    BEST,
    BLACK,
    CASTLE,
    CLOCK,
    EN_PASSANT,
    INFO,
    PLAYED,
    POLICY,
    RIGHTS,
    SEEN,
    SIDE,
    STATE,
    STEP,
    STORED,
    WIDTH,
)

_HISTORY, _PLANES = 8, 7440 // 4  # positions; where planes begin, in words of 4 bytes
_1 = np.uint64(1)
_32 = np.uint64(32)
_ALL = np.uint64(2**64 - 1)
_LOW = np.uint64(2**32 - 1)


def _require_frames(rows: ByteArray, **columns: IntArray) -> None:
    """Raise `ValueError` unless `rows` are aligned frames, and all columns have a transform 0 to 7 for each."""
    fits = rows.dtype == np.uint8 and rows.ndim == 2 and rows.shape[1] == WIDTH and rows.ctypes.data % 4 == 0
    if not fits or not rows.flags.c_contiguous or not rows.flags.writeable:
        raise ValueError(f"expected writeable frames [n, {WIDTH}] uint8, got {list(rows.shape)} {rows.dtype}")
    for name, column in columns.items():
        if len(column) != len(rows) or (len(column) and not 0 <= column.min() <= column.max() < 8):
            raise ValueError(f"expected {name} with a transform 0 to 7 for each of {len(rows)} frames")


def turn_policies(rows: ByteArray, old: IntArray, new: IntArray, turned: IntArray) -> None:
    """Bring policies and indices of frames from one transform to another. Moves that no other becomes are illegal."""
    old, new = np.ascontiguousarray(old), np.ascontiguousarray(new)
    _require_frames(rows, old=old, new=new)
    policy, becomes = np.empty(POLICY, np.float32), np.empty(POLICY, np.int64)
    _turn_policies(rows, rows.view(np.float32), old, new, turned, policy, becomes)


def encode_planes(
    boards: ByteArray, states: IntArray, input_format: int, transforms: IntArray, squares: IntArray, rows: ByteArray
) -> None:
    """Write the 104 planes of each frame of a game in an input format."""
    _require_frames(rows, transforms=transforms)
    if boards.shape != (len(rows), 64) or states.shape != (len(rows), STATE):
        raise ValueError(f"expected boards and states of {len(rows)} frames")
    words = np.empty((len(rows) + 1, 12), np.uint64)
    _encode_planes(boards, states, input_format, transforms, squares, rows.view(np.uint32), words)


def encode_rest(states: IntArray, input_format: int, transforms: IntArray, rows: ByteArray) -> None:
    """Write format, castling, side to move or en passant, and transform of each frame, in an input format.

    Arguments are as in `encode_planes`.
    """
    _require_frames(rows, transforms=transforms)
    if states.shape != (len(rows), STATE):
        raise ValueError(f"expected states of {len(rows)} frames, got {list(states.shape)}")
    _encode_rest(states, input_format, transforms, rows)


@uncounted_kernel("u1[2C] f4[2C] i8[1C] i8[1C] i8[2Cr] f4[1C] i8[1C]")
def _turn_policies(
    rows: ByteArray,
    values: Float32Array,
    old: IntArray,
    new: IntArray,
    turned: IntArray,
    policy: Float32Array,
    becomes: IntArray,
) -> None:
    for i in range(len(rows)):
        if old[i] == new[i]:
            continue
        for j in range(POLICY):
            policy[j], becomes[j] = values[i, 2 + j], -1
            values[i, 2 + j] = -1
        for j in range(POLICY):
            before, after = turned[old[i], j], turned[new[i], j]
            if before >= 0 and after >= 0:
                values[i, 2 + after] = policy[before]
                becomes[before] = after
        for field in range(PLAYED, BEST + 1, 2):
            played = np.int64(rows[i, field]) + 256 * np.int64(rows[i, field + 1])
            if played < POLICY and becomes[played] >= 0:
                rows[i, field], rows[i, field + 1] = becomes[played] & 255, becomes[played] >> 8


@uncounted_helper
def _same_rights(states: IntArray, i: int, old: int, turned: bool) -> bool:
    """Whether the same sides may castle the same ways, `at` being seen by the other side if `turned`."""
    same = True
    for side in range(4):
        other = states[old, CASTLE + (side ^ (2 if turned else 0))]
        same = same and (states[i, CASTLE + side] >= 0) == (other >= 0)
    return same


@uncounted_helper
def _see(words: UInt64Array, place: int, turned: bool) -> None:
    """Write board `at`, or how the other side sees it, to the last row of `words`."""
    for k in range(12):
        other = words[place, k + THEIRS if k < THEIRS else k - THEIRS]
        words[len(words) - 1, k] = other_side(other) if turned else words[place, k]


@uncounted_helper
def _take_back(words: UInt64Array, i: int, came: int, gone: int) -> None:
    """Put a pawn on square `came` back to square `gone`."""
    here, there = _1 << np.uint64(came ^ 7), _1 << np.uint64(gone ^ 7)
    for k in range(12):
        word = words[i, k]
        words[i, k] = (word ^ here) | there if word & here else word & ~there


@uncounted_helper
def _put(bits: UInt32Array, i: int, plane: int, word: np.uint64) -> None:
    first_word = _PLANES + 2 * plane
    bits[i, first_word], bits[i, first_word + 1] = np.uint32(word & _LOW), np.uint32(word >> _32)


@uncounted_kernel("u1[2C] i8[2C] i8 i8[1C] i8[2Cr] u4[2C] u8[2C]")
def _encode_planes(
    boards: ByteArray,
    states: IntArray,
    form: int,
    transforms: IntArray,
    squares: IntArray,
    bits: UInt32Array,
    words: UInt64Array,
) -> None:
    """`words` has a row for each board, and one for the board that is written."""
    view = len(boards)
    canonical, repeats_only = form >= 3, form == 5 or form == 133
    for i in range(len(boards)):
        words_of_board(boards, i, words)
    for i in range(len(boards)):
        for k in range(_PLANES, _PLANES + 2 * STORED):
            bits[i, k] = 0
        h = i
        step = 0
        turned = False
        while step < _HISTORY:
            first = h if h > 0 else 0
            passing, again = states[first, EN_PASSANT], states[first, SEEN] > 0
            if canonical and (not _same_rights(states, i, first, turned) or (h != i and passing >= 0)):
                break
            if h < -1 or (h == -1 and passing < 0):
                break
            if again or step == 0 or not repeats_only:
                _see(words, first, turned)
                if h < 0:
                    _take_back(words, view, (24 if turned else 32) + passing, (8 if turned else 48) + passing)
                for k in range(12):
                    word = words[view, k]
                    moved = turned_word(word, squares, transforms[i]) if transforms[i] else word
                    _put(bits, i, STEP * step + k, moved)
                if again:
                    _put(bits, i, STEP * step + 12, _ALL)
                step += 1
            if h > 0:
                turned = not turned
            if canonical and states[first, CLOCK] == 0:
                break
            h -= 1


@uncounted_kernel("i8[2C] i8 i8[1C] u1[2C]")
def _encode_rest(states: IntArray, form: int, transforms: IntArray, rows: ByteArray) -> None:
    for i in range(len(rows)):
        rows[i, 4] = form
        rows[i, 5] = 0
        rows[i, 6] = 0
        rows[i, 7] = 0
        for side in range(4):
            file = states[i, CASTLE + side]
            rows[i, RIGHTS + side] = 0 if file < 0 else 1 if form == 1 else 1 << file
        kept, passing = np.int64(rows[i, INFO] & 0x78), states[i, EN_PASSANT]
        if form >= 3:
            turned = 7 - passing if transforms[i] & 1 else passing
            rows[i, SIDE] = 0 if passing < 0 else 1 << turned
            rows[i, INFO] = transforms[i] | kept | (128 if states[i, BLACK] else 0)
        else:
            rows[i, SIDE], rows[i, INFO] = states[i, BLACK], kept
