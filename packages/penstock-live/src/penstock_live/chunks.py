"""`ChunkReader`: takes the positions of draws from their chunks and encodes them, on any thread.

The reader decides how much of a chunk its `ChunkLoader` loads: nothing if the positions are cached or the chunk will be
rejected, single frames of all chunks in one call, few frames of several chunks in one call, the wanted frames, or all.
Small results are encoded together. The positions of a draw do not depend on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import offsets_of
from penstock_live.account import (
    LostError,
    Outcome,
)
from penstock_live.block import Block, Part
from penstock_live.chunk_loader import ChosenFrames, ChunkLoader, index_of, once
from penstock_live.hanse import Float, HanseSampling
from penstock_live.hooks import Frames
from penstock_live.pool import OPEN, REJECTED, Draws
from penstock_live.position_store import PositionStore
from penstock_live.unpacker import ChunkUnpacker

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
        return sum(block.nbytes for block in self.blocks)


class ChunkReader:
    """Takes the positions that `unpacker` selects from the chunks of draws. Thread-safe.

    A chunk that `loader` cannot load yields no positions. A chunk is not loaded if `hanse` knows that its weight is too
    small, or if `store` has its positions.
    """

    def __init__(
        self,
        loader: ChunkLoader,
        unpacker: ChunkUnpacker,
        hanse: HanseSampling | None = None,
        store: PositionStore | None = None,
    ) -> None:
        self._loader = loader
        self._unpacker = unpacker
        self._hanse = hanse
        self._store = store
        self._hooks = loader.hooks
        self.metrics = loader.metrics
        self._whole = loader.hooks.needs_whole

    def load(self, draws: Draws) -> Loaded:
        """Load the weights of open draws for hanse sampling, and frames if they are needed for it."""
        frames: list[Frames | None] = [None] * len(draws)
        read = self._loader.frames if self._whole else self._loader.measure
        known = sum(self._loader.is_known(number) for number in draws.number[draws.use == OPEN].tolist())
        self.metrics.add(weight_hits=known, weight_misses=int((draws.use == OPEN).sum()) - known)
        for i in np.flatnonzero(~self._needless(draws)).tolist():
            result = read(int(draws.number[i]))
            frames[i] = None if isinstance(result, Outcome) else result
            if not isinstance(result, Outcome):
                self._loader.settle([int(draws.number[i])], Outcome.READ)
        return Loaded(draws, frames, self._weights(draws))

    def unpack(self, loaded: Loaded) -> Unpacked:
        """Return the positions of draws."""
        counts: Counter[str] = Counter()
        lost: set[int] = set()
        block = None if self._whole else self._gathered(loaded, counts)
        if block is None:
            parts = [self._part(run) for run in _runs(self._each(loaded, counts, lost))]
        else:
            parts = [Part(block, 0, len(block))]
        nonempty = [part for part in parts if len(part)]
        if draws := [n for n, use in zip(*_numbers_and_uses(loaded.draws), strict=True) if use != REJECTED]:
            self._loader.settle([number for number in draws if number not in lost], Outcome.READ)
        bad, unread = counts["bad"], counts["unread"]
        good = len(loaded.draws) - counts["rejected"] - bad - unread
        self.metrics.add(chunks=good, frames=sum(map(len, nonempty)), rejected=counts["rejected"])
        return Unpacked(loaded.draws.end, loaded.draws.epoch, joined(nonempty), good + counts["rejected"], bad, unread)

    def read(self, draws: Draws) -> Unpacked:
        """Return the positions of draws that are not open.

        The frames of a chunk are released before the next chunk is read, so that their memory is reused while cached.
        """
        return self.unpack(Loaded(draws, [None] * len(draws), self._weights(draws)))

    def decided(self, loaded: Loaded, draws: Draws) -> Loaded:
        """Return the same chunks with decided uses, without the frames of rejected chunks."""
        kept = [f if use != REJECTED else None for f, use in zip(loaded.frames, draws.use.tolist(), strict=True)]
        return replace(loaded, draws=draws, frames=kept)

    def forget(self, below: int) -> None:
        self._loader.forget(below)
        if self._store is not None:
            self._store.forget(below)

    def _needless(self, draws: Draws) -> npt.NDArray[np.bool_]:
        """Return `[n]` whether a draw needs no load, because no position is wanted or all are cached."""
        needless, known = draws.use == REJECTED, np.array([self._loader.is_known(n) for n in draws.number.tolist()])
        if self._hanse is not None:
            hopeless = self._hanse.hopeless(np.arange(draws.seq, draws.end), self._weights(draws))
            needless |= (draws.use == OPEN) & known & hopeless
        return needless if self._store is None else needless | (known & self._store.has(draws.number))

    def _weights(self, draws: Draws) -> Float:
        """Return `[n]` weights of the chunks of draws; NaN for failed chunks, and for all without hanse sampling."""
        if self._hanse is None:
            return np.full(len(draws), np.nan)
        return self._loader.weights(draws.number)

    def _each(self, loaded: Loaded, counts: Counter[str], lost: set[int]) -> Iterator[ChosenFrames | Part]:
        """Return the positions of each draw. Draws without positions are counted, and `lost` if unreadable."""
        draws, begin = loaded.draws, 0
        block, frames = _NOTHING, np.full(len(draws), -1)
        if self._store is not None:
            block, frames = self._store.take(draws.number, draws.use)
        offsets, lacking = offsets_of(np.maximum(frames, 0)).tolist(), np.flatnonzero(frames < 0).tolist()
        early = self._early(draws, lacking)
        for i in lacking:
            if offsets[begin] < offsets[i]:
                yield Part(block, offsets[begin], offsets[i])
            begin = i + 1
            use = int(draws.use[i])
            number = int(draws.number[i])
            if use == REJECTED:
                self._count_rejected(loaded, i, counts)
                continue
            taken = self._taken(number, use, loaded.frames[i], early.pop(i, None))
            if isinstance(taken, Outcome):
                counts["unread" if taken in (Outcome.GONE, Outcome.UNREADABLE) else "bad"] += 1
                lost.add(number)
            else:
                yield taken
        if offsets[begin] < offsets[-1]:
            yield Part(block, offsets[begin], offsets[-1])

    def _count_rejected(self, loaded: Loaded, i: int, counts: Counter[str]) -> None:
        is_lost = loaded.frames[i] is None and np.isnan(loaded.weights[i])
        is_bad = self._loader.is_bad(int(loaded.draws.number[i]))
        counts["rejected" if not is_lost else "bad" if is_bad else "unread"] += 1

    def _gathered(self, loaded: Loaded, counts: Counter[str]) -> Block | None:
        """Return the positions of draws if their frames can be read alone. Then no later uses have to be cached."""
        taken = loaded.draws.use != REJECTED
        number, use = loaded.draws.number[taken], loaded.draws.use[taken]
        block = self._loader.gather(number, lambda n: self._unpacker.one_use_each(number, use, n))
        for i in np.flatnonzero(~taken).tolist() if block is not None else ():
            self._count_rejected(loaded, i, counts)
        return block

    def _early(self, draws: Draws, lacking: list[int]) -> dict[int, ChosenFrames]:
        """Return the positions of the draws at indices `lacking` whose few frames were read in one call."""
        rate = self._unpacker.rate
        if self._whole or not lacking or (rate is not None and rate > FEW):
            return {}
        early_rows = [i for i in lacking if draws.use[i] != REJECTED]
        numbers, use = draws.number[early_rows].tolist(), draws.use[early_rows].tolist()
        uses = 1 if self._store is None else self._store.ahead + 1
        chosen: dict[int, tuple[Int, Int, Int]] = {}

        def wanted(k: int, n: int) -> Int:
            places, ends = self._unpacker.several(numbers[k], use[k], uses, n)
            read = once(places, n)
            chosen[k] = places, ends, read
            return read

        early: dict[int, ChosenFrames] = {}
        for k, frames in enumerate(self._loader.load_some(numbers, wanted)):
            if frames is not None:
                places, ends, read = chosen[k]
                early[early_rows[k]] = ChosenFrames(
                    numbers[k], frames, index_of(read, places), places, ends, partial=True
                )
        if early and self._hooks.unverified:
            self.metrics.add(unverified=len(early))
        return early

    def _taken(
        self, number: int, use: int, frames: Frames | None, early: ChosenFrames | None
    ) -> ChosenFrames | Part | Outcome:
        """Return the positions of one use of a chunk, or the outcome if there are none.

        `early` are frames that were read already, if any. Positions from the store are already encoded.
        """
        if self._whole and frames is None and (self._hanse is None or not self._loader.is_bad(number)):
            result = self._loader.frames(number)  # with hanse sampling: its positions were cached and have been dropped
            if isinstance(result, Outcome):
                return result
            frames = result
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
            with self._loader.named(number):
                rows = self._hooks.rows(taken.frames, taken.index)
            return self._store.put(number, use, rows, taken.places, taken.ends)
        assert failure is not None
        return self._loader.fails(number, failure)

    def _chosen(self, number: int, use: int, uses: int, frames: Frames | None) -> ChosenFrames:
        """Return the frames of some uses, from the chunk's `frames` if it was read whole."""
        if frames is None:
            taken = self._loader.choose(number, lambda n: self._unpacker.several(number, use, uses, n))
            if taken.partial and self._hooks.unverified:
                self.metrics.add(unverified=1)
            return taken
        places, ends = self._places(number, use, uses, frames)
        return ChosenFrames(number, frames, places, places, ends)

    def _part(self, run: list[ChosenFrames] | Part) -> Part:
        """Return the positions of several chunks, encoded together."""
        if isinstance(run, Part):
            return run
        try:
            return self._together(run)
        except Exception:
            for taken in run:  # which of them it is
                with self._loader.named(taken.number):
                    self._together([taken])
            raise

    def _together(self, run: list[ChosenFrames]) -> Part:
        counts = [len(taken.places) for taken in run]
        if len(run) == 1:
            rows = self._hooks.rows(run[0].frames, run[0].index)
        else:
            first = np.cumsum([0, *(len(taken.frames) for taken in run[:-1])])
            index = np.concatenate([taken.index for taken in run]) + np.repeat(first, counts)
            rows = self._hooks.rows(np.concatenate([taken.frames for taken in run]), index)
        number = np.repeat([taken.number for taken in run], counts)
        place = np.concatenate([taken.places for taken in run]).astype(np.int32)
        return Part(Block(rows, number, place), 0, len(number))

    def _places(self, number: int, use: int, uses: int, frames: Frames) -> tuple[Int, Int]:
        weighed = self._unpacker.count is not None and len(frames) > 0
        with self._loader.named(number):
            weights: Any = self._hooks.weights(frames) if weighed and self._hooks.weights is not None else None
            return self._unpacker.several(number, use, uses, len(frames), weights)


