"""`StepStream`: environments whose steps are recorded together, `MemorySegment`: memory for their rows, and
`StepWriter`, which writes steps into it while no episode begins or ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, call, itemgetter
from typing import Any

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
MOST_PENDING, PENDING_BYTES = 64, 1 << 16  # steps that are written together, and their bytes
_NUMBERS: dict[str, set[type]] = {"f": {float, np.float32, np.float64}, "b": {bool, np.bool_}, "i": {int}, "u": {int}}
_call: Any = call  # whose type `map` does not know
_BYTES = ndarray.tobytes
_DTYPE, _SHAPE = attrgetter("dtype"), attrgetter("shape")
_COPIES: dict[type, Callable[[Any], Any]] = {np.float32: float, np.float64: float, np.bool_: bool}
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
    uncounted: int = 0  # steps of all lanes that `writer` took and that are not in `state` yet
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


@dataclass(frozen=True, eq=False)
class _StepColumn:
    """A column as a `StepWriter` writes it: its rows in the segment, and their shape."""

    rows: AnyArray
    shape: tuple[int, ...]

    @classmethod
    def of(cls, field: Field, rows: AnyArray, lanes: int) -> _StepColumn:
        """Rows of a segment. Those of several lanes are single values, which NumPy copies faster to many places."""
        if lanes == 1 or not field.shape or not field.row_bytes:
            return cls(rows, field.shape)
        return cls(ndarray(len(rows), np.dtype((np.void, field.row_bytes)), rows), ())

    def write(self, place: Any, values: Sequence[Any], count: int) -> None:
        """Write values of `count` rows: bytes of arrays, or numbers."""
        if type(values[0]) is bytes:
            self.rows[place] = ndarray((count, *self.shape), self.rows.dtype, b"".join(values))
        else:
            self.rows[place] = values


class StepWriter:
    """Takes steps of all environments of a stream, where no episode begins or ends, and writes them into its segment.

    It knows the columns of a step and the types of values that fit. So a step costs one look at each value, and one
    copy of its bytes: the bytes of many steps are written together, by `flush`, before anybody looks. A step with
    anything else is left to `SegmentStore.step` and the checks before it. With `alone`, values are of one environment,
    without an axis for environments.
    """

    def __init__(self, stream: StepStream, spec: Spec, alone: bool, wait: Callable[[], None]) -> None:
        self._stream, self._spec = stream, spec
        self._lanes = stream.lanes
        self._wait = wait  # says that steps are here that are not written or counted yet
        self._segment: MemorySegment | None = None
        self._columns: list[_StepColumn] = []
        self.boundary = [path for path, column in spec.items() if column.align == "boundary"]
        inner = sorted(path for path, column in spec.items() if column.align == "step")
        self.inner = [path for path in inner if path not in ENDS] + [path for path in inner if path in ENDS]
        # Where flags, rows before a step and rows after it begin among the values of `take`.
        flags = sum(path not in ENDS for path in inner)
        self._parts = flags, len(inner), len(inner) + len(self.boundary)
        # Of the values of `take`: of the step, and the rows before and after it.
        every = (*self.inner, *self.boundary, *self.boundary)
        self._fields = [(spec[path], () if alone else (stream.lanes,)) for path in every]
        self._types: list[type] = []  # of the values of the last step
        self._arrays: Callable[[Sequence[Any]], Sequence[Any]] = itemgetter(slice(0))  # the arrays among them
        self._dtypes: list[np.dtype[Any]] = []  # of these
        self._shapes: list[tuple[int, ...]] = []
        self._copies: list[Callable[[Any], Any]] = []  # what makes bytes or a number of a value, which stay as they are
        self._pending: list[list[Any]] = []  # values of steps that are not written yet
        row_bytes = sum(column.row_bytes for column in spec.values())
        self._together = max(1, min(MOST_PENDING, PENDING_BYTES // max(1, row_bytes * stream.lanes)))
        self._row = stream.every  # of the next step to write of each environment, in the segment
        self._last: list[Any] = []  # flags of a step that ends nothing, and last boundary rows
        self._left = 0  # steps that have room

    def begin(self, segment: MemorySegment) -> None:
        """Continue after the steps that the stream has, in a segment."""
        if self._segment is not segment:
            self._segment = segment
            paths = (*self.inner, *self.boundary)
            self._columns = [_StepColumn.of(self._spec[p], segment.columns[p], self._lanes) for p in paths]
        row = self._stream.row
        self._left = self._stream.lane_rows - 1 - int(row.max())
        self._row = self._stream.first_rows + row
        if self._types:
            self._last = self._expected()

    def _expected(self) -> list[Any]:
        """What `take` compares values with: flags of a step that ends nothing, and the last boundary rows."""
        flags, before, after = self._parts
        whole = [copy is _BYTES for copy in self._copies]
        sizes = [self._lanes * column.row_bytes for column, _ in self._fields]
        last: list[Any] = [bytes(sizes[number]) if whole[number] else False for number in range(flags, before)]
        for number in range(before, after):
            row = self._columns[number].rows[self._row]
            last.append(row.tobytes() if whole[number] else row.item())
        return last

    def _admit(self, values: Sequence[Any]) -> bool:
        """Whether the types of values fit their columns. Steps with the same types are then copied in the same way."""
        self.flush()
        self._types = []
        arrays: list[int] = []
        copies: list[Callable[[Any], Any]] = []
        for number, ((column, lanes), value) in enumerate(zip(self._fields, values, strict=True)):
            dtype = column.dtype
            if lanes or column.shape:
                if type(value) is not ndarray:
                    return False
                arrays.append(number)
                copies.append(_BYTES)
            else:
                if type(value) is not dtype.type and type(value) not in _NUMBERS.get(dtype.kind, ()):
                    return False
                if number >= len(self.inner) and dtype.kind not in "bui":  # 0.0 and -0.0 are two rows
                    return False
                copies.append(_COPIES.get(dtype.type, dtype.type))
        self._dtypes = [self._fields[number][0].dtype for number in arrays]
        self._shapes = [(*self._fields[number][1], *self._fields[number][0].shape) for number in arrays]
        one = slice(arrays[0], arrays[0] + 1) if arrays else slice(0)  # a getter of one place returns no list of it
        self._arrays = itemgetter(*arrays) if len(arrays) > 1 else itemgetter(one)
        self._copies, self._types = copies, list(map(type, values))
        self._last = self._expected()
        return True

    def take(self, values: Sequence[Any]) -> bool:
        """Take a step if it continues all episodes, and return whether it did. The caller has the lock.

        `values` belong to `inner`, then to `boundary`: first the rows before the step, then the rows after it.
        """
        if self._left <= 0 or (list(map(type, values)) != self._types and not self._admit(values)):
            return False
        arrays = self._arrays(values)
        if list(map(_DTYPE, arrays)) != self._dtypes or list(map(_SHAPE, arrays)) != self._shapes:
            return False
        try:
            taken: list[Any] = list(map(_call, self._copies, values))
        except OverflowError:  # a whole number that the dtype cannot hold
            return False
        flags, before, after = self._parts
        if taken[flags:after] != self._last:
            return False
        del taken[before:after]
        self._last = taken[flags:]
        if not self._pending:
            self._wait()
        self._pending.append(taken)
        self._left -= 1
        if len(self._pending) >= self._together:
            self.flush()
        return True

    def flush(self) -> None:
        """Write the steps that were taken."""
        steps = len(self._pending)
        if not steps:
            return
        columns = list(zip(*self._pending, strict=True))
        self._pending = []
        if self._lanes == 1:
            first = int(self._row[0])
            place: Any = slice(first, first + steps)
            following: Any = slice(first + 1, first + steps + 1)
        else:
            place = (self._row + np.arange(steps)[:, None]).ravel()
            following = place + 1
        for number, (column, values) in enumerate(zip(self._columns, columns, strict=True)):
            column.write(place if number < len(self.inner) else following, values, steps * self._lanes)
        self._row = self._row + steps
        self._stream.uncounted += steps
