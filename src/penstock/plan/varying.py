"""`VaryingEpochs`: where epochs of different lengths begin.

A start is the sum of the sizes before it, and each size may cost planning an epoch. So starts are kept, and a start
that is set, as by a saved state, spares the epochs before it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.turns import ForkSafeLock
from penstock.errors import PlanError, StateError
from penstock.plan.base import NONE

FAR = 100_000  # epochs between one whose begin is known and one that is asked for: further off it is a mistake
BARREN = 100  # epochs without any sample that are planned in a row before it is taken that there never is one


class VaryingEpochs:
    """Epochs whose sizes a function tells. `reason` says why many epochs in a row may be empty."""

    def __init__(self, size: Callable[[int], int], reason: str) -> None:
        self._size, self._reason = size, reason
        self._starts = {0: 0}  # of epochs whose begin is known
        self._lock = ForkSafeLock()

    @property
    def barren(self) -> bool:
        """Whether the first `BARREN` epochs are empty."""
        return not any(self._size(epoch) for epoch in range(BARREN))

    def set_start(self, epoch: int, start: int) -> None:
        """Store the start of an epoch. Raises `StateError` if its neighbours exclude it."""
        with self._lock:
            low = max(s for e, s in self._starts.items() if e <= epoch)
            high = min((s for e, s in self._starts.items() if e >= epoch), default=start)
            if not low <= start <= high:
                raise StateError(f"expected epoch {epoch} to begin within {low}:{high + 1}, got {start}")
            self._starts[epoch] = start

    def start(self, epoch: int) -> int:
        """Return the first position of an epoch, by the sizes since the last epoch with a known start."""
        with self._lock:
            known = next((e for e in (epoch, epoch - 1) if e in self._starts), None)  # usually, in constant time
            if known is None:
                known = max(e for e in self._starts if e <= epoch)
            if epoch - known > FAR:
                raise PlanError(f"expected an epoch within {FAR} of one whose begin is known, got {epoch}, {known} is")
            for e in range(known, epoch):
                self._starts[e + 1] = self._starts[e] + self._size(e)
            return self._starts[epoch]

    def sizes(self, epoch: IntArray) -> IntArray:
        """Return the number of samples of epochs, `[n]`."""
        size_of = {e: self.start(e + 1) - self.start(e) for e in np.unique(epoch).tolist()}
        return np.array([size_of[e] for e in epoch.tolist()], np.int64)

    def locate(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """Return epoch and place of positions. Raises `PlanError` if no later epoch has samples."""
        if len(k) == 0:
            return NONE, NONE
        first, last = int(k.min()), int(k.max())
        with self._lock:
            epoch = max(e for e, start in self._starts.items() if start <= first)
        starts = [self.start(epoch), self.start(epoch + 1)]
        if last - starts[0] > FAR * max(starts[1] - starts[0], 1):
            raise PlanError(f"expected a position within {FAR} epochs of {starts[0]}, got {last}")
        while starts[-1] <= last:
            if len(starts) > BARREN and starts[-1] == starts[-BARREN - 1]:
                barren = epoch + len(starts) - 1 - BARREN
                raise PlanError(
                    f"expected samples in one of {BARREN} epochs from epoch {barren} on, got none: {self._reason}"
                )
            starts.append(self.start(epoch + len(starts)))
        number = np.searchsorted(starts, k, side="right") - 1
        return number + epoch, k - np.array(starts)[number]
