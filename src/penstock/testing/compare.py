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
    """Fail unless dtype, shape and every bit are equal (so NaN equals NaN).

    Args:
        actual: The array that was read.
        expected: The array that it should be.
        where: Text of the failure, such as the name of the column.

    Raises:
        AssertionError: They differ.

    Example:
        >>> assert_same_array(np.array([np.nan]), np.array([np.nan]), "rewards")
    """
    assert isinstance(actual, Ragged) == isinstance(expected, Ragged), where
    assert actual.dtype == expected.dtype, where
    assert actual.shape == expected.shape, where
    if isinstance(actual, Ragged) and isinstance(expected, Ragged):
        assert actual.offsets.tolist() == expected.offsets.tolist(), where
        actual, expected = actual.values, expected.values
    assert np.asarray(actual).tobytes() == np.asarray(expected).tobytes(), where


def assert_same_episode(actual: Episode, expected: Episode) -> None:
    """Fail unless columns and metadata are equal.

    Args:
        actual: The episode that was read.
        expected: The episode that it should be. Metadata that it lacks are not compared.

    Raises:
        AssertionError: They differ.

    Example:
        >>> from penstock.testing.examples import FLAT
        >>> assert_same_episode(FLAT.episodes()[0], FLAT.episodes()[0])
    """
    assert len(actual) == len(expected)
    assert list(actual.columns) == list(expected.columns)
    for path, array in expected.columns.items():
        assert_same_array(actual.columns[path], array, path)
    given = dict(expected.metadata)
    assert {name: actual.metadata.get(name) for name in given} == given


def rows_of(episodes: Sequence[Episode], path: str) -> list[npt.NDArray[np.generic]]:
    """Return every row of a column over all episodes.

    Args:
        episodes: The episodes, in order.
        path: Path of the column.

    Returns:
        One array for each row.

    Example:
        >>> from penstock.testing.examples import FLAT
        >>> len(rows_of(FLAT.episodes(), "rewards"))
        13
    """
    return [row for episode in episodes for row in _listed(episode.columns[path])]


def brute_force(rows: Sequence[npt.NDArray[np.generic]], field: Field, selection: Selection) -> Array:
    """Read a selection row by row: the slow definition of `Source.read`.

    Args:
        rows: All rows of the column, as `rows_of` returns them.
        field: Field of the column.
        selection: Rows to read, `n` samples of `L` steps.

    Returns:
        `[n, L, ...]`, or ragged rows; padding is zero, or an empty row.

    Example:
        >>> zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
        >>> rows = [np.array(5.0), np.array(6.0)]
        >>> brute_force(rows, Field(np.dtype("f8")), Selection(zero, one, one, zero, (1, 2))).tolist()
        [[6.0, 0.0]]
    """
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
    """Draw a selection: up to two spans for each sample at random rows, with padding between and around them.

    Args:
        rng: Random numbers.
        total: Rows of the column.
        n: Samples.
        width: Steps of a sample.

    Returns:
        The selection, of source 0.

    Example:
        >>> random_selection(np.random.default_rng(0), total=10, n=3, width=4).shape
        (3, 4)
    """
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
