"""Where frames and compact rows have their fields.

A frame is a record of version 7 of Leela Chess Zero's training data, 8396 bytes, little-endian; a short record, of
version 6, is its first 8356 bytes. A compact row is the same frame in 420 bytes on average; `docs/howto/chess.md` has
its layout. Offsets of bytes end in `_BYTE` where words of 4 bytes are counted too.
"""

from __future__ import annotations

WIDTH, SHORT = 8396, 8356
"""Bytes of a frame, and of a record of version 6."""

POLICY, STORED, PLANES, STEP = 1858, 104, 112, 13
"""Moves in a policy; planes of a record, of a tensor, and of a position of the history."""

PROBS, WORDS, TAIL, SPARE = 8, 7440, 8272, 8364
"""Where a frame has its policy, its planes, the small fields behind them, and its 32 reserved bytes."""

RIGHTS, SIDE, RULE50, INFO, VISITS, PLAYED, BEST = 8272, 8276, 8277, 8278, 8340, 8344, 8346
"""Bytes of castling rights (4), side to move or en passant, plies since a capture, transform; the search and moves."""

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

HEADER, LAYOUT, DENSE, RESERVED = 120, 1, 1, 2
"""Bytes before the planes of a compact row, the number of this layout, and the two flags."""

SPARSE_MOVES = (4 * POLICY - 1) // 6
"""The most moves that are stored with their indices: beyond, all 1858 values take less."""

LARGEST = HEADER + 8 * STORED + (WIDTH - SPARE) + 4 * POLICY
"""The bytes of the longest row."""

ILLEGAL, NAN, NUMBERED = 0xBF800000, 0x7FC00000, 1
"""The bits of -1, of NaN, and the input format whose castling and side bytes are numbers that fill planes."""

TARGETS = (36, 40, 32, 12, 20, 28, 44, 48, 52, 56, 60, 64, 8, 16, 24, 80, 84, -1)
"""Where, from `TAIL` on, the 6 x 3 targets are: q, d, moves left of result, best, played, orig, root, st; -1 is NaN."""
