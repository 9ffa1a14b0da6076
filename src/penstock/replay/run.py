"""`ReplayRun`: what changes in a replay. `penstock.Replay` is its face.

All changes take effect between two draws, in the thread that draws: arrivals (steps, and episodes that were written to
the folder or added in memory) and new priorities. So a draw is a function of the seed, its number, and the changes
before it, and the journal of changes repeats a run. Reading is one gather over the memory of `SegmentStore`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import Float32Array, IntArray
from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.core.turns import ForkSafeLock
from penstock.errors import ExpiredRowError, PlanError, StateError
from penstock.kernels.replay import EPISODE
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why
from penstock.replay.contents import ReplayContents
from penstock.replay.draw import Draw, DrawLog
from penstock.replay.folder import ReplayFolder
from penstock.replay.journal import (
    ARRIVAL,
    BY_ANCHOR,
    BY_TICKET,
    CHANGED,
    COLUMNS,
    VERSIONED,
    JournalEntry,
    ReplayJournal,
    StepChange,
    read_entries,
)
from penstock.replay.offline import OfflineSamples, split_at
from penstock.replay.options import VERSION, ReplayOptions
from penstock.replay.ratio import SampleRatio, TurnSignal
from penstock.replay.samplers import ReplaySampler
from penstock.replay.saved import packed, unpacked
from penstock.replay.steps import GymnasiumSteps, StepOwner, StepSource
from penstock.replay.why import why_drawn

LOOK = 0.02  # seconds between two looks at a folder while `sample` waits for steps


class ReplayRun:
    """Contents, draws, folder and journal of a replay, behind one lock."""

    def __init__(self, options: ReplayOptions, journal: Path | None, replays: Path | None) -> None:
        self.options = options
        self.fingerprint = options.fingerprint
        self.drawn = 0  # samples
        self.sources = 1  # of steps; 0 is the first of `add`
        self.adding: GymnasiumSteps | None = None
        self.lock = ForkSafeLock()
        self.turns = TurnSignal()
        share = options.share
        self.contents = ReplayContents(
            options.samples, options.sampler, share.key(options.seed), options.capacity, share, options.offline
        )
        self.log = DrawLog(self.fingerprint[:8])
        self.entries = None if replays is None else deque(read_entries(replays))
        self.journal = None if journal is None else ReplayJournal(journal)
        self._noted: Spec | None = None  # columns in the journal
        self.folder = None if options.path is None else ReplayFolder(options.path, options.keep_steps)

    @property
    def sampler(self) -> ReplaySampler:
        """How samples are drawn."""
        return self.options.sampler

    @property
    def offline(self) -> OfflineSamples | None:
        """Dataset whose samples are drawn too."""
        return self.options.offline

    @property
    def anchors(self) -> tuple[int, int]:
        """Numbers of the samples in memory, `[lo, hi)`."""
        return self.contents.anchors

    @property
    def spec(self) -> Spec:
        """Columns of the episodes."""
        if self.contents.store is None:
            raise PlanError(f"expected a replay with episodes, got an empty one: {self._why_empty()}")
        return self.contents.store.spec

    # Arrivals

    def require_open(self) -> None:
        """Raise `StateError` if the replay repeats a journal."""
        if self.entries is not None:
            raise StateError("expected no new steps in a replay that repeats a journal; open the store again")

    def write(self, episodes: Sequence[Episode]) -> list[int]:
        """Add whole episodes: all of them or none."""
        self.require_open()
        self.wait_to_insert()
        with self.lock:
            for episode in episodes:
                self.contents.check(self.contents.prepare(episode.spec), episode)
            numbers: list[int] = []
            if self.folder is None:
                numbers = [self.contents.take(episode) for episode in episodes]
            if self.folder is None and self.journal is not None:
                for episode in episodes:
                    columns = {path: np.asarray(episode.columns[path]) for path in episode.spec}
                    self._note(StepChange("episode", 0, 0, np.array([len(episode)]), columns))
            if self.folder is not None:
                numbers = self.folder.writer(episodes[0].spec).write_all(episodes) if episodes else numbers
                self.folder.trim(sum(map(len, episodes)))
        if self.options.ratio is not None:
            self.turns.tell()
        return numbers

    def source(self, spec: Spec, key: int, lanes: int) -> StepSource:
        """Return what takes the steps of some environments."""
        self.require_open()
        write = None if self.folder is None else self._save
        immediate = self.folder is None and self.journal is None and self.options.ratio is None
        owner = StepOwner(self.contents, self.lock, self.wait_to_insert, self._note, write, immediate)
        return StepSource(owner, spec, key, lanes)

    def _save(self, episode: Episode) -> int:
        """Save an episode whose steps are in memory."""
        if self.folder is None:
            raise StateError("expected a replay with a path")
        number = self.folder.writer(episode.spec).write(episode)
        self.folder.trim(len(episode))
        return number

    def pull(self) -> None:
        """Take in what changed before the next draw: from the folder, or from the journal that is repeated."""
        folder = self.folder
        if self.entries is not None:
            self._repeat()
        elif folder is not None and folder.has_news():
            self._follow(folder)
        self.contents.arrive()

    def _follow(self, folder: ReplayFolder) -> None:
        before, steps = self.contents.episodes, 0
        if not folder.loaded:
            folder.begin(self.contents, None)
        while True:
            try:
                for episode in folder.read():
                    self.contents.add(episode)
                    steps += len(episode)
                break
            except ExpiredRowError:  # collectors were so fast that unread episodes have left the folder
                folder.begin(self.contents, None)
        folder.trim(steps)
        if self.contents.episodes > before and self.journal is not None:
            self.journal.write(JournalEntry.arrival(self.drawn, self.contents.episodes))

    def is_empty(self) -> bool:
        """Return whether no step has arrived, so that the columns are not known."""
        with self.lock:
            self.pull()
            return self.contents.store is None

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the folder's metadata."""
        with self.lock:
            if self.folder is not None:
                self.folder.writer(self.spec).update_metadata(metadata)

    # Draws

    def draw(self, n: int | None = None, *, max_tokens: int | None = None) -> tuple[Draw, Batch]:
        """Draw a batch, and read its rows before other threads add steps."""
        if (n is None) == (max_tokens is None):
            raise PlanError(f"expected a number of samples or max_tokens, got {n} and {max_tokens}")
        if n is not None and n < 1:
            raise PlanError(f"expected a batch of at least 1 sample, got {n}")
        ratio = self.options.ratio
        if ratio is not None and self.entries is None:
            self._wait_to_sample(ratio, n or 1)
        with self.lock:
            self.pull()
            lo, hi = self.anchors
            if hi <= lo and self.options.offline is None:
                raise PlanError(f"expected a replay with samples, got none: {self._why_empty()}")
            if n is not None:
                drawn = self.contents.drawing.draw(self.drawn, n)
            else:
                drawn = self.contents.drawing.draw_within(self.drawn, self.contents.cost, max_tokens or 0)
            chances = (lo, hi), drawn.masses, drawn.total, drawn.priorities
            draw = Draw(self.drawn, drawn.anchors, drawn.weights, *chances)
            own = draw.anchors if self.options.offline is None else draw.anchors[: split_at(draw.anchors)]
            flat = self._read(own) if len(own) else None
            self.drawn += len(draw.anchors)
            self.log.add(draw)
        if ratio is not None:
            self.turns.tell()
        if self.options.offline is not None:
            rows = self.options.offline.rows
            flat = rows.joined(flat, draw.anchors[len(own) :] + len(rows.samples), {})
        return draw, self.batch(draw, flat or {})

    def batch(self, draw: Draw, flat: dict[str, Any]) -> Batch:
        """Return the batch of a draw whose rows were read."""
        if draw.weights is not None:
            flat["weights"] = draw.weights
        rows = len(next(iter(flat.values())))  # one for each sample, except where completions share rows
        return Batch.of(Columns.of_flat(flat, rows), Ticket(draw.number, len(draw.anchors), self.fingerprint[:8]))

    def take(self, anchors: IntArray) -> dict[str, Any]:
        """Read samples by their numbers."""
        with self.lock:
            lo, hi = self.anchors
            if len(anchors) == 0 or anchors.min() < lo or anchors.max() >= hi:
                raise ExpiredRowError(f"expected at least one sample within {lo}:{hi}, got {anchors[:8].tolist()}")
            return self._read(anchors)

    def _read(self, anchors: IntArray) -> dict[str, Any]:
        store, reader = self.contents.store, self.contents.reader
        if store is None or reader is None:
            raise PlanError(f"expected a replay with samples, got none: {self._why_empty()}")
        return reader(store, anchors)

    def remember(self, draw: Draw) -> None:
        """Accept the ticket of a draw for updates, as `draw` does for its own."""
        self.log.add(draw)

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return where the samples of a recent batch are from."""
        with self.lock:
            parsed = Ticket.parse(ticket)
            return why_drawn(self.contents, self.folder, self.log.of(parsed), parsed, column)

    # Changes of the drawing

    def update(self, ticket: Ticket | None, anchors: IntArray, priorities: Float32Array) -> int:
        """Set priorities of samples. Return how many had left."""
        if self.entries is not None:
            raise StateError("expected no updates in a replay that repeats a journal, which has them")
        if anchors.size and anchors.max() >= self.anchors[1]:
            raise ExpiredRowError(f"expected samples below {self.anchors[1]}, got {anchors.max()}")
        gone = self.contents.set_priorities(anchors, priorities)
        if self.journal is not None:
            none = np.zeros(0, np.int64)
            kind, number = (BY_ANCHOR, 0) if ticket is None else (BY_TICKET, ticket.position)
            entry = JournalEntry(kind, self.drawn, number, anchors if ticket is None else none, priorities)
            self.journal.write(entry)
        return gone

    def set_version(self, version: int) -> None:
        """Note that the learner has updated its policy."""
        with self.lock:
            if self.entries is not None:
                raise StateError("expected no versions for a replay that repeats a journal, which has them")
            self.contents.drawing.set_version(version)
            if self.journal is not None:
                self.journal.write(JournalEntry.versioned(self.drawn, version))

    # State

    def state_dict(self, rows: bool = False) -> dict[str, Any]:
        """Return the number of draws and all priorities, and on demand the rows."""
        with self.lock:
            self.contents.arrive()
            contents = self.contents
            sampler = {name: packed(value) for name, value in contents.drawing.state().items()}
            state: dict[str, Any] = {"version": VERSION, "fingerprint": self.fingerprint, "drawn": self.drawn}
            state |= {"episodes": contents.episodes, "anchors": list(contents.anchors), "expired": contents.expired}
            state |= {"sampler": sampler, "contents": self._contents_state(rows)}
            state["adding"] = None if self.adding is None or state["contents"] is None else self.adding.to_state()
            return state | {"journal": None if self.journal is None else self.journal.size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        with self.lock:
            if self.entries is not None:
                raise StateError("expected no state for a replay that repeats a journal, which begins at its start")
            if state["version"] != VERSION or state["fingerprint"] != self.fingerprint:
                raise StateError(
                    "expected the state of a replay with the same capacity, samples, sampler and seed, got another one"
                )
            episodes, anchors = int(state["episodes"]), (int(state["anchors"][0]), int(state["anchors"][1]))
            self.adding = None
            if state["contents"] is not None:
                self._restore(state["contents"], state["adding"])
            elif self.folder is not None:
                for episode in self.folder.begin_again(self.contents, episodes):
                    self.contents.add(episode)
            if (self.contents.episodes, self.anchors) != (episodes, anchors):
                raise StateError(
                    f"expected {episodes} episodes with the samples {anchors[0]}:{anchors[1]}, as when the state was "
                    f"saved, got {self.contents.episodes} with {self.anchors[0]}:{self.anchors[1]}"
                )
            self.contents.arrive()
            self.contents.drawing.restore({name: unpacked(value) for name, value in state["sampler"].items()})
            self.drawn, self.contents.expired = int(state["drawn"]), int(state["expired"])
            self.log = DrawLog(self.fingerprint[:8])
            if self.journal is not None and state["journal"] is not None:
                self.journal.resume(int(state["journal"]))
                self._noted = None

    def _contents_state(self, rows: bool) -> dict[str, Any] | None:
        """The contents of memory, or None where they follow from whole episodes.

        Without `rows`, they have the rows of episodes alone that are not in the folder yet.
        """
        store = self.contents.store
        if store is None or not (rows or (self.folder is not None and self.contents.stepped)):
            return None
        live = store.live()
        kept = live if rows else live[store.table[live, EPISODE] < 0]
        return {
            "spec": store.spec.to_json(),
            "store": store.to_state(self.contents.streams),
            "own": sorted(self.contents.own),
            "sources": self.sources,
            "kept": packed(kept),
            "rows": {path: packed(values) for path, values in store.rows(kept).items()},
        }

    def _restore(self, state: Mapping[str, Any], adding: Mapping[str, Any] | None) -> None:
        """Fill the memory as it was."""
        contents = self.contents
        contents.restart()
        store = contents.begin(Spec.from_json(state["spec"]), 0, np.zeros(0, np.int64))
        contents.streams = store.restore(state["store"])
        contents.own, contents.stepped = {int(number) for number in state["own"]}, True
        kept = unpacked(state["kept"])
        store.fill(kept, {path: unpacked(values) for path, values in state["rows"].items()})
        if self.folder is not None:
            missing = np.setdiff1d(store.live(), kept)
            self.folder.fill(store, missing, store.arrived)
        self.sources = int(state["sources"])
        if adding is not None:
            key, lanes, alone, spec = adding["source"]
            self.adding = GymnasiumSteps(self.source(Spec.from_json(spec), int(key), int(lanes)), bool(alone))
            self.adding.load_state(adding)
        for key in [key for key in contents.streams if self.adding is None or key != self.adding.source.key]:
            store.leave(contents.streams.pop(key))

    # The journal

    def _note(self, change: StepChange) -> None:
        """Write a change of open episodes to the journal, after the columns that it needs."""
        if self.options.ratio is not None:
            self.turns.tell()
        if self.journal is None:
            return
        if self._noted is None:
            self._noted = self.spec
            columns = json.dumps(self.spec.to_json()).encode()
            self.journal.write(JournalEntry(COLUMNS, self.drawn, 0, data=columns))
        self.journal.write(JournalEntry(CHANGED, self.drawn, 0, data=change.encoded(self._noted)))

    def _repeat(self) -> None:
        """Apply the entries of the journal before the next draw."""
        entries = self.entries
        while entries and entries[0].drawn <= self.drawn:
            entry = entries.popleft()
            if entry.kind == BY_TICKET:
                self.contents.set_priorities(self.log[entry.number].anchors, entry.priorities)
            elif entry.kind == BY_ANCHOR:
                self.contents.set_priorities(entry.anchors, entry.priorities)
            elif entry.kind == VERSIONED:
                self.contents.drawing.set_version(entry.number)
            elif entry.kind == ARRIVAL:
                self._arrive_until(entry.number)
            elif entry.kind == COLUMNS:
                self._noted = Spec.from_json(json.loads(entry.data))
            elif self._noted is not None:
                change = StepChange.decoded(entry.data, self._noted)
                self.contents.apply(change, self._noted, numbered=self.folder is None)

    def _arrive_until(self, episodes: int) -> None:
        folder = self.folder
        if folder is None:
            raise StateError("expected the path of the run, whose journal names episodes in its folder")
        folder.open()
        if folder.written < episodes:
            raise StateError(
                f"expected the store of the journal, with {episodes} episodes, got {folder.written} at {folder.path}"
            )
        if not folder.loaded:
            folder.begin(self.contents, episodes)
        for episode in folder.read(episodes):
            self.contents.add(episode)
        self.contents.arrive()

    def close(self) -> None:
        """Close the files."""
        with self.lock:
            if self.folder is not None:
                self.folder.close()
            if self.journal is not None:
                self.journal.close()

    # Waiting

    def wait_to_insert(self) -> None:
        """Wait until the ratio allows more steps, if it blocks."""
        ratio = self.options.ratio
        if ratio is not None and ratio.wait == "block":
            self._wait(self.may_insert, ratio, "adding steps")

    def may_insert(self) -> bool:
        """Return whether the ratio allows more steps."""
        ratio = self.options.ratio
        with self.lock:
            return ratio is None or ratio.may_insert(self.contents.extent[1], self.drawn)

    def _wait_to_sample(self, ratio: SampleRatio, n: int) -> None:
        def may() -> bool:
            with self.lock:
                self.pull()
                return ratio.may_sample(self.contents.extent[1], self.drawn, n)

        if ratio.wait == "block":
            self._wait(may, ratio, f"drawing {n} samples")
        elif not may() and self.contents.extent[1] < ratio.min_size:
            arrived = self.contents.extent[1]
            raise PlanError(f"expected at least min_size={ratio.min_size:,} steps to draw from, got {arrived:,}")

    def _wait(self, may: Callable[[], bool], ratio: SampleRatio, what: str) -> None:
        def progress() -> str:
            return f"{self.contents.extent[1]:,} steps and {self.drawn:,} samples so far"

        self.turns.wait(may, ratio.timeout, None if self.folder is None else LOOK, what, progress)

    def _why_empty(self) -> str:
        return self.contents.why_empty("" if self.options.path is None else f" in {self.options.path}")
