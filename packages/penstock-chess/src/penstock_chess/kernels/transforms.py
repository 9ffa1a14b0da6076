"""The transform that canonical input formats give a position.

A position without castling rights is turned so that our king is on the king's side of the first ranks. Without pawns,
the ranks and the diagonal are turned too. A king on the diagonal leaves the choice to the other pieces, which are
compared kind by kind. Source: the canonical formats of the training data of Leela Chess Zero, version 3 and above.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, UInt32Array
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock_chess.kernels.faults import fault_bit
from penstock_chess.kernels.layout import (
    CASTLE,
    TRANSFORM,
)

_TURNED = fault_bit("transform")
_BOARD = fault_bit("board")


def transforms(boards: ByteArray, states: IntArray, back: IntArray) -> IntArray:
    """Return the transform that canonical formats give each position of a game."""
    out = np.empty(len(boards), np.int64)
    _transforms(boards, states, back, out)
    return out


@uncounted_kernel("u1[2C] i8[2C] i8[2Cr] i8[1C]")
def _transforms(boards: ByteArray, states: IntArray, back: IntArray, out: IntArray) -> None:
    for i in range(len(boards)):
        out[i] = transform_of(boards, states, i, back)


@uncounted_kernel("u4[2Cr] u1[2C] i8[2C] i8[2Cr] i8[1C]")
def check_transforms(bits: UInt32Array, boards: ByteArray, states: IntArray, back: IntArray, faults: IntArray) -> None:
    """Add the fault of frames in canonical formats that are turned otherwise than their boards call for."""
    for i in range(len(boards)):
        if (
            3 <= bits[i, 1] < 256
            and not faults[i] & _BOARD
            and transform_of(boards, states, i, back) != states[i, TRANSFORM]
        ):
            faults[i] |= _TURNED


@uncounted_helper
def transform_of(boards: ByteArray, states: IntArray, i: int, back: IntArray) -> int:
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
