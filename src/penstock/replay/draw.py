"""`Draw`: the samples of one batch, before their rows are read. `DrawLog`: recent draws, for updates by ticket."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Float32Array, IntArray
from penstock.errors import StateError
from penstock.loading.ticket import Ticket

REMEMBERED = 1 << 20  # drawn samples whose anchors are known for updates by ticket


@dataclass(frozen=True, eq=False)
class Draw:
    """Samples of one batch."""

    number: int
    anchors: IntArray
    weights: Float32Array | None
    extent: tuple[int, int] = (0, 0)
    masses: Float32Array | None = None
    total: float = 0.0
    priorities: Float32Array | None = None

    def first(self, count: int) -> Draw:
        """Return the draw of the first samples."""
        columns = (self.weights, self.masses, self.priorities)
        weights, masses, priorities = (None if each is None else each[:count] for each in columns)
        return Draw(self.number, self.anchors[:count], weights, self.extent, masses, self.total, priorities)

    def to_state(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        return {
            "number": self.number,
            "anchors": self.anchors.copy(),
            "weights": _copy(self.weights),
            "extent": list(self.extent),
            "masses": _copy(self.masses),
            "total": self.total,
            "priorities": _copy(self.priorities),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Draw:
        """Return the draw of saved values."""
        weights, masses, priorities = (
            None if state[name] is None else np.array(state[name], np.float32)
            for name in ("weights", "masses", "priorities")
        )
        lo, hi = state["extent"]
        anchors = np.array(state["anchors"], np.int64)
        chances = (int(lo), int(hi)), masses, float(state["total"]), priorities
        return cls(int(state["number"]), anchors, weights, *chances)


def _copy(array: Float32Array | None) -> Float32Array | None:
    return None if array is None else array.copy()


class DrawLog:
    """Draws of the last 2^20 samples, at least one draw."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._draws: dict[int, Draw] = {}
        self._order: deque[int] = deque()  # the oldest first, for the first key of a dict is found slowly
        self._samples = 0

    def __getitem__(self, number: int) -> Draw:
        """Return the draw whose first sample has a number."""
        return self._draws[number]

    def add(self, draw: Draw) -> None:
        """Add a draw; the oldest draws leave."""
        self._draws[draw.number] = draw
        self._order.append(draw.number)
        self._samples += len(draw.anchors)
        while self._samples > REMEMBERED and len(self._draws) > 1:
            self._samples -= len(self._draws.pop(self._order.popleft()).anchors)

    def of(self, ticket: Ticket) -> Draw:
        """Return the draw of a ticket."""
        draw = self._draws.get(ticket.position)
        if ticket.digest != self._digest or draw is None or len(draw.anchors) != ticket.count:
            raise StateError(
                f"expected the ticket of one of the last {REMEMBERED:,} samples of this replay, got {ticket}; "
                "update priorities before more is drawn, or by the numbers of samples"
            )
        return draw
