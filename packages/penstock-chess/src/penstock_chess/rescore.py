"""`Rescorer`: frames of a game, checked, and their targets corrected, as Leela Chess Zero's rescorer does."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray, StructArray, UInt32Array
from penstock.errors import DataError
from penstock_chess.boards import Game, as_frames, inspect, inspect_records
from penstock_chess.convert import check_format, convert_into
from penstock_chess.formats.lc0.check import broken_history
from penstock_chess.formats.lc0.records import FRAME, POLICY
from penstock_chess.kernels.layout import TAIL
from penstock_chess.kernels.rescoring import complete, deblunder, sharpen
from penstock_chess.kernels.rescoring import fill_short_term as fill_small
from penstock_chess.moves import Transposition, squares
from penstock_chess.short_term import THETA, fill_short_term
from penstock_chess.tablebases import (
    Gaviota,
    MateProber,
    Prober,
    Syzygy,
    boosts,
    correct_plies_by_dtm,
    correct_plies_by_dtz,
    correct_results,
    in_reach,
)
from penstock_chess.validate import BITS, REFERENCE, STRUCTURE, ChunkFaults, Fault

_NONE, _NO_BOOST = np.zeros((0, POLICY), np.uint8), np.zeros(0, np.float32)  # where no move is favoured
_VISITS = 17  # in the small fields of a frame, counted in fours


@dataclass(frozen=True, slots=True)
class RejectedChunk:
    """Reason to leave out a chunk: its first fault that counts as an error.

    Args:
        reason: The fault.
        frame: Number of its frame. The default is 0.

    Example:
        >>> Rescorer()(np.zeros((1, 8396), np.uint8)).reason
        <Fault.INPUT_FORMAT: 'input_format'>
    """

    reason: Fault
    frame: int = 0


@dataclass(frozen=True, slots=True)
class Changes:
    """New values of the small fields of a game.

    Args:
        tails: `[n, 31]` uint32: bytes 8272 to 8395 of its frames.
        filled: Whether short-term targets were filled in, so that frames become version 7.

    Example:
        >>> Changes(np.zeros((2, 31), np.uint32), filled=True).tails.nbytes
        248
    """

    tails: UInt32Array
    filled: bool


@dataclass(frozen=True)
class Rescorer:
    """Corrects the targets of a game, as Leela Chess Zero's rescorer does. By default only short-term targets change.

    Threads may share it; they share only the tablebases.

    Args:
        theta: Share of later frames in the short-term targets, 0 to 1. The default is `THETA`, the original's.
        dist_temp: Temperature of policies, above 0. The default is 1: unchanged.
        dist_offset: Summand of each legal move's probability before the temperature, -1 to 1. The default is 0.
        dtz_boost: Weight that is shared, before the temperature, among the moves that Syzygy tables call best, 0 to 1.
            The default is 0.
        deblunder_threshold: How much worse than the best move a played move is at which the later result is forgotten,
            0 to 2. The default is None: results stay. Only together with `deblunder_width`.
        deblunder_width: Width of the transition, 0 to 2. The default is None.
        new_input_format: Input format to convert frames to. The default is None: unchanged.
        syzygy: Folders of Syzygy tablebases. The default is none, which leaves out corrections that need them.
        gaviota: Folders of Gaviota tablebases. The default is none.
        prober: Tablebase to ask instead of `syzygy`. The default is None.
        mates: Tablebase to ask instead of `gaviota`. The default is None.
        errors: Faults for which a chunk is rejected, besides faults of `STRUCTURE`. The default is `REFERENCE`.
        transposition: Effect of turning the board along its diagonal on a policy: `"diagonal"` (the default) or
            `"rotation"`.

    Raises:
        DataError: A value is out of range, only one of the two `deblunder` options is set, or a folder has no tables.

    Example:
        >>> Rescorer(theta=0.9)(np.zeros((1, 8396), np.uint8))
        RejectedChunk(reason=<Fault.INPUT_FORMAT: 'input_format'>, frame=0)
    """

    theta: float = THETA
    dist_temp: float = 1.0
    dist_offset: float = 0.0
    dtz_boost: float = 0.0
    deblunder_threshold: float | None = None
    deblunder_width: float | None = None
    new_input_format: int | None = None
    syzygy: tuple[str, ...] = ()
    gaviota: tuple[str, ...] = ()
    prober: Prober | None = None
    mates: MateProber | None = None
    errors: Set[Fault] = REFERENCE
    transposition: Transposition = "diagonal"

    def __post_init__(self) -> None:
        self._check()
        _ = self._tables  # opened now, so that a missing folder is an error here

    @cached_property
    def _tables(self) -> tuple[Prober | None, MateProber | None]:
        syzygy = self.prober or (Syzygy(*self.syzygy) if self.syzygy else None)
        gaviota = self.mates or (Gaviota(*self.gaviota) if self.gaviota else None)
        return syzygy, gaviota

    @cached_property
    def _refused(self) -> int:
        """Bits of the faults that reject a chunk."""
        return sum(bit for fault, bit in BITS.items() if fault in self.errors | STRUCTURE)

    def __reduce__(self) -> tuple[type[Rescorer], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def __call__(self, frames: ByteArray) -> ByteArray | RejectedChunk:
        """The frames `[n, 8396]` uint8 of one game, rescored, in new memory; or why they are rejected.

        Never raises for what is in them; raises `DataError` for arrays of another form. Cost: a copy, and a
        microsecond a frame, most of it for fetching frames; more with tables.
        """
        frames = as_frames(frames).copy()
        fault = self.apply(frames)
        return frames if fault is None else fault

    @property
    def light(self) -> bool:
        """Whether only small fields of frames change, so that `changes` can be called."""
        same = self.dist_temp == 1 and self.dist_offset == 0 and self.new_input_format is None
        return same and self._tables == (None, None) and Fault.HISTORY not in self.errors

    def changes(self, records: ByteArray) -> Changes | RejectedChunk:
        """Compute the new small fields of a game. Only for a `light` rescorer.

        Args:
            records: Aligned frames `[n, 8396]` uint8, or records of version 6 `[n, 8356]`, which stay unchanged.

        Returns:
            The new fields, or the reason to leave out the game.
        """
        game = inspect_records(records, self.transposition)
        fault = self._fault(records, game)
        if fault is not None:
            return fault
        room = np.zeros((len(records), 32), np.uint32)
        small = room.view(np.uint8)
        small[:, : records.shape[1] - TAIL] = records[:, TAIL:]
        missing = complete(small, 0, game.states)
        self._take_back(small, 0, len(records) - 1)
        if missing:
            fill_small(small, 0, self.theta)
        return Changes(room[:, :-1], missing)

    def apply(self, frames: ByteArray) -> RejectedChunk | None:
        """Rescore frames in place. The frames of a rejected game may be changed in part.

        Args:
            frames: Contiguous array `[n, 8396]` uint8.

        Returns:
            None, or the reason to leave out the game.
        """
        game = inspect(frames, self.transposition)
        fault = self._fault(frames, game)
        if fault is not None:
            return fault
        missing = complete(frames, TAIL, game.states)
        with np.errstate(all="ignore"):
            if not self._rescore(frames, game):
                return RejectedChunk(Fault.PROBABILITY_SUM)
        if self.new_input_format is not None:
            convert_into(frames, game, self.new_input_format, self.transposition)
        if missing:
            fill_short_term(frames, self.theta)
        return None

    def _fault(self, frames: ByteArray, game: Game) -> RejectedChunk | None:
        """Why the chunk is not used, if it is not."""
        if Fault.HISTORY in self.errors and len(frames) > 1:
            game.faults[1:][broken_history(frames)] |= BITS[Fault.HISTORY]
        if len(frames) and not np.bitwise_or.reduce(game.faults) & self._refused:
            return None
        fault = ChunkFaults(game.faults).first(self.errors | STRUCTURE)
        return None if fault is None else RejectedChunk(*fault)

    def _rescore(self, frames: ByteArray, game: Game) -> bool:
        """Results, policies, plies left, blunders, in this order. False where policies have nothing left."""
        syzygy, gaviota = self._tables
        if syzygy is not None:
            correct_results(game, frames.view(FRAME)[:, 0], syzygy)
        if not self._sharpen(frames, game, syzygy, gaviota):
            return False
        if syzygy is not None or gaviota is not None:
            _correct_plies(game, frames.view(FRAME)[:, 0], syzygy, gaviota)
        self._deblunder(frames, game, syzygy)
        return True

    def _sharpen(self, frames: ByteArray, game: Game, syzygy: Prober | None, gaviota: MateProber | None) -> bool:
        boosted, boost = _NONE, _NO_BOOST
        if self.dtz_boost and syzygy is not None:
            boosted = boosts(game, syzygy, gaviota, self.transposition)
            count = boosted.sum(axis=1, dtype=np.float32)
            boost = (np.float32(self.dtz_boost) / np.maximum(count, 1)).astype(np.float32)
        if self.dist_temp == 1 and self.dist_offset == 0 and not len(boosted):
            return True
        power = np.float32(1) / np.float32(self.dist_temp)
        words = frames.view(np.float32)
        return sharpen(words, self.dist_offset, power, boosted, boost) == 0

    def _deblunder(self, frames: ByteArray, game: Game, syzygy: Prober | None) -> None:
        """Up to where tables know better."""
        if self.deblunder_threshold is None:
            return
        last = len(frames) - 1
        if syzygy is not None and len(reached := np.flatnonzero(in_reach(game, syzygy.men)[1:])):
            last = int(reached[0])
        self._take_back(frames, TAIL, last)

    def _take_back(self, small: ByteArray, first: int, last: int) -> None:
        """Blunders up to frame `last`, of a game that was searched to its end."""
        if self.deblunder_threshold is None or self.deblunder_width is None:
            return
        if small.view(np.uint32)[-1, first // 4 + _VISITS]:
            deblunder(small, first, last, self.deblunder_threshold, self.deblunder_width)

    def _check(self) -> None:
        squares(self.transposition)
        if self.new_input_format is not None:
            check_format(self.new_input_format)
        if (self.deblunder_threshold is None) != (self.deblunder_width is None):
            raise DataError("expected both of deblunder_threshold and deblunder_width, got one")
        for name, low, high in (("theta", 0, 1), ("dist_offset", -1, 1), ("dtz_boost", 0, 1)):
            if not low <= getattr(self, name) <= high:
                raise DataError(f"expected {name} within {low}:{high}, got {getattr(self, name)!r}")
        if not 0 < self.dist_temp < np.inf:
            raise DataError(f"expected dist_temp above 0, got {self.dist_temp!r}")
        for name in ("deblunder_threshold", "deblunder_width"):
            if not 0 <= (getattr(self, name) or 0) <= 2:
                raise DataError(f"expected {name} within 0:2, got {getattr(self, name)!r}")


def _correct_plies(game: Game, rows: StructArray, syzygy: Prober | None, gaviota: MateProber | None) -> None:
    """Plies left by tables, of games that somebody wins."""
    if not np.any(rows["result_q"] != 0):
        return
    if gaviota is not None:
        correct_plies_by_dtm(game, rows, gaviota)
    elif syzygy is not None:
        correct_plies_by_dtz(game, rows, syzygy)
