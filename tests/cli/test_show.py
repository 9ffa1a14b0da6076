"""Bars, sizes and JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.show import BARS, histogram_bars, plain, size, spread

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(NUMBERS, st.integers(1, 50))
def test_bars_are_a_histogram(values: list[float], bins: int) -> None:
    bars = histogram_bars(values, bins)
    assert len(bars) == bins
    assert BARS[-1] in bars
    assert set(bars) <= {*BARS, " "}


def test_bars_are_as_tall_as_there_are_values() -> None:
    assert histogram_bars([0, 0, 8, 8, 8, 8, 4], 3) == "▄▂█"
    assert histogram_bars([8, 0], 4) == "█  █"
    assert histogram_bars([1.7e308, -1.7e308], 2) == "██"
    assert histogram_bars([5, 5], 3) == "  █"
    assert histogram_bars([]) == histogram_bars([np.nan, np.inf]) == ""
    assert spread([1.7e308, 1.7e308]) == {"min": 1.7e308, "mean": np.inf, "max": 1.7e308}


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (31_000_000, "31.0 MB"), (4e9, "4.0 GB"), (5e15, "5000.0 TB")],
)
def test_sizes(n: float, text: str) -> None:
    assert size(n) == text


def test_plain_values() -> None:
    given_ = {1: np.arange(2), "a": [np.float32(0.5), np.nan], "p": Path("x"), "b": b"x", "t": True, "n": None}
    assert plain(given_) == {"1": [0, 1], "a": [0.5, None], "p": "x", "b": "b'x'", "t": True, "n": None}
    assert plain(np.array([np.inf, 1.0])) == [None, 1.0]


def test_spread_of_nothing() -> None:
    assert spread([]) is None
