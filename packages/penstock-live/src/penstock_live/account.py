"""`ChunkAccount` counts the outcome of every chunk that a stream should have."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.boundary import loading_state
from penstock.errors import DataError, FormatError, PlanError, StateError
from penstock_live.hooks import Rejected
from penstock_live.journal import Arrival


class SourceGone(FormatError):
    """The file of a chunk was deleted or replaced."""

    reason = "gone"


class RejectedError(DataError):
    """A chunk that a function of the user's rejected."""

    def __init__(self, rejected: Rejected) -> None:
        self.reason = rejected.reason
        super().__init__(rejected.message or rejected.reason)


class LostError(Exception):
    """A chunk that cannot be had, by `error`; nothing that a function of the user's raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


def may_pass(error: BaseException) -> bool:
    """Return whether reading again may help: the system failed to read, and the data are not wrong."""
    return isinstance(error, OSError) or getattr(error, "reason", None) == "io"


def outcome_of(error: BaseException) -> Outcome:
    """What becomes of a chunk, or of a file, that cannot be read."""
    if isinstance(error, SourceGone | FileNotFoundError):
        return Outcome.GONE
    if isinstance(error, RejectedError):
        return Outcome.REFUSED
    return Outcome.UNREADABLE if may_pass(error) else Outcome.DAMAGED


def reason_of(error: BaseException) -> str:
    """Return the word that counts a failure: the error's `reason`, or `missing`, `unreadable`, or its class."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str) and reason and not isinstance(error, UnicodeError):
        return reason
    if isinstance(error, FileNotFoundError):
        return "missing"
    return "unreadable" if isinstance(error, OSError) else type(error).__name__


Int = npt.NDArray[np.int64]
MaxLost = int | float | None

AT_LEAST = 1000  # chunks that a fraction is taken of, at least: few chunks say little about the others
FIGURES = ("expected", "read", "torn", "gone", "refused", "failed", "expired", "waiting")


class Outcome(IntEnum):
    """Result of reading a chunk. The greatest of several outcomes counts, so that their order does not matter.

    A chunk that the system could not read may be read later. A chunk that was read in part may be damaged elsewhere.
    """

    WAITING = 0
    GONE = 1  # its file was deleted or replaced before it was read
    UNREADABLE = 2  # the system could not read it, which may pass
    READ = 3
    REFUSED = 4  # by a function of the user's
    DAMAGED = 5


