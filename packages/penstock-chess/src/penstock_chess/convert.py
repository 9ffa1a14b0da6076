"""Frames of one input format as frames of another: planes and their history, policy, castling, en passant."""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray
from penstock.errors import DataError, FormatError
from penstock_chess.boards import Game, as_frames, inspect, undone
from penstock_chess.formats.lc0.records import INPUT_FORMATS
from penstock_chess.kernels.conversion import encode_planes, encode_rest, turn_policies
from penstock_chess.kernels.transforms import transforms
from penstock_chess.moves import Transposition, squares, turned
from penstock_chess.validate import STRUCTURE, ChunkFaults


def check_format(input_format: int) -> None:
    """Raise `DataError` for an unknown input format."""
    if input_format not in INPUT_FORMATS:
        raise DataError(f"expected an input format of {INPUT_FORMATS}, got {input_format!r}")


def convert(frames: ByteArray, input_format: int, *, transposition: Transposition = "diagonal") -> ByteArray:
    """The frames `[n, 8396]` uint8 of a game, given in any input format, in another one; in new memory.

    The game is replayed from its first frame, whose own history is not carried over. Where the format turns the
    board, the policy, `best_idx` and `played_idx` are turned with it. Bytes equal the original rescorer's, but in
    two cases: the side to move of games in canonical formats is kept where the original takes white for the first,
    and moves that are marked as NaN stay so.

    Cost: two microseconds a frame.
    """
    check_format(input_format)
    frames = as_frames(frames)
    game = inspect(frames, transposition)
    fault = ChunkFaults(game.faults).first(STRUCTURE)
    if fault is not None:
        raise FormatError(
            f"expected frames of a game, got one with the fault {str(fault[0])!r}", where=f"frame {fault[1]}"
        )
    out = frames.copy()
    convert_into(out, game, input_format, transposition)
    return out


def convert_into(frames: ByteArray, game: Game, input_format: int, transposition: Transposition) -> None:
    """Convert frames in place that are replayed already, and have no fault of `STRUCTURE`."""
    wanted = np.zeros(len(game), np.int64)
    if input_format >= 3:
        wanted = transforms(game.boards, game.states, undone())
    turn_policies(frames, game.transforms, wanted, turned(transposition))
    encode_planes(game.boards, game.states, input_format, wanted, squares(), frames)
    encode_rest(game.states, input_format, wanted, frames)
