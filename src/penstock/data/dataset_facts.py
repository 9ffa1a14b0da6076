"""What one look at a dataset needs: histograms with short edges, words of text columns, figures of columns.

Notebooks and the viewer show the same ones. Of a large dataset, episodes that are spread evenly are read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

import penstock  # it fetches `statistics`, which is built on the datasets that this module describes
from penstock.core.arrays import AnyArray, ByteArray, FloatArray, IntArray
from penstock.core.bins import equal_bins
from penstock.core.frames import pictures
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Spec, is_camera
from penstock.data.statistics import ColumnStatistics, elements
from penstock.formats.base.source import Source
from penstock.plan.episodes import Episodes

STEPS = 1 << 16  # steps that are read, in whole episodes
WIDEST = 256  # numbers of a row, above which a column has no figures
ELEMENTS = 16  # numbers of a row that have figures
BINS = 32
NARROW = 1e-9  # range of values, in shares of their size, below which edges cannot be short
TEXTS = 512  # episodes whose texts are read
WORDS = 12  # texts that are listed


class ShownDataset(Protocol):
    """The parts of an `EpisodeDataset` that are described here."""

    source: Source
    episodes: Episodes

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> Any: ...

    @property
    def spec(self) -> Spec:
        """Columns and spaces."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the dataset."""
        ...

    @property
    def total_steps(self) -> int:
        """Steps of all episodes."""
        ...


class Histogram(NamedTuple):
    """Numbers of values between edges; those at the last edge count too."""

    edges: FloatArray
    counts: IntArray


def histogram_of(values: AnyArray, bins: int = BINS) -> Histogram:
    """Return at most about `bins` bins, whose edges are whole numbers for integers, otherwise numbers of few digits.

    NaN and infinite values are left out.
    """
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return Histogram(np.zeros(0), np.zeros(0, np.int64))
    low, high = float(numbers.min()), float(numbers.max())
    if high / 2 - low / 2 > NARROW * max(abs(low), abs(high)) and high - low < math.inf:
        step = _short_step((high - low) / bins)
        if np.asarray(values).dtype.kind in "iub":
            step = max(step, 1.0)
        first, last = math.floor(low / step), math.floor(high / step) + 1
        edges = np.arange(first, last + 1, dtype=np.float64) * step
        digits = max(0, -math.floor(math.log10(step)))
        edges = np.round(edges, digits).astype(np.float64) if digits < 300 else edges
        counts, _ = np.histogram(numbers, edges)
        if counts.sum() == len(numbers):
            return Histogram(edges, counts)
    counts, edges = equal_bins(numbers, bins if high > low else 1, low, high)
    return Histogram(edges, counts)


def _short_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20 and so on that is as large."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((power * each for each in (1, 2, 5) if power * each >= least), power * 10)


def text_counts(data: ShownDataset) -> dict[str, list[tuple[str, int]]]:
    """Return the most frequent texts at the first rows of episodes, by text column, with their numbers of episodes."""
    frequent: dict[str, list[tuple[str, int]]] = {}
    chosen = spread_episodes(len(data), TEXTS)
    for path, field in data.spec.items():
        if field.kind == "text":
            counts = Counter(text for e in chosen for text in first_texts(data, path, e))
            frequent[path] = counts.most_common(WORDS)
    return frequent


def first_texts(data: ShownDataset, path: str, e: int) -> list[str]:
    """Return the first row of a text column in an episode; none if it has no rows."""
    begin, end = _rows(data, path, e)
    if begin == end:
        return []
    rows = data.source.read_ragged(path, Selection.consecutive(begin, begin + 1))
    return Ragged(rows.values, rows.offsets).strings()


def end_pictures(data: ShownDataset, path: str, e: int) -> list[ByteArray]:
    """Return the first and the last picture of a column in an episode, the newest of a stack; none without rows."""
    begin, end = _rows(data, path, e)
    ends = sorted({begin, end - 1}) if end > begin else []
    rows = [data.source.read([path], Selection.consecutive(row, row + 1))[path] for row in ends]
    return [pictures(np.asarray(row)[0])[0, -1] for row in rows]


def _rows(data: ShownDataset, path: str, e: int) -> tuple[int, int]:
    return data.source.episode_rows(data.spec[path].align, int(data.episodes.index[e]))


def spread_episodes(episodes: int, most: int) -> list[int]:
    """Return at most so many episodes, from the first to the last."""
    return np.unique(np.linspace(0, episodes - 1, min(most, episodes)).astype(np.int64)).tolist() if episodes else []


def column_figures(data: ShownDataset) -> dict[str, Any]:
    """Return figures of the numbers in each column, without pictures, text and very wide columns.

    Of a large dataset, `STEPS` steps are read, or one episode if it is longer; `episodes` says how many.
    """
    every = max(-(-data.total_steps // STEPS), 1)
    sample = data[::every]
    wanted = [
        path
        for path, field in data.spec.items()
        if field.dtype.kind in "biuf" and field.kind != "text" and not is_camera(field)
        if math.prod(field.shape) <= WIDEST
    ]
    if not len(sample) or not wanted:
        return {"episodes": len(sample), "columns": []}
    figures = penstock.statistics(sample, wanted, progress=False)
    return {
        "episodes": len(sample),
        "columns": [entry for path, column in figures.items() for entry in _entries(path, column)],
    }


def _entries(path: str, column: ColumnStatistics) -> list[dict[str, Any]]:
    counts, edges = column.histogram(BINS)
    figures = {"mean": column.mean, "std": column.std, "min": column.min, "max": column.max}
    missing = column.nans + column.infinities
    return [
        {
            "path": path,
            "name": each.name,
            **{name: _finite(float(figure[each.place])) for name, figure in figures.items()},
            "missing": int(missing[each.place]),
            "counts": counts[each.place].tolist(),
            "edges": edges[each.place].tolist(),
            "words": column.why_no_histogram(each.place),
        }
        for each in elements(path, column, ELEMENTS)
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
