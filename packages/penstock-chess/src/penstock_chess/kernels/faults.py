"""Faults of the values of a frame: probabilities, results and small fields out of their ranges.

`bad_values` looks at one frame, each at a bit of `FAULTS`. Frames without a search (`visits` 0) need neither values nor
the index of the move that was played. A policy is summed in float32 and in any order, many moves in one step; only a
sum within 1e-4 of a limit, more than float32 loses in 1858 additions, is taken again in float64 and in order, so faults
are as by float64 sums. Meanwhile the planes and the tail of the frame are fetched. `tests/games/reference`
defines the faults.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from penstock.core.arrays import ByteArray, Float32Array, UInt32Array
from penstock.kernels.intrinsics import prefetch
from penstock.kernels.jit import helper, uncounted_helper
from penstock_chess.kernels.layout import BEST, FIELDS, PLAYED, POLICY, RIGHTS, RULE50, SIDE, VISITS

FAULTS = (
    "input_format",
    "root",
    "best",
    "played",
    "orig",
    "result",
    "plies",
    "castling",
    "side",
    "rule50",
    "probability",
    "probability_sum",
    "index",
    "best_illegal",
    "played_illegal",
    "board",
    "continuity",
    "move_unknown",
    "move_illegal",
    "move_other",
    "move_unmarked",
    "rights",
    "clock",
    "turn",
    "en_passant",
    "repetition",
    "transform",
    "history",
    "result_fraction",
)
"""Bit `k` of a frame's faults is the fault named here."""

SUM_BELOW, SUM_ABOVE = 0.99, 1.01
"""The limits of the sum of a policy's probabilities."""


def fault_bit(name: str) -> int:
    return 1 << FAULTS.index(name)


_FORMAT, _ROOT, _BEST, _PLAYED, _ORIG = (fault_bit(name) for name in ("input_format", "root", "best", "played", "orig"))
_RESULT, _FRACTION, _PLIES = (fault_bit(name) for name in ("result", "result_fraction", "plies"))
_CASTLING, _SIDE, _RULE50 = (fault_bit(name) for name in ("castling", "side", "rule50"))
_PROBABILITY, _SUM, _INDEX = (fault_bit(name) for name in ("probability", "probability_sum", "index"))
_NO_BEST, _NO_PLAYED = fault_bit("best_illegal"), fault_bit("played_illegal")

_ROOT_Q, _BEST_Q, _ROOT_D, _BEST_D, _ROOT_M, _BEST_M, _LEFT, _RESULT_Q, _RESULT_D = list(FIELDS.values())[:9]
_PLAYED_Q, _PLAYED_D, _PLAYED_M, _ORIG_Q, _ORIG_D, _ORIG_M = list(FIELDS.values())[9:]
_ILLEGAL = np.uint32(0xBF800000)  # the bits of -1.0
_ONE = np.uint32(0x3F800000)  # the bits of 1.0
_NONE = np.uint32(0)  # the bits of 0.0
_TAIL = 832  # bytes from the policy's end to the small fields
_NEWEST = 2  # lines of memory that hold the newest position, and the same number the small fields
_ROUNDED = 1e-4  # more than float32 loses in a sum of all moves


@partial(helper, counted=False, any_order=True)
def _glance(values: Float32Array, bits: UInt32Array, i: int) -> tuple[np.uint32, np.float32]:
    """Return the greatest bits of a policy and its sum, without moves that are -1; without branches, so that several
    moves are looked at in one step. Meanwhile what is looked at next is fetched."""
    top, total = np.uint32(0), np.float32(0)
    behind = np.int64(values.ctypes.data) + 4 * (i * values.shape[1] + 2 + POLICY)
    for k in range(_NEWEST):
        prefetch(behind + 64 * k)
        prefetch(behind + _TAIL + 64 * k)
    for j in range(2, 2 + POLICY):
        legal = bits[i, j] != _ILLEGAL
        word = bits[i, j] if legal else _NONE
        top = word if word > top else top
        total += values[i, j] if legal else np.float32(0)
    return top, total


