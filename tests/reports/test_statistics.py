"""Reports about statistics: elements that never change, small changes of large values, merged quantiles, histograms."""

# pyright: basic

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from tests.reports.reported import report


def of(values: Any) -> Any:
    data = penstock.from_arrays({"x": np.asarray(values)}, [len(values)], align={"x": "step"})
    return penstock.statistics(data, progress=False)


@report("huggingface/lerobot#211", "an element with one value in all data is normalized to a finite number")
@report("pytorch/rl#323", "a deviation of 0 gives a width of 1")
@report("X-Square-Robot/wall-x#112", "equal least and greatest values give no NaN")
@pytest.mark.parametrize("mode", ["standard", "min_max", "quantile"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_constant_elements_become_zero(mode: Any, dtype: str) -> None:
    rows = np.stack([np.full(1000, 0.1), np.linspace(-1, 1, 1000)], 1).astype(dtype)
    scale = penstock.normalize(of(rows), ["x"], mode)
    scaled = scale({"x": rows})["x"]
    assert np.isfinite(scaled).all()
    assert not scaled[:, 0].any()
    np.testing.assert_allclose(scale.inverse({"x": scaled})["x"], rows, rtol=1e-6, atol=1e-6)


@report("huggingface/lerobot#4704", "small changes of large values have their deviation, in one batch and in several")
@pytest.mark.parametrize(("offset", "dtype"), [(10_000, "f4"), (1e9, "f8"), (2.0**40, "f8")])
def test_small_changes_of_large_values(offset: float, dtype: str) -> None:
    values = (offset + np.arange(3)).astype(dtype)
    parts = [of(values[:1]), of(values[1:])]
    for found in (of(values), parts[0] | parts[1]):
        assert found["x"].std == pytest.approx(0.816496580927726, rel=1e-12)
        assert found["x"].mean == offset + 1


@report("huggingface/lerobot#4156", "quantiles of merged datasets are those of all values, and no mean of quantiles")
@report("huggingface/lerobot#3804", "the 99 % quantile of a rare wide motion is not averaged away")
def test_quantiles_of_merged_statistics() -> None:
    rng = np.random.default_rng(0)
    narrow, wide = rng.uniform(-10, 10, 900), rng.uniform(-10, 50, 100)
    merged = (of(narrow) | of(wide))["x"]
    shares = [0.01, 0.1, 0.5, 0.9, 0.99]
    exact = np.quantile(np.concatenate([narrow, wide]), shares, method="inverted_cdf")
    np.testing.assert_allclose(merged.quantile(shares), exact, rtol=1 / 256)


@report("numpy/numpy#8627", "a histogram of equal values of 2^53 or more, and of the least floats")
@report("numpy/numpy#27148", "values with fewer floats between them than bins")
@report("matplotlib/matplotlib#8091", "equal values of 2^53 or more can be shown")
@report("developmentseed/rio-stac#68", "data that are nearly constant have a histogram and a word about it")
@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([2.0**53], "constant"),
        ([2**60] * 5, "constant"),
        ([1e-317, 0.0], ""),
        ([0.5] * 10 + [0.500000000000001], "nearly constant"),
        ([1.0, np.nextafter(1, 2)], "nearly constant"),
    ],
)
def test_histograms_of_values_that_are_close(values: Any, word: str) -> None:
    column = of(values)["x"]
    for bins in (1, 10, 1000):
        counts, edges = column.histogram(bins)
        assert counts.sum() == len(values)
        assert (edges[0], edges[-1]) == (min(values), max(values))
    assert column.why_no_histogram(()) == word
