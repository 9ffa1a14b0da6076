"""Whether the frames of a chunk can be a game: values in their ranges, positions that follow by legal moves."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock_chess.boards import as_frames, inspect
from penstock_chess.formats.lc0.check import broken_history
from penstock_chess.kernels.faults import FAULTS
from penstock_chess.moves import Transposition


class Fault(StrEnum):
    """Kinds of faults of a frame or a chunk. The list is complete, so faults can be counted by kind.

    Example:
        >>> Fault.ROOT, str(Fault("move_illegal"))
        (<Fault.ROOT: 'root'>, 'move_illegal')
    """

    INPUT_FORMAT = "input_format"  # none that is known
    ROOT = "root"  # q outside -1:1 or d outside 0:1, or NaN
    BEST = "best"
    PLAYED = "played"
    ORIG = "orig"  # the same, but NaN is allowed
    RESULT = "result"
    PLIES = "plies"  # plies left, or one of the moves-left values, is negative or NaN
    CASTLING = "castling"  # bytes that no right has, or a right without its king and rook
    SIDE = "side"  # the side to move is neither 0 nor 1, or several files en passant
    RULE50 = "rule50"  # above 100
    PROBABILITY = "probability"  # neither in 0:1, nor -1, nor NaN
    PROBABILITY_SUM = "probability_sum"  # outside 0.99:1.01
    INDEX = "index"  # of the best or the played move, outside the policy
    BEST_ILLEGAL = "best_illegal"  # the policy marks it as illegal
    PLAYED_ILLEGAL = "played_illegal"
    BOARD = "board"  # not one king a side, two pieces on a square, a pawn on the first or last rank
    CONTINUITY = "continuity"  # the next frame is not the position after the move
    MOVE_UNKNOWN = "move_unknown"  # no move leads to the next frame
    MOVE_ILLEGAL = "move_illegal"  # by the rules
    MOVE_OTHER = "move_other"  # another than the frame says was played
    MOVE_UNMARKED = "move_unmarked"  # the policy marks the move that was played as illegal
    RIGHTS = "rights"  # castling rights are not those after the move
    CLOCK = "clock"  # rule50_count is not that after the move
    TURN = "turn"  # the sides do not move in turns
    EN_PASSANT = "en_passant"  # not the file after the move
    REPETITION = "repetition"  # the plane does not say whether the position is a repetition
    TRANSFORM = "transform"  # a canonical format calls for another one
    HISTORY = "history"  # older positions differ from the frame before
    RESULT_FRACTION = "result_fraction"  # neither a win, a draw, nor a loss: deblundered before
    EMPTY = "empty"  # no frames


STRUCTURE = frozenset({Fault.INPUT_FORMAT, Fault.BOARD, Fault.CONTINUITY, Fault.MOVE_UNKNOWN, Fault.EMPTY})
"""Without these there is no game to replay."""

BEYOND = frozenset(
    {Fault.RIGHTS, Fault.CLOCK, Fault.TURN, Fault.EN_PASSANT, Fault.REPETITION, Fault.TRANSFORM, Fault.HISTORY}
)
"""What the original does not look at: it replays the moves from the first frame, and takes nothing else of others."""

EVERY = frozenset(Fault)
REFERENCE = EVERY - BEYOND
"""For which the original rescorer fails a chunk, and by default ours."""

BITS: dict[Fault, int] = {Fault(name): 1 << k for k, name in enumerate(FAULTS)}


@dataclass(frozen=True, slots=True)
class ChunkFaults:
    """Faults of a chunk, by frame.

    Args:
        faults: `[n]` int64: the bits, by `BITS`, of the faults of each frame.

    Example:
        >>> ChunkFaults(np.array([0, BITS[Fault.CLOCK], BITS[Fault.CLOCK]])).counts
        {<Fault.CLOCK: 'clock'>: 2}
    """

    faults: IntArray

    @property
    def counts(self) -> dict[Fault, int]:
        """Number of frames by fault, for faults that occur."""
        if not len(self.faults):
            return {Fault.EMPTY: 0}
        bits = int(np.bitwise_or.reduce(self.faults))
        return {fault: int(np.count_nonzero(self.faults & bit)) for fault, bit in BITS.items() if bits & bit}

    def first(self, errors: Set[Fault] = REFERENCE) -> tuple[Fault, int] | None:
        """Return the first fault of some kinds.

        Args:
            errors: The kinds. The default is `REFERENCE`.

        Returns:
            The fault and the number of its frame, or None.

        Example:
            >>> ChunkFaults(np.array([0, BITS[Fault.CLOCK], BITS[Fault.BOARD]])).first()
            (<Fault.BOARD: 'board'>, 2)
        """
        if not len(self.faults):
            return (Fault.EMPTY, 0) if Fault.EMPTY in errors else None
        mask = sum(bit for fault, bit in BITS.items() if fault in errors)
        bad = np.flatnonzero(self.faults & mask)
        if not len(bad):
            return None
        bits = int(self.faults[bad[0]])
        return next(fault for fault, bit in BITS.items() if fault in errors and bits & bit), int(bad[0])


def validate(frames: ByteArray, *, transposition: Transposition = "diagonal") -> ChunkFaults:
    """Check each frame of a game, and each move between two frames.

    Finds all faults for which the original rescorer rejects a chunk (`REFERENCE`), and more (`BEYOND`). Contents of
    frames raise no error; the caller decides which faults matter. Cost: about two microseconds a frame; half of it
    replays the game.

    Args:
        frames: `[n, 8396]` uint8: the frames of one game, in order.
        transposition: Effect of turning the board along its diagonal on a policy: `"diagonal"` (the default) or
            `"rotation"`, as in data of Leela Chess Zero since 2025.

    Returns:
        The faults of each frame.

    Raises:
        DataError: The array has another shape or dtype, or `transposition` is unknown.

    Example:
        >>> validate(np.zeros((1, 8396), np.uint8)).first()
        (<Fault.INPUT_FORMAT: 'input_format'>, 0)
    """
    frames = as_frames(frames)
    faults = inspect(frames, transposition).faults
    if len(frames) > 1:
        faults[1:][broken_history(frames)] |= BITS[Fault.HISTORY]
    return ChunkFaults(faults)
