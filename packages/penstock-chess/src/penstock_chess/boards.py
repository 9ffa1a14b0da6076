"""Games replayed from their frames: boards, the state of each position, the moves that were played."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray, ByteArray, IntArray
from penstock.errors import DataError, require
from penstock_chess.formats.lc0.records import FRAME
from penstock_chess.kernels import games
from penstock_chess.kernels.layout import BLACK, CASTLE, CLOCK, EN_PASSANT, INDEX, SEEN, TRANSFORM
from penstock_chess.moves import Transposition, policy_index, squares


@cache
def undone() -> IntArray:
    """`[8, 64]` int64 the square that each transform takes to a square. Read-only."""
    table = np.argsort(squares(), axis=1)
    table.flags.writeable = False
    return table


def as_frames(frames: ByteArray) -> ByteArray:
    """`[n, 8396]` uint8 the frames of a chunk, such that their numbers can be viewed; copied only where they cannot."""
    if frames.dtype != np.uint8 or frames.ndim != 2 or frames.shape[1] != FRAME.itemsize:
        raise DataError(f"expected frames [n, {FRAME.itemsize}] uint8, got {list(frames.shape)} {frames.dtype}")
    aligned = frames.flags.c_contiguous and frames.ctypes.data % 4 == 0
    return frames if aligned else np.array(frames, order="C")


@dataclass(frozen=True, slots=True)
class Game:
    """`n` positions, each seen by its side to move, as `replay` finds them.

    `boards` `[n, 64]` uint8, square `8 * rank + file`: 0 empty, 1 to 6 pawn, knight, bishop, rook, queen and king of
    the side to move, 7 to 12 the pieces of the other. `states[n, 13]` and `faults[n]` int64 are the rows and bits that
    `kernels.state` describes.
    """

    boards: ByteArray
    states: IntArray
    faults: IntArray

    def __len__(self) -> int:
        return len(self.boards)

    @property
    def black(self) -> BoolArray:
        """`[n]` whether black is to move."""
        return self.states[:, BLACK] == 1

    @property
    def played(self) -> IntArray:
        """`[n]` int64 index in its frame's policy of each move played, -1 for the last and where none is understood."""
        return self.states[:, INDEX]

    @property
    def men(self) -> IntArray:
        """`[n]` int64 pieces on the board."""
        return np.count_nonzero(self.boards, axis=1)

    @property
    def castles(self) -> BoolArray:
        """`[n]` whether a side may still castle."""
        return np.any(self.states[:, CASTLE : CASTLE + 4] >= 0, axis=1)

    @property
    def clock(self) -> IntArray:
        """`[n]` int64 plies since a capture or a pawn's move."""
        return self.states[:, CLOCK]

    @property
    def seen(self) -> IntArray:
        """`[n]` int64 how often the position was there before."""
        return self.states[:, SEEN]

    @property
    def transforms(self) -> IntArray:
        """`[n]` int64 how each frame turns its board, bits `FLIP`, `MIRROR`, `TRANSPOSE`."""
        return self.states[:, TRANSFORM]


def replay(frames: ByteArray, transposition: Transposition = "diagonal") -> Game:
    """Replay the frames `[n, 8396]` uint8 of a game: what each position is, and which move leads to the next.

    Nothing is refused here: errors are in `faults`. `transposition` says what turning the board does to the indices of
    moves. Cost: a third of a microsecond a frame.
    """
    return Game(*games.inspect(as_frames(frames), _tables(transposition), values=False))


def _tables(transposition: Transposition) -> tuple[IntArray, IntArray, IntArray]:
    """What tells kernels of moves and squares."""
    return policy_index(), undone(), squares(transposition)


def inspect(frames: ByteArray, transposition: Transposition = "diagonal") -> Game:
    """Replay the frames of a game as `replay` does, and look at their values too: `faults` has what is
    wrong with both.

    Cost: half a microsecond a frame, most of it for fetching frames.
    """
    return inspect_records(as_frames(frames), transposition)


def inspect_records(records: ByteArray, transposition: Transposition) -> Game:
    """As `inspect`, of aligned frames, or of records of version 6 `[n, 8356]`, which have all that is looked at."""
    return Game(*games.inspect(records, _tables(transposition)))


def chess_board(game: Game, i: int) -> Any:
    """Position `i` as a board of python-chess, the side to move being white, without castling."""
    chess: Any = require("chess", "tablebases", "penstock-chess")
    board = chess.Board(None)
    for square in np.flatnonzero(game.boards[i]).tolist():
        piece = int(game.boards[i, square])
        board.set_piece_at(square, chess.Piece((piece - 1) % 6 + 1, piece <= 6))
    file = int(game.states[i, EN_PASSANT])
    board.ep_square = None if file < 0 else chess.square(file, 5)
    board.halfmove_clock = max(int(game.clock[i]), 0)
    return board
