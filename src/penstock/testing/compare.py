"""Comparing what was read with what was written, to the bit, and slow definitions of what a read should give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field


def assert_same_array(found: Array, expected: Array, where: str) -> None:
    """Fail unless dtype, shape and every bit are equal (so NaN equals NaN)."""
    assert isinstance(found, Ragged) == isinstance(expected, Ragged), where
    assert found.dtype == expected.dtype, where
    assert found.shape == expected.shape, where
    if isinstance(found, Ragged) and isinstance(expected, Ragged):
        assert found.offsets.tolist() == expected.offsets.tolist(), where
        found, expected = found.values, expected.values
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), where


def assert_same_episode(found: Episode, expected: Episode) -> None:
    """Fail unless columns and metadata are equal."""
    assert len(found) == len(expected)
    assert list(found.columns) == list(expected.columns)
    for path, array in expected.columns.items():
        assert_same_array(found.columns[path], array, path)
    given = dict(expected.metadata)
    assert {name: found.metadata.get(name) for name in given} == given


def rows_of(episodes: Sequence[Episode], path: str) -> list[npt.NDArray[np.generic]]:
    """Every row of a column over all episodes, one by one."""
    return [row for episode in episodes for row in _listed(episode.columns[path])]


def brute_force(rows: Sequence[npt.NDArray[np.generic]], field: Field, selection: Selection) -> Array:
    """What reading `selection` must give, row by row: padding is zero, or an empty row."""
    n, width = selection.shape
    grid = [np.zeros((0,) if field.ragged else field.shape, field.dtype) for _ in range(n * width)]
    for start, length, at in zip(selection.start, selection.length, selection.at, strict=True):
        for i in range(int(length)):
            grid[at + i] = rows[int(start) + i]
    if field.ragged:
        values = np.concatenate([np.zeros(0, field.dtype), *grid]).astype(field.dtype)
        return Ragged(values, offsets_of([len(row) for row in grid]), (n, width))
    return np.array(grid, field.dtype).reshape(n, width, *field.shape)


def random_selection(rng: np.random.Generator, total: int, n: int, width: int) -> Selection:
    """Up to two spans a sample at random rows of `total`, with padding between and around them."""
    spans: list[tuple[int, int, int]] = []
    for sample in range(n):
        cuts = np.sort(rng.integers(width + 1, size=4)).tolist()
        for a, b in (cuts[:2], cuts[2:]):
            length = min(b - a, total)
            if length and rng.random() < 0.8:
                spans.append((int(rng.integers(int(total - length + 1))), length, sample * width + a))
    start, length, at = np.array(spans, np.int64).reshape(-1, 3).T.copy()
    return Selection(np.zeros_like(start), start, length, at, (n, width))


def _listed(array: Array) -> list[npt.NDArray[np.generic]]:
    return [array[i] for i in range(len(array))]
