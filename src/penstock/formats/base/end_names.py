"""The table of names of arrays that mark where episodes end, and `MarkArray`, an array that is read when it is needed.

`docs/formats/demos.md` has the table, with the source of each name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import ArgumentError

Meaning = Literal[
    "termination",
    "truncation",
    "done",
    "not done",
    "mask",
    "end",
    "start",
    "id",
    "step",
    "lengths",
    "offsets",
    "cuts",
    "unused",
]
MEANINGS: tuple[Meaning, ...] = get_args(Meaning)

IDS = (
    *("episode_index", "episode_id", "episode", "episode_idx", "episode_number"),
    *("trajectory_id", "trajectory_index", "trajectory", "traj_id", "traj_index", "rollout_id", "game_id"),
    *("episode_ids", "trajectory_ids", "traj_ids", "traj_idx"),
)
"""Names of ids of episodes, the most common first."""
STEPS = ("frame_index", "step_index", "step_idx", "step_id", "timestep", "timesteps", "time_step", "step", "steps")
"""Names of step numbers within an episode, the most common first."""

END_NAMES: Mapping[str, Meaning] = {
    **dict.fromkeys(("terminals", "terminal", "terminations", "terminateds", "terminated"), "termination"),
    "is_terminal": "termination",
    **dict.fromkeys(("timeouts", "timeout", "truncations", "truncateds", "truncated", "is_truncated"), "truncation"),
    **dict.fromkeys(("dones", "done"), "done"),
    **dict.fromkeys(("not_done", "not_dones"), "not done"),
    "masks": "mask",
    **dict.fromkeys(("episode_terminals", "dones_float", "ends", "is_last", "last"), "end"),
    **dict.fromkeys(("episode_ends", "trajectory_ends", "traj_ends"), "end"),
    **dict.fromkeys(("episode_starts", "trajectory_starts", "traj_starts", "is_first", "index"), "start"),
    **dict.fromkeys(("lengths", "episode_lengths", "traj_lengths", "trajectory_lengths"), "lengths"),
    "offsets": "offsets",
    "indices": "cuts",
    **dict.fromkeys(IDS, "id"),
    **dict.fromkeys(STEPS, "step"),
}
"""Meaning of an array by its name."""
PROBE = 4096  # first rows of an array of unknown name that tell whether all are worth reading


def meaning_of(name: str, meanings: Mapping[str, Meaning] | None = None) -> Meaning | None:
    """Return what an array marks, by its name or as the caller says; None if the name is not known."""
    given = (meanings or {}).get(name)
    return given or END_NAMES.get(name.rpartition(".")[2])


def check_meanings(meanings: Mapping[str, Meaning], names: Iterable[str]) -> None:
    """Raise `ArgumentError` for an unknown meaning, or a meaning of an array that does not exist."""
    listed = sorted(names)
    for name, meaning in meanings.items():
        if meaning not in MEANINGS:
            raise ArgumentError(f"expected ends[{name!r}] among {list(MEANINGS)}, got {meaning!r}")
        if name not in listed:
            raise ArgumentError(f"expected ends of arrays among {listed}, got {name!r}")


@dataclass(frozen=True, eq=False)
class MarkArray:
    """An array that may mark ends, which is read when it is needed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[int, int], AnyArray]

    @classmethod
    def of(cls, array: AnyArray) -> MarkArray:
        """Return an array in memory."""
        return cls(array.shape, array.dtype, lambda a, b: array[a:b])

    @property
    def is_row(self) -> bool:
        """Whether each row is one number."""
        return self.dtype.kind in "biuf" and len(self.shape) > 0 and all(size == 1 for size in self.shape[1:])

    @cached_property
    def values(self) -> AnyArray:
        """All rows, each one number."""
        return np.asarray(self.rows(0, self.shape[0])).reshape(self.shape[0])

    def head(self) -> AnyArray:
        """The first rows."""
        count = min(PROBE, self.shape[0])
        return np.asarray(self.rows(0, count)).reshape(count)