class ChunkAccount:
    """Counts of all chunks that a stream should have had, each in one place. Thread-safe.

    Invariant: `expected` is the sum of the other figures.

    * `read`: chunks whose frames were read at least once. A chunk may have no frames.
    * `torn`: chunks that a damaged file should have and that cannot be found in it, as far as the file shows.
    * `gone`: chunks whose file was deleted or rewritten before they were read.
    * `refused`: chunks for which a function of the user's gave `Rejected`.
    * `failed`: chunks that cannot be read, and files that cannot be opened, each of them as one chunk.
    * `expired`: chunks that left the window before their turn came.
    * `waiting`: chunks of the window that were not looked at yet.

    One byte is kept for each chunk that may still be read, so that a chunk counts once however often it is drawn, also
    in a run that goes on from a state.
    """

    def __init__(self, max_lost: MaxLost = None, *, retries: bool = False) -> None:
        check_max_lost(max_lost)
        self._max_lost, self._retries = max_lost, retries
        self._lock = threading.Lock()
        self._outcomes = np.zeros(0, np.uint8)  # of chunks from number `_base` on; those behind `_upper` are room
        self._base = self._upper = 0
        self._counts = np.zeros(len(Outcome), np.int64)  # of all chunks ever placed, without expired ones
        self._expired = 0
        self._torn: dict[int, int] = {}  # by the first number of the source
        self._torn_chunks = 0  # the sum of these
        self._files: dict[str, Outcome] = {}  # that cannot be opened
        self._file_counts = [0] * len(Outcome)

    def place(self, lo: int, arrival: Arrival) -> None:
        """Expect the chunks of a source, which has the numbers from `lo` on. Placing them twice changes nothing."""
        with self._lock:
            hi = lo + arrival.count
            if self._upper == 0:
                self._base = self._upper = lo
            if hi <= self._upper:
                return
            if hi - self._base > len(self._outcomes):
                grown = np.zeros(max(hi - self._base, 2 * len(self._outcomes)), np.uint8)
                grown[: len(self._outcomes)] = self._outcomes
                self._outcomes = grown
            self._counts[Outcome.WAITING] += hi - max(lo, self._upper)
            self._upper = hi
            self._set_file(arrival.name, None)

    def tear(self, lo: int, chunks: int) -> None:
        """Set how many chunks the source whose numbers start at `lo` has lost to damage. The last call counts."""
        with self._lock:
            self._torn_chunks += chunks - self._torn.pop(lo, 0)
            if chunks:
                self._torn[lo] = chunks

    def file(self, name: str, outcome: Outcome) -> None:
        """Count a file that cannot be opened as one chunk, until it is placed."""
        with self._lock:
            self._set_file(name, outcome)

    def _set_file(self, name: str, outcome: Outcome | None) -> None:
        before = self._files.pop(name, None)
        if before is not None:
            self._file_counts[before] -= 1
        if outcome is not None:
            self._files[name] = outcome
            self._file_counts[outcome] += 1

    def settle(self, numbers: Iterable[int] | Int, outcome: Outcome) -> None:
        """Set the outcome of some chunks, each named once."""
        with self._lock:
            index = np.asarray(numbers, np.int64) - self._base
            index = index[(index >= 0) & (index < self._upper - self._base)]
            before = self._outcomes[index]
            after = np.maximum(before, np.uint8(outcome))
            self._counts += np.bincount(after, minlength=len(Outcome)) - np.bincount(before, minlength=len(Outcome))
            self._outcomes[index] = after

    def forget(self, below: int) -> None:
        """Forget single chunks below a number, which can no longer be read. All stay counted."""
        with self._lock:
            n = min(below, self._upper) - self._base
            if n <= 0:
                return
            expired = int(np.count_nonzero(self._outcomes[:n] == Outcome.WAITING))
            self._expired += expired
            self._counts[Outcome.WAITING] -= expired
            self._outcomes = self._outcomes[n:].copy()
            self._base += n

    def figures(self, window_start: int) -> dict[str, int]:
        """Return the counts by name, in the order of `FIGURES`, given the first number that can still be drawn."""
        with self._lock:
            waiting, gone, unreadable, read, refused, damaged = self._counts.tolist()
            left = self._outcomes[: max(0, window_start - self._base)]
            expired = int(np.count_nonzero(left == Outcome.WAITING))
            files, gone_files = len(self._files), self._file_counts[Outcome.GONE]
            counts = {
                **{"read": read, "torn": self._torn_chunks, "gone": gone + gone_files},
                **{"refused": refused, "failed": unreadable + damaged + files - gone_files},
                **{"expired": self._expired + expired, "waiting": waiting - expired},
            }
        return {"expected": sum(counts.values()), **counts}

    def check(self, report: Callable[[], str]) -> None:
        """Raise `DataError` if more than `max_lost` chunks are lost; `report` describes them."""
        if self._max_lost is None:
            return
        counts = self.figures(0)
        with self._lock:
            unreadable = int(self._counts[Outcome.UNREADABLE]) + self._file_counts[Outcome.UNREADABLE]
        lost, looked_at = counts["torn"] + counts["failed"], counts["expected"] - counts["waiting"] - counts["expired"]
        lost -= unreadable if self._retries else 0
        is_number = isinstance(self._max_lost, int)
        if lost <= (self._max_lost if is_number else self._max_lost * max(looked_at, AT_LEAST)):
            return
        most = f"{self._max_lost:,} chunks" if is_number else f"{self._max_lost:.3g} of the chunks"
        raise DataError(
            f"expected at most {most} to be lost, got {lost:,} of {looked_at:,} ({counts['torn']:,} torn, "
            f"{counts['failed']:,} failed): {report()}; mend or remove the files, or raise max_lost"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return plain values and one uint8 array."""
        with self._lock:
            return {
                **{"base": self._base, "expired": self._expired, "counts": self._counts.tolist()},
                **{"torn": [list(each) for each in self._torn.items()], "files": dict(self._files)},
                "outcomes": self._outcomes[: self._upper - self._base].copy(),
            }

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        outcomes = np.array(state["outcomes"], np.uint8)
        counts = np.array(state["counts"], np.int64).reshape(len(Outcome))
        torn = {int(lo): int(n) for lo, n in state["torn"]}
        files = {str(name): Outcome(outcome) for name, outcome in state["files"].items()}
        base, expired = int(state["base"]), int(state["expired"])
        if outcomes.ndim != 1 or outcomes.max(initial=0) >= len(Outcome) or min(base, expired, *counts.tolist()) < 0:
            raise StateError("expected the state of a ChunkAccount, got unknown outcomes or negative counts")
        with self._lock:
            self._outcomes = outcomes
            self._counts = counts
            self._torn = torn
            self._files = files
            self._torn_chunks = sum(torn.values())
            self._file_counts = [list(files.values()).count(outcome) for outcome in Outcome]
            self._base = base
            self._upper = base + len(outcomes)
            self._expired = expired


def check_max_lost(max_lost: MaxLost) -> None:
    """Raise `PlanError` unless `max_lost` is a number of chunks, a fraction of them or None."""
    fits = max_lost is None or (
        not isinstance(max_lost, bool) and (max_lost >= 0 if isinstance(max_lost, int) else 0 <= max_lost <= 1)
    )
    if not fits:
        raise PlanError(
            f"expected max_lost as a number of chunks, a fraction from 0.0 to 1.0, or None, got {max_lost!r}"
        )


def account(snapshot: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of the chunks of all streams by name; empty if unknown."""
    gauges = [stage["gauges"] for stage in snapshot["stages"].values()]
    every = {name: [int(each[f"chunks_{name}"]) for each in gauges if f"chunks_{name}" in each] for name in FIGURES}
    return {name: sum(counts) for name, counts in every.items() if counts}


def chunks_in_words(snapshot: Mapping[str, Any]) -> str:
    """Describe the counts of the chunks of all streams and what a stream waits for; empty if unknown."""
    every = [str(stage["gauges"].get("status", "reading")) for stage in snapshot["stages"].values()]
    statuses = [status for status in dict.fromkeys(every) if status != "reading"]
    counts = ", ".join(f"{n:,} {name}" for name, n in account(snapshot).items() if n)
    return "; ".join([*([f"chunks: {counts}"] if counts else []), *statuses])
