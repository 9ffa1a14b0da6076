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
from penstock.live.block import Block
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
    `encode(frames, places)` gives the rows of some positions: compact, ragged or of one width. Without it, as they are.
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
    gives nothing; it is not tried again. With `hanse`, a chunk whose weight is known and too small is not loaded.
    With a `store`, neither is one whose positions are held there.
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
        self._known: dict[int, float] = {}  # weights, and NaN for what failed
        self._lock = threading.Lock()

    def load(self, draws: Draws) -> Loaded:
        """The frames of draws that are open or were taken."""
        uses = draws.use.tolist()
        frames = [
            None if self._is_needless(draws.seq + i, number, use) else self._frames(number)
            for i, (number, use) in enumerate(zip(draws.number.tolist(), uses, strict=True))
        ]
        weights = np.full(len(draws), np.nan)
        if self._hanse is not None:
            weights[:] = [self._known.get(number, np.nan) for number in draws.number.tolist()]
        return Loaded(draws, frames, weights)

    def unpack(self, loaded: Loaded) -> Unpacked:
        """The positions of draws that were taken."""
        draws, blocks = loaded.draws, list[Block]()
        counts = {"good": 0, "bad": 0, "rejected": 0}
        for number, use, frames, weight in zip(
            draws.number.tolist(), draws.use.tolist(), loaded.frames, loaded.weights.tolist(), strict=True
        ):
            if use == REJECTED:
                counts["bad" if frames is None and np.isnan(weight) else "rejected"] += 1
                continue
            block = self._unpacked(number, use, frames)
            counts["good" if block is not None else "bad"] += 1
            if block is not None and len(block):
                blocks.append(block)
        self.metrics.add(chunks=counts["good"], frames=sum(map(len, blocks)), rejected=counts["rejected"])
        return Unpacked(draws.end, draws.epoch, joined(blocks), counts["good"] + counts["rejected"], counts["bad"])

    def read(self, draws: Draws) -> Unpacked:
        """`load` and `unpack` in one, for draws that are not open."""
        return self.unpack(self.load(draws))

    def decided(self, loaded: Loaded, draws: Draws) -> Loaded:
        """The same chunks, once their uses are decided; the frames of those not taken are let go."""
        kept = [f if use != REJECTED else None for f, use in zip(loaded.frames, draws.use.tolist(), strict=True)]
        return replace(loaded, draws=draws, frames=kept)

    def fetch(self, number: int, places: Int) -> Block | None:
        """Frames named by references to one chunk, for a state; None where they cannot be had."""
        frames = self._frames(number)
        if frames is None or len(frames) <= places.max(initial=-1):
            return None
        return Block(self._encoded(frames, places), np.full(len(places), number), places.astype(np.int32))

    def forget(self, below: int) -> None:
        """Know no more of chunks below a number."""
        with self._lock:
            self._known = {number: weight for number, weight in self._known.items() if number >= below}
        if self._store is not None:
            self._store.forget(below)

    def _is_needless(self, seq: int, number: int, use: int) -> bool:
        """Whether a draw's chunk need not be loaded: what is wanted of it is nothing, or held."""
        if use == REJECTED or (use == OPEN and self._hopeless(seq, number)):
            return True
        known = self._hanse is None or number in self._known
        return self._store is not None and known and self._store.has(number)

    def _unpacked(self, number: int, use: int, frames: Frames | None) -> Block | None:
        """The frames of one use; None where there are none to be had."""
        if self._store is not None and frames is None and not np.isnan(self._known.get(number, 0.0)):
            block = self._store.get(number, use)
            if block is not None:
                return block
            frames = self._frames(number)
        if frames is None:
            return None
        if self._store is None or self._store.ahead == 0:
            (where,) = self._places(number, use, 1, frames)
            rows = self._encoded(frames, where) if len(where) else frames[:0]
            return Block(rows, np.full(len(where), number), where.astype(np.int32))
        uses = self._places(number, use, self._store.ahead + 1, frames)
        return self._store.put(number, use, self._encoded(frames, np.concatenate(uses)), uses)

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
            self._fails(number, reason_of(error), str(error))
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
            raise _RejectedError(Rejected("empty", "expected at least one frame, got none"))
        return frames

    def _fails(self, number: int, reason: str, message: str) -> None:
        with self._lock:
            known = np.isnan(self._known.get(number, 0.0))  # by another thread, meanwhile
            self._known[number] = np.nan
        if known:
            self.metrics.add(failed_again=1)
        else:
            self.metrics.failed(reason, self._catalog.name(number), message)

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
        if self._hooks.encode is not None:
            return self._hooks.encode(frames, places)
        return frames if len(places) == len(frames) and (places == np.arange(len(places))).all() else frames[places]


class _RejectedError(DataError):
    def __init__(self, rejected: Rejected) -> None:
        self.reason = rejected.reason
        super().__init__(rejected.message or rejected.reason)


def joined(blocks: list[Block]) -> list[Block]:
    """Blocks that follow one another and are of one width, as one."""
    runs: list[list[Block]] = []
    for block in blocks:
        if runs and runs[-1][0].width == block.width:
            runs[-1].append(block)
        else:
            runs.append([block])
    return [Block.join(run) for run in runs]
