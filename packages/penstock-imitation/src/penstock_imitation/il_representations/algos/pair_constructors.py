"""Pairs of frames: of an `ILRDataset` as plans, of any iterator of frames one by one, with equal results.

A pair is a dict of `context`, `target`, `extra_context` (`[]` where the kind has none) and `traj_ts_ids`, the number of
the trajectory and of the step of the target.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import DataError, PlanError
from penstock.plan.keys import keys
from penstock_imitation.il_representations.data.read_dataset import ILRDataset
from penstock_imitation.il_representations.data.samples import Sample, begins
from penstock_imitation.jigsaw import Jigsaw
from penstock_imitation.target_pairs import KINDS, PairKind, TargetPairs

MODES: dict[str | None, PairKind] = {
    None: "temporal",
    "dynamics": "dynamics",
    "inverse_dynamics": "inverse_dynamics",
    "action_prediction": "action_prediction",
}


class TargetPairConstructor(ABC):
    """A function from frames in order of time to pairs. Pipe a custom one to a dataset like any generator."""

    @abstractmethod
    def __call__(self, data_iter: Iterable[dict[str, Any]]) -> Iterator[Sample]:
        """Return the pairs of frames that have `obs`, `acts` and `dones`."""


class _Kind(TargetPairConstructor):
    """Pairs of a kind that penstock plans."""

    kind: PairKind
    offset: int

    def __call__(self, data_iter: Iterable[dict[str, Any]]) -> Iterator[Sample]:
        """Return the pairs of frames, each with its own arrays. Pairs of an `ILRDataset` are planned, not iterated."""
        return iter(data_iter.pipe(self)) if isinstance(data_iter, ILRDataset) else self._through(data_iter)

    def planned(self, episodes: EpisodeDataset) -> MapDataset:
        return episodes.apply(TargetPairs(self.kind, max(self.offset, 1)))

    def pairs_of(self, lengths: IntArray) -> int:
        """Return the number of pairs in trajectories of these lengths."""
        return int(np.maximum(lengths - self.offset, 0).sum())

    def records(self, dataset: MapDataset, positions: IntArray) -> list[Sample]:
        """Return the pairs at `[n]` positions."""
        columns = planned_samples(dataset).at(positions)
        return [_pair(columns.row(i)) for i in range(columns.n)]

    def _through(self, frames: Iterable[dict[str, Any]]) -> Iterator[Sample]:
        waiting: deque[dict[str, Any]] = deque(maxlen=self.offset)
        trajectory = step = 0
        before: dict[str, Any] | None = None
        for frame in frames:
            if missing := {"obs", "acts", "dones"} - frame.keys():
                raise DataError(f"expected frames with obs, acts and dones, got {sorted(frame)} without {missing}")
            if before is not None and begins(frame, before):
                trajectory, step = trajectory + 1, 0
                waiting.clear()
            if len(waiting) == self.offset:
                first = waiting[0] if waiting else frame
                values = {"now": first["obs"], "later": frame["obs"], "actions": [each["acts"] for each in waiting]}
                pair = {role: np.array(values[what]) for role, what in KINDS[self.kind].items()}
                yield _pair({**pair, "traj_ts_ids": (trajectory, step)})
            waiting.append(frame)
            before, step = frame, step + 1


def _pair(row: dict[str, Any]) -> Sample:
    """Return a pair in the original's form."""
    trajectory, step = row["traj_ts_ids"]
    pair = {name: row.get(name, []) for name in ("context", "target", "extra_context")}
    return {**pair, "traj_ts_ids": [int(trajectory), int(step)]}


@dataclass(frozen=True)
class IdentityPairConstructor(_Kind):
    """Pairs of each observation with a copy of itself."""

    kind: PairKind = field(default="identity", init=False)
    offset: int = field(default=0, init=False)


@dataclass(frozen=True)
class TemporalOffsetPairConstructor(_Kind):
    """Pairs of the observation of step `t` and a target from step `t + temporal_offset` of the same trajectory.

    `mode` chooses the target: None is the later observation; `"dynamics"` is the later observation, with the actions
    in between as `extra_context`; `"inverse_dynamics"` is these actions, with the later observation as `extra_context`;
    `"action_prediction"` is these actions alone.
    """

    mode: str | None = None
    temporal_offset: int = 1

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.temporal_offset < 1:
            raise PlanError(
                f"expected a mode among {list(MODES)} and an offset of at least 1, got {self.mode!r} and "
                f"{self.temporal_offset}"
            )

    @property
    def kind(self) -> PairKind:  # type: ignore[override]
        """penstock's name of the mode."""
        return MODES[self.mode]

    @property
    def offset(self) -> int:  # type: ignore[override]
        """Steps between observation and target."""
        return self.temporal_offset


class JigsawPairConstructor(_Kind):
    """Images cut into `n_tiles`, whose order is a row of the table in an `.npy` file; the target is its number.

    The number is drawn from `seed` and the position of the pair.
    """

    kind: PairKind = "identity"
    offset: int = 0

    def __init__(self, permutation_path: str | os.PathLike[str], n_tiles: int = 9, *, seed: int = 0) -> None:
        self.jigsaw, self.seed = Jigsaw(permutation_path, n_tiles), seed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JigsawPairConstructor) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"JigsawPairConstructor({self.jigsaw!r}, seed={self.seed})"

    def planned(self, episodes: EpisodeDataset) -> MapDataset:
        """Return the puzzles as a dataset with positions."""
        return super().planned(episodes).select_columns("context").map(self.jigsaw, seed=self.seed)

    def _through(self, frames: Iterable[dict[str, Any]]) -> Iterator[Sample]:
        for i, pair in enumerate(super()._through(frames)):
            shuffled = self.jigsaw(Columns({"context": pair["context"][None]}), keys(self.seed, np.array([i])))
            yield pair | shuffled.row(0)
