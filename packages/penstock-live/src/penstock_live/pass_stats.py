"""`PassStats`: counts usable chunks of a pass, so that a run without any ends with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from penstock.core.boundary import loading_state
from penstock_live.chunks import Unpacked

NAMES = ("epoch", "good", "bad", "unread", "frames", "idle")
Barren = Literal["bad", "unread", "idle"]


class PassStats:
    """Counts of the present pass. `add` says whether the pass before it was barren, and why: chunks failed and none was
    good (`"bad"`), none could be read for now (`"unread"`), or `patience` passes gave no frame (`"idle"`).
    """

    def __init__(self, patience: int = 64) -> None:
        self.patience = patience
        self.epoch: int = 0
        self.good = self.bad = self.unread = self.frames = self.idle = 0

    def add(self, unpacked: Unpacked) -> Barren | None:
        """Count draws."""
        barren = None
        if unpacked.epoch != self.epoch:
            barren = self.finish()
            self.epoch = unpacked.epoch
            self.good = 0
            self.bad = 0
            self.unread = 0
            self.frames = 0
        self.good += unpacked.good
        self.bad += unpacked.bad
        self.unread += unpacked.unread
        self.frames += sum(map(len, unpacked.blocks))
        return barren

    def finish(self) -> Barren | None:
        """Return why the ending pass is barren, if it is."""
        if self.good == 0 and self.unread > 0 and self.bad == 0:
            return "unread"  # which says nothing about passes in which chunks can be read
        self.idle = 0 if self.frames else self.idle + 1
        if self.good == 0 and self.bad > 0:
            return "bad"
        return "idle" if self.idle >= self.patience else None

    def state_dict(self) -> dict[str, int]:
        """Return the counts."""
        return {name: getattr(self, name) for name in NAMES}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from counts."""
        for name in NAMES:
            setattr(self, name, int(state[name]))
