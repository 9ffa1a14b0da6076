"""The 1858 moves that a policy has a place for, and what turning the board does to them.

Moves are seen by the side to move: its own pawns go up the board. A knight's promotion is written as the plain move,
the others with a letter behind it, and castling is the king taking its own rook.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.arrays import IntArray
from penstock.errors import DataError

# Bits of `invariance_info`: files turned round, ranks, a1 and h8 exchanged
FLIP = 1
MIRROR = 2
TRANSPOSE = 4
PROMOTIONS = ("", "q", "r", "b")

Transposition = Literal["diagonal", "rotation"]
"""What `TRANSPOSE` does to a move. `diagonal` is what it does to the planes. `rotation` turns ranks and files round
instead: so do the versions of Leela Chess Zero since 2025, in whose data the policy then does not match the planes."""


def _reached(source: int) -> list[int]:
    """Squares that a queen or a knight reaches from `source` on an empty board, in order."""
    file, rank = source % 8, source // 8
    steps = ((abs(to % 8 - file), abs(to // 8 - rank)) for to in range(64))
    return [to for to, (x, y) in enumerate(steps) if x + y and (x == y or not x * y or x + y == 3)]


def _square(square: int) -> str:
    return "abcdefgh"[square % 8] + str(square // 8 + 1)


def _plain() -> list[str]:
    return [_square(source) + _square(to) for source in range(64) for to in _reached(source)]


def _promotions() -> list[str]:
    ahead = ((file, to) for file in range(8) for to in range(max(file - 1, 0), min(file + 2, 8)))
    return [_square(48 + file) + _square(56 + to) + piece for file, to in ahead for piece in PROMOTIONS[1:]]


MOVES: tuple[str, ...] = (*_plain(), *_promotions())
"""The move of each index of a policy.

>>> len(MOVES), MOVES[0], MOVES[-1]
(1858, 'a1b1', 'h7h8b')
"""


def _packed(move: str) -> tuple[int, int, int]:
    squares = [ord(move[i]) - ord("a") + 8 * (int(move[i + 1]) - 1) for i in (0, 2)]
    return PROMOTIONS.index(move[4:]), squares[0], squares[1]


@cache
def policy_index() -> IntArray:
    """`[4, 64, 64]` int64 the index of a move by promotion (none or knight, queen, rook, bishop), from and to; -1 where
    no piece moves so. A square is `8 * rank + file`. Read-only.
    """
    table = np.full((4, 64, 64), -1, np.int64)
    for index, move in enumerate(MOVES):
        table[_packed(move)] = index
    table.flags.writeable = False
    return table


@cache
def squares(transposition: Transposition = "diagonal") -> IntArray:
    """`[8, 64]` int64 where each transform (bits `FLIP`, `MIRROR`, `TRANSPOSE`, in this order) takes a square."""
    if transposition not in get_args(Transposition):
        raise DataError(f"expected transposition to be one of {get_args(Transposition)}, got {transposition!r}")
    table = np.empty((8, 64), np.int64)
    for transform in range(8):
        file, rank = np.arange(64) % 8, np.arange(64) // 8
        if transposition == "rotation" and transform & TRANSPOSE:
            table[transform] = 8 * (7 - rank) + 7 - file
            continue
        file = 7 - file if transform & FLIP else file
        rank = 7 - rank if transform & MIRROR else rank
        table[transform] = 8 * (7 - file) + 7 - rank if transform & TRANSPOSE else 8 * rank + file
    table.flags.writeable = False
    return table


@cache
def turned(transposition: Transposition = "diagonal") -> IntArray:
    """`[8, 1858]` int64 the index that each move has after a transform, -1 for a promotion that it turns aside: with
    `MIRROR` or `TRANSPOSE` no promotion is left, because they are of positions without pawns. Read-only.
    """
    packed: IntArray = np.array([_packed(move) for move in MOVES])
    to: Any = squares(transposition)
    table = np.ascontiguousarray(policy_index()[packed[:, 0], to[:, packed[:, 1]], to[:, packed[:, 2]]])
    table.flags.writeable = False
    return table
