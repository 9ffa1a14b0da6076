"""`ChunkReader`: draws become blocks of frames: loaded, checked, weighed, unpacked, encoded, by any thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, offsets_of
from penstock.errors import DataError
from penstock.live.block import Block, Part
from penstock.live.catalog import ChunkCatalog, may_pass
from penstock.live.chunk_sources import reason_of
from penstock.live.hanse import Float, HanseSampling
from penstock.live.metrics import StageMetrics
from penstock.live.pool import OPEN, REJECTED, Draws
from penstock.live.position_store import PositionStore
from penstock.live.unpacker import ChunkUnpacker, one_use

Frames = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]

FEW = Fraction(1, 8)  # of the positions, up to which parts of several chunks are read in one go
TOGETHER = 64  # frames of several chunks that are copied to be encoded in one call


@dataclass(frozen=True, slots=True)
class Rejected:
    """What a `transform` gives for a chunk that is not to be used, and why: `reason` is counted."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What values mean, given by a domain; each is optional, and is called by any thread.

    `transform(frames [n, width] uint8, name)` gives frames, of any number and width, or `Rejected`.
    `weights(frames)` gives `[n]`, how much each position is wanted; a chunk's weight is their sum.
    `encode(frames, places)` gives the rows of some positions: compact, ragged or of one width; each by its own frame
    alone, as `frames` may be no more than those that are wanted. Without it, they stay as they are.

    Without `transform` and `weights`, no more of a chunk need be read than the positions that are wanted. With
    `unverified`, such reads leave out a check that reading all makes, and are counted under this name.
    """

    transform: Callable[[Frames, str], Frames | Rejected] | None = None
    weights: Callable[[Frames], Float] | None = None
    encode: Callable[[Frames, Int], Array] | None = None
    unverified: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Draws with the frames of each, None where there are none; and their weights, NaN where there are none."""

    draws: Draws
    frames: list[Frames | None]
    weights: Float

    @property
    def nbytes(self) -> int:
        """Bytes of the frames."""
        return sum(frames.nbytes for frames in self.frames if frames is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Unpacked:
    """Draws up to `end` as blocks, normally one; `good` chunks of them, and `bad` ones, of pass `epoch`."""

    end: int
    epoch: int
    blocks: list[Block]
    good: int
    bad: int

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return sum(block.nbytes for block in self.blocks)


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """Frames of a chunk, of which those of `index` are at `places`, of one use after the other, up to `ends` each;
    `partial` where the chunk has more, which were not read."""

    number: int
    frames: Frames
    index: Int
    places: Int
    ends: Int
    partial: bool = False


class ChunkReader:
    """Reads chunks of a `catalog` and takes from each the positions that `unpacker` says. Thread-safe.

    A chunk that cannot be loaded, or that `transform` rejects or fails on, is counted by its reason and named, and
    gives nothing. It is not tried again, unless the system could not read it, which may pass, or only the wanted part
    of it was tried: then another use may not meet what is wrong, and what a use gives must not depend on others. With
    `hanse`, a chunk whose weight is known and too small is not loaded. With a `store`, neither is one whose positions
    are held there.
    """

    def __init__(
        self,
        catalog: ChunkCatalog,
        unpacker: ChunkUnpacker,
        hooks: Hooks | None = None,
        hanse: HanseSampling | None = None,
        metrics: StageMetrics | None = None,
        store: PositionStore | None = None,
    ) -> None:
        self._store = store
        self._catalog, self._unpacker, self._hooks, self._hanse = catalog, unpacker, hooks or Hooks(), hanse
        self.metrics = metrics or StageMetrics("chunk_reader")
        self._whole = self._hooks.transform is not None or self._hooks.weights is not None
        self._known: dict[int, float] = {}  # weights, and NaN for what failed for good
        self._failed: set[int] = set()  # what was counted
        self._lock = threading.Lock()

    def load(self, draws: Draws) -> Loaded:
        """What hanse sampling has to know of draws that are open: weights, and frames where those were looked at."""
        frames: list[Frames | None] = [None] * len(draws)
        read = self._frames if self._whole else self._measured
        known = sum(number in self._known for number in draws.number[draws.use == OPEN].tolist())
        self.metrics.add(weight_hits=known, weight_misses=int((draws.use == OPEN).sum()) - known)
        for i in np.flatnonzero(~self._needless(draws)).tolist():
            frames[i] = read(int(draws.number[i]))
        return Loaded(draws, frames, self._weights(draws))

    def unpack(self, loaded: Loaded) -> Unpacked:
        """The positions of draws that were taken."""
        counts: Counter[str] = Counter()
        parts = [part for run in _runs(self._each(loaded, counts)) for part in self._parts(run)]
        found = [part for part in parts if part is not None and len(part)]
        bad = counts["bad"] + parts.count(None)
        good = len(loaded.draws) - counts["rejected"] - bad
        self.metrics.add(chunks=good, frames=sum(map(len, found)), rejected=counts["rejected"])
        return Unpacked(loaded.draws.end, loaded.draws.epoch, joined(found), good + counts["rejected"], bad)

    def read(self, draws: Draws) -> Unpacked:
        """The positions of draws that are not open. The frames of one chunk are let go before the next is read, so that
        their memory serves again and is still in the cache."""
        return self.unpack(Loaded(draws, [None] * len(draws), self._weights(draws)))

    def decided(self, loaded: Loaded, draws: Draws) -> Loaded:
        """The same chunks, once their uses are decided; the frames of those not taken are let go."""
        kept = [f if use != REJECTED else None for f, use in zip(loaded.frames, draws.use.tolist(), strict=True)]
        return replace(loaded, draws=draws, frames=kept)

    def fetch(self, number: int, places: Int) -> Block | None:
        """Frames named by references to one chunk, for a state; None where they cannot be had."""
        try:
            if self._whole:
                frames = self._frames(number)
                if frames is None or len(frames) <= places.max(initial=-1):
                    return None
                rows = self._encoded(frames, places)
            else:
                taken = self._read(number, lambda n: one_use(places if places.max(initial=-1) < n else places[:0]))
                rows = self._encoded(taken.frames, taken.index)
        except Exception as error:  # noqa: BLE001  as in `_frames`
            self._fails(number, error)
            return None
        if len(rows) < len(places):
            return None
        return Block(rows, np.full(len(places), number), places.astype(np.int32))

    def forget(self, below: int) -> None:
        """Know no more of chunks below a number."""
        with self._lock:
            self._known = {number: weight for number, weight in self._known.items() if number >= below}
            self._failed = {number for number in self._failed if number >= below}
        if self._store is not None:
            self._store.forget(below)

    def _needless(self, draws: Draws) -> npt.NDArray[np.bool_]:
        """`[n]` whether a draw's chunk need not be loaded: what is wanted of it is nothing, or held."""
        needless, known = draws.use == REJECTED, np.array([number in self._known for number in draws.number.tolist()])
        if self._hanse is not None:
            hopeless = self._hanse.hopeless(np.arange(draws.seq, draws.end), self._weights(draws))
            needless |= (draws.use == OPEN) & known & hopeless
        return needless if self._store is None else needless | (known & self._store.has(draws.number))

    def _weights(self, draws: Draws) -> Float:
        """`[n]` weights of the chunks of draws; NaN for those that failed, and for all without hanse sampling."""
        if self._hanse is None:
            return np.full(len(draws), np.nan)
        return np.array([self._known.get(number, np.nan) for number in draws.number.tolist()])

    def _each(self, loaded: Loaded, counts: Counter[str]) -> Iterator[_Taken | Part]:
        """What is taken of each draw; those of which nothing is are counted."""
        draws, begin = loaded.draws, 0
        block, frames = _NOTHING, np.full(len(draws), -1)
        if self._store is not None:
            block, frames = self._store.take(draws.number, draws.use)
        held, lacking = offsets_of(np.maximum(frames, 0)).tolist(), np.flatnonzero(frames < 0).tolist()
        early = self._early(draws, lacking)
        for i in lacking:
            if held[begin] < held[i]:
                yield Part(block, held[begin], held[i])
            begin, use = i + 1, int(draws.use[i])
            if use == REJECTED:
                counts["bad" if loaded.frames[i] is None and np.isnan(loaded.weights[i]) else "rejected"] += 1
            elif (taken := self._taken(int(draws.number[i]), use, loaded.frames[i], early.pop(i, None))) is None:
                counts["bad"] += 1
            else:
                yield taken
        if held[begin] < held[-1]:
            yield Part(block, held[begin], held[-1])

    def _early(self, draws: Draws, lacking: list[int]) -> dict[int, _Taken]:
        """What is taken of draws at the places `lacking`, of those of which a few frames were read in one go."""
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

    def _taken(self, number: int, use: int, frames: Frames | None, early: _Taken | None) -> _Taken | Part | None:
        """What one use takes of a chunk, of which some was read `early` or not; encoded already where it is stored;
        None where it is not to be had."""
        if self._whole and frames is None and (self._hanse is None or not np.isnan(self._known.get(number, 0.0))):
            frames = self._frames(number)  # with hanse sampling: its positions were held, and are no more
        if self._whole and frames is None:
            return None
        failure: Exception | None = None
        for uses in (1,) if self._store is None else (self._store.ahead + 1, 1):
            try:
                taken, early = early or self._chosen(number, use, uses, frames), None
                if self._store is None:
                    return taken
                rows = self._encoded(taken.frames, taken.index)
                return self._store.put(number, use, rows, taken.places, taken.ends)
            except Exception as error:  # noqa: BLE001  as in `_frames`; it may be where only later uses look
                failure = error
        assert failure is not None
        self._fails(number, failure)
        return None

    def _chosen(self, number: int, use: int, uses: int, frames: Frames | None) -> _Taken:
        """The frames of some uses, from the chunk's `frames` if it was read whole."""
        if frames is None:
            taken = self._read(number, lambda n: self._unpacker.several(number, use, uses, n))
            if taken.partial and self._hooks.unverified:
                self.metrics.add(unverified=1)
            return taken
        places, ends = self._places(number, use, uses, frames)
        return _Taken(number, frames, places, places, ends)

    def _read(self, number: int, several: Callable[[int], tuple[Int, Int]]) -> _Taken:
        """Some frames of a chunk, of which nothing else need be read."""
        places, ends, read, there = *one_use(_NOTHING.chunk), _NOTHING.chunk, 0

        def wanted(n: int) -> Int:
            nonlocal places, ends, read, there
            if n == 0:
                raise _RejectedError(_EMPTY)
            there, (places, ends) = n, several(n)
            read = _once(places, n)
            return read

        frames = self._catalog.load(number, wanted)
        return _Taken(number, frames, _index(read, places), places, ends, len(frames) < there)

    def _parts(self, run: list[_Taken] | Part) -> list[Part | None]:
        """What was taken of some chunks, encoded together; if that fails, each by itself, None for what fails."""
        if isinstance(run, Part):
            return [run]
        try:
            return [self._together(run)]
        except Exception as error:  # noqa: BLE001  as in `_frames`
            if len(run) > 1:
                return [part for taken in run for part in self._parts([taken])]
            self._fails(run[0].number, error)
            return [None]

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

    def _measured(self, number: int) -> None:
        """Have the weight of a chunk, the number of its frames, known: by reading none of them, if that can be."""
        if number in self._known:
            return
        found: list[int] = []
        try:
            self._catalog.load(number, lambda n: found.append(n) or np.zeros(0, np.int64))
            if found[0] == 0:
                raise _RejectedError(_EMPTY)
        except Exception as error:  # noqa: BLE001  as in `_frames`
            self._fails(number, error)
            found = []
        self._learn(number, float(found[0]) if found else np.nan)

    def _frames(self, number: int) -> Frames | None:
        if np.isnan(self._known.get(number, 0.0)):
            self.metrics.add(failed_again=1)
            return None
        try:
            frames = self._transformed(number)
            weight = self._weight(frames) if self._hanse is not None else 0.0
        except Exception as error:  # noqa: BLE001  whatever a chunk makes its reader do, it must not end the run
            self._fails(number, error)
            if not may_pass(error):
                self._learn(number, np.nan)
            return None
        if self._hanse is not None:
            self._learn(number, weight)
        return frames

    def _learn(self, number: int, weight: float) -> None:
        """Have the weight of a chunk known, NaN where it failed for good."""
        with self._lock:
            is_news = number not in self._known
            self._known[number] = weight
        if is_news and not np.isnan(weight):
            self.metrics.sample("chunk_weight", weight)

    def _transformed(self, number: int) -> Frames:
        frames = self._catalog.load(number)
        if self._hooks.transform is not None:
            changed = self._hooks.transform(frames, self._catalog.name(number))
            if isinstance(changed, Rejected):
                raise _RejectedError(changed)
            frames = changed
        if len(frames) == 0:
            raise _RejectedError(_EMPTY)
        return frames

    def _fails(self, number: int, error: Exception) -> None:
        with self._lock:
            again = number in self._failed
            self._failed.add(number)
        if again:
            self.metrics.add(failed_again=1)
        else:
            self.metrics.failed(reason_of(error), self._catalog.name(number), str(error))

    def _weight(self, frames: Frames) -> float:
        weight = float(len(frames)) if self._hooks.weights is None else float(np.sum(self._hooks.weights(frames)))
        if not 0 <= weight < np.inf:
            raise DataError(f"expected weights that are finite and not negative, got a sum of {weight}")
        return weight

    def _places(self, number: int, use: int, uses: int, frames: Frames) -> tuple[Int, Int]:
        weighed = self._hooks.weights is not None and self._unpacker.count is not None
        weights: Any = self._hooks.weights(frames) if weighed and self._hooks.weights is not None else None
        return self._unpacker.several(number, use, uses, len(frames), weights)

    def _encoded(self, frames: Frames, places: Int) -> Array:
        if self._hooks.encode is not None and len(places):
            return self._hooks.encode(frames, places)
        return frames if len(places) == len(frames) and _ascending(places) else frames[places]


class _RejectedError(DataError):
    def __init__(self, rejected: Rejected) -> None:
        self.reason = rejected.reason
        super().__init__(rejected.message or rejected.reason)


_EMPTY = Rejected("empty", "expected at least one frame, got none")
_NOTHING = Block(np.zeros((0, 1), np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int32))


def _runs(taken: Iterator[_Taken | Part]) -> Iterator[list[_Taken] | Part]:
    """What follows one another and is of one width, up to `TOGETHER` frames: many small ones cost as little as one."""
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


def _alike(one: Frames, other: Frames) -> bool:
    return one.shape[1:] == other.shape[1:] and one.dtype == other.dtype


def _ascending(places: Int) -> bool:
    """Whether each of some places is above the one before it."""
    return len(places) < 2 or bool((places[1:] > places[:-1]).all())


def _once(places: Int, n: int) -> Int:
    """Places within `0 : n`, each once, ascending: themselves if they are so."""
    return places if _ascending(places) else np.flatnonzero(np.bincount(places, minlength=n))


def _index(read: Int, places: Int) -> Int:
    """Where each of some places is among those that were `read`, as `_once` gives them."""
    return np.arange(len(places)) if read is places else np.searchsorted(read, places)


def joined(parts: list[Part]) -> list[Block]:
    """Parts that follow one another and are of one width, as one block."""
    runs: list[list[Part]] = []
    for part in parts:
        if runs and runs[-1][0].block.width == part.block.width:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [Part.join(run) for run in runs]
