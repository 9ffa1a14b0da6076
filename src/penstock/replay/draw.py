"""`Draw`: the samples of one batch, before their rows are read. `DrawLog`: recent draws, for updates by ticket."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Float32Array, IntArray
from penstock.errors import StateError
from penstock.load.ticket import Ticket

REMEMBERED = 1 << 20  # drawn samples whose anchors are known for updates by ticket


@dataclass(frozen=True, eq=False)
class Draw:
    """Samples of one batch.

    Args:
        number: Number of its first draw.
        anchors: `[n]` int64 numbers of samples.
        weights: `[n]` float32 importance weights, or None.
        episodes: Episodes that had arrived.
        extent: Numbers of the samples in the store, `[lo, hi)`. The default is `(0, 0)`: unknown.
        masses: `[n]` float32 weights in proportion to which the samples were drawn, or None without weights.
        total: Sum of the weights of all samples in the store. The default is 0: unknown.
        priorities: `[n]` float32 priorities, if the weights do not tell them. The default is None.

    Example:
        >>> Draw.of_state(Draw(8, np.arange(2), None, 3).to_state()).anchors.tolist()
        [0, 1]
    """

    number: int
    anchors: IntArray
    weights: Float32Array | None
    episodes: int
    extent: tuple[int, int] = (0, 0)
    masses: Float32Array | None = None
    total: float = 0.0
    priorities: Float32Array | None = None

    def to_state(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        return {
            "number": self.number,
            "anchors": self.anchors.copy(),
            "weights": _copy(self.weights),
            "episodes": self.episodes,
            "extent": list(self.extent),
            "masses": _copy(self.masses),
            "total": self.total,
            "priorities": _copy(self.priorities),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Draw:
        """Return the draw of saved values.

        Args:
            state: Output of `to_state`.
        """
        weights, masses, priorities = (
            None if state[name] is None else np.array(state[name], np.float32)
            for name in ("weights", "masses", "priorities")
        )
        lo, hi = state["extent"]
        anchors = np.array(state["anchors"], np.int64)
        chances = (int(lo), int(hi)), masses, float(state["total"]), priorities
        return cls(int(state["number"]), anchors, weights, int(state["episodes"]), *chances)


def _copy(array: Float32Array | None) -> Float32Array | None:
    return None if array is None else array.copy()


class DrawLog:
    """Draws of the last 2^20 samples, at least one draw.

    Args:
        digest: First 8 hexadecimal digits of the replay's fingerprint, as in its tickets.

    Example:
        >>> log = DrawLog("0123abcd")
        >>> log.add(Draw(8, np.arange(2), None, 3))
        >>> log.of(Ticket(8, 2, "0123abcd")).anchors.tolist()
        [0, 1]
    """

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._draws: dict[int, Draw] = {}
        self._order: deque[int] = deque()  # the oldest first, for the first key of a dict is found slowly
        self._samples = 0

    def __getitem__(self, number: int) -> Draw:
        """Return the draw whose first sample has a number."""
        return self._draws[number]

    def add(self, draw: Draw) -> None:
        """Add a draw; the oldest draws leave.

        Args:
            draw: The draw.
        """
        self._draws[draw.number] = draw
        self._order.append(draw.number)
        self._samples += len(draw.anchors)
        while self._samples > REMEMBERED and len(self._draws) > 1:
            self._samples -= len(self._draws.pop(self._order.popleft()).anchors)

    def of(self, ticket: Ticket) -> Draw:
        """Return the draw of a ticket.

        Args:
            ticket: The ticket.

        Raises:
            StateError: The ticket is from another replay, or its draw has left.
        """
        draw = self._draws.get(ticket.position)
        if ticket.digest != self._digest or draw is None or len(draw.anchors) != ticket.count:
            raise StateError(
                f"expected the ticket of one of the last {REMEMBERED:,} samples of this replay, got {ticket}; "
                "update priorities before more is drawn, or by the numbers of samples"
            )
        return draw
