"""Buffer for the open episodes of a vectorised environment, stored as batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core import spaces
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.narrowing import is_array, is_dict, is_listed
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.errors import DataError
from penstock.recording.buffer import (
    FIRST_ROWS,
    ArrayColumn,
    BatchColumn,
    Cast,
    Column,
    batch_column_for,
    column_for,
    ends,
    storer,
)

CLOSED = -1


class BatchBuffer:
    """One row for each vector step, `n` environments wide. Storing costs the same for any `n`; cutting is
    per episode.

    Boundary row `row` is the current row of all environments. The open episode of environment `k` starts at boundary
    row `start[k]`, or is `CLOSED`. Memory: `n` times the longest open episode, times up to four.
    """

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, n: int, cast: Cast = "python"
    ) -> None:
        def make(path: str, field: Field) -> BatchColumn:
            return batch_column_for(path, field, n, cast)

        self.n, self.row = n, 0
        self.start = [CLOSED] * n
        self._room = FIRST_ROWS
        self._observations: dict[str, BatchColumn] = {}
        self._actions: dict[str, BatchColumn] = {}
        self._rewards = ArrayColumn("rewards", np.dtype(np.float64), (n,), cast="any")
        self._final: dict[str, Column] = {}
        self._store_final = storer(observation_space, "observations", column_for, self._final)
        self.store_observation = storer(observation_space, "observations", make, self._observations)
        self.store_action = storer(action_space, "actions", make, self._actions)
        self.store_reward = self._rewards.store

    def begin(self, observations: Any) -> None:
        """Start an episode in every environment."""
        self.row, self.start = 0, [0] * self.n
        self.store_observation(0, observations)

    def begin_some(self, observations: Any, mask: BoolArray) -> None:
        """Start an episode in some environments, at the current row."""
        self.store_observation(self.row + 1, observations)
        for column in self._observations.values():
            column.merge(self.row, mask)
        for k in np.flatnonzero(mask).tolist():
            self.start[k] = self.row

    def steps(self, k: int) -> int:
        """Return the number of steps of an open episode, or 0 if none is open."""
        return max(self.row - self.start[k], 0) if self.start[k] != CLOSED else 0

    def cut(self, k: int, terminated: bool, truncated: bool) -> dict[str, Array]:
        """Return the columns of an open episode."""
        lo, hi = self.start[k], self.row
        columns: dict[str, Array] = {path: c.cut(lo, hi + 1, k) for path, c in self._observations.items()}
        columns.update({path: c.cut(lo, hi, k) for path, c in self._actions.items()})
        return {**columns, "rewards": self._rewards.cut(lo, hi, k), **ends(hi - lo, terminated, truncated)}

    def rows(self, lanes: IntArray) -> tuple[dict[str, AnyArray], dict[str, AnyArray]]:
        """Return the observations before the next step, and its values and the observations after it, of some lanes."""
        i = self.row
        observations = {path: c.array for path, c in self._observations.items() if isinstance(c, ArrayColumn)}
        values = {path: c.array for path, c in self._actions.items() if isinstance(c, ArrayColumn)}
        values["rewards"] = self._rewards.array
        now = {path: array[i, lanes] for path, array in observations.items()}
        after = {path: array[i + 1, lanes] for path, array in observations.items()}
        return now, {**{path: array[i, lanes] for path, array in values.items()}, **after}

    def set_final(self, columns: dict[str, Array], observation: Any) -> dict[str, Any]:
        """Replace the last observation of an episode, where the batch has the first observation of the next."""
        self._store_final(0, observation)
        following: dict[str, Any] = {}
        for path, final in self._final.items():
            row, rows = final.take(1), columns[path]
            if isinstance(rows, Ragged):
                following[path] = rows[-1:].strings()[0]
                columns[path] = Ragged.concatenate([rows[:-1], row])  # type: ignore[list-item]
            else:
                following[path] = rows[-1].copy()
                rows[-1] = row[0]
        return following

    def make_room(self) -> None:
        """If the buffer is full, drop rows before the oldest open episode, or double the buffer."""
        if self.row + 1 < self._room:
            return
        oldest = min([start for start in self.start if start != CLOSED], default=self.row)
        if oldest <= self.row // 2:
            self._room *= 2  # the columns double by themselves, in step
            return
        for column in (*self._observations.values(), *self._actions.values(), self._rewards):
            column.shift(oldest, self.row + 1)
        self.row -= oldest
        self.start = [start if start == CLOSED else start - oldest for start in self.start]


def split_infos(infos: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    """Split the infos of a vector environment. Environment `k` has the keys whose `_key` is True for it."""
    parts: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        inner = split_infos(values, n) if is_dict(values) else values
        if not (is_listed(inner) or is_array(inner)) or len(inner) != n:
            raise DataError(
                f"expected infos[{key!r}] to have an entry for each of {n} environments, got {type(values)}"
            )
        mask = infos.get(f"_{key}")
        for k in range(n) if mask is None else np.flatnonzero(mask).tolist():
            parts[k][key] = inner[k]
    return parts
