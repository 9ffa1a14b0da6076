"""Correct the targets of a game's frames: moves and values of later frames, blunders, temperature of policies.

Results equal the output of Leela Chess Zero's rescorer, bit for bit: all sums and products are float32, in its order.
The small fields of a frame are its bytes from `layout.TAIL` on; functions get them as one array of bytes whose rows may
be longer, and `first`, the byte where they begin, so that whole frames and copies of small fields take the same
compiled code. The caller owns all arrays; columns are constants, and an index of a move is used only below `POLICY`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, Float32Array, IntArray
from penstock.kernels.jit import uncounted_helper, uncounted_kernel
from penstock_chess.kernels.lanes import differing16, lowest
from penstock_chess.kernels.layout import FIELDS, ILLEGAL, INDEX, INFO, PLAYED, POLICY, TAIL

SMALL = 124
"""Bytes of the small fields of a frame."""

_ILLEGAL = np.uint32(ILLEGAL)
# Within the small fields: the move played, the moves of the next two frames, `invariance_info`.
_PLAYED = PLAYED - TAIL
_AHEAD = 8360 - TAIL
_INFO = INFO - TAIL
# Floats, counted in fours.
_ROOT_Q, _ROOT_D, _BEST_Q, _BEST_D, _BEST_M, _LEFT, _RESULT_Q, _RESULT_D, _PLAYED_Q = (
    FIELDS[name] - TAIL // 4
    for name in (*("root_q", "root_d", "best_q", "best_d", "best_m", "plies_left", "result_q", "result_d", "played_q"),)
)
_Q_ST, _D_ST = (8352 - TAIL) // 4, (8356 - TAIL) // 4


def _values_of(small: ByteArray, first: int) -> Float32Array:
    flags = small.flags
    fits = small.dtype == np.uint8 and small.ndim == 2 and 0 <= first <= small.shape[1] - SMALL and not first % 4
    if not fits or not flags.c_contiguous or not flags.writeable or small.ctypes.data % 4:
        raise ValueError(f"expected aligned rows of at least {first + SMALL} bytes, got {list(small.shape)}")
    return small.view(np.float32)


def complete(small: ByteArray, first: int, states: IntArray) -> bool:
    """Fill in what frames do not tell: the move that was played, and plies left where they are 0."""
    values = _values_of(small, first)
    if states.shape != (len(small), 13):
        raise ValueError(f"expected a state for each of {len(small)} rows, got {list(states.shape)}")
    return _complete(small, values, first, states)


def fill_short_term(small: ByteArray, first: int, theta: float) -> None:
    """Write `q_st` and `d_st`, and the moves that were played in the next frame and in the frame after it.

    Going backwards, `q_st` is a running mean of `root_q`, seen by the side to move of each frame, and `d_st` one of
    `root_d`.
    """
    _fill_short_term(small, _values_of(small, first), first, np.float32(theta))


def deblunder(small: ByteArray, first: int, last: int, threshold: float, width: float) -> None:
    """Bring what a game came to back over blunders, from frame `last` to the first.

    `result_q`, `result_d` and `plies_left` before a blunder become the values of the best move, softly over `width`.
    """
    values = _values_of(small, first)
    if not 0 <= last < len(small):
        raise ValueError(f"expected last within 0:{len(small)}, got {last}")
    _deblunder(small, values, first, last, np.float32(threshold), np.float32(width))


def sharpen(values: Float32Array, offset: float, power: np.float32, boosted: ByteArray, boost: Float32Array) -> int:
    """Add `offset` and `boost` to what each legal move of policies has, raise it to a power, and bring sums
    to 1 again.
    """
    some = len(boosted)
    if values.shape[1] < 2 + POLICY + 16 or boosted.shape[1] != POLICY or some not in (0, len(values)):
        raise ValueError(f"expected policies and their boosts, got {list(values.shape)} and {list(boosted.shape)}")
    if len(boost) != some:
        raise ValueError(f"expected {some} boosts, got {len(boost)}")
    return _sharpen(values, np.float32(offset), power, boosted, boost, np.empty(POLICY, np.int64))


@uncounted_kernel("u1[2C] f4[2C] i8 i8[2C]")
def _complete(small: ByteArray, values: Float32Array, first: int, states: IntArray) -> bool:
    zero = nan = True
    word = first // 4
    for i in range(len(small)):
        nan = nan and np.isnan(values[i, word + _D_ST])
        for k in range(first + _AHEAD, first + _AHEAD + 4):
            zero = zero and small[i, k] == 0
        field, index = first + _PLAYED, states[i, INDEX]
        if small[i, field] == 255 and small[i, field + 1] == 255 and index >= 0:  # no move
            small[i, field], small[i, field + 1] = index & 255, index >> 8
        if values[i, word + _LEFT] == 0:
            values[i, word + _LEFT] = len(small) - i
    return zero or nan


@uncounted_kernel("u1[2C] f4[2C] i8 f4")
def _fill_short_term(small: ByteArray, values: Float32Array, first: int, theta: np.float32) -> None:
    one = np.float32(1)
    beta = np.float32(1) - theta
    end = len(small) - 1
    word = first // 4
    mean_q, mean_d = np.float32(0), np.float32(0)
    for i in range(end, -1, -1):
        sign = -one if i & 1 else one
        root_q, root_d = values[i, word + _ROOT_Q] * sign, values[i, word + _ROOT_D]
        mean_q = root_q if i == end else theta * mean_q + beta * root_q
        mean_d = root_d if i == end else theta * mean_d + beta * root_d
        values[i, word + _Q_ST] = mean_q * sign
        values[i, word + _D_ST] = np.float32(0) if mean_d < 0 else mean_d  # NaN stays
        for k in range(4):
            ahead = i + 1 + k // 2
            small[i, first + _AHEAD + k] = small[ahead, first + _PLAYED + k % 2] if ahead <= end else 255


@uncounted_kernel("u1[2C] f4[2C] i8 i8 f4 f4")
def _deblunder(
    small: ByteArray, values: Float32Array, first: int, last: int, threshold: np.float32, width: np.float32
) -> None:
    one = np.float32(1)
    half = np.float32(0.5)
    end = len(small) - 1
    word = first // 4
    z_q = values[end, word + _RESULT_Q]
    z_d = values[end, word + _RESULT_D]
    z_m = values[end, word + _LEFT]
    trigger, begun = np.float64(threshold) - np.float64(width) / 2, False
    for i in range(last, -1, -1):
        best, played = values[i, word + _BEST_Q], values[i, word + _PLAYED_Q]
        proven = best == 1 and (small[i, first + _INFO] & 8) != 0
        forced = best > -1 and played < 1 and (proven or played == -1)
        if np.float64(best - played) > trigger or forced:
            ratio = one
            if width > 0 and not forced:
                ratio = (best - played - threshold) / width + half
                ratio = ratio if ratio < one else one
            z_q = (one - ratio) * z_q + ratio * best
            z_d = (one - ratio) * z_d + ratio * values[i, word + _BEST_D]
            z_m = (one - ratio) * z_m + ratio * values[i, word + _BEST_M]
            begun = True
        if begun:
            values[i, word + _RESULT_Q] = z_q
            values[i, word + _RESULT_D] = z_d
            values[i, word + _LEFT] = z_m
        z_q, z_m = -z_q, z_m + one


@uncounted_helper
def _moves_of(values: Float32Array, i: int, moves: IntArray) -> int:
    """Write the moves of a policy that have 0 or more into `moves`, in order; 16 are looked at in one step. Returns how
    many."""
    first, count = np.int64(values.ctypes.data) + 4 * (i * values.shape[1] + 2), 0
    for j in range(0, POLICY, 16):
        bits = np.uint64(differing16(first + 4 * j, _ILLEGAL))
        if j + 16 > POLICY:
            bits &= np.uint64((1 << POLICY % 16) - 1)  # planes stand behind
        while bits:
            move = j + lowest(bits)
            bits &= bits - np.uint64(1)
            if values[i, 2 + move] >= 0:
                moves[count] = move
                count += 1
    return count


@uncounted_kernel("f4[2C] f4 f4 u1[2C] f4[1C] i8[1C]")
def _sharpen(
    values: Float32Array,
    offset: np.float32,
    power: np.float32,
    boosted: ByteArray,
    boost: Float32Array,
    moves: IntArray,
) -> int:
    lost = 0
    for i in range(len(values)):
        total = np.float32(0)
        count = _moves_of(values, i, moves)
        for k in range(count):
            move = moves[k]
            add = offset + boost[i] if len(boosted) and boosted[i, move] else offset
            raised = values[i, 2 + move] + add
            raised = (raised if raised > 0 else np.float32(0)) ** power
            values[i, 2 + move] = raised
            total += raised
        if not (total > 0 and total < np.inf):
            lost += 1
            continue
        for k in range(count):
            values[i, 2 + moves[k]] /= total
    return lost
