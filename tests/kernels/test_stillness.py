"""Rows that change little: the kernel equals its definition in NumPy, with NaN, infinities and short episodes."""

# pyright: basic

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from penstock.kernels.stillness import mark_still


def marked(rows: np.ndarray, bounds: np.ndarray, share: float) -> np.ndarray:
    """The definition, one episode at a time."""
    out = np.zeros(len(rows), np.bool_)
    for a, b in pairwise(bounds.tolist()):
        episode = rows[a:b].astype(np.float64)
        if len(episode) > 1:
            with np.errstate(invalid="ignore"):
                limit = share * (episode.max(axis=0) - episode.min(axis=0))
                out[a + 1 : b] = (np.abs(np.diff(episode, axis=0)) <= limit).all(axis=1)
            out[a] = out[a + 1]
    return out


@pytest.mark.parametrize("seed", range(12))
def test_equals_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 40))])
    rows = rng.integers(0, 4, (int(bounds[-1]), int(rng.integers(1, 5)))).astype(rng.choice(["f4", "f8"]))
    if len(rows) and seed % 2:
        strange = rng.integers(0, rows.size, 9)
        rows.reshape(-1)[strange] = rng.choice([np.nan, np.inf, -np.inf, 1e-40], 9)
    for share in (0.0, 0.34, 1.0):
        out = np.ones(len(rows), np.bool_)
        mark_still(rows, bounds, share, out)
        assert out.tolist() == marked(rows, bounds, share).tolist()


def test_rows_without_elements_and_no_rows() -> None:
    out = np.zeros(3, np.bool_)
    mark_still(np.zeros((3, 0)), np.array([0, 2, 3]), 0.1, out)
    assert out.tolist() == [True, True, False]
    mark_still(np.zeros((0, 2)), np.array([0]), 0.1, out[:0])


@pytest.mark.parametrize("bounds", [[], [1, 3], [0, 2], [0, 4], [0, 2, 1, 3]])
def test_bounds_that_do_not_fit_are_refused(bounds: list[int]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        mark_still(np.zeros((3, 1)), np.array(bounds, np.int64), 0.1, np.zeros(3, np.bool_))
