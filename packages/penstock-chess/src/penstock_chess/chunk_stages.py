"""`ChunkValidator` and `ChunkRescorer`: what looks at whole games on their way, as stages of a pipeline."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from penstock_chess.changed import changed
from penstock_chess.rescore import Changes, Rescorer
from penstock_chess.validate import REFERENCE, Fault, validate
from penstock_live.hooks import Frames, Rejected


class ChunkValidator:
    """Lets games through that have none of some `faults`, by default those for which the original's rescorer fails a
    game. A stage of `penstock_live.ChunkStages`. Cost: one `validate`, two microseconds a frame.
    """

    def __init__(self, faults: Set[Fault] = REFERENCE) -> None:
        self._faults = frozenset(faults)

    def __call__(self, frames: Frames, name: str) -> Frames | Rejected:
        """The frames as they are, or the first fault."""
        fault = validate(frames).first(self._faults)
        return frames if fault is None else _rejected(*fault, "validate.")


class ChunkRescorer:
    """Checks games and corrects their targets, in place. A stage of `penstock_live.ChunkStages`."""

    def __init__(self, rescorer: Rescorer) -> None:
        self._apply = rescorer.apply

    def __call__(self, frames: Frames, name: str) -> Frames | Rejected:
        """The frames rescored, or what is wrong with them."""
        rejected = self._apply(frames)
        return frames if rejected is None else _rejected(rejected.reason, rejected.frame, "rescore.")


class RecordRescorer:
    """As `ChunkRescorer`, of records as they are stored, which nothing changes: gives positions for `encode_changed`.
    Of a `light` rescorer.
    """

    def __init__(self, rescorer: Rescorer) -> None:
        self._changes = rescorer.changes

    def __call__(self, frames: Frames, name: str) -> Any:
        """`[n]` `CHANGED`, or what is wrong with the game."""
        changes = self._changes(frames)
        return (
            changed(frames, changes)
            if isinstance(changes, Changes)
            else _rejected(changes.reason, changes.frame, "rescore.")
        )


def _rejected(fault: Fault, frame: int, prefix: str) -> Rejected:
    return Rejected(f"{prefix}{fault}", f"expected frames of a game, got a fault ({fault}) in frame {frame}")
