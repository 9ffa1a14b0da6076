"""Comparing what was read with what was written, to the bit, and slow definitions of what a read should give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field


def assert_same_array(actual: Array, expected: Array, where: str) -> None:
    """Fail unless dtype, shape and every bit are equal (so NaN equals NaN)."""
    assert isinstance(actual, Ragged) == isinstance(expected, Ragged), where
    assert actual.dtype == expected.dtype, where
    assert actual.shape == expected.shape, where
    if isinstance(actual, Ragged) and isinstance(expected, Ragged):
        assert actual.offsets.tolist() == expected.offsets.tolist(), where
        actual, expected = actual.values, expected.values
    assert np.asarray(actual).tobytes() == np.asarray(expected).tobytes(), where


def assert_same_episode(actual: Episode, expected: Episode) -> None:
    """Fail unless columns and metadata are equal."""
    assert len(actual) == len(expected)
    assert list(actual.columns) == list(expected.columns)
    for path, array in expected.columns.items():
        assert_same_array(actual.columns[path], array, path)
    given = dict(expected.metadata)
    assert {name: actual.metadata.get(name) for name in given} == given


def rows_of(episodes: Sequence[Episode], path: str) -> list[npt.NDArray[np.generic]]:
    """Return every row of a column over all episodes."""
    return [row for episode in episodes for row in _listed(episode.columns[path])]


def brute_force(rows: Sequence[npt.NDArray[np.generic]], field: Field, selection: Selection) -> Array:
    """Read a selection row by row: the slow definition of `Source.read`."""
    n, width = selection.shape
    grid = [np.zeros((0,) if field.ragged else field.shape, field.dtype) for _ in range(n * width)]
    for start, length, destination in zip(selection.start, selection.length, selection.destination, strict=True):
        for i in range(int(length)):
            grid[destination + i] = rows[int(start) + i]
    if field.ragged:
        values = np.concatenate([np.zeros(0, field.dtype), *grid]).astype(field.dtype)
        return Ragged(values, offsets_of([len(row) for row in grid]), (n, width))
    return np.array(grid, field.dtype).reshape(n, width, *field.shape)


def random_selection(rng: np.random.Generator, total: int, n: int, width: int) -> Selection:
    """Draw a selection: up to two spans for each sample at random rows, with padding between and around them."""
    spans: list[tuple[int, int, int]] = []
    for sample in range(n):
        cuts = np.sort(rng.integers(width + 1, size=4)).tolist()
        for a, b in (cuts[:2], cuts[2:]):
            length = min(b - a, total)
            if length and rng.random() < 0.8:
                spans.append((int(rng.integers(int(total - length + 1))), length, sample * width + a))
    start, length, destination = np.array(spans, np.int64).reshape(-1, 3).T.copy()
    return Selection(np.zeros_like(start), start, length, destination, (n, width))


def _listed(array: Array) -> list[npt.NDArray[np.generic]]:
    return [array[i] for i in range(len(array))]
