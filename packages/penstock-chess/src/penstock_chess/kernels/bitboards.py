"""Boards as 12 words of 64 bits, as frames store them: a word for each kind of piece, a bit for each square.

Word 0 to 5 are pawns, knights, bishops, rooks, queens and the king of the side to move, 6 to 11 the pieces of the other
side. Ranks count from the side to move. Square `8 * rank + file` is bit `8 * rank + 7 - file`, which is `square ^ 7`:
bits count files from the other end. How pieces move is the same both ways.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, UInt64Array
from penstock.kernels.jit import helper
from penstock_chess.kernels.lanes import lowest

PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING, THEIRS = range(7)
"""Words of our pieces, and the first word of the other side's."""

BETWEEN = 6
"""Where `reach` has the squares between two."""

_0, _1, _8, _16, _32 = (np.uint64(k) for k in (0, 1, 8, 16, 32))
_BYTES, _PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


@cache
def reach() -> UInt64Array:
    """Return what pieces reach on an empty board. Bits are squares as above, in both axes."""
    table = np.zeros((BETWEEN + 64, 64), np.uint64)
    for square in range(64):
        file, rank = square % 8, square // 8
        for x, y in [(x, y) for x in range(-2, 3) for y in range(-2, 3) if x or y]:
            passed = 0
            for far in range(1, 8):
                to = 8 * (rank + far * y) + file + far * x
                if not (0 <= file + far * x < 8 and 0 <= rank + far * y < 8):
                    break
                pieces = (ROOK, QUEEN) if x * y == 0 else (BISHOP, QUEEN)
                pieces += (KING,) if far == 1 else ()
                pieces += (PAWN,) if far == 1 and y == 1 and x else ()
                if max(abs(x), abs(y)) == 2:
                    pieces = (KNIGHT,) if abs(x * y) == 2 and far == 1 else ()
                else:
                    table[BETWEEN + square, to] = passed
                for piece in pieces:
                    table[piece, square] |= np.uint64(1 << to)
                passed |= 1 << to
    table.flags.writeable = False
    return table


@helper
def other_side(word: np.uint64) -> np.uint64:
    """Return a word as the other side sees it: ranks from the last to the first."""
    word = ((word >> _8) & _BYTES) | ((word & _BYTES) << _8)
    word = ((word >> _16) & _PAIRS) | ((word & _PAIRS) << _16)
    return (word >> _32) | (word << _32)


@helper
def turned_word(word: np.uint64, squares: IntArray, transform: int) -> np.uint64:
    """Return a word whose squares are taken to `squares[transform]`."""
    out = _0
    while word:
        out |= _1 << np.uint64(squares[transform, lowest(word) ^ 7] ^ 7)
        word &= word - _1
    return out


@helper
def board_of_words(words: UInt64Array, i: int, boards: ByteArray) -> None:
    """Write words `i` of `[n, 12]` as board `i` of `[n, 64]`: 0 for empty, 1 to 12 for a piece of word 0 to 11."""
    for square in range(64):
        boards[i, square] = 0
    for k in range(12):
        word = words[i, k]
        while word:
            boards[i, lowest(word) ^ 7] = k + 1
            word &= word - _1


@helper
def words_of_board(boards: ByteArray, i: int, words: UInt64Array) -> None:
    """Write board `i` of `[n, 64]` as words `i` of `[n, 12]`."""
    for k in range(12):
        words[i, k] = _0
    for square in range(64):
        piece = np.int64(boards[i, square])
        if piece > 0:
            words[i, piece - 1] |= _1 << np.uint64(square ^ 7)
