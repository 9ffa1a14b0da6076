"""Where frames and compact rows have their fields.

A frame is a record of version 7 of Leela Chess Zero's training data, 8396 bytes, little-endian; a short record, of
version 6, is its first 8356 bytes. A compact row is the same frame in 420 bytes on average; `docs/tensors.md` has
its layout. Offsets of bytes end in `_BYTE` where words of 4 bytes are counted too.

The state of a position of a game is a row of int64:

=======  =============================================================================================
0 to 3   file of the rook that may still castle: ours on the queen's side and king's side, theirs; or -1
4        file of the pawn that may be taken en passant, or -1
5, 6, 7  plies since a capture or a pawn's move; earlier occurrences; 1 for black to move
8        the transform that the frame says
9, 10    squares from and to of the move made (castling: king and rook), -1 past the end
11, 12   what it promotes to, 0 for nothing; its index in the policy as the frame turns it, or -1
=======  =============================================================================================

`games` fills states from frames, and `moves` from the state before. Squares are numbers `8 * rank + file`, as the side
to move sees them.
"""

from __future__ import annotations

WIDTH, SHORT = 8396, 8356
"""Bytes of a frame, and of a record of version 6."""

POLICY = 1858
"""Moves in a policy."""
STORED = 104
"""Planes of a record."""
PLANES = 112
"""Planes of a tensor."""
STEP = 13
"""Planes of a position of the history."""

# The first bytes of the parts of a frame.
PROBS = 8  # the policy
WORDS = 7440  # the planes
TAIL = 8272  # the small fields
SPARE = 8364  # 32 reserved bytes

# The first bytes of the small fields of a frame.
RIGHTS = 8272  # castling rights, 4 bytes
SIDE = 8276  # side to move, or en passant
RULE50 = 8277  # plies since a capture
INFO = 8278  # transform
VISITS = 8340  # of the search
PLAYED = 8344  # the move played
BEST = 8346  # the best move

FIELDS = {
    name: 2070 + k
    for k, name in enumerate(
        (
            *("root_q", "best_q", "root_d", "best_d", "root_m", "best_m", "plies_left", "result_q", "result_d"),
            *("played_q", "played_d", "played_m", "orig_q", "orig_d", "orig_m"),
        )
    )
}
"""Which word of 4 bytes of a frame is which float32."""

HEADER = 120
"""Bytes before the planes of a compact row."""
LAYOUT = 1
"""Number of the layout of compact rows."""
DENSE = 1
"""Flag of a compact row: all moves are stored."""
RESERVED = 2
"""Flag of a compact row: the reserved bytes are stored."""

SPARSE_MOVES = (4 * POLICY - 1) // 6
"""The most moves that are stored with their indices: beyond, all 1858 values take less."""

LARGEST = HEADER + 8 * STORED + (WIDTH - SPARE) + 4 * POLICY
"""The bytes of the longest row."""

ILLEGAL = 0xBF800000
"""The bits of -1.0, the probability of an illegal move."""
NAN = 0x7FC00000
"""The bits of NaN."""
NUMBERED = 1
"""The input format whose castling and side bytes are numbers that fill planes."""

TARGETS = (36, 40, 32, 12, 20, 28, 44, 48, 52, 56, 60, 64, 8, 16, 24, 80, 84, -1)
"""Where, from `TAIL` on, the 6 x 3 targets are: q, d, moves left of result, best, played, orig, root, st; -1 is NaN."""


CASTLE = 0
"""The first of four columns."""
EN_PASSANT = 4
CLOCK = 5
SEEN = 6
BLACK = 7
TRANSFORM = 8
FROM = 9
TO = 10
PROMOTES = 11
INDEX = 12
STATE = 13
"""Number of columns."""
