"""`Pairs`: two steps of one episode as a sample."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from penstock.core.spec import Align
from penstock.errors import PlanError
from penstock.plan.anchored import EPISODE, AnchoredPlan, Output
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.transform import SampleTransform, require_int


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
