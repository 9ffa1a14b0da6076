"""`Replay`: episodes that arrive while batches are drawn from them.

All changes take effect between two draws, in the thread that draws: arrivals (episodes that were written to the folder,
or added in memory) and new priorities. So a draw is a function of the seed, its number, and the changes before it, and
the journal of changes repeats a run. Reading is one gather over the memory of `SegmentStore`.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.boundary import loading_state
from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.core.turns import ForkSafeLock
from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, ExpiredRowError, PlanError, StateError
from penstock.formats.base.writer import Writer
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why
from penstock.plan.transform import SampleTransform
from penstock.replay.batches import ReplayBatches
from penstock.replay.completions import Completions
from penstock.replay.contents import ReplayContents
from penstock.replay.draw import Draw, DrawLog
from penstock.replay.folder import ReplayFolder
from penstock.replay.group_sampler import GroupSampler
from penstock.replay.journal import (
    ARRIVAL,
    BY_ANCHOR,
    BY_TICKET,
    VERSIONED,
    JournalEntry,
    ReplayJournal,
    read_entries,
)
from penstock.replay.prioritized import checked_priorities
from penstock.replay.ratio import SampleRatio, TurnSignal
from penstock.replay.samplers import ReplaySampler, UniformSampler, numbers_of
from penstock.replay.samples import ReplaySamples, Transitions
from penstock.replay.saved import packed, unpacked
from penstock.replay.share import EpisodeShare, require_number
from penstock.replay.why import why_drawn

VERSION = 1
LOOK = 0.02  # seconds between two looks at a folder while `sample` waits for steps


class Replay(Writer):
    """Train while collecting: a dataset that grows while a learner draws batches from it.

    A replay has the last `capacity` steps of a run, in whole episodes. The oldest episodes leave in segments of a 32nd
    of the capacity. Steps, episodes and samples have numbers that never change. Each frame is stored once: next
    observations, sequences and stacks of frames are read as ranges of rows, and never cross the end of an episode.

    Episodes arrive in two ways. With a path, any number of collectors, in any process, append to the column store there
    (`Collector(env, path, mode="append")`), and the replay copies new episodes into memory at the next draw. The folder
    is a dataset that keeps all episodes. Without a path, episodes are in memory only. In both cases a replay is itself
    a `Writer`, so `Collector(env, replay)`, `VectorCollector` and `Recorder` record into it. An episode arrives when it
    ends.

    A batch is a function of the seed, the number of its first draw, and the arrivals and priorities before it. A
    journal of these repeats a run bit for bit. Reading and writing are safe from several threads.

    Args:
        store: Folder of a column store, which may be missing until a collector creates it. None: memory only.
        capacity: Most steps in memory, at least one sample.
        samples: Definition of a sample: `Transitions`, `Windows` for sequences, or `Completions` of a language model.
            The default is `Transitions()`: single steps with their next observations.
        sampler: `UniformSampler`, `RecentSampler`, `PrioritizedSampler`, or `GroupSampler` for `Completions`. The
            default is `UniformSampler()`.
        ratio: Samples for each step that arrives, and the fewest steps to start with. The default is None: no limit.
        seed: 0 to 2^64 - 1. The default is 0.
        index: Number of this learner among the learners of one folder, such as its rank. The default is 0.
        count: Number of learners. Each has every `count`-th episode of the folder in memory, within its own capacity,
            and draws with its own random numbers. The default is 1.
        keep_steps: Steps that the folder keeps at least, `count * capacity` or more. Files of older episodes are
            removed, for all processes; episodes keep their numbers. A state can be loaded as long as the episodes that
            were in memory are kept. The default is None: this replay removes no files.
        journal: File for the journal. The default is None: none.
        replays: Journal of an earlier run with the same store and arguments, to draw the same batches again. The
            default is None.

    Raises:
        ArgumentError: `samples`, `sampler` or `ratio` has another type.
        PlanError: The capacity is below one sample, or an argument is out of range.
        FormatError: The folder has another format.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"observations": np.arange(7.0), "rewards": np.ones(5)}, lengths=[2, 3])
        >>> replay = Replay(None, capacity=1000)
        >>> replay.write_all(data)
        [0, 1]
        >>> batch = replay.sample(64)
        >>> bool((batch["next_observations"] == batch["observations"] + 1).all())
        True

        Sequences of 2 steps, drawn by priority:

        >>> sampler = penstock.replay.PrioritizedSampler()
        >>> replay = Replay(None, 1000, samples=penstock.transforms.Windows(2), sampler=sampler)
        >>> replay.write_all(data)
        [0, 1]
        >>> batch = replay.sample(8)
        >>> batch["rewards"].shape, batch["weights"].shape
        ((8, 2), (8,))
        >>> replay.update(batch.ticket, np.ones(8))
        0
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None,
        capacity: int,
        *,
        samples: ReplaySamples | SampleTransform | None = None,
        sampler: ReplaySampler | None = None,
        ratio: SampleRatio | None = None,
        seed: int = 0,
        index: int = 0,
        count: int = 1,
        keep_steps: int | None = None,
        journal: str | os.PathLike[str] | None = None,
        replays: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = None if store is None else Path(store)
        self.capacity = require_number("capacity", capacity, 1)
        self.samples = Transitions() if samples is None else samples
        self.sampler = UniformSampler() if sampler is None else sampler
        _require_kind("samples", self.samples, ReplaySamples | SampleTransform, "penstock.transforms.Windows(16)")
        _require_kind("sampler", self.sampler, ReplaySampler, "penstock.replay.PrioritizedSampler()")
        _require_kind("ratio", ratio, SampleRatio | None, "penstock.replay.SampleRatio(4, min_size=1000)")
        if isinstance(self.samples, Completions) != isinstance(self.sampler, GroupSampler):
            raise PlanError(
                f"expected samples=Completions(...) together with sampler=GroupSampler(...), got {self.samples!r} and "
                f"{self.sampler!r}"
            )
        self.ratio, self.seed = ratio, require_number("seed", seed, 0)
        self._share = EpisodeShare(index, count)
        self._share.check(store is not None and not isinstance(self.sampler, GroupSampler))
        least = self.capacity * self._share.count
        self.keep_steps = _checked_keep(keep_steps, least, store is None, replays is not None)
        parts = (self.capacity, self.samples, self.sampler, self.seed)
        parts = parts if count == 1 else (*parts, self._share)
        self._fingerprint = hashlib.sha256(f"replay {VERSION} {parts!r}".encode()).hexdigest()
        self.drawn = 0  # samples
        self._lock = ForkSafeLock()
        self._turns = TurnSignal()
        self._contents = ReplayContents(
            self.samples, self.sampler, self._share.key(self.seed), self.capacity, self._share
        )
        self._log = DrawLog(self._fingerprint[:8])
        if replays is not None and self.path is None:
            raise PlanError(
                "expected a path as the store, to repeat a run of its journal; memory has no episodes of that run"
            )
        self._entries = None if replays is None else deque(read_entries(replays))
        self._journal = None if journal is None else ReplayJournal(journal)
        self._folder = None if self.path is None else ReplayFolder(self.path, self.keep_steps)

    def __len__(self) -> int:
        """Return the number of samples in the store."""
        with self._lock:
            lo, hi = self.anchors
            return hi - lo

    def __repr__(self) -> str:
        where = "memory" if self.path is None else repr(str(self.path))
        return f"Replay({where}, {len(self)} samples, {self.samples!r}, {self.sampler!r}, drawn={self.drawn})"

    def __reduce__(self) -> NoReturn:
        where = "the same path" if self.path is not None else "a path in place of None"
        raise TypeError(
            "a Replay cannot be pickled or copied: its memory, locks and files belong to this process; make it again "
            f"where it is needed, penstock.Replay({where}, capacity, ...), and load_state_dict(replay.state_dict())"
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 hex digest of the arguments that decide the draws. It does not cover the data, which grow."""
        return self._fingerprint

    @property
    def spec(self) -> Spec:
        """Columns of the episodes. Raises `PlanError` before the first episode."""
        if self._contents.store is None:
            raise PlanError(f"expected a replay with episodes, got an empty one: {self._why_empty()}")
        return self._contents.store.spec

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers of the steps in memory, `[lo, hi)`. `hi` is the number of all steps that arrived."""
        return self._contents.extent

    @property
    def anchors(self) -> tuple[int, int]:
        """Numbers of the samples in memory, `[lo, hi)`."""
        return self._contents.anchors

    @property
    def episodes(self) -> int:
        """Number of all episodes that arrived, also of episodes that left."""
        return self._contents.episodes

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in memory and the table of episodes, without the sum tree."""
        return 0 if self._contents.store is None else self._contents.store.nbytes

    @property
    def expired(self) -> int:
        """Number of priority updates of samples that had left."""
        return self._contents.expired

    @property
    def dropped(self) -> Mapping[str, int]:
        """Groups of completions that are never drawn, by reason: `stale`, `equal_rewards`. See `GroupSampler`."""
        return self._contents.drawing.dropped

    def set_policy_version(self, version: int) -> None:
        """Note that the learner has updated its policy. It counts from the next draw on: see `GroupSampler`.

        Args:
            version: Version of the policy, at least the last one.

        Raises:
            PlanError: The version is lower than the last one, or the sampler is another.
            StateError: The replay repeats a journal, which has the versions.
        """
        with self._lock:
            if self._entries is not None:
                raise StateError("expected no versions for a replay that repeats a journal, which has them")
            self._contents.drawing.set_version(version)
            if self._journal is not None:
                self._journal.write(JournalEntry.versioned(self.drawn, version))

    def write(self, episode: Episode) -> int:
        """Add one episode. With a path, it is saved there first, and survives a kill of the process.

        Args:
            episode: Episode with the columns of the replay.

        Returns:
            The number of the episode.

        Raises:
            ArgumentError: It is no episode.
            SpecError: The columns differ, or have rows of different lengths.
            DataError: The episode is longer than the capacity or `Completions.max_length`.
            PlanError: The learner did not draw in time, see `SampleRatio`.
            StateError: The replay repeats a journal.
            OSError: The disk is full.
        """
        return self.write_together([episode])[0]

    def write_together(self, episodes: Sequence[Episode]) -> list[int]:
        """Add episodes that belong together, such as the completions of a prompt: all of them or none.

        Args:
            episodes: Episodes with the columns of the replay.

        Returns:
            The numbers of the episodes.

        Raises:
            ArgumentError: One is no episode.
            SpecError: The columns of one differ, or have rows of different lengths.
            DataError: One is longer than the capacity or `Completions.max_length`.
            PlanError: The learner did not draw in time, see `SampleRatio`.
            StateError: The replay repeats a journal.
            OSError: The disk is full.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[2, 3, 4])
            >>> replay = Replay(None, capacity=100)
            >>> replay.write_together(list(data)), replay.episodes
            ([0, 1, 2], 3)
        """
        for episode in episodes:
            _require_kind("an episode", episode, Episode, "penstock.Episode(spec, columns), or record with a Collector")
        if self._entries is not None:
            raise StateError("expected no new episodes in a replay that repeats a journal; open the store again")
        if self.ratio is not None and self.ratio.wait == "block":
            self._wait(self.may_insert, self.ratio, "adding an episode")
        with self._lock:
            for episode in episodes:
                self._contents.check(self._contents.prepare(episode.spec), episode)
            if self._folder is None:
                numbers = [self._contents.add(episode) for episode in episodes]
                self._note_arrivals()
            else:
                numbers = self._folder.writer(episodes[0].spec).write_all(episodes) if episodes else []
                self._folder.trim(sum(map(len, episodes)))
        self._turns.tell()
        return numbers

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the dataset's metadata.

        Args:
            metadata: New entries. Without a path, they are dropped with the replay.
        """
        with self._lock:
            if self._folder is not None:
                self._folder.writer(self.spec).update_metadata(metadata)

    def close(self) -> None:
        """Flush and close the files of the writer and of the journal. Batches can still be drawn."""
        with self._lock:
            if self._folder is not None:
                self._folder.close()
            if self._journal is not None:
                self._journal.close()

    def refresh(self) -> int:
        """Take in the episodes that were appended to the folder. `sample` does so itself.

        Returns:
            The number of samples in memory now.
        """
        with self._lock:
            self._pull()
            return len(self)

    def may_sample(self, n: int) -> bool:
        """Return whether `sample(n)` would draw at once, by the ratio and the samples in memory.

        Args:
            n: Number of samples.
        """
        with self._lock:
            self._pull()
            self._contents.arrive()
            return self._contents.drawing.has(n) and (
                self.ratio is None or self.ratio.may_sample(self.extent[1], self.drawn, n)
            )

    def may_insert(self) -> bool:
        """Return whether the ratio allows another episode."""
        with self._lock:
            return self.ratio is None or self.ratio.may_insert(self.extent[1], self.drawn)

    def sample(self, n: int | None = None, *, max_tokens: int | None = None) -> Batch:
        """Draw a batch.

        Args:
            n: Number of samples, at least 1. With a `GroupSampler`, a multiple of `num_generations`.
            max_tokens: Tokens of the batch with padding, in place of `n`: as many whole groups as fit.

        Returns:
            The outputs of `samples`, `[n, ...]`, with the column `weights` `[n]` float32 if the sampler has priorities.
            The `ticket` names the batch for `update` and `why`. Cost: some tens of microseconds and the copy of the
            rows.

        Raises:
            PlanError: There is nothing to draw, or the ratio's timeout has passed.
            FormatError: The folder was replaced or is damaged.
        """
        return self.read(self.draw(n, max_tokens=max_tokens))

    def draw(self, n: int | None = None, *, max_tokens: int | None = None) -> Draw:
        """Draw the anchors of a batch, without reading rows.

        Args:
            n: Number of samples, at least 1.
            max_tokens: Tokens of the batch, in place of `n`.

        Raises:
            PlanError: There is nothing to draw, or the ratio's timeout has passed.
        """
        if (n is None) == (max_tokens is None):
            raise PlanError(f"expected a number of samples or max_tokens, got {n} and {max_tokens}")
        if n is not None and n < 1:
            raise PlanError(f"expected a batch of at least 1 sample, got {n}")
        if self.ratio is not None and self._entries is None:
            self._wait_to_sample(self.ratio, n or 1)
        with self._lock:
            self._pull()
            self._contents.arrive()
            lo, hi = self.anchors
            if hi <= lo:
                raise PlanError(f"expected a replay with samples, got none: {self._why_empty()}")
            if n is not None:
                drawn = self._contents.drawing.draw(self.drawn, n)
            else:
                drawn = self._contents.drawing.draw_within(self.drawn, self._contents.cost, max_tokens or 0)
            chances = (lo, hi), drawn.masses, drawn.total, drawn.priorities
            draw = Draw(self.drawn, drawn.anchors, drawn.weights, self.episodes, *chances)
            self.drawn += len(draw.anchors)
            self._log.add(draw)
        if self.ratio is not None:
            self._turns.tell()
        return draw

    def read(self, draw: Draw) -> Batch:
        """Read the rows of a draw.

        Args:
            draw: Output of `draw`.

        Raises:
            ExpiredRowError: A sample has left the store since.
        """
        with self._lock:
            lo, _ = self.anchors
            if self._contents.store is None or self._contents.reader is None or draw.anchors.min() < lo:
                raise ExpiredRowError(f"expected samples of {lo} or more, got older ones, which have left the replay")
            flat = self._contents.reader(self._contents.store, draw.anchors)
        if draw.weights is not None:
            flat["weights"] = draw.weights
        rows = len(next(iter(flat.values())))  # as many as samples, but where completions share rows
        return Batch.of(Columns.of_flat(flat, rows), Ticket(draw.number, len(draw.anchors), self._fingerprint[:8]))

    def remember(self, draw: Draw) -> None:
        """Accept the ticket of a draw for updates, as `draw` does for its own.

        Args:
            draw: A draw of this run.
        """
        self._log.add(draw)

    def batches(
        self,
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        offline: MapDataset | None = None,
        share: float | Fraction = 0.5,
    ) -> ReplayBatches:
        """Return endless batches, for a loop or for a `Loader`.

        With an offline dataset, the samples of the replay are the first rows of a batch and the samples of the dataset
        the others, in the dataset's order; `source` is 0 or 1. After any number of samples, each has had its share to
        within one sample. The ticket names the rows of the replay. Rows of the dataset have the importance weight 1.

        Args:
            batch_size: Samples of a batch, at least 1.
            max_tokens: Tokens of a batch in place of its size, with a `GroupSampler` and without an offline dataset.
            offline: Dataset with the same outputs. The default is None: the replay alone.
            share: Share of the replay, 0 to 1. A float counts as the decimal that it prints as. The default is 0.5.

        Raises:
            PlanError: The batch size is below 1, the share is impossible, or the offline dataset is empty.
        """
        return ReplayBatches(self, batch_size, offline, share, max_tokens=max_tokens)

    def as_of(self, episodes: int) -> Replay | None:
        """Return a replay with the episodes in memory that this one had before, or None without a path.

        Args:
            episodes: Number of episodes that had arrived.
        """
        if self.path is None:
            return None
        earlier = Replay(
            self.path,
            self.capacity,
            samples=self.samples,
            sampler=self.sampler,
            index=self._share.index,
            count=self._share.count,
        )
        earlier._reload(episodes)
        return earlier

    def take(self, anchors: Sequence[int] | IntArray) -> Columns:
        """Read samples by their numbers, for example all of them in order for an evaluation.

        Args:
            anchors: `[n]` integers within `anchors`.

        Raises:
            ExpiredRowError: A sample has left, or has not arrived yet.
        """
        chosen = np.array(anchors, np.int64)
        with self._lock:
            self._pull()
            lo, hi = self.anchors
            if (
                len(chosen) == 0
                or chosen.min() < lo
                or chosen.max() >= hi
                or self._contents.store is None
                or self._contents.reader is None
            ):
                raise ExpiredRowError(f"expected at least one sample within {lo}:{hi}, got {chosen[:8].tolist()}")
            return Columns.of_flat(self._contents.reader(self._contents.store, chosen), len(chosen))

    def update(self, which: Batch | Ticket | str | Sequence[int] | IntArray, priorities: Any) -> int:
        """Set priorities of samples. They count from the next draw on.

        Args:
            which: A batch that `sample` returned, its ticket, or `[n]` numbers of samples.
            priorities: `[n]` numbers, finite, 0 or more, such as absolute temporal-difference errors. Of a sample that
                occurs several times, the last one counts.

        Returns:
            How many of the samples had left the store. Their priorities are ignored, and counted in `expired`.

        Raises:
            DataError: A priority is NaN, infinite or negative, or the number of priorities is wrong.
            StateError: The ticket is unknown: it is from another replay, or more than 2^20 samples ago.
            ExpiredRowError: A sample has not arrived yet.
            PlanError: The sampler has no priorities.
            ArgumentError: `which` is neither a batch, a ticket nor numbers of samples.
        """
        with self._lock:
            if self._entries is not None:
                raise StateError("expected no updates in a replay that repeats a journal, which has them")
            given_ticket = which.ticket if isinstance(which, Batch) else which
            ticket = Ticket.parse(given_ticket) if isinstance(given_ticket, (Ticket, str)) else None
            anchors = numbers_of(which) if ticket is None else self._log.of(ticket).anchors
            given = checked_priorities(priorities, anchors)
            if anchors.size and anchors.max() >= self.anchors[1]:
                raise ExpiredRowError(f"expected samples below {self.anchors[1]}, got {anchors.max()}")
            gone = self._contents.set_priorities(anchors, given)
            if self._journal is not None:
                none = np.zeros(0, np.int64)
                kind, number = (BY_ANCHOR, 0) if ticket is None else (BY_TICKET, ticket.position)
                self._journal.write(JournalEntry(kind, self.drawn, number, anchors if ticket is None else none, given))
            return gone

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return where the samples of a recent batch are from, and how likely each was. Nothing is read.

        Args:
            ticket: Ticket of a batch, at most 2^20 samples ago.
            column: Output whose rows to list. The default is the widest range of steps.

        Returns:
            A line for each sample, in the order of the batch. The columns of `Why.table` are as for `Loader.why`, with
            `anchor` (number of the sample) and, as the sampler has them, `probability` and `priority` of the sample
            when it was drawn, and its importance `weight`. `position` is the number of the draw. `episode` is its
            number in the store, and rows count the steps that arrived. A sample that has left memory is looked up in
            the folder; without a path, it has -1.

        Raises:
            StateError: The ticket is unknown.
            PlanError: The column is unknown.

        Example:
            >>> import numpy as np, penstock
            >>> replay = Replay(None, capacity=100, sampler=penstock.replay.PrioritizedSampler(), seed=1)
            >>> replay.write(penstock.from_arrays({"rewards": np.arange(4.0)}, lengths=[4])[0])
            0
            >>> lines = replay.why(replay.sample(4).ticket).table
            >>> lines["step"].tolist(), lines["probability"].tolist()
            ([0, 1, 2, 3], [0.25, 0.25, 0.25, 0.25])
        """
        with self._lock:
            parsed = Ticket.parse(ticket)
            return why_drawn(self._contents, self._folder, self._log.of(parsed), parsed, column)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the learner's side: the number of draws, and all priorities.

        Returns:
            Plain values and integer arrays. Priorities are compressed: 1 to 4 bytes for each sample. The episodes are
            not in the state: they are in the folder.
        """
        with self._lock:
            self._contents.arrive()
            lo, hi = self.anchors
            sampler = {name: packed(value) for name, value in self._contents.drawing.state().items()}
            state: dict[str, Any] = {"version": VERSION, "fingerprint": self.fingerprint, "drawn": self.drawn}
            state |= {"episodes": self.episodes, "anchors": [lo, hi], "expired": self.expired, "sampler": sampler}
            return state | {"journal": None if self._journal is None else self._journal.size}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state: the same episodes are in memory, and the next draw is the next one of that run.

        Episodes that arrived since are taken in at the next draw. Without a path, write the same episodes first.

        Args:
            state: Output of `state_dict`.

        Raises:
            StateError: The state belongs to other arguments, other episodes or another version.
        """
        with self._lock:
            if self._entries is not None:
                raise StateError("expected no state for a replay that repeats a journal, which begins at its start")
            if state["version"] != VERSION or state["fingerprint"] != self.fingerprint:
                raise StateError(
                    "expected the state of a replay with the same capacity, samples, sampler and seed, got another one"
                )
            episodes, anchors = int(state["episodes"]), (int(state["anchors"][0]), int(state["anchors"][1]))
            if self.path is not None:
                self._reload(episodes)
            if (self.episodes, self.anchors) != (episodes, anchors):
                raise StateError(
                    f"expected {episodes} episodes with the samples {anchors[0]}:{anchors[1]}, as when the state was "
                    f"saved, got {self.episodes} with {self.anchors[0]}:{self.anchors[1]}"
                )
            self._contents.arrive()
            self._contents.drawing.restore({name: unpacked(value) for name, value in state["sampler"].items()})
            self.drawn, self._contents.expired = int(state["drawn"]), int(state["expired"])
            self._log = DrawLog(self._fingerprint[:8])
            if self._journal is not None and state["journal"] is not None:
                self._journal.resume(int(state["journal"]))

    # Arrivals

    def _pull(self) -> None:
        """Take in what changed before the next draw: from the folder, or from the journal that is repeated."""
        folder = self._folder
        if self._entries is not None:
            self._repeat()
            return
        if folder is None or not folder.has_news():
            return
        before, steps = self.episodes, 0
        if not folder.loaded:
            folder.begin(self._contents, None)
        while True:
            try:
                for episode in folder.read():
                    self._contents.add(episode)
                    steps += len(episode)
                break
            except ExpiredRowError:  # collectors were so fast that unread episodes have left the folder
                folder.begin(self._contents, None)
        folder.trim(steps)
        if self.episodes > before:
            self._note_arrivals()

    def _repeat(self) -> None:
        """Apply the entries of the journal before the next draw."""
        entries = self._entries
        while entries and entries[0].drawn <= self.drawn:
            entry = entries.popleft()
            if entry.kind == BY_TICKET:
                self._contents.set_priorities(self._log[entry.number].anchors, entry.priorities)
            elif entry.kind == BY_ANCHOR:
                self._contents.set_priorities(entry.anchors, entry.priorities)
            elif entry.kind == VERSIONED:
                self._contents.drawing.set_version(entry.number)
            elif entry.kind == ARRIVAL:
                self._arrive_until(entry.number)

    def _arrive_until(self, episodes: int) -> None:
        folder = self._folder
        if folder is None:
            return
        folder.open()
        if folder.written < episodes:
            raise StateError(
                f"expected the store of the journal, with {episodes} episodes, got {folder.written} at {self.path}"
            )
        if not folder.loaded:
            folder.begin(self._contents, episodes)
        for episode in folder.read(episodes):
            self._contents.add(episode)
        self._contents.arrive()

    def _reload(self, episodes: int) -> None:
        """Read the folder as it was after so many episodes."""
        if self._folder is not None:
            for episode in self._folder.begin_again(self._contents, episodes):
                self._contents.add(episode)

    def _note_arrivals(self) -> None:
        if self._journal is not None:
            self._journal.write(JournalEntry.arrival(self.drawn, self.episodes))

    # Waiting

    def _wait_to_sample(self, ratio: SampleRatio, n: int) -> None:
        def may() -> bool:
            with self._lock:
                self._pull()
                return ratio.may_sample(self.extent[1], self.drawn, n)

        if ratio.wait == "block":
            self._wait(may, ratio, f"drawing {n} samples")
        elif not may() and self.extent[1] < ratio.min_size:
            arrived = self.extent[1]
            raise PlanError(f"expected at least min_size={ratio.min_size:,} steps to draw from, got {arrived:,}")

    def _wait(self, may: Callable[[], bool], ratio: SampleRatio, what: str) -> None:
        def progress() -> str:
            return f"{self.extent[1]:,} steps and {self.drawn:,} samples so far"

        self._turns.wait(may, ratio.timeout, None if self.path is None else LOOK, what, progress)

    def _why_empty(self) -> str:
        return self._contents.why_empty("" if self.path is None else f" in {self.path}")


def _require_kind(what: str, value: object, kind: type | UnionType, example: str) -> None:
    if not isinstance(value, kind):
        raise ArgumentError(f"expected {what} as in {example}, got {value!r}"[:500])


def _checked_keep(keep_steps: int | None, least: int, in_memory: bool, repeats: bool) -> int | None:
    if keep_steps is None:
        return None
    if in_memory or repeats:
        raise PlanError(
            "expected keep_steps for a replay with a path that repeats no journal: memory has no files, and a repeated "
            "run needs all episodes"
        )
    if require_number("keep_steps", keep_steps, 1) < least:
        raise PlanError(
            f"expected keep_steps of at least {least:,}, the capacity of all learners of the folder, got {keep_steps:,}"
        )
    return int(keep_steps)
