"""Figures of the columns of a dataset, for its page: means, deviations, extremes and histograms."""

from __future__ import annotations

import math
from typing import Any

from penstock.data.dataset import EpisodeDataset
from penstock.data.statistics import ColumnStatistics, elements
from penstock.data.summarize import statistics
from penstock.doctor.block import is_camera

STEPS = 1 << 16  # steps that are read, in whole episodes
WIDEST = 256  # numbers of a row, above which a column has no figures on the page
ELEMENTS = 16  # numbers of a row that have figures
BINS = 32


def column_figures(data: EpisodeDataset) -> dict[str, Any]:
    """Return figures of the numbers in each column, without pictures, text and very wide columns.

    Of a large dataset, episodes that are spread evenly are read: `STEPS` steps, or one episode if it is longer.
    """
    every = max(-(-data.total_steps // STEPS), 1)
    sample = data[::every]
    wanted = [
        path
        for path, field in data.spec.items()
        if not is_camera(field) and field.kind != "text" and math.prod(field.shape) <= WIDEST
    ]
    if not len(sample) or not wanted:
        return {"episodes": len(sample), "columns": []}
    figures = statistics(sample, wanted, progress=False)
    return {
        "episodes": len(sample),
        "columns": [entry for path, column in figures.items() for entry in _entries(path, column)],
    }


def _entries(path: str, column: ColumnStatistics) -> list[dict[str, Any]]:
    counts, edges = column.histogram(BINS)
    figures = {"mean": column.mean, "std": column.std, "min": column.min, "max": column.max}
    return [
        {
            "name": each.name,
            **{name: _finite(float(figure[each.place])) for name, figure in figures.items()},
            "counts": counts[each.place].tolist(),
            "edges": edges[each.place].tolist(),
            "words": column.why_no_histogram(each.place),
        }
        for each in elements(path, column, ELEMENTS)
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
