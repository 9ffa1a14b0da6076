"""Short-term targets, bit for bit those of the original rescorer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock_chess.formats.lc0 import FRAME, NO_MOVE, open_chunks
from penstock_chess.short_term import fill_short_term

NAMES = ("training.700001.gz", "training.700027.gz")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("missing", ["zero", "nan"])
def test_whole_records_are_those_of_the_original(frames: Any, golden: Any, name: str, missing: Any) -> None:
    source = open_chunks(golden / "gz" / name, missing_st=missing)
    assert source is not None
    rows = source.load(0)
    fill_short_term(rows)
    assert np.array_equal(rows, frames(f"v7/{name}"))


def rows_of(q: Any, d: Any) -> Any:
    record = np.zeros(len(q), FRAME)
    record["root_q"], record["root_d"], record["played_idx"] = q, d, np.arange(len(q)) + 10
    return record


@pytest.mark.parametrize("theta", [0.0, 0.25, 5 / 6, 1.0])
@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_values_are_means_over_later_frames(theta: float, n: int) -> None:
    rng = np.random.default_rng(n)
    record = rows_of(rng.uniform(-1, 1, n), rng.uniform(0, 1, n))
    fill_short_term(record.view(np.uint8).reshape(n, -1), theta)
    for i in range(n):
        ahead = np.arange(n - i)
        weight = theta**ahead * np.where(ahead < n - i - 1, 1 - theta, 1)
        q = np.sum(weight * (-1.0) ** ahead * record["root_q"][i:])
        assert record["q_st"][i] == pytest.approx(q, abs=1e-6)
        assert record["d_st"][i] == pytest.approx(np.sum(weight * record["root_d"][i:]), abs=1e-6)


def test_indices_are_those_of_the_next_frames_and_none_past_the_end() -> None:
    record = rows_of(np.zeros(3), np.zeros(3))
    fill_short_term(record.view(np.uint8).reshape(3, -1))
    assert record["opp_played_idx"].tolist() == [11, 12, NO_MOVE]
    assert record["next_played_idx"].tolist() == [12, NO_MOVE, NO_MOVE]
    assert record["version"].tolist() == [7, 7, 7]


def test_draws_are_not_below_zero() -> None:
    record = rows_of(np.zeros(2), np.full(2, -0.5))
    fill_short_term(record.view(np.uint8).reshape(2, -1))
    assert record["d_st"].tolist() == [0, 0]