@uncounted_helper
def _bad_policy(values: Float32Array, bits: UInt32Array, i: int) -> int:
    top, rounded = _glance(values, bits, i)
    if top <= _ONE and SUM_BELOW + _ROUNDED <= rounded <= SUM_ABOVE - _ROUNDED:
        return 0
    total, faults = np.float64(0), 0
    for j in range(2, 2 + POLICY):
        p = values[i, j]
        if (p < 0 and p != -1) or p > 1:
            faults = _PROBABILITY
        if p >= 0:
            total += p
    return faults if SUM_BELOW <= total <= SUM_ABOVE else faults | _SUM


@uncounted_helper
def _within(q: np.float32, d: np.float32) -> np.bool_:
    """Whether q is in -1:1 and d in 0:1; NaN is not."""
    return -1 <= q <= 1 and 0 <= d <= 1


@uncounted_helper
def _bad_search(values: Float32Array, i: int, searched: bool) -> int:
    """Faults of the floats of a frame."""
    faults = 0
    if not _within(values[i, _ROOT_Q], values[i, _ROOT_D]):
        faults |= _ROOT
    if not _within(values[i, _BEST_Q], values[i, _BEST_D]):
        faults |= _BEST
    if not _within(values[i, _RESULT_Q], values[i, _RESULT_D]):
        faults |= _RESULT
    if searched and not _within(values[i, _PLAYED_Q], values[i, _PLAYED_D]):
        faults |= _PLAYED
    orig_q = values[i, _ORIG_Q]
    orig_d = values[i, _ORIG_D]
    result = values[i, _RESULT_Q]
    if orig_q < -1 or orig_q > 1 or orig_d < 0 or orig_d > 1:  # NaN is none of these
        faults |= _ORIG
    if result != 0 and result != 1 and result != -1:
        faults |= _FRACTION
    some = values[i, _ROOT_M] >= 0 and values[i, _BEST_M] >= 0 and values[i, _LEFT] >= 0
    if not some or values[i, _ORIG_M] < 0 or (searched and not values[i, _PLAYED_M] >= 0):
        faults |= _PLIES
    return faults


@uncounted_helper
def _bad_position(rows: ByteArray, i: int, form: np.int64) -> int:
    """Faults of the small fields of a frame in input format `form`."""
    known = 1 <= form <= 5 or form == 132 or form == 133
    faults = 0 if known else _FORMAT
    for k in range(4):
        right = np.int64(rows[i, RIGHTS + k])
        if right > 1 and (form == 1 or right & (right - 1) != 0):
            faults |= _CASTLING
    side = np.int64(rows[i, SIDE])
    if side > 1 and (form < 3 or side & (side - 1) != 0):
        faults |= _SIDE
    return faults | _RULE50 if rows[i, RULE50] > 100 else faults


@uncounted_helper
def bad_values(rows: ByteArray, values: Float32Array, bits: UInt32Array, i: int) -> int:
    """Return the faults of frame `i` of `rows` `[n, 8356 or 8396]`, of which `values` and `bits` are views."""
    searched = bits[i, VISITS // 4] != 0
    form = np.int64(bits[i, 1])
    faults = _bad_policy(values, bits, i) | _bad_search(values, i, searched) | _bad_position(rows, i, form)
    if searched:
        played = np.int64(rows[i, PLAYED]) + 256 * np.int64(rows[i, PLAYED + 1])
        best = np.int64(rows[i, BEST]) + 256 * np.int64(rows[i, BEST + 1])
        if played > POLICY or best > POLICY:
            faults |= _INDEX
        if played < POLICY and not values[i, 2 + played] >= 0:
            faults |= _NO_PLAYED
        if best < POLICY and not values[i, 2 + best] >= 0:
            faults |= _NO_BEST
    return faults
