"""`ChunkReader`: draws become blocks of frames: loaded, checked, weighed, unpacked, encoded, by any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array
from penstock.errors import DataError
from penstock.live.block import Block, Part
from penstock.live.catalog import ChunkCatalog
from penstock.live.chunk_sources import reason_of
from penstock.live.hanse import Float, HanseSampling
from penstock.live.metrics import StageMetrics
from penstock.live.pool import OPEN, REJECTED, Draws
from penstock.live.position_store import PositionStore
from penstock.live.unpacker import ChunkUnpacker

Frames = npt.NDArray[np.uint8]
Int = npt.NDArray[np.int64]


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

    Without `transform` and `weights`, no more of a chunk need be read than the positions that are wanted.
    """

    transform: Callable[[Frames, str], Frames | Rejected] | None = None
    weights: Callable[[Frames], Float] | None = None
    encode: Callable[[Frames, Int], Array] | None = None


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


class ChunkReader:
    """Reads chunks of a `catalog` and takes from each the positions that `unpacker` says. Thread-safe.

    A chunk that cannot be loaded, or that `transform` rejects or fails on, is counted by its reason and named, and
    gives nothing. It is not tried again, unless only the wanted part of it was: then another use may not meet what is
    wrong, and what a use gives must not depend on others. With `hanse`, a chunk whose weight is known and too small is
    not loaded. With a `store`, neither is one whose positions are held there.
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
        """The frames of draws that are open or were taken."""
        uses = draws.use.tolist()
        read = self._frames if self._whole else self._measured
        frames = [
            None if self._is_needless(draws.seq + i, number, use) else read(number)
            for i, (number, use) in enumerate(zip(draws.number.tolist(), uses, strict=True))
        ]
        weights = np.full(len(draws), np.nan)
        if self._hanse is not None:
            weights[:] = [self._known.get(number, np.nan) for number in draws.number.tolist()]
        return Loaded(draws, frames, weights)

    def unpack(self, loaded: Loaded) -> Unpacked:
        """The positions of draws that were taken."""
        draws, parts = loaded.draws, list[Part]()
        counts = {"good": 0, "bad": 0, "rejected": 0}
        for number, use, frames, weight in zip(
            draws.number.tolist(), draws.use.tolist(), loaded.frames, loaded.weights.tolist(), strict=True
        ):
            if use == REJECTED:
                counts["bad" if frames is None and np.isnan(weight) else "rejected"] += 1
                continue
            part = self._unpacked(number, use, frames)
            counts["good" if part is not None else "bad"] += 1
            if part is not None and len(part):
                parts.append(part)
        self.metrics.add(chunks=counts["good"], frames=sum(map(len, parts)), rejected=counts["rejected"])
        return Unpacked(draws.end, draws.epoch, joined(parts), counts["good"] + counts["rejected"], counts["bad"])

    def read(self, draws: Draws) -> Unpacked:
        """`load` and `unpack` in one, for draws that are not open."""
        return self.unpack(self.load(draws))

    def decided(self, loaded: Loaded, draws: Draws) -> Loaded:
        """The same chunks, once their uses are decided; the frames of those not taken are let go."""
        kept = [f if use != REJECTED else None for f, use in zip(loaded.frames, draws.use.tolist(), strict=True)]
        return replace(loaded, draws=draws, frames=kept)

    def fetch(self, number: int, places: Int) -> Block | None:
        """Frames named by references to one chunk, for a state; None where they cannot be had."""
        if self._whole:
            frames = self._frames(number)
            rows = None if frames is None or len(frames) <= places.max(initial=-1) else self._encoded(frames, places)
        else:
            rows = self._part(number, lambda n: [places if places.max(initial=-1) < n else places[:0]])[0]
            rows = None if rows is None or len(rows) < len(places) else rows
        return None if rows is None else Block(rows, np.full(len(places), number), places.astype(np.int32))

    def forget(self, below: int) -> None:
        """Know no more of chunks below a number."""
        with self._lock:
            self._known = {number: weight for number, weight in self._known.items() if number >= below}
            self._failed = {number for number in self._failed if number >= below}
        if self._store is not None:
            self._store.forget(below)

    def _is_needless(self, seq: int, number: int, use: int) -> bool:
        """Whether a draw's chunk need not be loaded: what is wanted of it is nothing, or held."""
        if use == REJECTED or (use == OPEN and self._hopeless(seq, number)):
            return True
        known = self._hanse is None or number in self._known
        return self._store is not None and known and self._store.has(number)

    def _unpacked(self, number: int, use: int, frames: Frames | None) -> Part | None:
        """The frames of one use; None where there are none to be had."""
        if self._store is not None and frames is None and not np.isnan(self._known.get(number, 0.0)):
            part = self._store.get(number, use)
            if part is not None:
                return part
            frames = self._frames(number) if self._whole else None
        uses = 1 if self._store is None else self._store.ahead + 1
        if not self._whole:
            rows, places = self._part(number, lambda n: self._unpacker.several(number, use, uses, n), last=uses == 1)
            if rows is None and uses > 1:  # what is wrong may be where only later uses look
                rows, places = self._part(number, lambda n: self._unpacker.several(number, use, 1, n))
        elif frames is not None:
            places = self._places(number, use, uses, frames)
            rows = self._encoded(frames, _together(places))
        else:
            rows, places = None, []
        if rows is None:
            return None
        if self._store is not None:
            return self._store.put(number, use, rows, places)
        return Part(Block(rows, np.full(len(rows), number), places[0].astype(np.int32)), 0, len(rows))

    def _part(
        self, number: int, several: Callable[[int], list[Int]], last: bool = True
    ) -> tuple[Array | None, list[Int]]:
        """The rows of some positions of a chunk, of which nothing else need be read; and which they are. None where
        that fails, which is counted if it was the `last` attempt."""
        places: list[Int] = []

        def wanted(n: int) -> Int:
            if n == 0:
                raise _RejectedError(_EMPTY)
            places[:] = several(n)
            return places[0] if len(places) == 1 and _ascending(places[0]) else np.unique(np.concatenate(places))

        try:
            frames = self._catalog.load(number, wanted)
            every = _together(places)
            index = np.arange(len(every)) if _ascending(every) else np.searchsorted(np.unique(every), every)
            return self._encoded(frames, index), places
        except Exception as error:  # noqa: BLE001  as in `_frames`
            if last:
                self._fails(number, error)
            return None, []

    def _measured(self, number: int) -> None:
        """Have the weight of a chunk, the number of its frames, known: by reading none of them, if that can be."""
        if self._hanse is None or number in self._known:
            return
        found: list[int] = []
        try:
            self._catalog.load(number, lambda n: found.append(n) or np.zeros(0, np.int64))
            if found[0] == 0:
                raise _RejectedError(_EMPTY)
        except Exception as error:  # noqa: BLE001  as in `_frames`
            self._fails(number, error)
            found = []
        with self._lock:
            self._known[number] = float(found[0]) if found else np.nan

    def _hopeless(self, seq: int, number: int) -> bool:
        weight = self._known.get(number)
        return weight is not None and self._hanse is not None and self._hanse.hopeless(seq, weight)

    def _frames(self, number: int) -> Frames | None:
        if np.isnan(self._known.get(number, 0.0)):
            self.metrics.add(failed_again=1)
            return None
        try:
            frames = self._transformed(number)
            weight = self._weight(frames) if self._hanse is not None else 0.0
        except Exception as error:  # noqa: BLE001  whatever a chunk makes its reader do, it must not end the run
            self._fails(number, error)
            with self._lock:
                self._known[number] = np.nan
            return None
        if self._hanse is not None:
            with self._lock:
                self._known[number] = weight
        return frames

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

    def _places(self, number: int, use: int, uses: int, frames: Frames) -> list[Int]:
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


def _ascending(places: Int) -> bool:
    """Whether each of some places is above the one before it."""
    return len(places) < 2 or bool((places[1:] > places[:-1]).all())


def _together(places: list[Int]) -> Int:
    return places[0] if len(places) == 1 else np.concatenate(places)


def joined(parts: list[Part]) -> list[Block]:
    """Parts that follow one another and are of one width, as one block."""
    runs: list[list[Part]] = []
    for part in parts:
        if runs and runs[-1][0].block.width == part.block.width:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [Part.join(run) for run in runs]
