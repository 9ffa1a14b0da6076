"""`EpisodeBlock`: consecutive episodes in memory, and the results of checks on them.

Checks are array operations on all rows of a block, because a loop over episodes in Python would take longer than
reading them. A row check returns a mask `[rows]`; `EpisodeBlock.by_row` turns it into `Hits`, one entry for each
episode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.spec import Align, Field
from penstock.data.loaded_episodes import LoadedEpisodes, flattened
from penstock.kernels.stillness import mark_still

FLAGS = ("terminations", "truncations", "dones", "done")
# Names of columns, or of groups of them; the first one is ours, tables have the others.
ROLES = {
    "observations": ("observations", "observation", "obs"),
    "actions": ("actions", "action"),
    "rewards": ("rewards", "reward"),
}
NEXT = "next_observations"
CLOCKS = frozenset(("timestamp", "timestamps", "time", "times"))

NARROW = 16


@dataclass(frozen=True, eq=False)
class Hits:
    """Rows of one column to which one kind of finding applies, in one block."""

    name: str
    column: str
    episodes: IntArray
    rows: IntArray
    counts: IntArray


@dataclass(frozen=True, eq=False)
class EpisodeBlock(LoadedEpisodes):
    """Consecutive episodes, and masks of their rows."""

    @cached_property
    def numbers(self) -> IntArray:
        """`[n]` numbers of the episodes."""
        return np.arange(self.first, self.first + len(self.lengths))

    def owners(self, align: Align) -> IntArray:
        """`[rows]` which episode of the block each row belongs to."""
        return np.repeat(np.arange(len(self.lengths)), np.diff(self.bounds(align)))

    def arrays(self, role: str | None = None) -> list[tuple[str, Field, AnyArray]]:
        """Columns of numbers, of one role or all, with their fields, that have a row for each step or more."""
        return [
            (path, self.spec[path], rows)
            for path, rows in self.columns.items()
            if not isinstance(rows, Ragged)
            and self.spec[path].align != "episode"
            and (role is None or has_role(role, path))
        ]

    def clocks(self) -> list[tuple[str, Field, AnyArray]]:
        """Columns of timestamps, each `[rows]`."""
        return [(path, field, rows.reshape(-1)) for path, field, rows in self.arrays() if is_clock(path, field)]

    def unchanged(self, path: str) -> BoolArray:
        """`[rows]` whether a row has the same bits as the row before it in its episode. The result is computed once."""
        known = self._unchanged.get(path)
        if known is None:
            rows = self.columns[path]
            bounds = self.bounds(self.spec[path].align)
            known = self._unchanged[path] = _repeated(np.asarray(rows), bounds)
        return known

    @cached_property
    def _unchanged(self) -> dict[str, BoolArray]:
        return {}

    def still_steps(self, share: float) -> BoolArray | None:
        """`[steps]` whether neither actions nor observations change much at a step; None without actions of floats.

        A change is little if it is at most `share` of the range of the values in the episode. The first step of an
        episode is compared with the second. The result is computed once.
        """
        if share not in self._still:
            self._still[share] = self._marked_still(share)
        return self._still[share]

    @cached_property
    def _still(self) -> dict[float, BoolArray | None]:
        return {}

    def _marked_still(self, share: float) -> BoolArray | None:
        actions = [each for each in self.arrays("actions") if each[1].align == "step" and each[2].dtype.kind == "f"]
        if not actions:
            return None
        seen = [each for each in self.arrays("observations") if each[2].dtype.kind == "f"]
        steps = self.bounds("step")
        still = np.ones(int(steps[-1]), np.bool_)
        for _, field, rows in (*actions, *seen):
            bounds = self.bounds(field.align)
            little = np.empty(len(rows), np.bool_)
            native = np.dtype(np.float32 if rows.dtype.itemsize <= 4 else np.float64)
            mark_still(flattened(rows).astype(native, copy=False), bounds, share, little)
            if field.align == "step":
                still &= little
            else:
                still &= np.delete(little, bounds[1:] - 1)  # the observation after the last step
        return still

    def by_row(self, name: str, column: str, align: Align, bad: BoolArray) -> list[Hits]:
        """Return the hits of a mask `[rows]`: one entry if any is true, else none."""
        places = np.flatnonzero(bad)
        if not len(places):
            return []
        bounds = self.bounds(align)
        owner = np.searchsorted(bounds, places, side="right") - 1
        episodes, begin, counts = np.unique(owner, return_index=True, return_counts=True)
        return [Hits(name, column, episodes + self.first, places[begin] - bounds[episodes], counts)]

    def by_episode(self, name: str, column: str, bad: BoolArray, row: IntArray | int = 0) -> list[Hits]:
        """Return the hits of a mask `[n]` of episodes, with the row to look at."""
        episodes = np.flatnonzero(bad)
        if not len(episodes):
            return []
        rows = np.broadcast_to(np.asarray(row, np.int64), bad.shape)[episodes]
        return [Hits(name, column, episodes + self.first, rows, np.ones_like(episodes))]


def has_role(role: str, path: str) -> bool:
    """Whether a column is of a role, by the first part of its path: `observations/state`, `observation.state`."""
    return re.split(r"[/.]", path, maxsplit=1)[0] in ROLES.get(role, (role,))


def is_clock(path: str, field: Field) -> bool:
    """Whether a column has timestamps, by the last part of its path: one number a row."""
    return path.rsplit("/", 1)[-1] in CLOCKS and field.dtype.kind in "iuf" and field.shape in ((), (1,))


def any_value(bad: BoolArray) -> BoolArray:
    """`[n]` whether any value of a row is true. Rows of few values are taken by column, which NumPy does in a tenth."""
    flat = flattened(bad)
    if flat.shape[1] > NARROW:
        return np.asarray(flat.any(axis=1))
    result = np.zeros(len(flat), np.bool_)
    for column in flat.T:
        result |= column
    return result


def runs(same: BoolArray, bounds: IntArray, least: int) -> tuple[IntArray, IntArray]:
    """Return runs of at least `least` rows, the first included, that have the same values."""
    starts = np.flatnonzero(~same)
    sizes = np.diff(np.append(starts, int(bounds[-1])))
    long = sizes >= least
    return starts[long], sizes[long]


def sums(values: AnyArray, bounds: IntArray) -> FloatArray:
    """`[n, ...]` float64 sum over the rows of each episode; zero for an episode without rows."""
    total = np.zeros((len(bounds) - 1, *values.shape[1:]))
    filled = np.flatnonzero(np.diff(bounds) > 0)
    if len(filled):
        total[filled] = np.add.reduceat(values, bounds[filled], axis=0, dtype=np.float64)
    return total


def _repeated(rows: AnyArray, bounds: IntArray) -> BoolArray:
    same = np.zeros(len(rows), np.bool_)
    if len(rows) > 1 and rows.dtype.itemsize:
        raw = np.ascontiguousarray(flattened(rows)).view(np.uint8)
        words = raw.view(next(f"u{size}" for size in (8, 4, 2, 1) if raw.shape[1] % size == 0))
        same[1:] = ~any_value(words[1:] != words[:-1])
    same[bounds[:-1][np.diff(bounds) > 0]] = False
    return same
