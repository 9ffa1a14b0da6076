"""Kernels of returns equal their definitions, and refuse offsets that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ragged import offsets_of
from penstock.kernels.returns import advantages, discounted_sums, n_step_returns
from tests.kernels.reference import returns as reference

lengths = st.lists(st.integers(0, 6), min_size=1, max_size=6)
shares = st.floats(0, 1)


def arrays(sizes: list[int], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, terminations, values and offsets of episodes."""
    rng, steps = np.random.default_rng(seed), sum(sizes)
    return rng.normal(size=steps), rng.random(steps) < 0.3, rng.normal(size=steps + len(sizes)), offsets_of(sizes)


def outputs(steps: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full(steps, np.nan), np.full(steps, np.nan)


@given(lengths, st.integers(0, 9), shares)
def test_discounted_sums_equal_their_definition(sizes: list[int], seed: int, gamma: float) -> None:
    rewards, _, _, offsets = arrays(sizes, seed)
    ours, wanted = outputs(len(rewards))
    discounted_sums(rewards, offsets, gamma, ours)
    reference.discounted_sums(rewards, offsets, gamma, wanted)
    np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)


@given(lengths, st.integers(0, 9), shares, shares)
def test_advantages_equal_their_definition(sizes: list[int], seed: int, gamma: float, lam: float) -> None:
    given = arrays(sizes, seed)
    ours, wanted = outputs(len(given[0]))
    advantages(*given, gamma, lam, ours)
    reference.advantages(*given, gamma, lam, wanted)
    np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)


@given(lengths, st.integers(0, 9), st.integers(1, 8), shares, st.booleans())
def test_n_step_returns_equal_their_definition(
    sizes: list[int], seed: int, n: int, gamma: float, bootstrap: bool
) -> None:
    rewards, ended, values, offsets = arrays(sizes, seed)
    ours, wanted = outputs(len(rewards))
    known = values if bootstrap else None
    n_step_returns(rewards, ended, known, offsets, n, gamma, ours)
    reference.n_step_returns(rewards, ended, known, offsets, n, gamma, wanted)
    np.testing.assert_allclose(ours, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("offsets", [[0, 2], [0, 4], [0, 2, 1, 3], [1, 3], []])
def test_offsets_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="expected offsets from 0"):
        discounted_sums(np.zeros(3), np.array(offsets, np.int64), 1.0, np.zeros(3))


def test_values_that_do_not_fit_are_refused() -> None:
    zeros, ended, offsets = np.zeros(3), np.zeros(3, np.bool_), np.array([0, 3])
    with pytest.raises(ValueError, match="expected offsets from 0"):
        advantages(zeros, ended, zeros, offsets, 1.0, 1.0, zeros)
    with pytest.raises(ValueError, match="at least 1 step"):
        n_step_returns(zeros, ended, None, offsets, 0, 1.0, zeros)
