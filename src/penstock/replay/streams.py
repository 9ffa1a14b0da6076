"""`StepStream`: environments whose steps are recorded together, and `MemorySegment`: memory for their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.kernels.replay import LANE_CLOSED, LANE_PIECE, LANE_ROW
from penstock.replay.saved import packed

UNKNOWN = 1 << 62
Rows = Mapping[str, AnyArray]


@dataclass(eq=False)
class MemorySegment:
    """Memory of one segment, the pieces in it, and the last step whose anchors read it."""

    slot: int
    rows: int
    columns: dict[str, AnyArray] = field(repr=False)
    pieces: list[int] = field(default_factory=list[int])
    until: int = UNKNOWN


@dataclass(eq=False)
class StepStream:
    """Environments whose steps are recorded together, and the state of their lanes."""

    lanes: int
    lane_rows: int
    state: IntArray
    segment: MemorySegment | None = None
    previous: MemorySegment | None = None  # while new anchors may read it
    fresh: int = 0  # steps since the segment began
    used: int = 0  # rows of the fullest lane, at most

    @property
    def row(self) -> IntArray:
        """`[lanes]` int64 next row of each lane."""
        return self.state[:, LANE_ROW]

    @property
    def piece(self) -> IntArray:
        """`[lanes]` int64 piece of each open episode, or -1."""
        return self.state[:, LANE_PIECE]

    @property
    def is_open(self) -> BoolArray:
        """`[lanes]` bool, whether an episode is open."""
        return self.piece >= 0

    @property
    def closed(self) -> IntArray:
        """`[lanes]` int64 episodes that ended."""
        return self.state[:, LANE_CLOSED]

    def to_state(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        slots = [None if segment is None else segment.slot for segment in (self.segment, self.previous)]
        numbers = [self.lanes, self.lane_rows, self.fresh, self.used]
        return {"state": packed(self.state), "segments": slots, "numbers": numbers}
