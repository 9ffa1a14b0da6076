"""`SegmentStore`: episodes in memory, in segments that leave as a whole when they are the oldest.

Rows and anchors have fixed numbers: they count from the first episode of the run and never change or come back. A
segment has room for some steps of whole episodes. An episode that does not fit opens the next segment, and the oldest
segments leave before the store would exceed its capacity. Which episodes are in the store is therefore a function of
the lengths of all episodes so far, and not of time or values: `live_range` computes it without reading anything, and a
resumed run has the same rows as the run that saved its state.

Memory of segments that left is used again. The caller holds a lock while it adds episodes or reads rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.core.episode import Episode
from penstock.core.spec import ALIGNS, Field, Spec
from penstock.errors import DataError, SpecError
from penstock.files.memory import HUGE, paged
from penstock.kernels.replay import (
    FIRST,
    TABLE,
    find_anchors,
    gather_samples,
)
from penstock.replay.samples import AnchorRule

PARTS = 32  # segments of a full store: so much of its capacity leaves at a time
CACHE_LINE = 64  # bytes
SHARED = 8 * HUGE  # bytes that small segments share, at most
BLOCK = 64  # anchors for which the guide names one episode; the shift in `kernels.replay` is its logarithm
LEAST_ROWS = 256  # of the table, which doubles


def segment_episodes(segment_steps: int) -> int:
    """Return the most episodes of a segment, which bounds its boundary rows."""
    return segment_steps // 4 + 16


@dataclass(eq=False)
class MemorySegment:
    """Memory of one segment, and how much of it is used."""

    slot: int
    room: int
    columns: dict[str, AnyArray] = field(repr=False)
    steps: int = 0
    episodes: int = 0
    anchors: int = 0
    indexed: int = 0

    def fits(self, steps: int, segment_steps: int) -> bool:
        """Return whether one more episode goes into this segment."""
        return fits(self.steps, self.episodes, steps, segment_steps)


def fits(used_steps: int, used_episodes: int, steps: int, segment_steps: int) -> bool:
    """Return whether an episode goes into a segment with so many steps and episodes. A segment takes at least one."""
    if used_episodes == 0:
        return True
    return used_steps + steps <= segment_steps and used_episodes < segment_episodes(segment_steps)


def live_range(lengths: Sequence[int], capacity: int, segment_steps: int) -> int:
    """Return the number of the oldest episode that a store still has after so many episodes."""
    segments: deque[tuple[int, int, int]] = deque()  # first episode, steps, episodes
    stored = 0
    for number, steps in enumerate(lengths):
        if not segments or not fits(segments[-1][1], segments[-1][2], steps, segment_steps):
            segments.append((number, 0, 0))
        while stored + steps > capacity and len(segments) > 1:
            stored -= segments.popleft()[1]
        if stored + steps > capacity:
            segments[-1], stored = (number, 0, 0), 0
        first, used, episodes = segments[-1]
        segments[-1] = first, used + steps, episodes + 1
        stored += steps
    return segments[0][0] if segments else 0


class SegmentStore:
    """The last `capacity` steps of a run, in whole episodes."""

    def __init__(
        self,
        spec: Spec,
        rule: AnchorRule,
        capacity: int,
        segment_steps: int,
        *,
        first: int = 0,
        start: int = 0,
        anchors: int = 0,
    ) -> None:
        self.spec = spec
        self.rule = rule
        self.capacity = capacity
        self.segment_steps = segment_steps
        self.arrived = first  # episodes, also episodes that left
        self._lo = self._hi = start
        self._anchor_lo = self._anchor_hi = anchors
        self._segments: deque[MemorySegment] = deque()
        self._spare: list[MemorySegment] = []
        self._table = np.zeros((LEAST_ROWS, TABLE), np.int64)
        self._head: int = 0  # rows `_head : _tail` of the table are in use
        self._tail: int = 0
        self._base = 0  # number of the first row of the table since the start
        self._guide = np.zeros(LEAST_ROWS, np.int64)
        self.address = np.zeros((len(spec), 8), np.int64)
        self._aligns = [(path, ALIGNS.index(column.align)) for path, column in spec.items()]
        self._slots: list[int] = []  # free ones below `_next_slot`
        self._next_slot = 0
        self._rest = paged(0, 0)  # memory for segments that are smaller than a huge page

    def __len__(self) -> int:
        """Return the number of stored episodes."""
        return sum(segment.episodes for segment in self._segments)

    @property
    def extent(self) -> tuple[int, int]:
        """Stored step rows, `[lo, hi)`. Both only grow."""
        return self._lo, self._hi

    @property
    def anchors(self) -> tuple[int, int]:
        """Numbers of the anchors in the store, `[lo, hi)`. Both only grow."""
        return self._anchor_lo, self._anchor_hi

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use, and of the table of episodes."""
        used = sum(
            _rows(field, segment.steps, segment.episodes) * field.row_bytes
            for segment in self._segments
            for field in self.spec.values()
        )
        return used + self._table.nbytes + self._guide.nbytes

    @property
    def table(self) -> IntArray:
        """`[E, TABLE]` int64, a row for each stored episode with anchors, oldest first."""
        return self._table[self._head : self._tail]

    def check(self, episode: Episode) -> None:
        """Raise an error for an episode that the store cannot take."""
        steps = len(episode)
        if steps > self.capacity:
            raise DataError(
                f"expected episodes of at most {self.capacity:,} steps, the capacity of the replay, got one of "
                f"{steps:,}; raise the capacity, or end episodes earlier"
            )
        if episode.spec is not self.spec and dict(episode.spec.fields) != dict(self.spec.fields):
            raise SpecError(f"expected the columns {dict(self.spec.fields)}, got {dict(episode.spec.fields)}")

    def add(self, episode: Episode) -> None:
        """Copy an episode into the store. The oldest segments leave if there is no room."""
        steps = len(episode)
        self.check(episode)
        segment = self._room_for(steps)
        begin = segment.steps, segment.steps + segment.episodes, segment.episodes  # by alignment
        end = begin[0] + steps, begin[1] + steps + 1, begin[2] + 1
        for path, align in self._aligns:
            segment.columns[path][begin[align] : end[align]] = episode.columns[path]
        anchors = self.rule.count_one(steps)
        if anchors:
            self._enter(segment, steps, anchors)
        segment.steps += steps
        segment.episodes += 1
        self.arrived += 1
        self._hi += steps

    def pass_over(self) -> None:
        """Count an episode that belongs to another rank, and store nothing of it."""
        self.arrived += 1

    def find(self, anchors: IntArray) -> IntArray:
        """Return the row of `table` and the anchor step of each anchor, `[n, 2]` int64."""
        first = self._base + self._head
        return find_anchors(anchors, self.table, first, self._guide, self.rule.first, self.rule.stride)

    def gather(self, places: IntArray, views: IntArray, offsets: IntArray, out: ByteArray) -> None:
        """Copy the rows of samples."""
        gather_samples(places, self.table, views, self.address, offsets, out)

    def _room_for(self, steps: int) -> MemorySegment:
        """The segment for an episode. The oldest segments leave where the store would exceed its capacity."""
        newest = self._segments[-1] if self._segments else None
        if newest is not None and not newest.fits(steps, self.segment_steps):
            newest = None
        while self._segments and self._hi - self._lo + steps > self.capacity:
            newest = None if self._segments[0] is newest else newest
            self._drop_oldest()
        if newest is None:
            newest = self._fresh(steps)
            self._segments.append(newest)
        return newest

    def _drop_oldest(self) -> None:
        oldest = self._segments.popleft()
        self._lo += oldest.steps
        self._anchor_lo += oldest.anchors
        self._head += oldest.indexed
        self._spare.append(oldest)

    def _fresh(self, steps: int) -> MemorySegment:
        """An empty segment with room for an episode, from memory that is free already if there is enough."""
        room = max(steps, self.segment_steps)
        for i, spare in enumerate(self._spare):
            if spare.room >= room:
                del self._spare[i]
                spare.steps = spare.episodes = spare.anchors = spare.indexed = 0
                return spare
        for spare in self._spare[:1]:  # too small for this episode: its memory goes, and its number stays
            self._spare.remove(spare)
            self._slots.append(spare.slot)
        slot = self._slots.pop() if self._slots else self._next_slot
        self._next_slot = max(self._next_slot, slot + 1)
        most = segment_episodes(self.segment_steps)
        columns = self._columns(room, most)
        if slot >= self.address.shape[1]:
            grown = np.zeros((len(self.address), 2 * self.address.shape[1]), np.int64)
            grown[:, : self.address.shape[1]] = self.address
            self.address = grown
        self.address[:, slot] = [column.ctypes.data for column in columns.values()]
        return MemorySegment(slot, room, columns)

    def _columns(self, steps: int, episodes: int) -> dict[str, AnyArray]:
        """Memory of the columns of a segment, in one block.

        The rows of all steps come first: they are filled before the segment is full, so they get huge pages. Then come
        the rows whose number depends on the episodes: a boundary column has one row more for each, and most have no
        use. Of several boundary columns, the largest is last.
        """
        begins: dict[str, int] = {}
        size = filled = 0
        for path, column in sorted(
            self.spec.items(), key=lambda each: (ALIGNS.index(each[1].align), each[1].row_bytes)
        ):
            begins[path] = size
            if column.align != "episode":
                filled = size + steps * column.row_bytes
            size += -(-_rows(column, steps, episodes) * column.row_bytes // CACHE_LINE) * CACHE_LINE
        block = self._block(size, filled)
        return {
            path: np.ndarray((_rows(column, steps, episodes), *column.shape), column.dtype, block, begins[path])
            for path, column in self.spec.items()
        }

    def _block(self, size: int, filled: int) -> ByteArray:
        """Memory of a segment. Small ones share huge pages, if all of them together fill some."""
        together = size * (self.capacity // self.segment_steps + 1)
        if size >= HUGE or together < HUGE:
            return paged(size, filled)
        if len(self._rest) < size:
            shared = min(together, SHARED) // HUGE * HUGE
            self._rest = paged(shared, shared)
        block, self._rest = self._rest[:size], self._rest[size:]
        return block

    def _enter(self, segment: MemorySegment, steps: int, anchors: int) -> None:
        """Add an episode with anchors to the table and the guide."""
        if self._tail == len(self._table):
            self._make_rows()
        # In the order of the columns: FIRST, STEPS, SLOT, STEP_ROW, BOUNDARY_ROW, EPISODE_ROW, EPISODE, START.
        rows = segment.steps, segment.steps + segment.episodes, segment.episodes
        self._table[self._tail] = self._anchor_hi, steps, segment.slot, *rows, self.arrived, self._hi
        number = self._base + self._tail
        self._tail += 1
        segment.indexed += 1
        segment.anchors += anchors
        self._anchor_hi += anchors
        self._guide_to(number, self._anchor_hi - anchors)

    def _guide_to(self, number: int, first: int) -> None:
        """Let the guide name an episode for the blocks of anchors that begin in it."""
        if (self._anchor_hi - self._anchor_lo) // BLOCK + 2 > len(self._guide):
            self._guide = np.zeros(2 * len(self._guide), np.int64)
            while (self._anchor_hi - self._anchor_lo) // BLOCK + 2 > len(self._guide):
                self._guide = np.zeros(2 * len(self._guide), np.int64)
            firsts = np.append(self.table[:, FIRST], self._anchor_hi)
            blocks = np.arange(self._anchor_lo // BLOCK, (self._anchor_hi - 1) // BLOCK + 1)
            owner = np.searchsorted(firsts, blocks * BLOCK, side="right") - 1
            self._guide[blocks & (len(self._guide) - 1)] = self._base + self._head + np.maximum(owner, 0)
            return
        mask = len(self._guide) - 1
        for block in range(-(-first // BLOCK), (self._anchor_hi - 1) // BLOCK + 1):
            self._guide[block & mask] = number
        if first == self._anchor_lo:  # the first block of an empty store begins before it
            self._guide[first // BLOCK & (len(self._guide) - 1)] = number

    def _make_rows(self) -> None:
        """Move the rows of the table in use to its start, and double it if more than half of it is in use."""
        live = self._tail - self._head
        grown = np.zeros((len(self._table) * (2 if 2 * live > len(self._table) else 1), TABLE), np.int64)
        grown[:live] = self.table
        self._table, self._base = grown, self._base + self._head
        self._head = 0
        self._tail = live


def _rows(field: Field, steps: int, episodes: int) -> int:
    """Rows of a column for so many steps of so many episodes."""
    return (steps, steps + episodes, episodes)[ALIGNS.index(field.align)]
