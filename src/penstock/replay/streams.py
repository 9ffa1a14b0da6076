"""`StepStream`: environments whose steps are recorded together, `MemorySegment`: memory for their rows, and
`StepWriter`, which writes steps into it while no episode begins or ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy import ndarray

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.spec import Field, Spec
from penstock.files.memory import HUGE, paged
from penstock.kernels.replay import LANE_CLOSED, LANE_PIECE, LANE_ROW
from penstock.replay.saved import packed, unpacked

PARTS = 32  # segments of a full store
CACHE_LINE = 64  # bytes
SHARED = 8 * HUGE  # bytes that small segments share, at most
UNKNOWN = 1 << 62
_StepColumn = tuple[str, AnyArray, np.dtype[Any], tuple[int, ...], frozenset[type], np.dtype[np.void] | None]
"""Path, rows in memory, dtype, shape of a step, types of numbers that fit, and the dtype of a row as one value."""
_SCALARS: dict[str, set[type]] = {"f": {float, np.float32, np.float64}, "b": {bool, np.bool_}}
ENDS = frozenset({"terminations", "truncations"})
Rows = Mapping[str, AnyArray]


@dataclass(eq=False)
class MemorySegment:
    """Memory of one segment, the pieces in it, and the last step whose anchors read it."""

    slot: int
    rows: int
    columns: dict[str, AnyArray] = field(repr=False)
    pieces: list[int] = field(default_factory=list[int])
    until: int = UNKNOWN


class SegmentMemory:
    """Memory for segments, of which a full store has `PARTS`."""

    def __init__(self, spec: Spec) -> None:
        self._spec = {path: field for path, field in spec.items() if field.align != "episode"}
        self._rest = paged(0, 0)  # for segments that are smaller than a huge page

    def columns(self, rows: int) -> dict[str, AnyArray]:
        """Memory of the columns of a segment, in one block."""
        begins: dict[str, int] = {}
        size = 0
        for path, column in self._spec.items():
            begins[path] = size
            size += -(-rows * column.row_bytes // CACHE_LINE) * CACHE_LINE
        block = self._block(size)
        return {
            path: np.ndarray((rows, *column.shape), column.dtype, block, begins[path])
            for path, column in self._spec.items()
        }

    def _block(self, size: int) -> ByteArray:
        """Memory of a segment. Small ones share huge pages, if all of them together fill some."""
        together = size * (PARTS + 1)
        if size >= HUGE or together < HUGE:
            return paged(size, size)
        if len(self._rest) < size:
            shared = min(together, SHARED) // HUGE * HUGE
            self._rest = paged(shared, shared)
        block, self._rest = self._rest[:size], self._rest[size:]
        return block


@dataclass(eq=False)
class StepStream:
    """Environments whose steps are recorded together, and the state of their lanes."""

    lanes: int
    lane_rows: int
    state: IntArray
    segment: MemorySegment | None = None
    previous: MemorySegment | None = None  # while new anchors may read it
    fresh: int = 0  # steps since the segment began
    uncounted: int = 0  # steps of all lanes that were written and are not in `state` yet
    writer: StepWriter | None = None

    def __post_init__(self) -> None:
        self.every = np.arange(self.lanes)
        self.first_rows = self.every * self.lane_rows
        self.going = np.zeros(self.lanes, np.bool_)

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
        numbers = [self.lanes, self.lane_rows, self.fresh, 0]
        return {"state": packed(self.state), "segments": slots, "numbers": numbers}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], segments: Mapping[int, MemorySegment]) -> StepStream:
        """Return the stream of a state, with its segments by slot."""
        segment, previous = (None if slot is None else segments[int(slot)] for slot in state["segments"])
        lanes, lane_rows, fresh = (int(number) for number in state["numbers"][:3])
        return cls(lanes, lane_rows, unpacked(state["state"]), segment, previous, fresh)


class StepWriter:
    """Writes steps of all environments of a stream into its segment, where no episode begins or ends.

    It knows the columns of a step, their memory, and the types of values that fit, so that a step costs one look at
    each value and one copy of it. A step with anything else is left to `SegmentStore.step` and the checks before it.
    With `alone`, values are of one environment, without an axis for environments.
    """

    def __init__(self, segment: MemorySegment, spec: Spec, lanes: int, alone: bool) -> None:
        self.segment = segment
        self._lanes, self._alone = lanes, alone
        columns = {path: self._column(path, field) for path, field in spec.items()}
        self._boundary = [columns[path] for path, field in spec.items() if field.align == "boundary"]
        self._step = [columns[path] for path, field in spec.items() if field.align == "step"]
        self._place: Any = 0  # of the next step of each environment
        self._one: Any = np.ones(lanes, np.int64) if lanes > 1 else 1
        self._last: list[bytes] = []  # last boundary rows
        self._left = 0  # steps that have room

    def _column(self, path: str, field: Field) -> _StepColumn:
        rows, void = self.segment.columns[path], None
        scalars = {field.dtype.type} if self._alone and not field.shape else set[type]()
        if scalars and field.align == "step":
            scalars |= _SCALARS.get(field.dtype.kind, set())
        # Rows as single values, which NumPy copies faster to many places.
        if self._lanes > 1 and field.shape and field.row_bytes:
            void = np.dtype((np.void, field.row_bytes))
            rows = np.ndarray(len(rows), void, rows)
        shape = field.shape if self._alone else (self._lanes, *field.shape)
        return path, rows, field.dtype, shape, frozenset(scalars), void

    def begin(self, stream: StepStream) -> None:
        """Continue after the steps that the stream has."""
        rows = stream.row
        self._left = stream.lane_rows - 1 - int(rows.max())
        if self._alone:
            self._place = rows.item()
        else:
            self._place = slice(rows.item(), rows.item() + 1) if self._lanes == 1 else stream.first_rows + rows
        self._last = [rows[self._place].tobytes() for _, rows, *_ in self._boundary]

    def write(self, now: Mapping[str, Any], after: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Write a step if it continues all episodes, and return whether it did. The caller counts it."""
        place = self._place
        if self._left <= 0 or len(values) != len(self._step) or not self._write_values(values):
            return False
        following = slice(place.stop, place.stop + 1) if type(place) is slice else place + self._one
        ends = self._write_boundary(now, after, following)
        if ends is None:
            return False
        self._place, self._last = following, ends
        self._left -= 1
        return True

    def _write_values(self, values: Mapping[str, Any]) -> bool:
        """Write the values of a step, in which no episode ends."""
        for path, rows, dtype, shape, scalars, void in self._step:
            value = values.get(path)
            if type(value) is ndarray:
                if value.dtype is not dtype or value.shape != shape or (void and not value.flags.c_contiguous):
                    return False
            elif type(value) not in scalars:
                return False
            rows[self._place] = value if void is None else ndarray(self._lanes, void, value)
            if path in ENDS and (value.tobytes().strip(b"\0") if type(value) is ndarray else value):
                return False
        return True

    def _write_boundary(self, now: Mapping[str, Any], after: Mapping[str, Any], place: Any) -> list[bytes] | None:
        """Write the rows after a step, and return their bytes. None if the rows before it are not the last ones."""
        if len(now) != len(self._boundary) or len(after) != len(now):
            return None
        ends: list[bytes] = []
        for (path, rows, dtype, shape, scalars, void), before in zip(self._boundary, self._last, strict=True):
            last, value = now.get(path), after.get(path)
            for each in (last, value):
                if type(each) is ndarray:
                    if each.dtype is not dtype or each.shape != shape or (void and not each.flags.c_contiguous):
                        return None
                elif type(each) not in scalars:
                    return None
            if cast("AnyArray", last).tobytes() != before:
                return None
            rows[place] = value if void is None else ndarray(self._lanes, void, value)
            ends.append(cast("AnyArray", value).tobytes())
        return ends
