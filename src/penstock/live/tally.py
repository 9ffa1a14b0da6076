"""`Tally`: how many chunks of a pass could be used, so that a run that gives nothing ends with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.boundary import loading_state
from penstock.live.chunks import Unpacked

NAMES = ("epoch", "good", "bad", "frames", "idle")


class Tally:
    """Counts of the present pass. `add` says whether the pass before it was barren: chunks failed and none was good, or
    `patience` passes gave no frame.

    >>> tally = Tally()
    >>> [tally.add(Unpacked(end, epoch, [], 0, 1)) for end, epoch in [(1, 0), (2, 0), (3, 1)]]
    [False, False, True]
    """

    def __init__(self, patience: int = 64) -> None:
        self.patience = patience
        self.epoch = self.good = self.bad = self.frames = self.idle = 0

    def add(self, unpacked: Unpacked) -> bool:
        """Count draws."""
        barren = False
        if unpacked.epoch != self.epoch:
            barren = self.finish()
            self.epoch, self.good, self.bad, self.frames = unpacked.epoch, 0, 0, 0
        self.good += unpacked.good
        self.bad += unpacked.bad
        self.frames += sum(map(len, unpacked.blocks))
        return barren

    def finish(self) -> bool:
        """Whether the pass that ends is barren."""
        self.idle = 0 if self.frames else self.idle + 1
        return (self.good == 0 and self.bad > 0) or self.idle >= self.patience

    def state_dict(self) -> dict[str, int]:
        """The counts."""
        return {name: getattr(self, name) for name in NAMES}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from counts. Raises `StateError` for something else."""
        self.epoch, self.good, self.bad, self.frames, self.idle = (int(state[name]) for name in NAMES)
