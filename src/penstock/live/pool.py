"""`ShufflingChunkPool`: draws chunks from a window of the newest, with a seed."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.errors import PlanError, StateError
from penstock.flow.queue import QueueClosed, wait_until
from penstock.live.events import Event, EventLog, SourceLeft, SourcePlaced, SourceRemoved
from penstock.live.hanse import Float, HanseSampling
from penstock.live.journal import Arrival, Journal, Move
from penstock.live.stream_shuffler import StreamShuffler

Int = npt.NDArray[np.int64]

OPEN, REJECTED = -1, -2  # in place of the use count of a draw
_NOTHING = Arrival("", "", 0)


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Draws `seq`, `seq + 1`, ... of pass `epoch`: `number` `[k]` of chunks, and `use` `[k]`, how often each was used
    before; `OPEN` where that waits for its weight, `REJECTED` where it is not taken."""

    seq: int
    number: Int
    use: Int
    epoch: int

    def __len__(self) -> int:
        return len(self.number)

    @property
    def end(self) -> int:
        """The number of the draw after these."""
        return self.seq + len(self.number)


class ShufflingChunkPool:
    """Shuffling sampler over a window of the newest `size` chunks: draws each at most once a pass, all equally likely.

    Sources of chunks `arrive` and get the next chunk numbers, which are never reused; sources that exist at the start
    come oldest first. The oldest source leaves when the others cover the window; chunks of the oldest source below
    `upper - size` are not drawn. New chunks join the running pass. There are `passes` passes (None: endless). Draw
    `seq` is a function of the seed, of the moves in the `journal` and of `seq`.

    With `replay`, the pool takes its moves from there and never waits. With `hanse`, the uses of draws are open until
    `decide` gets their weights, in the order of the draws. Thread-safe.

    `remove` takes out sources whose files were deleted: their chunks are not drawn from then on, and the window is the
    newest `size` chunks of its other sources.

    `events` gets a `SourcePlaced`, `SourceLeft` or `SourceRemoved` for each source that comes or goes, in the order of
    the moves; whoever gives such a log takes them out of it.

    Memory: some 300 bytes a source and 8 bytes a chunk of the window. Raises `PlanError` for an empty window.

    >>> pool = ShufflingChunkPool(size=3, seed=1, passes=1)
    >>> pool.arrive([Arrival("a", "a", 2), Arrival("b", "b", 2)])
    >>> pool.finish()
    >>> draws = pool.draw(9)
    >>> sorted(draws.number.tolist()), draws.use.tolist(), pool.draw(9)
    ([1, 2, 3], [0, 0, 0], None)
    """

    def __init__(
        self,
        size: int = 100_000,
        seed: int = 0,
        *,
        passes: int | None = None,
        journal: Journal | None = None,
        replay: Sequence[Move] | None = None,
        hanse: HanseSampling | None = None,
        events: EventLog | None = None,
    ) -> None:
        if size < 1 or (passes is not None and passes < 1):
            raise PlanError(f"expected a window of at least one chunk and at least one pass, got {size} and {passes}")
        self.size, self.seed, self.passes = size, seed, passes
        self._journal, self._replay, self._hanse = journal, replay, hanse
        self._events = events
        self._changed = threading.Condition(threading.RLock())
        self._shuffler = StreamShuffler(seed)
        self._sources: deque[tuple[int, Arrival]] = deque()
        self._chunks = 0  # of these sources
        self._upper = self._next = self._moves = 0
        self._uses, self._base = np.zeros(0, np.int32), 0
        self._log: deque[Draws] = deque()  # drawn and not yet taken
        self._again: deque[Draws] = deque()  # of a loaded state, returned before others
        self._newest, self._anchor, self._since = "", "", 0
        self._finished, self._closed = replay is not None, False

    @property
    def window(self) -> tuple[int, int]:
        """Chunk numbers `lo : hi` of the window."""
        return self._shuffler.window

    @property
    def chunks(self) -> int:
        """Number of chunks that can be drawn: chunks of the window, without removed sources."""
        with self._changed:
            lo, hi = self._shuffler.window
            return hi - lo - self._shuffler.removed

    @property
    def drawn(self) -> int:
        """The number of the next draw."""
        return self._next

    @property
    def epoch(self) -> int:
        """Number of finished passes."""
        return self._shuffler.passes

    @property
    def newest(self) -> str:
        """Greatest key of all sources that arrived."""
        return self._newest

    @property
    def sources(self) -> list[tuple[int, Arrival]]:
        """First number and description of each source of the window, oldest first."""
        with self._changed:
            return list(self._sources)

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """Append sources, oldest first. Takes effect before the next draw; none once the pool is closed.

        Raises `PlanError` in a replay.
        """
        if self._replay is not None:
            raise PlanError("expected no arrivals in a replay: they come from the journal")
        with self._changed:
            if self._closed:
                return
            moves = [self._place(arrival) for arrival in arrivals]
            if self._journal is not None:
                self._journal.write(moves)
            self._changed.notify_all()

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove the sources of some chunks, whose files were deleted, before the next draw.

        Chunks outside of the window are ignored. In a replay, removals come from the journal and all are ignored, as
        they are once the pool is closed.
        """
        if self._replay is not None:
            return
        with self._changed:
            if self._closed:
                return
            moves = [move for number in numbers if (move := self._remove(number)) is not None]
            if self._journal is not None and moves:
                self._journal.write(moves)
            self._changed.notify_all()

    def finish(self) -> None:
        """End the arrival of sources: draws from an empty window end instead of waiting."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def close(self) -> None:
        """Wake up waiting consumers, and close the journal."""
        with self._changed:
            self._closed = True
            if self._journal is not None:
                self._journal.close()
            self._changed.notify_all()

    def draw(self, n: int, timeout: float | None = None) -> Draws | None:
        """Return at least one and at most `n` draws of one pass; None after the last pass.

        Waits while the window is empty. Raises `TimeoutError`, and `QueueClosed` after `close`.
        """
        with self._changed:
            wait_until(self._changed, self._drawable, timeout, "chunks to draw from")
            if self._closed:
                raise QueueClosed("nothing more is drawn: the pool is closed")
            if self._again:
                return self._again.popleft()
            draws = self._draw(n)
            if draws is not None:
                self._log.append(draws)
            return draws

    def decide(self, draws: Draws, weights: Float) -> Draws:
        """Return draws with uses, from the weights `[k]` of their chunks (NaN: none). In the order of the draws."""
        with self._changed:
            assert self._hanse is not None, "only draws of a pool with hanse sampling are open"
            is_open = draws.use == OPEN
            if not is_open.any():
                return draws
            accepted = self._hanse.accept(draws.seq + np.flatnonzero(is_open), weights[is_open])
            use = draws.use.copy()
            use[is_open] = np.where(accepted, 0, REJECTED)
            counted = np.flatnonzero(is_open)[accepted]
            use[counted] = self._count(draws.number[counted])
            decided = replace(draws, use=use)
            self._log = deque(decided if held.seq == draws.seq else held for held in self._log)
            return decided

    def taken(self, seq: int) -> None:
        """Mark all draws before `seq` as done: a state does not repeat them."""
        with self._changed:
            while self._log and self._log[0].end <= seq:
                self._log.popleft()

    def _drawable(self) -> bool:
        if self._closed or self._again:
            return True
        self._replay_moves()
        lo, hi = self._shuffler.window
        return hi > lo or self._finished

    def _draw(self, n: int) -> Draws | None:
        if self._replay is not None and self._moves < len(self._replay):
            n = min(n, self._replay[self._moves].at - self._next)
        number = self._shuffler.draw(n)
        lo, hi = self._shuffler.window
        if len(number) == 0 and (hi == lo or self._shuffler.passes + 1 == self.passes):
            return None
        if len(number) == 0:
            self._shuffler.restart()
            number = self._shuffler.draw(n)
        use = np.full(len(number), OPEN) if self._hanse is not None else self._count(number)
        self._next += len(number)
        return Draws(self._next - len(number), number, use, self._shuffler.passes)

    def _count(self, number: Int) -> Int:
        """Return how often each chunk was used before, and count this use."""
        before = self._uses[number - self._base].astype(np.int64)
        self._uses[number - self._base] += 1
        return before

    def _replay_moves(self) -> None:
        """Apply the moves that take effect before the next draw."""
        while self._replay is not None and self._moves < len(self._replay):
            move = self._replay[self._moves]
            if move.at > self._next:
                break
            if move.arrival is None:
                fits = self._remove(move.lo) is not None
            else:
                fits = self._place(move.arrival).lo == move.lo
            if not fits:
                raise StateError(f"expected a journal of this run, got one whose chunk {move.lo} is of another source")

    def _place(self, arrival: Arrival) -> Move:
        """Number a source, and remove sources that the window does not need any more."""
        lo = self._upper
        self._upper += arrival.count
        self._sources.append((lo, arrival))
        self._chunks += arrival.count
        self._moves += 1
        self._newest = max(self._newest, arrival.key)
        if self._next > 0 or arrival.key > self._anchor:
            self._since += arrival.count
        self._tell(SourcePlaced(lo, arrival))
        left: list[str] = []
        while len(self._sources) > 1 and self._chunks - self._sources[0][1].count >= self.size:
            left.append(self._leave())
        self._move_window()
        return Move(self._next, lo, arrival, tuple(left))

    def _leave(self) -> str:
        """Remove the oldest source and return its name."""
        first, gone = self._sources.popleft()
        self._chunks -= gone.count
        self._tell(SourceLeft(first))
        return gone.name

    def _remove(self, number: int) -> Move | None:
        """Remove the source of a chunk from the window; None if it is not in the window."""
        at = bisect_right(self._sources, number, key=_first) - 1
        lo, arrival = self._sources[at] if at >= 0 else (0, _NOTHING)
        if number >= lo + arrival.count:
            return None
        del self._sources[at]
        self._chunks -= arrival.count
        self._moves += 1
        self._shuffler.remove(lo, lo + arrival.count)
        self._tell(SourceRemoved(lo, arrival))
        return Move(self._next, lo, None, (arrival.name,))

    def _move_window(self) -> None:
        """Update the window, for every move: draws depend on the moves, not on how the moves are grouped."""
        # Without removed sources, this is `upper - size`, or where the oldest source begins.
        lo = max(self._shuffler.window[0], self._sources[0][0] + max(0, self._chunks - self.size))
        self._shuffler.extend(lo, self._upper)
        needed = self._upper - self._base
        if needed > len(self._uses):
            opened = [int(d.number.min()) for d in self._log if (d.use == OPEN).any()]
            base = min([lo, *opened])
            grown = np.zeros(max(self._upper - base, 2 * (self._upper - lo)), np.int32)
            held = self._uses[base - self._base : self._upper - self._base]
            grown[: len(held)] = held
            self._uses, self._base = grown, base

    def _tell(self, event: Event) -> None:
        if self._events is not None:
            self._events.append(event)

    def anchor(self) -> str:
        """Return the key that chunks are counted from; empty before one was set."""
        return self._anchor

    def set_anchor(self, key: str) -> None:
        """Count from a key: `chunks_since_anchor` becomes the chunks of the window's sources above it."""
        with self._changed:
            self._anchor = key
            self._since = sum(arrival.count for _, arrival in self._sources if arrival.key > key)

    def reset_anchor(self) -> str:
        """Count from now on: set the anchor to the greatest key so far, and return it."""
        with self._changed:
            self._anchor, self._since = self._newest, 0
            return self._anchor

    @property
    def chunks_since_anchor(self) -> int:
        """Return how many chunks arrived since the anchor: at the start, chunks of greater keys; later all."""
        return self._since

    def oldest(self) -> int:
        """The least number that may still be read: of the window, and of draws that are not yet `taken`."""
        with self._changed:
            return min([self._shuffler.window[0], *(int(draws.number.min()) for draws in self._log)])

    def state_dict(self, taken: int = 0) -> dict[str, Any]:
        """Everything that later draws depend on, and the draws from `taken` on that are not yet `taken`.

        Plain JSON but for the arrays `uses`, and `number` and `use` of `log`.
        """
        with self._changed:
            log = [draws for draws in self._log if draws.end > taken]
            lo, hi = max(self.oldest(), self._base), self._upper
            names = ("size", "seed", "upper", "next", "moves", "newest", "anchor", "since")
            held = {"size": self.size, "seed": self.seed}
            return {
                **{name: held.get(name, getattr(self, f"_{name}", None)) for name in names},
                "shuffler": self._shuffler.state_dict(),
                "sources": [[first, *astuple(arrival)] for first, arrival in self._sources],
                "uses": self._uses[lo - self._base : hi - self._base].copy(),
                "base": lo,
                "log": [[d.seq, d.number.copy(), d.use.copy(), d.epoch] for d in log],
                "largest": None if self._hanse is None else self._hanse.largest,
            }

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, first with its draws that had not been taken. Raises `StateError`."""
        with self._changed:
            self._check(state)
            self._shuffler.load_state_dict(state["shuffler"])
            self._sources = deque((int(lo), Arrival(*described)) for lo, *described in state["sources"])
            self._chunks = sum(arrival.count for _, arrival in self._sources)
            for name in ("upper", "next", "moves", "since", "base"):
                setattr(self, f"_{name}", int(state[name]))
            self._newest, self._anchor = str(state["newest"]), str(state["anchor"])
            self._uses = np.array(state["uses"], np.int32)
            log = [
                Draws(int(seq), np.array(number, np.int64), np.array(use, np.int64), int(epoch))
                for seq, number, use, epoch in state["log"]
            ]
            if self._hanse is not None:
                self._hanse.largest = float(state["largest"])
            self._log = deque(log)
            self._again = deque(self._log)
            for lo, arrival in self._sources:
                self._tell(SourcePlaced(lo, arrival))
            if self._journal is not None:
                self._journal.resume(self._moves)

    def _check(self, state: Mapping[str, Any]) -> None:
        mine = {"size": self.size, "seed": self.seed, "hanse": self._hanse is not None}
        given = {"size": state.get("size"), "seed": state.get("seed"), "hanse": state.get("largest") is not None}
        if mine != given:
            raise StateError(f"expected the state of a pool with {mine}, got one with {given}")
        if self._next or self._upper:
            raise StateError("expected a pool that has not begun yet, to load a state into")


def _first(source: tuple[int, Arrival]) -> int:
    """Return the first number of a source."""
    return source[0]