_NOTHING = Block(np.zeros((0, 1), np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int32))


def _runs(taken: Iterator[ChosenFrames | Part]) -> Iterator[list[ChosenFrames] | Part]:
    """Group consecutive results of one width, up to `TOGETHER` frames, so that many small ones cost one call."""
    run, run_frames = list[ChosenFrames](), 0
    for each in taken:
        if run and (isinstance(each, Part) or not _alike(run[0].frames, each.frames)):
            yield run
            run, run_frames = [], 0
        if isinstance(each, Part):
            yield each
            continue
        run.append(each)
        run_frames += len(each.frames)
        del each  # before the next is read, so that its memory serves again
        if run_frames >= TOGETHER:
            yield run
            run, run_frames = [], 0
    if run:
        yield run


def _numbers_and_uses(draws: Draws) -> tuple[list[int], list[int]]:
    return draws.number.tolist(), draws.use.tolist()


def _alike(one: Frames, other: Frames) -> bool:
    return one.shape[1:] == other.shape[1:] and one.dtype == other.dtype


def joined(parts: list[Part]) -> list[Block]:
    """Join consecutive parts of one width into one block."""
    runs: list[list[Part]] = []
    for part in parts:
        if runs and runs[-1][0].block.width == part.block.width:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [Part.join(run) for run in runs]
