"""Samples of single steps: `Steps`, `Pairs`, and steps with the rewards of the n steps that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns, under
from penstock.core.spec import Align, Spec
from penstock.errors import PlanError, SpecError
from penstock.plan.anchored import EPISODE, AnchoredPlan, Output
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.transform import SampleTransform, require_int

Arrays = dict[str, Any]

SUMMED = ("rewards", "terminations", "truncations")
"""Columns of which a sample has a row for each of its steps."""
REAL = "__real__"
"""Mask of the steps within the episode; no consumer sees it."""


@dataclass(frozen=True)
class NStepSums:
    """Function of the rewards, flags and mask `[b, n]` of n steps. See `EpisodeDataset.transitions`."""

    n_step: int
    gamma: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise PlanError(f"expected gamma within 0 to 1, got {self.gamma}")

    @property
    def fingerprint(self) -> str:
        return repr(self)

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        """Replace the rows of n steps by sums."""
        flat = dict(columns.flat)
        if missing := [name for name in SUMMED if name not in flat]:
            raise SpecError(f"expected the columns {list(SUMMED)} to sum rewards, got no {missing}; select them too")
        return Columns.of_flat(self.summed(flat), columns.n)

    def summed(self, flat: Arrays) -> Arrays:
        """Return the arrays with sums up to the first termination, and `discounts`."""
        powers = np.power(self.gamma, np.arange(self.n_step + 1), dtype=np.float64)
        counted = flat.pop(REAL)
        ended = flat["terminations"] != 0
        counted[:, 1:] &= ~np.logical_or.accumulate(ended[:, :-1], axis=1)
        steps = counted.sum(1)
        for name in ("terminations", "truncations"):
            flat[name] = flat[name][np.arange(len(steps)), steps - 1]
        rewards = flat["rewards"]
        sums = np.einsum("bn...,bn->b...", rewards, counted * powers[:-1])
        flat["rewards"] = sums.astype(np.result_type(rewards.dtype, np.float32))
        flat["discounts"] = np.where(flat["terminations"], 0.0, powers[steps]).astype(np.float32)
        return flat


def require_summable(spec: Spec, n_step: int) -> None:
    """Raise `PlanError` or `SpecError` unless a dataset has rewards, and one flag a step."""
    if missing := [path for path in SUMMED if path not in spec]:
        raise PlanError(f"expected the columns {list(SUMMED)} for rewards of {n_step} steps, got no {missing}")
    if wide := {path: spec[path].shape for path in SUMMED[1:] if spec[path].shape}:
        raise SpecError(f"expected one flag a step for rewards of {n_step} steps, got rows of {wide}")


@dataclass(frozen=True)
class NStepRows(SampleTransform):
    """Every step, with the flags and rewards of `n_step` steps and the observation after them.

    Where the episode ends earlier, its last rows repeat, and a mask says so.
    """

    n_step: int

    def __post_init__(self) -> None:
        require_int(self, "n_step", 1)

    @override
    def plan(self, episodes: Episodes) -> Plan:
        require_no_next(episodes)
        many = View("step", 0, self.n_step)
        outputs: list[Output] = []
        for path, align in episodes.aligns.items():
            one = EPISODE if align == "episode" else View(align, 0, 1)
            outputs.append((path, path, many if path in SUMMED else one))
        following = View("boundary", self.n_step, self.n_step + 1, end=1)
        outputs += [(f"next_{path}", path, following) for path in episodes.boundary("observations")]
        squeezed = {name for name, *_ in outputs if name not in SUMMED}
        return AnchoredPlan(episodes, self, outputs, masks=[(REAL, many)], squeeze=squeezed, pad="repeat")


@dataclass(frozen=True)
class Pairs(SampleTransform):
    """Pairs of steps `t` and `t + offset` of one episode, as samples `[n, 2, ...]`.

    An episode of `T` steps has `T - offset` pairs, or `T + 1 - offset` with `last`. To read the second step under
    another name, use `Windows(1, columns={"target": ("observations", k, k + 1)})`. Building the plan costs a running
    sum over episodes.

    Args:
        offset: Steps from the first to the second, at least 1. The default is 1.
        last: Whether the observation after the last step may be the second of a pair. Then only boundary and episode
            columns are read. The default is False.

    Raises:
        PlanError: `offset` is below 1, or `last` is set and there are no boundary columns.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
        >>> data.apply(Pairs())[:]["rewards"].tolist()
        [[0.0, 1.0], [2.0, 3.0], [3.0, 4.0]]
    """

    offset: int = 1
    last: bool = False

    def __post_init__(self) -> None:
        require_int(self, "offset", 1)

    @override
    def plan(self, episodes: Episodes) -> Plan:
        aligns: dict[str, Align] = {
            path: align for path, align in episodes.aligns.items() if align != "step" or not self.last
        }
        if self.last and "boundary" not in aligns.values():
            raise PlanError(f"expected boundary columns for {self!r}, got {dict(episodes.aligns)}")
        outputs: list[Output] = []
        for path, align in aligns.items():
            pair = View(align, 0, self.offset + 1, every=self.offset, end=int(self.last))
            outputs.append((path, path, EPISODE if align == "episode" else pair))
        return AnchoredPlan(episodes, self, outputs)


@dataclass(frozen=True)
class Steps(SampleTransform):
    """Every step of every episode, as samples `[n, ...]`.

    Step columns and boundary columns are read at step `t`, and episode columns at their one row. Building the plan
    costs a running sum over episodes.

    Args:
        next_observations: Whether to add `next_observations`, the observations one row later. The default is False.

    Raises:
        PlanError: `next_observations` is set, and the dataset has no `observations` with T + 1 rows for T steps, or
            has a column of that name.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"observations": np.arange(7), "rewards": np.zeros(5)}, lengths=[2, 3])
        >>> batch = data.apply(Steps(next_observations=True))[:]
        >>> batch["observations"].tolist(), batch["next_observations"].tolist()
        ([0, 1, 3, 4, 5], [1, 2, 4, 5, 6])

        The plan behind it:

        >>> plan = Steps(next_observations=True).plan(data.episodes)
        >>> len(plan), [read.name for read in plan.reads]
        (5, ['observations', 'rewards', 'next_observations'])
        >>> [selection.start.tolist() for selection in plan.resolve(np.arange(5))]
        [[0, 1, 3, 4, 5], [0, 1, 2, 3, 4], [1, 2, 4, 5, 6]]
    """

    next_observations: bool = False

    @override
    def plan(self, episodes: Episodes) -> Plan:
        outputs: list[Output] = [
            (path, path, EPISODE if align == "episode" else View(align, 0, 1))
            for path, align in episodes.aligns.items()
        ]
        if self.next_observations:
            require_no_next(episodes)
            following = View("boundary", 1, 2, end=1)
            outputs += [(f"next_{path}", path, following) for path in episodes.boundary("observations")]
        return AnchoredPlan(episodes, self, outputs, squeeze=True)


def require_no_next(episodes: Episodes) -> None:
    if stored := [path for path in episodes.aligns if under("next_observations", path)]:
        message = f"expected outputs of different names, got {stored[0]!r} as a column of the data"
        raise PlanError(f"{message}, which samples have already; use steps() instead of transitions()")
