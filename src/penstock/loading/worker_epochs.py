"""`WorkerEpochs`: which epoch the workers of a PyTorch `DataLoader` begin next.

A worker has a copy of the stream. A worker that is started anew for every epoch cannot know how many epochs there were,
and a worker that is kept does not see which epoch the main process sets. So all processes append what they do to one
log, and each process replays it on its own cursor:

* `SET`: the main process set an epoch.
* `LOAD`: the main process loaded a state. Workers that run already do not have it.
* `BEGIN`: a worker takes its first batch of an epoch. The first such record of a *launch*, one `iter()` of the
  `DataLoader`, begins the next epoch; the other workers of this launch begin the same one. Of launches that run at the
  same time, the one whose worker comes first has the first epoch: it need not be the one that was started first.

Workers of one launch have one base seed, and each has begun the same number of iterators. Launches whose seeds were set
to be equal differ by time: a launch that began before a process was started is not its own.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from typing import Any

from penstock.errors import StateError
from penstock.files.shared_log import SharedLog
from penstock.loading.cursor import Cursor, CursorPlace
from penstock.loading.position_source import PositionSource

SET = 1
LOAD = 2
BEGIN = 3
NOT_LOADED = -1  # instead of the epoch of a state that the iterator of a worker loaded

_forks = {"next": 0, "own": 0}  # times before the next fork, and before the one that made this process


def _note_fork() -> None:
    _forks["next"] = time.monotonic_ns()


def _note_child() -> None:
    _forks["own"] = _forks["next"]


# The time before the fork: a child may first run after others of its launch have begun.
os.register_at_fork(before=_note_fork, after_in_child=_note_child)


@dataclass(frozen=True)
class Launch:
    """Workers that one `iter()` of a `DataLoader` started, or started again."""

    seed: int
    number: int


class WorkerEpochs:
    """Epochs that were set and begun by all processes of a stream, replayed on the cursor of this process."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._log = SharedLog(7)  # kind, process, epoch, then of BEGIN: time, seed, number, when the process started
        self._replayed = 0
        self._launches: dict[Launch, tuple[int, CursorPlace]] = {}  # time and place of the last one of this name
        self._number = 0
        self._started = 0
        self._stale = False

    def __getstate__(self) -> dict[str, Any]:
        copied = {**self.__dict__, "_started": time.monotonic_ns()}
        if get_spawning_popen() is None:  # the copy has an empty log
            self.replay()
            copied.update(_replayed=0, _launches={}, _number=0)
        return copied

    def set_epoch(self, epoch: int) -> None:
        """Set an epoch in this process and in the workers."""
        self.replay()
        self._cursor.set_epoch(epoch)
        self._log.append(SET, os.getpid(), epoch, 0, 0, 0, 0)
        self.replay()

    def loaded(self) -> None:
        """Note that this process, which is no worker, loaded a state."""
        self._log.append(LOAD, os.getpid(), 0, 0, 0, 0, 0)
        self.replay()

    def place(self, seed: int) -> CursorPlace:
        """Return where a worker begins its next epoch. Nothing changes."""
        self.replay()
        return self._known(Launch(seed, self._number), self._birth()) or self._cursor.place()

    def begin(self, seed: int, epoch: int = NOT_LOADED) -> CursorPlace:
        """Begin the next epoch of a worker, and return where."""
        launch = Launch(seed, self._number)
        self._number += 1
        self._log.append(BEGIN, os.getpid(), epoch, time.monotonic_ns(), seed, launch.number, self._birth())
        self.replay()
        if self._stale:
            raise StateError(
                "expected workers that were started after load_state_dict, got workers that ran before, which do not "
                "have the state; make a new DataLoader after loading, or load before its first iter()"
            )
        return self._launches[launch][1]

    def replay(self) -> None:
        """Apply what other processes did since."""
        for kind, process, epoch, now, seed, number, birth in self._log.read(self._replayed):
            self._replayed += 1
            if kind == BEGIN:
                launch = Launch(seed, number)
                if self._known(launch, birth) is None:
                    self._launches[launch] = now, self._begun(epoch)
            elif process != os.getpid():
                if kind == SET:
                    self._cursor.set_epoch(epoch)
                else:
                    self._stale = True

    def _known(self, launch: Launch, birth: int) -> CursorPlace | None:
        """CursorPlace of a launch that was begun after a process was started."""
        begun, place = self._launches.get(launch, (-1, None))
        return place if begun >= birth else None

    def _begun(self, epoch: int) -> CursorPlace:
        """Let a launch begin where the cursor is, or at the epoch of a state that its iterators loaded."""
        place = self._cursor.place()
        source = place.source
        assert isinstance(source, PositionSource)  # a stream has no other
        epoch_slice = source.epoch_slice(place.state["position"])
        if epoch != NOT_LOADED:
            self._cursor.move(place, source.epoch_start(epoch + 1))
        elif epoch_slice is not None:
            self._cursor.move(place, {"position": epoch_slice.after})
        return place

    def _birth(self) -> int:
        return max(_forks["own"], self._started)
