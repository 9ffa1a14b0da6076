"""`Steps`: every step of every episode as a sample."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from penstock.core.columns import under
from penstock.errors import PlanError
from penstock.plan.anchored import EPISODE, AnchoredPlan, Output
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.transform import SampleTransform


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
    """Raise `PlanError` if the data have a column of next observations."""
    if stored := [path for path in episodes.aligns if under("next_observations", path)]:
        message = f"expected outputs of different names, got {stored[0]!r} as a column of the data"
        raise PlanError(f"{message}, which samples have already; use steps() instead of transitions()")
