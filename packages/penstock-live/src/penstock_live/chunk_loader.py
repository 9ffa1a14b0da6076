"""`ChunkLoader`: loads the frames of one chunk, with its weight, and counts the chunks that cannot be used.

A read that the system fails is repeated, each time with a file that was opened again. In an outage of all files, reads
wait for its end.

A chunk without frames, such as an episode without steps, is read like others and gives no positions. Functions of the
user's do not see it.

A chunk that cannot be loaded, or that `transform` rejects, is counted once by its reason and listed by name. It is
tried again only if the system could not read it, which may pass, or if only its wanted part was read: another use may
not read the damaged part, and the result of a use must not depend on other uses. Errors of a reader are errors of the
chunk. Errors of functions of the user's end the run, with a note that names the chunk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, FormatError
from penstock.flow.metrics import StageMetrics, idle
from penstock.flow.queue import SLICE, QueueClosed
from penstock_live.account import (
    ChunkAccount,
    LostError,
    Outcome,
    RejectedError,
    SourceGone,
    may_pass,
    outcome_of,
    reason_of,
)
from penstock_live.block import Block
from penstock_live.catalog import ChunkCatalog
from penstock_live.chunk_source import Wanted, WantedOfEach
from penstock_live.events import ChunkGone, EventLog
from penstock_live.hanse import Float
from penstock_live.hooks import ChunkFunctions, Frames, Rejected, ascending
from penstock_live.unpacker import one_use

Int = npt.NDArray[np.int64]

NO_PLACES = np.zeros(0, np.int64)
AGAIN = 3  # attempts after one that failed; so many renames of a file may fall into one read


@dataclass(frozen=True, slots=True, eq=False)
class ChosenFrames:
    """Frames of a chunk: `index` selects the frames at `places`, ordered by use; `ends` is the end of each use.

    `partial` if further frames of the chunk were not read.
    """

    number: int
    frames: Frames
    index: Int
    places: Int
    ends: Int
    partial: bool = False


class ChunkLoader:
    """Loads chunks of a `catalog` and applies the functions of `hooks`. Thread-safe.

    `account` gets the outcome of each chunk, and `events` a `ChunkGone` for a chunk whose file was deleted. With
    `weighs`, the weight of each chunk that was loaded is kept until `forget`. With `waits`, a read that fails in an
    outage of the inlet waits for its end, or until `stop_waiting`.
    """

    def __init__(
        self,
        catalog: ChunkCatalog,
        hooks: ChunkFunctions,
        metrics: StageMetrics,
        account: ChunkAccount,
        events: EventLog,
        *,
        weighs: bool = False,
        waits: bool = False,
    ) -> None:
        self.hooks = hooks
        self.metrics = metrics
        self._catalog = catalog
        self._weighs = weighs
        self._waits = waits
        self._stopped = False
        self._account, self._events = account, events
        self._weights: dict[int, float] = {}  # and NaN for what failed for good
        self._failed: set[int] = set()  # what was counted
        self._lock = threading.Lock()

    def is_known(self, number: int) -> bool:
        """Return whether a chunk has a weight, or failed for good."""
        return number in self._weights

    def is_bad(self, number: int) -> bool:
        """Return whether a chunk failed for good."""
        return bool(np.isnan(self._weights.get(number, 0.0)))

    def weights(self, numbers: Int) -> Float:
        """Return `[n]` weights of chunks; NaN for chunks that failed or that have none."""
        return np.array([self._weights.get(number, np.nan) for number in numbers.tolist()])

    def settle(self, numbers: Iterable[int], outcome: Outcome) -> None:
        self._account.settle(list(numbers), outcome)

    def frames(self, number: int) -> Frames | Outcome:
        """Return the frames of a whole chunk after `transform`, or its outcome if there are none."""
        if self.is_bad(number):
            self.metrics.add(failed_again=1)
            return Outcome.DAMAGED
        try:
            frames = self._transformed(number)
        except LostError as lost:
            outcome = self.fails(number, lost.error)
            if not may_pass(lost.error):
                self._learn(number, np.nan)
            return outcome
        if self._weighs:
            with self.named(number):
                weight = self._weight(frames)
            self._learn(number, weight)
        return frames

    def measure(self, number: int) -> Outcome | None:
        """Keep the number of frames of a chunk as its weight, without reading frames if possible."""
        if self.is_known(number):
            return Outcome.DAMAGED if self.is_bad(number) else None
        sizes, outcome = list[int](), None
        try:
            self._loaded(number, lambda n: sizes.append(n) or NO_PLACES)
        except LostError as lost:
            outcome, sizes = self.fails(number, lost.error), []
        self._learn(number, float(sizes[0]) if sizes else np.nan)
        return outcome

    def choose(self, number: int, several: Callable[[int], tuple[Int, Int]]) -> ChosenFrames:
        """Return some frames of a chunk, and read only these."""
        places, ends = one_use(NO_PLACES)
        read = NO_PLACES
        there = 0

        def wanted(n: int) -> Int:
            nonlocal places, ends, read, there
            there, (places, ends) = n, several(n)
            read = once(places, n)
            return read

        frames = self._loaded(number, wanted)
        return ChosenFrames(number, frames, index_of(read, places), places, ends, len(frames) < there)

    def load(self, number: int, wanted: Wanted | None = None) -> Frames:
        """Return `[n, width]` frames as the source has them; with `wanted`, only these."""
        while True:
            try:
                return self._read(number, wanted)
            except (OSError, FormatError) as error:
                if not self._was_outage(error):
                    raise

    def load_some(self, numbers: Sequence[int], wanted: WantedOfEach) -> list[Frames | None]:
        """Return a few frames of each of several chunks, as `ChunkSource.load_some`; None where `load` must be used."""
        frames: list[Frames | None] = [None] * len(numbers)
        groups = self._catalog.acquire_some(numbers)
        try:
            for entry, places in groups:
                of = places
                try:
                    source = self._catalog.source(entry)
                    chunks = [entry.index(numbers[position]) for position in places]
                    rows = source.load_some(chunks, lambda k, n, of=of: wanted(of[k], n))
                except Exception:  # noqa: BLE001  `load` meets it again, and says of each chunk what is wrong
                    continue
                for position, each in zip(places, rows, strict=True):
                    frames[position] = each
        finally:
            self._catalog.release([entry for entry, _ in groups])
        return frames

    def gather(self, number: Int, chosen: Callable[[Int], tuple[Int, Int]]) -> Block | None:
        """Return the rows of some frames of each of several chunks, read together; None where `choose` must be used.

        `chosen` returns the places in all chunks, and the offsets of the chunks, from their numbers of frames.
        """
        try:
            if (numbers_in_table := self._catalog.in_table(number)) is None:
                return None
            table, chunks = numbers_in_table
            places, cuts = chosen(table.lengths(chunks))
            counts = np.diff(cuts)
            rows = table.gather(np.repeat(chunks, counts), places, self.hooks)
            return Block(rows, np.repeat(number, counts), places.astype(np.int32))
        except Exception:  # noqa: BLE001  `choose` meets it again, and says of each chunk what is wrong
            return None

    def stop_waiting(self) -> None:
        """Cancel reads that wait for the end of an outage."""
        self._stopped = True

    def fetch(self, number: int, places: Int) -> Block | None:
        """Return frames referenced by a state, all of one chunk; None if they cannot be read."""
        try:
            if self.hooks.needs_whole:
                frames = self.frames(number)
                if isinstance(frames, Outcome) or len(frames) <= places.max(initial=-1):
                    return None
                index = places
            else:
                chosen = self.choose(number, lambda n: one_use(places if places.max(initial=-1) < n else places[:0]))
                frames, index = chosen.frames, chosen.index
        except LostError as lost:
            self.fails(number, lost.error)
            return None
        with self.named(number):
            rows = self.hooks.rows(frames, index)
        if len(rows) < len(places):
            return None
        return Block(rows, np.full(len(places), number), places.astype(np.int32))

    def fails(self, number: int, error: Exception) -> Outcome:
        """Count a chunk that cannot be read, and return its outcome."""
        with self._lock:
            again = number in self._failed
            self._failed.add(number)
        if again:
            self.metrics.add(failed_again=1)
        else:
            self.metrics.failed(reason_of(error), self._catalog.name(number), str(error))
        outcome = outcome_of(error)
        self._account.settle([number], outcome)
        if isinstance(error, SourceGone):
            self._events.append(ChunkGone(number))
        return outcome

    @contextmanager
    def named(self, number: int) -> Generator[None]:
        """Call a function of the user with a chunk. Its errors are passed on, with a note that names the chunk."""
        try:
            yield
        except Exception as error:
            error.add_note(f"raised by a function of the pipeline's hooks, for {self._catalog.name(number)}")
            raise

    def forget(self, below: int) -> None:
        with self._lock:
            self._weights = {number: weight for number, weight in self._weights.items() if number >= below}
            self._failed = {number for number in self._failed if number >= below}

    def _learn(self, number: int, weight: float) -> None:
        """Store the weight of a chunk, NaN if it failed for good."""
        with self._lock:
            is_news = number not in self._weights
            self._weights[number] = weight
        if is_news and not np.isnan(weight):
            self.metrics.sample("chunk_weight", weight)

    def _transformed(self, number: int) -> Frames:
        frames = self._loaded(number)
        if self.hooks.transform is None or len(frames) == 0:
            return frames
        with self.named(number):
            changed = self.hooks.transform(frames, self._catalog.name(number))
        if not isinstance(changed, Rejected) and len(changed) == 0:
            changed = Rejected("empty", "expected at least one frame, got none")
        if isinstance(changed, Rejected):
            raise LostError(RejectedError(changed))
        return changed

    def _loaded(self, number: int, wanted: Wanted | None = None) -> Frames:
        """Return frames of a chunk. Any error of its reader is an error of the chunk, and becomes a `LostError`."""
        try:
            return self.load(number, wanted)
        except QueueClosed:
            raise  # the consumer is gone
        except Exception as error:
            raise LostError(error) from error

    def _read(self, number: int, wanted: Wanted | None) -> Frames:
        entry = self._catalog.acquire(number)
        try:
            for _ in range(AGAIN):
                try:
                    return self._catalog.source(entry).load(entry.index(number), wanted)
                except (OSError, FormatError) as error:
                    if not may_pass(error):
                        raise
                    self._catalog.drop(entry)  # it may have been renamed: opening it again may find it
            return self._catalog.source(entry).load(entry.index(number), wanted)
        finally:
            self._catalog.release([entry])

    def _was_outage(self, error: OSError | FormatError) -> bool:
        """Wait for the end of an outage; return whether there was one."""
        inlet = self._catalog.intake.inlet
        if not self._waits or not (may_pass(error) or isinstance(error, SourceGone)) or not inlet.outage():
            return False
        with idle():
            while not self._stopped:
                inlet.wait_for_files(SLICE)
                if not inlet.outage():
                    return True
        raise QueueClosed("nothing more is read: the stream is closed")

    def _weight(self, frames: Frames) -> float:
        if self.hooks.weights is None or len(frames) == 0:
            return float(len(frames))
        weight = float(np.sum(self.hooks.weights(frames)))
        if not 0 <= weight < np.inf:
            raise DataError(f"expected weights that are finite and not negative, got a sum of {weight}")
        return weight


def once(places: Int, n: int) -> Int:
    """Return the unique places within `0 : n`, ascending; without a copy if they are so already."""
    return places if ascending(places) else np.flatnonzero(np.bincount(places, minlength=n))


def index_of(read: Int, places: Int) -> Int:
    """Return the index of each place in `read`, the result of `once`."""
    return np.arange(len(places)) if read is places else np.searchsorted(read, places)
