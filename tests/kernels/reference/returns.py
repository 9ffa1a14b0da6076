"""Definitions of the kernels of returns: each step from its formula."""

from __future__ import annotations

import numpy as np


def discounted_sums(rewards: np.ndarray, offsets: np.ndarray, gamma: float, out: np.ndarray) -> None:
    """`sum(gamma ** k * rewards[t + k])` to the end of the episode."""
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for t in range(begin, end):
            out[t] = sum(gamma ** (k - t) * rewards[k] for k in range(t, end))


def advantages(
    rewards: np.ndarray,
    ended: np.ndarray,
    values: np.ndarray,
    offsets: np.ndarray,
    gamma: float,
    lam: float,
    out: np.ndarray,
) -> None:
    """`sum((gamma * lam) ** k * delta[t + k])` up to a termination or the end of the episode."""
    for e, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        following = [0.0 if ended[t] else gamma * values[t + e + 1] for t in range(begin, end)]
        delta = [rewards[t] + following[t - begin] - values[t + e] for t in range(begin, end)]
        for t in range(begin, end):
            stop = next((k + 1 for k in range(t, end) if ended[k]), end)
            out[t] = sum((gamma * lam) ** (k - t) * delta[k - begin] for k in range(t, stop))


def n_step_returns(
    rewards: np.ndarray,
    ended: np.ndarray,
    values: np.ndarray | None,
    offsets: np.ndarray,
    n: int,
    gamma: float,
    out: np.ndarray,
) -> None:
    """`sum(gamma ** k * rewards[t + k])` of up to `n` steps, and `gamma ** m` times the value after `m` of them."""
    for e, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        for t in range(begin, end):
            stop = next((k + 1 for k in range(t, min(t + n, end)) if ended[k]), min(t + n, end))
            future = 0.0 if values is None or ended[stop - 1] else gamma ** (stop - t) * values[stop + e]
            out[t] = sum(gamma ** (k - t) * rewards[k] for k in range(t, stop)) + future
