"""Discounted sums, advantages and n-step returns of whole episodes, from their last step to their first.

Arrays have the rows of consecutive episodes. Episode `e` has the steps `offsets[e] : offsets[e + 1]`, and its values
begin at `offsets[e] + e`, because there is one more of them: the value of the observation after the last step. A step
that ends by termination has no future: the value after it is not even read. Every other last step is followed by the
value of the last observation, whether a flag of truncation is set or the record just stops.

Each row needs the row after it, so a loop over the rows costs one multiply and add a row (2 to 3 ns), and vectorised
NumPy cannot do better. Sums are float64: their relative error is at most the number of summands times 2^-52. The
wrappers check that offsets grow and end with the arrays, so that the loops stay inside them. The caller owns all
arrays.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import BoolArray, FloatArray, IntArray
from penstock.kernels.jit import kernel


def discounted_sums(rewards: FloatArray, offsets: IntArray, gamma: float, out: FloatArray) -> None:
    """Fill `out[t] = rewards[t] + gamma * out[t + 1]` within each episode."""
    _require_fit(offsets, len(rewards), len(out))
    _discounted_sums(rewards, offsets, float(gamma), out)


def advantages(
    rewards: FloatArray,
    ended: BoolArray,
    values: FloatArray,
    offsets: IntArray,
    gamma: float,
    lam: float,
    out: FloatArray,
) -> None:
    """Fill in generalized advantage estimates, formula 16 of Schulman et al. 2016 (arXiv:1506.02438)."""
    _require_fit(offsets, len(rewards), len(ended), len(out), len(values) - len(offsets) + 1)
    _advantages(rewards, ended, values, offsets, float(gamma), float(lam), out)


def n_step_returns(
    rewards: FloatArray,
    ended: BoolArray,
    values: FloatArray | None,
    offsets: IntArray,
    n: int,
    gamma: float,
    out: FloatArray,
) -> None:
    """Fill in discounted sums of up to `n` rewards, and the discounted value of the observation after them."""
    known = len(rewards) if values is None else len(values) - len(offsets) + 1
    _require_fit(offsets, len(rewards), len(ended), len(out), known)
    if n < 1:
        raise ValueError(f"expected at least 1 step, got {n}")
    known_values = np.zeros(0) if values is None else values
    _n_step_returns(rewards, ended, known_values, offsets, n, float(gamma), values is not None, out)


def _require_fit(offsets: IntArray, *rows: int) -> None:
    ordered = len(offsets) > 0 and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
    if not ordered or any(count != offsets[-1] for count in rows):
        raise ValueError(f"expected offsets from 0 that never decrease and end at the number of steps, {list(rows)}")


@kernel("f8[1C] i8[1C] f8 f8[1C]")
def _discounted_sums(rewards: FloatArray, offsets: IntArray, gamma: float, out: FloatArray) -> None:
    for e in range(len(offsets) - 1):
        total = 0.0
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            total = rewards[t] + gamma * total
            out[t] = total


@kernel("f8[1C] b1[1C] f8[1C] i8[1C] f8 f8 f8[1C]")
def _advantages(
    rewards: FloatArray,
    ended: BoolArray,
    values: FloatArray,
    offsets: IntArray,
    gamma: float,
    lam: float,
    out: FloatArray,
) -> None:
    for e in range(len(offsets) - 1):
        total = 0.0
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            if ended[t]:
                total = rewards[t] - values[t + e]
            else:
                total = rewards[t] + gamma * values[t + e + 1] - values[t + e] + gamma * lam * total
            out[t] = total


@kernel("f8[1C] b1[1C] f8[1C] i8[1C] i8 f8 b1 f8[1C]")
def _n_step_returns(
    rewards: FloatArray,
    ended: BoolArray,
    values: FloatArray,
    offsets: IntArray,
    n: int,
    gamma: float,
    bootstrap: bool,
    out: FloatArray,
) -> None:
    # A direct sum of `n` terms, because the difference of two long sums would lose digits.
    for e in range(len(offsets) - 1):
        end = offsets[e + 1]
        for t in range(offsets[e + 1] - 1, offsets[e] - 1, -1):
            if ended[t]:
                end = t + 1
            stop = min(t + n, end)
            total = 0.0
            if bootstrap and not ended[stop - 1]:
                total = values[stop + e]
            for k in range(stop - 1, t - 1, -1):
                total = rewards[k] + gamma * total
            out[t] = total
