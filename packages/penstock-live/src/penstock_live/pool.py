"""`ShufflingChunkPool`: draws chunks from a window of the newest, with a seed.

The pool numbers draws, writes or replays the moves of its `ChunkWindow`, and logs the draws that were not taken yet,
which a state repeats. `StreamShuffler` decides which number is drawn, and `UseCounts` how often it was used before. One
lock guards all of them, and a draw waits on it for chunks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.errors import PlanError, StateError
from penstock.flow.queue import QueueClosed, wait_until
from penstock_live.events import EventLog
from penstock_live.hanse import Float, HanseSampling
from penstock_live.journal import Arrival, Journal, Move
from penstock_live.stream_shuffler import StreamShuffler
from penstock_live.window import ChunkWindow, UseCounts

Int = npt.NDArray[np.int64]

OPEN, REJECTED = -1, -2  # in place of the use count of a draw


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

    Memory: some 300 bytes a source and 8 bytes a chunk of the window.

    Args:
        size: Chunks of the window, at least 1. The default is 100,000.
        seed: 0 to 2^64 - 1. The default is 0.
        passes: Number of passes. The default None is endless.
        journal: Journal to write moves to. The default None writes none.
        replay: Moves of an earlier run, to repeat it. The default None repeats nothing.
        hanse: Rejects draws by weight. The default None rejects none.
        events: Log to append events to. The default None makes none.

    Raises:
        PlanError: The window is empty, or there are no passes.

    Example:
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
        self.size = size
        self.seed = seed
        self.passes = passes
        self._journal = journal
        self._replay = replay
        self._hanse = hanse
        self._changed = threading.Condition(threading.RLock())
        self._shuffler = StreamShuffler(seed)
        self._window, self._uses = ChunkWindow(size, events), UseCounts()
        self._next = self._moves = 0
        self._log: deque[Draws] = deque()  # drawn and not yet taken
        self._again: deque[Draws] = deque()  # of a loaded state, returned before others
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
        return self._window.newest

    @property
    def sources(self) -> list[tuple[int, Arrival]]:
        """First number and description of each source of the window, oldest first."""
        with self._changed:
            return list(self._window.sources)

    def arrive(self, arrivals: Iterable[Arrival]) -> None:
        """Append sources, oldest first. Takes effect before the next draw; none once the pool is closed.

        Args:
            arrivals: The sources, oldest first.

        Raises:
            PlanError: The pool repeats a journal.
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

        Args:
            numbers: Numbers of chunks.
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

        Waits while the window is empty.

        Args:
            n: Most draws, at least 1.
            timeout: Seconds to wait. The default None waits for ever.

        Raises:
            TimeoutError: No chunk arrived in time.
            QueueClosed: The pool was closed.
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
        """Return draws with uses, from the weights `[k]` of their chunks (NaN: none). In the order of the draws.

        Args:
            draws: Draws whose uses are open.
            weights: `[k]` weights of their chunks, NaN if missing.
        """
        with self._changed:
            assert self._hanse is not None, "only draws of a pool with hanse sampling are open"
            is_open = draws.use == OPEN
            if not is_open.any():
                return draws
            accepted = self._hanse.accept(draws.seq + np.flatnonzero(is_open), weights[is_open])
            use = draws.use.copy()
            use[is_open] = np.where(accepted, 0, REJECTED)
            counted = np.flatnonzero(is_open)[accepted]
            use[counted] = self._uses.count(draws.number[counted])
            decided = replace(draws, use=use)
            self._log = deque(decided if logged.seq == draws.seq else logged for logged in self._log)
            return decided

    def taken(self, seq: int) -> None:
        """Mark all draws before `seq` as done: a state does not repeat them.

        Args:
            seq: Number of a draw.
        """
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
            n = min(n, self._replay[self._moves].draw - self._next)
        number = self._shuffler.draw(n)
        lo, hi = self._shuffler.window
        if len(number) == 0 and (hi == lo or self._shuffler.passes + 1 == self.passes):
            return None
        if len(number) == 0:
            self._shuffler.restart()
            number = self._shuffler.draw(n)
        use = np.full(len(number), OPEN) if self._hanse is not None else self._uses.count(number)
        self._next += len(number)
        return Draws(self._next - len(number), number, use, self._shuffler.passes)

    def _replay_moves(self) -> None:
        """Apply the moves that take effect before the next draw."""
        while self._replay is not None and self._moves < len(self._replay):
            move = self._replay[self._moves]
            if move.draw > self._next:
                break
            if move.arrival is None:
                fits = self._remove(move.lo) is not None
            else:
                fits = self._place(move.arrival).lo == move.lo
            if not fits:
                raise StateError(f"expected a journal of this run, got one whose chunk {move.lo} is of another source")

    def _place(self, arrival: Arrival) -> Move:
        """Number a source, and remove sources that the window does not need any more."""
        lo = self._window.place(arrival, started=self._next > 0)
        self._moves += 1
        left: list[str] = []
        while self._window.overfull:
            left.append(self._window.leave())
        self._move_window()
        return Move(self._next, lo, arrival, tuple(left))

    def _remove(self, number: int) -> Move | None:
        """Remove the source of a chunk from the window; None if it is not in the window."""
        removed = self._window.remove(number)
        if removed is None:
            return None
        lo, arrival = removed
        self._moves += 1
        self._shuffler.remove(lo, lo + arrival.count)
        return Move(self._next, lo, None, (arrival.name,))

    def _move_window(self) -> None:
        """Update the window, for every move: draws depend on the moves, not on how the moves are grouped."""
        lo, upper = max(self._shuffler.window[0], self._window.first), self._window.upper
        self._shuffler.extend(lo, upper)
        if not self._uses.has_room(upper):
            opened = [int(d.number.min()) for d in self._log if (d.use == OPEN).any()]
            self._uses.reach(lo, min([lo, *opened]), upper)

    def anchor(self) -> str:
        """Return the key that chunks are counted from; empty before one was set."""
        return self._window.anchor

    def set_anchor(self, key: str) -> None:
        """Count from a key: `chunks_since_anchor` becomes the chunks of the window's sources above it.

        Args:
            key: Sort key of a source.
        """
        with self._changed:
            self._window.set_anchor(key)

    def reset_anchor(self) -> str:
        """Count from now on: set the anchor to the greatest key so far, and return it."""
        with self._changed:
            return self._window.reset_anchor()

    @property
    def chunks_since_anchor(self) -> int:
        """Return how many chunks arrived since the anchor: at the start, chunks of greater keys; later all."""
        return self._window.since

    def oldest(self) -> int:
        """The least number that may still be read: of the window, and of draws that are not yet `taken`."""
        with self._changed:
            return min([self._shuffler.window[0], *(int(draws.number.min()) for draws in self._log)])

    def state_dict(self, taken: int = 0) -> dict[str, Any]:
        """Everything that later draws depend on, and the draws from `taken` on that are not yet `taken`.

        Plain JSON but for the arrays `uses`, and `number` and `use` of `log`.

        Args:
            taken: Number of the first draw to repeat. The default is 0.
        """
        with self._changed:
            log = [draws for draws in self._log if draws.end > taken]
            base = max(self.oldest(), self._uses.base)
            return {
                **{"size": self.size, "seed": self.seed, "next": self._next, "moves": self._moves},
                **self._window.state_dict(),
                "shuffler": self._shuffler.state_dict(),
                "uses": self._uses.part(base, self._window.upper),
                "base": base,
                "log": [[d.seq, d.number.copy(), d.use.copy(), d.epoch] for d in log],
                "largest": None if self._hanse is None else self._hanse.largest,
            }

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, first with its draws that had not been taken. Raises `StateError`.

        Args:
            state: Output of `state_dict`.
        """
        with self._changed:
            self._check(state)
            self._shuffler.load_state_dict(state["shuffler"])
            self._next, self._moves = int(state["next"]), int(state["moves"])
            self._uses.load(state["uses"], int(state["base"]))
            log = [
                Draws(int(seq), np.array(number, np.int64), np.array(use, np.int64), int(epoch))
                for seq, number, use, epoch in state["log"]
            ]
            if self._hanse is not None:
                self._hanse.largest = float(state["largest"])
            self._log = deque(log)
            self._again = deque(self._log)
            self._window.load_state_dict(state)
            if self._journal is not None:
                self._journal.resume(self._moves)

    def _check(self, state: Mapping[str, Any]) -> None:
        mine = {"size": self.size, "seed": self.seed, "hanse": self._hanse is not None}
        given = {"size": state.get("size"), "seed": state.get("seed"), "hanse": state.get("largest") is not None}
        if mine != given:
            raise StateError(f"expected the state of a pool with {mine}, got one with {given}")
        if self._next or self._window.upper:
            raise StateError("expected a pool that has not begun yet, to load a state into")
