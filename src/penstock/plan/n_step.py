"""`NStepRows`: every step with the next steps of its episode, for sums of rewards."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from penstock.plan.anchored import EPISODE, AnchoredPlan, Output
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.steps import require_no_next
from penstock.plan.transform import SampleTransform, require_int

SUMMED = ("rewards", "terminations", "truncations")
"""Columns of which a sample has a row for each of its steps."""
REAL = "__real__"
"""Mask of the steps within the episode; no consumer sees it."""


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
