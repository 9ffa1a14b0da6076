"""`SegmentStore`: the last steps of a run in memory, while their episodes are recorded.

Steps and anchors have fixed numbers: they count from the first step of the run and never change or come back. The steps
of `n` environments that are recorded together are a `StepStream`, which fills one segment of memory at a time, with a
lane of rows for each environment. The part of an episode in a lane is a piece: rows of one environment, with one
boundary row more than steps. An episode that goes on in the next segment has another piece there, and the two know each
other, so a sample may read from both.

An anchor enters when the step arrives that completes its sample, and leaves when `capacity` steps have arrived since.
A segment is used again when no anchor that is left can read it. So the samples in memory are a function of the order of
the steps, and not of segments, time or values: a resumed run has the same ones as the run that saved its state. The
caller holds a lock while it adds steps or reads rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.episode import Episode
from penstock.core.spec import ALIGNS, Spec
from penstock.errors import SpecError
from penstock.kernels.replay import (
    AFTER,
    ANCHOR_HI,
    ANCHOR_LO,
    ARRIVED,
    BEFORE,
    EPISODE,
    LANE,
    LANE_ENDED,
    LANE_ENTERED,
    LANE_NUMBER,
    LANE_PIECE,
    LANE_ROW,
    OFFSET,
    ROW,
    SLOT,
    START,
    STEPS,
    TABLE,
    count_steps,
    find_anchors,
    gather_samples,
)
from penstock.replay.samples import SampleLayout
from penstock.replay.saved import packed, unpacked
from penstock.replay.streams import PARTS, UNKNOWN, MemorySegment, Rows, SegmentMemory, StepStream, StepWriter

LEAST_ROWS = 16  # of a lane
LEAST_TABLE = 256  # rows, which double
MANY_ENTRIES = 1 << 24  # anchors whose table is allocated before they come
WHOLE = -1  # key of the stream of whole episodes

_ENDS = np.ones(1, np.bool_)
_BEGUN = np.array([0, 0, 0, 0, -1, -1, 0, 0])  # row of the table of a piece without steps


def _range(column: Any, begin: int, count: int) -> Any:
    """Rows of a column of an episode: the column itself, if it is all of them."""
    return column if begin == 0 and count == len(column) else column[begin : begin + count]


class SegmentStore:
    """The last `capacity` steps of a run, and the steps before them that their samples read."""

    def __init__(
        self, spec: Spec, layout: SampleLayout, capacity: int, *, first: int = 0, start: int = 0, anchors: int = 0
    ) -> None:
        self.spec = spec
        self.capacity = capacity
        self.arrived = first  # episodes, also episodes that left
        self._nameless = 0  # episodes without a number of the folder, so far
        self.table = np.zeros((LEAST_TABLE, TABLE), np.int64)
        self.address = np.zeros((len(spec), 8), np.int64)
        # Whole completions are no longer than the capacity.
        self._reach = layout.past + (layout.delay if layout.longest is None else min(layout.delay, capacity))
        rule = layout.anchors
        self._rule = np.array([rule.first, rule.spare, rule.stride, layout.delay], np.int64)
        self._stride, self._delay = rule.stride, layout.delay
        self._counters = np.array([start, anchors, anchors], np.int64)
        self._entries = np.zeros((LEAST_TABLE, 3), np.int64)
        self._free = list(range(LEAST_TABLE - 1, -1, -1))  # rows of the table
        self._aligned = {align: [p for p, column in spec.items() if column.align == align] for align in ALIGNS}
        self._values: dict[str, AnyArray] = {}  # of episodes, a row for each piece
        self._by_slot: dict[int, MemorySegment] = {}
        self._retired: deque[MemorySegment] = deque()
        self._spare: list[MemorySegment] = []
        self._slots: list[int] = []  # free ones below `_next_slot`
        self._next_slot = 0
        self._memory = SegmentMemory(spec)
        self._whole = self.stream(1)  # of episodes that are written as a whole
        self._uncounted: StepStream | None = None  # whose last steps are not counted yet
        self._grow_values()

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers of the last `capacity` steps, `[lo, hi)`. Both only grow."""
        self._settle()
        hi = int(self._counters[ARRIVED])
        return max(0, hi - self.capacity), hi

    @property
    def anchors(self) -> tuple[int, int]:
        """Numbers of the anchors in the store, `[lo, hi)`. Both only grow."""
        self._settle()
        return self._counters.item(ANCHOR_LO), self._counters.item(ANCHOR_HI)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use, and of the tables of pieces and anchors."""
        used = self.live()
        steps = int(self.table[used, STEPS].sum())
        rows = {"step": steps, "boundary": steps + len(used), "episode": len(used)}
        return (
            sum(rows[column.align] * column.row_bytes for column in self.spec.values())
            + self.table.nbytes
            + self._entries[: self._counters[ANCHOR_HI]].nbytes
        )

    def stream(self, lanes: int) -> StepStream:
        """Return a new stream of steps of so many environments."""
        lane_rows = max(-(-self.capacity // (PARTS * lanes)), 2 * self._reach + 6, LEAST_ROWS)
        state = np.zeros((lanes, LANE), np.int64)
        state[:, [LANE_PIECE, LANE_ENDED, LANE_NUMBER]] = -1
        return StepStream(lanes, lane_rows, state)

    def check(self, episode: Episode) -> None:
        """Raise an error for an episode that the store cannot take."""
        if episode.spec is not self.spec and dict(episode.spec.fields) != dict(self.spec.fields):
            raise SpecError(f"expected the columns {dict(self.spec.fields)}, got {dict(episode.spec.fields)}")

    def pass_over(self) -> None:
        """Count an episode that belongs to another rank, and store nothing of it."""
        self.arrived += 1

    def add(self, episode: Episode) -> None:
        """Copy a whole episode, which `check` has accepted, into the store."""
        stream, steps = self._whole, len(episode)
        number = self.arrived
        self.arrived += 1
        done = 0
        while done < steps:
            segment = self._room(stream)  # where the episode goes on in another piece
            row = stream.state.item(LANE_ROW)
            if done == 0:
                self._begin(stream, 0, segment, row, number)
                for path in self._aligned["episode"]:
                    self._values[path][stream.piece[0]] = np.asarray(episode.columns[path])[0]
            count = min(stream.lane_rows - 1 - row, steps - done)
            columns = segment.columns
            for path in self._aligned["step"]:
                columns[path][row : row + count] = _range(episode.columns[path], done, count)
            for path in self._aligned["boundary"]:
                columns[path][row : row + count + 1] = _range(episode.columns[path], done, count + 1)
            done += count
            self._count(stream, stream.every, count, stream.going if done < steps else _ENDS)

    def _begin(self, stream: StepStream, lane: int, segment: MemorySegment, row: int, number: int) -> None:
        """Begin an episode at a row of a segment."""
        piece = self._piece(segment)
        begun = self.table[piece]
        begun[:] = _BEGUN
        begun[SLOT] = segment.slot
        begun[ROW] = row
        begun[EPISODE] = number
        begun[START] = self._counters[ARRIVED]
        stream.state[lane, LANE_PIECE] = piece
        stream.state[lane, LANE_ENTERED] = 0

    def begin(self, stream: StepStream, lanes: IntArray, rows: Rows, numbers: Sequence[int]) -> None:
        """Begin episodes in some lanes, after all steps so far.

        `rows` has the first boundary row of each, and the values of episodes. An episode that is open there has ended.
        """
        self._settle()
        self.end(stream, lanes[stream.piece[lanes] >= 0])
        segment = self._room(stream)
        for i, lane in enumerate(lanes.tolist()):
            row = lane * stream.lane_rows + int(stream.row[lane])
            self._begin(stream, lane, segment, row, numbers[i])
            for path in self._aligned["boundary"]:
                segment.columns[path][row] = rows[path][i]
            for path in self._aligned["episode"]:
                self._values[path][stream.piece[lane]] = rows[path][i]

    def step(self, stream: StepStream, lanes: IntArray, rows: Rows, ended: BoolArray) -> None:
        """Record one step of open episodes: the values of the step, and the boundary rows after it."""
        self._settle()
        segment = self._room(stream)
        place, after = self._places(stream, lanes, 0), self._places(stream, lanes, 1)
        columns = segment.columns
        for path in self._aligned["step"]:
            columns[path][place] = rows[path]
        for path in self._aligned["boundary"]:
            columns[path][after] = rows[path]
        self._count(stream, lanes, 1, ended)

    def end(self, stream: StepStream, lanes: IntArray, flags: Mapping[str, bool] | None = None) -> None:
        """End open episodes after their last step. `flags` are new values of columns at that step."""
        self._settle()
        every: list[int] = lanes.tolist()
        for lane in every if flags else []:
            piece = int(stream.piece[lane])
            if self.table[piece, STEPS] == 0:  # the segment has just begun
                piece = int(self.table[piece, BEFORE])
            if piece >= 0:
                columns = self._by_slot[int(self.table[piece, SLOT])].columns
                _, _, row, *_ = self.table[piece].tolist()
                for path, value in (flags or {}).items():
                    columns[path][row + int(self.table[piece, STEPS]) - 1] = value
        if len(lanes):
            self._count(stream, lanes, 0, np.ones(len(lanes), np.bool_))

    def last(self, stream: StepStream, lanes: IntArray) -> dict[str, AnyArray]:
        """Return the last boundary rows of open episodes."""
        self._settle()
        segment = self._room(stream)
        rows = self._places(stream, lanes, 0)
        return {path: segment.columns[path][rows] for path in self._aligned["boundary"]}

    def _places(self, stream: StepStream, lanes: IntArray, ahead: int) -> IntArray | slice:
        """Rows in the segment of the next rows of lanes, and so many after them."""
        if stream.lanes == 1:
            row = stream.state.item(LANE_ROW) + ahead
            return slice(row, row + 1)
        return lanes * stream.lane_rows + (stream.row[lanes] + ahead)

    def numbers(self, count: int, known: bool) -> list[int]:
        """Return the numbers of episodes that begin: below -1 until the folder has given them theirs."""
        if known:
            self.arrived += count
            return list(range(self.arrived - count, self.arrived))
        self._nameless += count
        return list(range(-1 - self._nameless, -1 - self._nameless + count))

    def number_of(self, stream: StepStream, lane: int) -> int:
        """Return the number of the last closed episode of a lane."""
        return int(stream.state[lane, LANE_NUMBER])

    def rename(self, stream: StepStream, lane: int, number: int) -> None:
        """Give the last closed episode of a lane its number."""
        piece, before = stream.state[lane, [LANE_ENDED, LANE_NUMBER]].tolist()
        while piece >= 0 and self.table[piece, EPISODE] == before:
            self.table[piece, EPISODE] = number
            piece = int(self.table[piece, BEFORE])

    def writer(self, stream: StepStream, alone: bool) -> StepWriter | None:
        """Return what writes the next steps of a stream, or None before episodes are open in all lanes."""
        segment = self._room(stream)
        if stream.previous is not None or self._aligned["episode"] or not stream.is_open.all():
            return None
        if stream.writer is None:
            stream.writer = StepWriter(stream, self.spec, alone, partial(self._await, stream))
        stream.writer.begin(segment)
        return stream.writer

    def _await(self, stream: StepStream) -> None:
        """Note that a `StepWriter` has steps of a stream, which are written and counted when somebody looks."""
        if self._uncounted is not stream:
            self._settle()
            self._uncounted = stream

    def _settle(self) -> None:
        """Write and count the steps that a `StepWriter` took."""
        stream = self._uncounted
        if stream is not None and stream.writer is not None:
            self._uncounted = None
            stream.writer.flush()
            steps, stream.uncounted = stream.uncounted, 0
            if steps:
                self._count(stream, stream.every, steps, stream.going)

    def finish(self, stream: StepStream) -> None:
        """End the open episodes of a stream, and let its memory go when its steps have left."""
        self.end(stream, np.flatnonzero(stream.is_open))
        self.leave(stream)

    def find(self, anchors: IntArray) -> IntArray:
        """Return the piece and the anchor step of each anchor, `[n, 2]` int64."""
        return find_anchors(anchors, self.table, self._entries, *self.anchors)

    def lengths(self, pieces: IntArray) -> IntArray:
        """Return the recorded steps of the episodes of pieces, `[n]` int64."""
        last = pieces
        while (going := self.table[last, AFTER] >= 0).any():
            last = np.where(going, self.table[last, AFTER], last)
        return self.table[last, OFFSET] + self.table[last, STEPS]

    def gather(self, places: IntArray, views: IntArray, offsets: IntArray, out: ByteArray) -> None:
        """Copy the rows of samples."""
        gather_samples(places, self.table, views, self.address, offsets, out)

    def _count(self, stream: StepStream, lanes: IntArray, count: int, ended: BoolArray) -> None:
        """Count steps that were recorded, and close the episodes that ended."""
        self._settle()
        lo, hi = self._counters.item(ANCHOR_LO), self._counters.item(ANCHOR_HI)
        most = hi - lo + len(lanes) * (1 + (count + self._delay) // self._stride)
        if most > len(self._entries):
            self._grow_entries(most)
        count_steps(
            lanes, count, ended, stream.state, self.table, self._rule, self.capacity, self._entries, self._counters
        )
        stream.fresh += count
        if stream.previous is not None and stream.fresh > self._reach:
            self._retire(stream.previous)
            stream.previous = None

    def _retire(self, segment: MemorySegment) -> None:
        segment.until = int(self._counters[ARRIVED])
        self._retired.append(segment)

    def _room(self, stream: StepStream) -> MemorySegment:
        """The segment of a stream, the next one if there is no room for a step and the boundary after it."""
        self._settle()
        segment = stream.segment
        if (
            segment is not None
            and (stream.state.item(LANE_ROW) if stream.lanes == 1 else stream.row.max()) + 2 <= stream.lane_rows
        ):
            return segment
        fresh = self._fresh(stream.lanes * stream.lane_rows)
        old = {} if segment is None else segment.columns
        for lane in np.flatnonzero(stream.is_open).tolist():
            before, row = int(stream.piece[lane]), lane * stream.lane_rows
            piece = self._piece(fresh)
            _, _, _, offset, _, _, number, start = self.table[before].tolist()
            offset += int(self.table[before, STEPS])
            self.table[piece] = 0, fresh.slot, row, offset, before, -1, number, start
            self.table[before, AFTER] = piece
            for path in self._aligned["boundary"]:
                fresh.columns[path][row] = old[path][row + int(stream.row[lane])]
            for path in self._aligned["episode"]:
                self._values[path][piece] = self._values[path][before]
            stream.state[lane, LANE_PIECE] = piece
        stream.state[:, LANE_ROW] = 0
        if stream.previous is not None:
            self._retire(stream.previous)
        stream.segment, stream.previous = fresh, segment
        stream.fresh = 0
        return fresh

    def _piece(self, segment: MemorySegment) -> int:
        """A free row of the table, for a piece in a segment."""
        if not self._free:
            self._grow_table()
        piece = self._free.pop()
        segment.pieces.append(piece)
        return piece

    def _grow_table(self) -> None:
        n = len(self.table)
        self.table = np.concatenate([self.table, np.zeros_like(self.table)])
        self._free = list(range(2 * n - 1, n - 1, -1))
        self._grow_values()

    def _grow_values(self) -> None:
        """Let the values of episodes have a row for each row of the table."""
        for number, (path, column) in enumerate(self.spec.items()):
            if column.align == "episode":
                grown = np.zeros((len(self.table), *column.shape), column.dtype)
                if path in self._values:
                    grown[: len(self._values[path])] = self._values[path]
                self._values[path] = grown
                self.address[number, 0] = grown.ctypes.data

    def _grow_entries(self, least: int) -> None:
        """Make room for so many anchors: at once for a full store, whose memory is used when anchors come."""
        full = min(self.capacity // self._stride, MANY_ENTRIES)
        size = 1 << (max(least, full) - 1).bit_length()
        lo, hi = self._counters.item(ANCHOR_LO), self._counters.item(ANCHOR_HI)
        live = np.arange(lo, hi)
        grown = np.zeros((size, 3), np.int64)
        grown[live & (size - 1)] = self._entries[live & (len(self._entries) - 1)]
        self._entries = grown

    def _fresh(self, rows: int) -> MemorySegment:
        """An empty segment, from memory that no sample reads any more if there is enough."""
        oldest = self.extent[1] - self.capacity
        while self._retired and self._retired[0].until <= oldest:
            self._clear(self._retired.popleft())
        for i, spare in enumerate(self._spare):
            if spare.rows >= rows:
                del self._spare[i]
                spare.until = UNKNOWN
                self._by_slot[spare.slot] = spare
                return spare
        for spare in self._spare[:1]:  # too small: its memory goes, and its number stays
            self._spare.remove(spare)
            self._slots.append(spare.slot)
        slot = self._slots.pop() if self._slots else self._next_slot
        self._next_slot = max(self._next_slot, slot + 1)
        return self._segment(slot, rows)

    def _segment(self, slot: int, rows: int) -> MemorySegment:
        """A segment with new memory."""
        segment = MemorySegment(slot, rows, self._memory.columns(rows))
        while slot >= self.address.shape[1]:
            self.address = np.concatenate([self.address, np.zeros_like(self.address)], axis=1)
        for number, path in enumerate(self.spec):
            if path in segment.columns:
                self.address[number, slot] = segment.columns[path].ctypes.data
        self._by_slot[slot] = segment
        return segment

    def _clear(self, segment: MemorySegment) -> None:
        """Forget the pieces of a segment."""
        for piece in segment.pieces:
            if (after := self.table[piece, AFTER]) >= 0:
                self.table[after, BEFORE] = -1
        self._free += reversed(segment.pieces)
        segment.pieces = []
        del self._by_slot[segment.slot]
        self._spare.append(segment)

    # State

    def live(self) -> IntArray:
        """Return the pieces in memory, `[n]` int64, in the order of their segments."""
        return np.array([piece for segment in self._by_slot.values() for piece in segment.pieces], np.int64)

    def rows(self, pieces: IntArray) -> dict[str, AnyArray]:
        """Return the rows of pieces, one piece after the other."""
        none = {path: np.zeros((0, *column.shape), column.dtype) for path, column in self.spec.items()}
        parts = [none, *(self._rows_of(piece) for piece in pieces.tolist())]
        return {path: np.concatenate([part[path] for part in parts]) for path in self.spec}

    def fill(self, pieces: IntArray, rows: Rows) -> None:
        """Write what `rows` returned."""
        done = dict.fromkeys(self.spec, 0)
        for piece in pieces.tolist():
            for path, place in self._rows_of(piece).items():
                place[:] = rows[path][done[path] : done[path] + len(place)]
                done[path] += len(place)

    def fill_from(self, pieces: IntArray, episode: Episode) -> None:
        """Write the rows of pieces of an episode."""
        for piece in pieces.tolist():
            offset = int(self.table[piece, OFFSET])
            for path, place in self._rows_of(piece).items():
                begin = 0 if self.spec[path].align == "episode" else offset
                place[:] = np.asarray(episode.columns[path])[begin : begin + len(place)]

    def _rows_of(self, piece: int) -> dict[str, AnyArray]:
        """Views of the rows of a piece."""
        columns = self._by_slot[int(self.table[piece, SLOT])].columns
        begin, steps = int(self.table[piece, ROW]), int(self.table[piece, STEPS])
        places = {path: columns[path][begin : begin + steps] for path in self._aligned["step"]}
        places |= {path: columns[path][begin : begin + steps + 1] for path in self._aligned["boundary"]}
        return places | {path: self._values[path][piece : piece + 1] for path in self._aligned["episode"]}

    def to_state(self, streams: Mapping[int, StepStream]) -> dict[str, Any]:
        """Return everything but the rows, as plain values and arrays."""
        entries = self._entries[np.arange(*self.anchors) & (len(self._entries) - 1)]
        segments = [[each.slot, each.rows, each.until, len(each.pieces)] for each in self._by_slot.values()]
        return {
            "arrived": [self.arrived, self._nameless],
            "counters": self._counters.tolist(),
            "entries": packed(np.diff(entries, axis=0, prepend=0)),
            "table": packed(self.table[self.live()]),
            "pieces": packed(self.live()),
            "segments": segments,
            "retired": [segment.slot for segment in self._retired],
            "streams": {str(key): stream.to_state() for key, stream in {**streams, WHOLE: self._whole}.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> dict[int, StepStream]:
        """Continue from a state of an empty store, and return the streams. `fill` brings the rows back."""
        pieces, table = unpacked(state["pieces"]), unpacked(state["table"])
        while len(self.table) <= pieces.max(initial=0):
            self._grow_table()
        self.table[pieces] = table
        taken = set(pieces.tolist())
        self._free = [piece for piece in range(len(self.table) - 1, -1, -1) if piece not in taken]
        self.arrived, self._nameless = (int(number) for number in state["arrived"])
        self._counters[:] = state["counters"]
        entries = np.cumsum(unpacked(state["entries"]), axis=0)
        self._entries = np.zeros((1 << max(8, len(entries).bit_length()), 3), np.int64)
        self._entries[np.arange(*self.anchors) & (len(self._entries) - 1)] = entries
        done = 0
        for slot, rows, until, count in state["segments"]:
            segment = self._segment(int(slot), int(rows))
            segment.until = int(until)
            segment.pieces = pieces[done : done + int(count)].tolist()
            done += int(count)
        self._next_slot = max(self._by_slot, default=-1) + 1
        self._slots = [slot for slot in range(self._next_slot) if slot not in self._by_slot]
        self._retired = deque(self._by_slot[int(slot)] for slot in state["retired"])
        streams = {int(key): StepStream.of_state(each, self._by_slot) for key, each in state["streams"].items()}
        self._whole = streams.pop(WHOLE)
        return streams

    def leave(self, stream: StepStream) -> None:
        """No more steps will come, and it is not known whether the open episodes ended: their memory goes later."""
        for segment in (stream.previous, stream.segment):
            if segment is not None:
                self._retire(segment)
