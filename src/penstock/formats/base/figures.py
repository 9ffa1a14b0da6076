"""Figures of rows that datasets store (count, extremes, mean, deviation), merged without the rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.core.arrays import AnyArray

FIGURES = ("count", "min", "max", "mean", "std")


def merged_figures(one: Mapping[str, AnyArray], other: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the figures of two sets of rows together, from the figures of each, weighted by `count`.

    The deviation is that of the population: squares of deviations from each mean, and of each mean from the common one.
    """
    both = (one, other)
    counts = [each["count"].reshape((1,) * np.ndim(one["mean"])) for each in both]
    total = one["count"] + other["count"]
    with np.errstate(invalid="ignore"):  # infinite values have an infinite mean, and no deviation
        mean = (one["mean"] * counts[0] + other["mean"] * counts[1]) / total
        squares = [
            (each["std"] ** 2 + (each["mean"] - mean) ** 2) * count for each, count in zip(both, counts, strict=True)
        ]
    return {
        "min": np.minimum(one["min"], other["min"]),
        "max": np.maximum(one["max"], other["max"]),
        "mean": mean,
        "std": np.sqrt((squares[0] + squares[1]) / total),
        "count": total,
    }
