"""Statistics of episodes as LeRobot stores them: moments, extremes, and quantiles from a histogram.

The standard deviation is `sqrt(mean(x^2) - mean(x)^2)`, and a quantile is interpolated in a histogram of `BINS` bins,
as in LeRobot. Figures of the dataset are merged from figures of episodes, so a merged quantile is a mean of quantiles.
Bytes, integers and booleans are summed as float64. LeRobot 0.6 sums bytes as float32, which rounds means of pictures to
about three digits; 0.4 squared bytes as bytes, which overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array
from penstock.formats.base.metadata import merged_figures

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
BINS = 5000
_EDGE = 1e-10  # by which the histogram is wider than the values
_SAMPLES = 100, 10_000, 0.75  # fewest and most pictures of an episode that are looked at, and the power of its length
_LARGE, _SMALL = 300, 150  # pictures of at least `_LARGE` pixels are thinned out to about `_SMALL`

Figures = dict[str, AnyArray]


def column_figures(values: AnyArray) -> Figures:
    rows = values.reshape(-1, 1 if values.ndim == 1 else values.shape[-1])
    return {**_figures(rows), "count": np.array([len(values)])}


def picture_figures(frames: AnyArray, scale: float = 255.0) -> Figures:
    """Return the figures of each channel of pictures, `[C, 1, 1]`."""
    fewest, most, power = _SAMPLES
    count = max(min(fewest, len(frames)), min(int(len(frames) ** power), most))
    chosen = np.round(np.linspace(0, len(frames) - 1, count)).astype(int)
    height, width = frames.shape[1:3]
    side = width if width > height else height
    every = 1 if max(width, height) < _LARGE else int(side / _SMALL)
    pixels = frames[chosen, ::every, ::every].reshape(-1, frames.shape[-1])
    scaled = {name: (figure / scale).reshape(-1, 1, 1) for name, figure in _figures(pixels).items()}
    return {**scaled, "count": np.array([count])}


def merged(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> Figures:
    """Return the figures of two sets of rows together, from the figures of each, weighted by `count`."""
    figures = merged_figures(one, other)
    counts = [each["count"].reshape((1,) * np.ndim(one["mean"])) for each in (one, other)]
    for name in QUANTILES:
        if name in one and name in other:
            figures[name] = (one[name] * counts[0] + other[name] * counts[1]) / figures["count"]
    return figures


def add_figures(whole: dict[str, Figures], figures: Mapping[str, Mapping[str, Any]]) -> None:
    """Merge figures of an episode, by feature, into figures of earlier episodes."""
    for name, new in plain_figures(figures).items():
        arrays = {figure: np.asarray(value) for figure, value in new.items()}
        whole[name] = merged(whole[name], arrays) if name in whole else arrays


def plain_figures(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return figures by feature as lists of numbers."""
    return {
        name: {figure: value.tolist() if is_array(value) else value for figure, value in each.items()}
        for name, each in figures.items()
    }


def _figures(values: AnyArray) -> Figures:
    """Figures of each element of rows, as floats."""
    floats = np.float64 if values.dtype.kind in "biu" else np.result_type(values.dtype, np.float32)
    rows: AnyArray = values.astype(floats, copy=False)
    return _few(rows) if len(rows) < 2 else _many(rows)


def _few(rows: AnyArray) -> Figures:
    """Figures of one row: every quantile is the value."""
    mean = np.mean(rows, axis=0)
    figures: Figures = {
        "min": np.min(rows, axis=0),
        "max": np.max(rows, axis=0),
        "mean": mean,
        "std": np.std(rows, axis=0),
    }
    return figures | {name: np.array(mean) for name in QUANTILES}


def _many(rows: AnyArray) -> Figures:
    least = np.min(rows, axis=0)
    greatest = np.max(rows, axis=0)
    mean = np.mean(rows, axis=0)
    with np.errstate(all="ignore"):  # infinite values, and squares beyond the dtype
        deviation = np.sqrt(np.maximum(0, np.mean(rows**2, axis=0) - mean**2))
    columns = [_quantiles(rows[:, i], least[i], greatest[i]) for i in range(rows.shape[1])]
    quantiles = {name: np.array([column[k] for column in columns]) for k, name in enumerate(QUANTILES)}
    return {"min": least, "max": greatest, "mean": mean, "std": deviation, **quantiles}


def _quantiles(values: AnyArray, least: Any, greatest: Any) -> list[Any]:
    """Return the quantiles of one element, from its histogram. Without finite extremes, they are NaN."""
    if not (np.isfinite(least) and np.isfinite(greatest)):
        return [np.nan] * len(QUANTILES)
    linspace: Callable[..., AnyArray] = cast("Any", np.linspace)
    spaced = linspace(least - _EDGE, greatest + _EDGE, BINS + 1)
    edges = np.maximum.accumulate(spaced)  # rounding of few bits may let them fall
    counts = np.asarray(np.histogram(values, bins=edges)[0], np.float64)
    sums = np.cumsum(counts)
    estimates: list[Any] = []
    for share in QUANTILES.values():
        wanted = share * len(values)
        bin = int(np.searchsorted(sums, wanted))
        if bin == 0 or bin >= BINS:
            estimates.append(edges[0] if bin == 0 else edges[-1])
            continue
        inside = sums[bin] - sums[bin - 1]
        part = (wanted - sums[bin - 1]) / inside if inside else 0
        estimates.append(edges[bin] + part * (edges[bin + 1] - edges[bin]))
    return estimates
