from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.plan.weights import MixReport, nested, per_sample, proportional, shares


def test_floats_are_the_numbers_they_print_as() -> None:
    assert shares([0.5, 0.3, 0.2]) == (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5))
    assert shares([1, 1e-9]) == (Fraction(10**9, 10**9 + 1), Fraction(1, 10**9 + 1))
    assert shares([np.float32(0.1), np.float64(0.3), np.int64(0)]) == (Fraction(1, 4), Fraction(3, 4), 0)


def test_weights_are_not_cut_to_hundredths_of_the_smallest() -> None:
    """Grain makes 100 to 100 of these."""
    assert shares([1, 1.009]) == (Fraction(1000, 2009), Fraction(1009, 2009))


def test_a_weight_is_any_exact_number() -> None:
    assert shares(["1/3", Decimal("0.5"), Fraction(1, 6), 0]) == (Fraction(1, 3), Fraction(1, 2), Fraction(1, 6), 0)


@pytest.mark.parametrize(
    "bad", [[], [0, 0], [1, -1], [1, float("nan")], [1, float("inf")], ["a"], [None], ["1/0"], ["1e99999999"], [True]]
)
def test_what_is_no_weight_is_refused(bad: list[Any]) -> None:
    with pytest.raises(PlanError, match="expected"):
        shares(bad)


@given(st.lists(st.floats(0, 1e12) | st.integers(0, 10**30), min_size=1, max_size=30).filter(any))
def test_shares_add_up_to_one(weights: list[float]) -> None:
    assert sum(shares(weights)) == 1


def test_proportional() -> None:
    assert proportional([1, 3]) == (Fraction(1, 4), Fraction(3, 4))
    assert proportional([0, 3, 10**20], maximum=3) == (0, Fraction(1, 2), Fraction(1, 2))
    warm = proportional([100, 10_000], temperature=2)
    assert [float(share) for share in warm] == pytest.approx([10 / 110, 100 / 110])
    assert [float(share) for share in proportional([1, 1000], temperature=1e9)] == pytest.approx([0.5, 0.5])
    for bad in ({"temperature": 0}, {"temperature": float("nan")}, {"maximum": 0}):
        with pytest.raises(PlanError, match="temperature"):
            proportional([1, 2], **bad)


def test_nested_mixes_multiply() -> None:
    assert nested([0.5, 0.5], [[1, 3], None]) == (Fraction(1, 8), Fraction(3, 8), Fraction(1, 2))
    with pytest.raises(PlanError, match="one inner weight"):
        nested([1], [])


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 10**6), st.integers(1, 1000)), min_size=1, max_size=9))
def test_shares_of_rows_become_shares_of_samples(sources: list[tuple[int, int, int]]) -> None:
    wanted = shares([weight for weight, _, _ in sources])
    mean = [Fraction(rows, samples) for _, rows, samples in sources]
    rows = [share * each for share, each in zip(per_sample(wanted, mean), mean, strict=True)]
    assert tuple(row / sum(rows) for row in rows) == wanted


def test_rows_must_be_there_where_they_are_wanted() -> None:
    assert per_sample(shares([1, 0]), [Fraction(2), Fraction(0)]) == (1, 0)
    with pytest.raises(PlanError, match="source 1"):
        per_sample(shares([1, 1]), [Fraction(2), Fraction(0)])
    with pytest.raises(PlanError, match="2 sources"):
        per_sample(shares([1, 1]), [Fraction(2)])


def test_a_report_says_both_units() -> None:
    report = MixReport.of(["short", "long"], shares([1, 1]), [80, 20], [800, 800])
    assert [(p.samples, p.share_of_samples, p.rows, p.share_of_rows) for p in report.parts] == [
        (80, 0.8, 800, 0.5),
        (20, 0.2, 800, 0.5),
    ]
    assert str(report).splitlines()[2].split() == ["long", "0.5000", "20", "0.2000", "800", "0.5000"]
    assert str(MixReport.of(["a"], shares([1]), [0])).splitlines()[1].split() == ["a", "1.0000", "0", "0.0000"]
