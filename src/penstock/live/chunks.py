"""`ChunkReader`: loads, checks, weighs, unpacks and encodes the chunks of draws, on any thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, offsets_of
from penstock.errors import DataError
from penstock.flow.metrics import StageMetrics
from penstock.flow.queue import QueueClosed
from penstock.formats.base.chunks import Wanted
from penstock.live.account import ChunkAccount, Outcome
from penstock.live.block import Block, Part
from penstock.live.catalog import ChunkCatalog
from penstock.live.events import ChunkGone, EventLog
from penstock.live.failures import (
    EmptyError,
    LostError,
    RejectedError,
    SourceGone,
    may_pass,
    outcome_of,
    reason_of,
)
from penstock.live.hanse import Float, HanseSampling
from penstock.live.hooks import ChunkFunctions, Frames, Rejected
from penstock.live.pool import OPEN, REJECTED, Draws
from penstock.live.position_store import PositionStore
from penstock.live.unpacker import ChunkUnpacker, one_use

Int = npt.NDArray[np.int64]

FEW = Fraction(1, 8)  # of the positions, up to which parts of several chunks are read in one go
TOGETHER = 64  # frames of several chunks that are copied to be encoded in one call


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Draws with their frames (None if missing) and their weights (NaN if missing)."""

    draws: Draws
    frames: list[Frames | None]
    weights: Float

    @property
    def nbytes(self) -> int:
        """Bytes of the frames."""
        return sum(frames.nbytes for frames in self.frames if frames is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """Draws up to `end` of pass `epoch` as blocks, normally one.

    Counts `good` chunks, `bad` chunks, and `unread` chunks that are gone or not readable for now.
    """

    end: int
    epoch: int
    blocks: list[Block]
    good: int
    bad: int
    unread: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return sum(block.nbytes for block in self.blocks)


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """Frames of a chunk: `index` selects the frames at `places`, ordered by use; `ends` is the end of each use.

    `partial` if further frames of the chunk were not read.
    """

    number: int
    frames: Frames
    index: Int
    places: Int
    ends: Int
    partial: bool = False


class ChunkReader:
    """Reads chunks of a `catalog` and takes the positions that `unpacker` selects. Thread-safe.

    A chunk that cannot be loaded, or that `transform` rejects, is counted by its reason, listed by name, and yields no
    positions. `account` gets the outcome of each chunk, and `events` a `ChunkGone` for a chunk whose file was deleted.
    Errors of functions of `hooks` are passed on. A failed chunk is tried again only if the system could not
    read it, which may pass, or if only its wanted part was read: another use may not read the damaged part, and the
    result of a use must not depend on other uses. A chunk is not loaded if `hanse` knows that its weight is too
    small, or if `store` has its positions.
    """

    def __init__(
        self,
        catalog: ChunkCatalog,
        unpacker: ChunkUnpacker,
        hooks: ChunkFunctions | None = None,
        hanse: HanseSampling | None = None,
        metrics: StageMetrics | None = None,
        store: PositionStore | None = None,
        account: ChunkAccount | None = None,
        events: EventLog | None = None,
    ) -> None:
        self._store, self._account, self._events = store, account or ChunkAccount(), events
        self._catalog, self._unpacker, self._hooks, self._hanse = catalog, unpacker, hooks or ChunkFunctions(), hanse
        self.metrics = metrics or StageMetrics("chunk_reader")
        self._whole = self._hooks.transform is not None or self._hooks.weights is not None
        self._known: dict[int, float] = {}  # weights, and NaN for what failed for good
        self._failed: set[int] = set()  # what was counted
        self._lock = threading.Lock()

    def load(self, draws: Draws) -> Loaded:
        """Load the weights of open draws for hanse sampling, and frames if they are needed for it."""
        frames: list[Frames | None] = [None] * len(draws)
        read = self._frames if self._whole else self._measured
        known = sum(number in self._known for number in draws.number[draws.use == OPEN].tolist())
        self.metrics.add(weight_hits=known, weight_misses=int((draws.use == OPEN).sum()) - known)
        for i in np.flatnonzero(~self._needless(draws)).tolist():
            found = read(int(draws.number[i]))
            frames[i] = None if isinstance(found, Outcome) else found
            if not isinstance(found, Outcome):
                self._account.settle([int(draws.number[i])], Outcome.READ)
        return Loaded(draws, frames, self._weights(draws))

    def unpack(self, loaded: Loaded) -> Unpacked:
        """Return the positions of draws."""
        counts: Counter[str] = Counter()
        lost: set[int] = set()
        parts = [self._part(run) for run in _runs(self._each(loaded, counts, lost))]
        found = [part for part in parts if len(part)]
        if draws := [n for n, use in zip(*_numbers_and_uses(loaded.draws), strict=True) if use != REJECTED]:
            self._account.settle([number for number in draws if number not in lost], Outcome.READ)
        bad, unread = counts["bad"], counts["unread"]
        good = len(loaded.draws) - counts["rejected"] - bad - unread
        self.metrics.add(chunks=good, frames=sum(map(len, found)), rejected=counts["rejected"])
        return Unpacked(loaded.draws.end, loaded.draws.epoch, joined(found), good + counts["rejected"], bad, unread)

    def read(self, draws: Draws) -> Unpacked:
        """Return the positions of draws that are not open.

        The frames of a chunk are released before the next chunk is read, so that their memory is reused while cached.
        """
        return self.unpack(Loaded(draws, [None] * len(draws), self._weights(draws)))

    def decided(self, loaded: Loaded, draws: Draws) -> Loaded:
        """Return the same chunks with decided uses, without the frames of rejected chunks."""
        kept = [f if use != REJECTED else None for f, use in zip(loaded.frames, draws.use.tolist(), strict=True)]
        return replace(loaded, draws=draws, frames=kept)

    def fetch(self, number: int, places: Int) -> Block | None:
        """Return frames referenced by a state, all of one chunk; None if they cannot be read."""
        try:
            if self._whole:
                frames = self._frames(number)
                if isinstance(frames, Outcome) or len(frames) <= places.max(initial=-1):
                    return None
                index = places
            else:
                taken = self._read(number, lambda n: one_use(places if places.max(initial=-1) < n else places[:0]))
                frames, index = taken.frames, taken.index
        except LostError as lost:
            self._fails(number, lost.error)
            return None
        with self._named(number):
            rows = self._encoded(frames, index)
        if len(rows) < len(places):
            return None
        return Block(rows, np.full(len(places), number), places.astype(np.int32))

    def forget(self, below: int) -> None:
        """Forget chunks below a number."""
        with self._lock:
            self._known = {number: weight for number, weight in self._known.items() if number >= below}
            self._failed = {number for number in self._failed if number >= below}
        if self._store is not None:
            self._store.forget(below)

    def _needless(self, draws: Draws) -> npt.NDArray[np.bool_]:
        """Return `[n]` whether a draw needs no load, because no position is wanted or all are cached."""
        needless, known = draws.use == REJECTED, np.array([number in self._known for number in draws.number.tolist()])
        if self._hanse is not None:
            hopeless = self._hanse.hopeless(np.arange(draws.seq, draws.end), self._weights(draws))
            needless |= (draws.use == OPEN) & known & hopeless
        return needless if self._store is None else needless | (known & self._store.has(draws.number))

    def _weights(self, draws: Draws) -> Float:
        """Return `[n]` weights of the chunks of draws; NaN for failed chunks, and for all without hanse sampling."""
        if self._hanse is None:
            return np.full(len(draws), np.nan)
        return np.array([self._known.get(number, np.nan) for number in draws.number.tolist()])

    def _each(self, loaded: Loaded, counts: Counter[str], lost: set[int]) -> Iterator[_Taken | Part]:
        """Return the positions of each draw. Draws without positions are counted, and `lost` if unreadable."""
        draws, begin = loaded.draws, 0
        block, frames = _NOTHING, np.full(len(draws), -1)
        if self._store is not None:
            block, frames = self._store.take(draws.number, draws.use)
        held, lacking = offsets_of(np.maximum(frames, 0)).tolist(), np.flatnonzero(frames < 0).tolist()
        early = self._early(draws, lacking)
        for i in lacking:
            if held[begin] < held[i]:
                yield Part(block, held[begin], held[i])
            begin, use, number = i + 1, int(draws.use[i]), int(draws.number[i])
            if use == REJECTED:
                is_lost = loaded.frames[i] is None and np.isnan(loaded.weights[i])
                is_bad = np.isnan(self._known.get(number, 0.0))
                counts["rejected" if not is_lost else "bad" if is_bad else "unread"] += 1
                continue
            taken = self._taken(number, use, loaded.frames[i], early.pop(i, None))
            if isinstance(taken, Outcome):
                counts["unread" if taken in (Outcome.GONE, Outcome.UNREADABLE) else "bad"] += 1
                lost.add(number)
            else:
                yield taken
        if held[begin] < held[-1]:
            yield Part(block, held[begin], held[-1])

    def _early(self, draws: Draws, lacking: list[int]) -> dict[int, _Taken]:
        """Return the positions of the draws at indices `lacking` whose few frames were read in one call."""
        rate = self._unpacker.rate
        if self._whole or not lacking or (rate is not None and rate > FEW):
            return {}
        at = [i for i in lacking if draws.use[i] != REJECTED]
        numbers, use = draws.number[at].tolist(), draws.use[at].tolist()
        uses = 1 if self._store is None else self._store.ahead + 1
        chosen: dict[int, tuple[Int, Int, Int]] = {}

        def wanted(k: int, n: int) -> Int:
            places, ends = self._unpacker.several(numbers[k], use[k], uses, n)
            read = _once(places, n)
            chosen[k] = places, ends, read
            return read

        early: dict[int, _Taken] = {}
        for k, frames in enumerate(self._catalog.load_some(numbers, wanted)):
            if frames is not None:
                places, ends, read = chosen[k]
                early[at[k]] = _Taken(numbers[k], frames, _index(read, places), places, ends, partial=True)
        if early and self._hooks.unverified:
            self.metrics.add(unverified=len(early))
        return early

    def _taken(self, number: int, use: int, frames: Frames | None, early: _Taken | None) -> _Taken | Part | Outcome:
        """Return the positions of one use of a chunk, or the outcome if there are none.

        `early` are frames that were read already, if any. Positions from the store are already encoded.
        """
        if self._whole and frames is None and (self._hanse is None or not np.isnan(self._known.get(number, 0.0))):
            found = self._frames(number)  # with hanse sampling: its positions were cached and have been dropped
            if isinstance(found, Outcome):
                return found
            frames = found
        if self._whole and frames is None:
            return Outcome.DAMAGED
        failure: Exception | None = None
        for uses in (1,) if self._store is None else (self._store.ahead + 1, 1):
            try:
                taken, early = early or self._chosen(number, use, uses, frames), None
            except LostError as lost:  # it may be where only later uses look
                failure = lost.error
                continue
            if self._store is None:
                return taken
            with self._named(number):
                rows = self._encoded(taken.frames, taken.index)
            return self._store.put(number, use, rows, taken.places, taken.ends)
        assert failure is not None
        return self._fails(number, failure)

    def _chosen(self, number: int, use: int, uses: int, frames: Frames | None) -> _Taken:
        """Return the frames of some uses, from the chunk's `frames` if it was read whole."""
        if frames is None:
            taken = self._read(number, lambda n: self._unpacker.several(number, use, uses, n))
            if taken.partial and self._hooks.unverified:
                self.metrics.add(unverified=1)
            return taken
        places, ends = self._places(number, use, uses, frames)
        return _Taken(number, frames, places, places, ends)

    def _read(self, number: int, several: Callable[[int], tuple[Int, Int]]) -> _Taken:
        """Return some frames of a chunk, and read only these."""
        places, ends, read, there = *one_use(_NOTHING.chunk), _NOTHING.chunk, 0

        def wanted(n: int) -> Int:
            nonlocal places, ends, read, there
            if n == 0:
                raise EmptyError
            there, (places, ends) = n, several(n)
            read = _once(places, n)
            return read

        frames = self._loaded(number, wanted)
        return _Taken(number, frames, _index(read, places), places, ends, len(frames) < there)

    def _loaded(self, number: int, wanted: Wanted | None = None) -> Frames:
        """Return frames of a chunk. Any error of its reader is an error of the chunk, and becomes a `LostError`."""
        try:
            return self._catalog.load(number, wanted)
        except QueueClosed:
            raise  # the consumer is gone
        except Exception as error:
            raise LostError(error) from error

    @contextmanager
    def _named(self, number: int) -> Generator[None]:
        """Call a function of the user with a chunk. Its errors are passed on, with a note that names the chunk."""
        try:
            yield
        except Exception as error:
            error.add_note(f"raised by a function of the pipeline's hooks, for {self._catalog.name(number)}")
            raise

    def _part(self, run: list[_Taken] | Part) -> Part:
        """Return the positions of several chunks, encoded together."""
        if isinstance(run, Part):
            return run
        try:
            return self._together(run)
        except Exception:
            for taken in run:  # which of them it is
                with self._named(taken.number):
                    self._together([taken])
            raise

    def _together(self, run: list[_Taken]) -> Part:
        counts = [len(taken.places) for taken in run]
        if len(run) == 1:
            rows = self._encoded(run[0].frames, run[0].index)
        else:
            first = np.cumsum([0, *(len(taken.frames) for taken in run[:-1])])
            index = np.concatenate([taken.index for taken in run]) + np.repeat(first, counts)
            rows = self._encoded(np.concatenate([taken.frames for taken in run]), index)
        number = np.repeat([taken.number for taken in run], counts)
        place = np.concatenate([taken.places for taken in run]).astype(np.int32)
        return Part(Block(rows, number, place), 0, len(number))

    def _measured(self, number: int) -> Outcome | None:
        """Store the number of frames of a chunk as its weight, without reading frames if possible."""
        if number in self._known:
            return Outcome.DAMAGED if np.isnan(self._known[number]) else None
        found, outcome = list[int](), None
        try:
            self._loaded(number, lambda n: found.append(n) or np.zeros(0, np.int64))
            if found[0] == 0:
                raise LostError(EmptyError())
        except LostError as lost:
            outcome, found = self._fails(number, lost.error), []
        self._learn(number, float(found[0]) if found else np.nan)
        return outcome

    def _frames(self, number: int) -> Frames | Outcome:
        if np.isnan(self._known.get(number, 0.0)):
            self.metrics.add(failed_again=1)
            return Outcome.DAMAGED
        try:
            frames = self._transformed(number)
        except LostError as lost:
            outcome = self._fails(number, lost.error)
            if not may_pass(lost.error):
                self._learn(number, np.nan)
            return outcome
        if self._hanse is not None:
            with self._named(number):
                weight = self._weight(frames)
            self._learn(number, weight)
        return frames

    def _learn(self, number: int, weight: float) -> None:
        """Store the weight of a chunk, NaN if it failed for good."""
        with self._lock:
            is_news = number not in self._known
            self._known[number] = weight
        if is_news and not np.isnan(weight):
            self.metrics.sample("chunk_weight", weight)

    def _transformed(self, number: int) -> Frames:
        frames = self._loaded(number)
        if len(frames) == 0:
            raise LostError(EmptyError())
        if self._hooks.transform is None:
            return frames
        with self._named(number):
            changed = self._hooks.transform(frames, self._catalog.name(number))
        if not isinstance(changed, Rejected) and len(changed) == 0:
            changed = Rejected("empty", "expected at least one frame, got none")
        if isinstance(changed, Rejected):
            raise LostError(RejectedError(changed))
        return changed

    def _fails(self, number: int, error: Exception) -> Outcome:
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
        if isinstance(error, SourceGone) and self._events is not None:
            self._events.append(ChunkGone(number))
        return outcome

    def _weight(self, frames: Frames) -> float:
        weight = float(len(frames)) if self._hooks.weights is None else float(np.sum(self._hooks.weights(frames)))
        if not 0 <= weight < np.inf:
            raise DataError(f"expected weights that are finite and not negative, got a sum of {weight}")
        return weight

    def _places(self, number: int, use: int, uses: int, frames: Frames) -> tuple[Int, Int]:
        weighed = self._hooks.weights is not None and self._unpacker.count is not None
        with self._named(number):
            weights: Any = self._hooks.weights(frames) if weighed and self._hooks.weights is not None else None
            return self._unpacker.several(number, use, uses, len(frames), weights)

    def _encoded(self, frames: Frames, places: Int) -> Array:
        if self._hooks.encode is not None and len(places):
            return self._hooks.encode(frames, places)
        return frames if len(places) == len(frames) and _ascending(places) else frames[places]


_NOTHING = Block(np.zeros((0, 1), np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int32))


def _runs(taken: Iterator[_Taken | Part]) -> Iterator[list[_Taken] | Part]:
    """Group consecutive results of one width, up to `TOGETHER` frames, so that many small ones cost one call."""
    run, held = list[_Taken](), 0
    for each in taken:
        if run and (isinstance(each, Part) or not _alike(run[0].frames, each.frames)):
            yield run
            run, held = [], 0
        if isinstance(each, Part):
            yield each
            continue
        run.append(each)
        held += len(each.frames)
        del each  # before the next is read, so that its memory serves again
        if held >= TOGETHER:
            yield run
            run, held = [], 0
    if run:
        yield run


def _numbers_and_uses(draws: Draws) -> tuple[list[int], list[int]]:
    return draws.number.tolist(), draws.use.tolist()


def _alike(one: Frames, other: Frames) -> bool:
    return one.shape[1:] == other.shape[1:] and one.dtype == other.dtype


def _ascending(places: Int) -> bool:
    """Return whether places are strictly ascending."""
    return len(places) < 2 or bool((places[1:] > places[:-1]).all())


def _once(places: Int, n: int) -> Int:
    """Return the unique places within `0 : n`, ascending; without a copy if they are so already."""
    return places if _ascending(places) else np.flatnonzero(np.bincount(places, minlength=n))


def _index(read: Int, places: Int) -> Int:
    """Return the index of each place in `read`, the result of `_once`."""
    return np.arange(len(places)) if read is places else np.searchsorted(read, places)


def joined(parts: list[Part]) -> list[Block]:
    """Join consecutive parts of one width into one block."""
    runs: list[list[Part]] = []
    for part in parts:
        if runs and runs[-1][0].block.width == part.block.width:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [Part.join(run) for run in runs]
