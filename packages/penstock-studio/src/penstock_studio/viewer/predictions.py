"""`Predictions`: the values that a policy predicts at each step of a dataset, drawn over its curves.

They are a dataset too, in any format: the same episodes with the same lengths, and columns of the same paths. Rows of
the shape of the column are one prediction for the step; rows `[H, ...]` are a chunk, the values of the step and of the
H - 1 after it.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.selection import Selection
from penstock.data.dataset import EpisodeDataset
from penstock.errors import ArgumentError, suggestion


class Predictions:
    """Predicted columns of a dataset, by their path: how many steps each row predicts."""

    def __init__(self, predicted: EpisodeDataset, data: EpisodeDataset, place: str) -> None:
        lengths, known = data.episodes.length, predicted.episodes.length
        if len(lengths) != len(known) or not np.array_equal(lengths, known):
            e = int(np.flatnonzero(lengths != known)[0]) if len(lengths) == len(known) else None
            where = f"{len(known)} episodes" if e is None else f"{known[e]} steps in episode {e}"
            wanted = f"{len(lengths)} episodes" if e is None else f"{lengths[e]}"
            raise ArgumentError(f"expected predictions for the same steps, {wanted}, got {where} in {place}")
        self._data = predicted
        self.steps: dict[str, int] = {}
        for path, field in predicted.spec.items():
            of = data.spec.get(path)
            if of is None or field.kind != "array" or field.align != of.align or field.dtype.kind not in "biuf":
                continue
            if field.shape == of.shape:
                self.steps[path] = 1
            elif field.shape[1:] == of.shape and field.shape[0] > 0:
                self.steps[path] = field.shape[0]
        if not self.steps:
            raise ArgumentError(
                f"expected a column of the dataset in {place}, with rows as there or chunks [H, ...] of them, "
                f"got {list(predicted.spec)}"
            )

    def chunks(self, e: int, column: str, first: int, last: int) -> AnyArray:
        """Return `[n, H, k]` float64 what is predicted at rows of an episode, as flat rows."""
        if column not in self.steps:
            raise ArgumentError(f"no predictions of {column!r}{suggestion(column, self.steps)}")
        begin, end = self._data.source.episode_rows(self._data.spec[column].align, int(self._data.episodes.index[e]))
        start = min(begin + max(first, 0), end)
        stop = max(min(begin + last, end), start)
        rows = np.asarray(self._data.source.read([column], Selection.consecutive(start, stop))[column])[0]
        return rows.reshape(stop - start, self.steps[column], -1).astype(np.float64)
