"""`Repeat`: several epochs as one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock.plan.base import ENDLESS, DerivedPlan, Plan, PlanTransform, settle

Int = npt.NDArray[np.int64]
MOST_PLANNED = 1000
"""Epochs that a plan of unequal ones is asked to have as one: their lengths are found by planning each."""


@dataclass(frozen=True)
class Repeat(PlanTransform):
    """`times` epochs of the plan below, one after the other, as one epoch.

    Epochs below count on, so what is shuffled there has another order each time. Raises `PlanError` if `times` is
    below 1.

    >>> Repeat(3)
    Repeat(times=3)
    """

    times: int

    def __post_init__(self) -> None:
        settle(self, "times", 1)

    def reorder(self, plan: Plan) -> Plan:
        """The repeated plan."""
        return Repeated(plan, self)


class Repeated(DerivedPlan):
    """What `Repeat` makes of a plan: the same positions, with a longer epoch."""

    def __init__(self, upstream: Plan, transform: Repeat) -> None:
        super().__init__(upstream, transform)
        self._times = transform.times
        if len(upstream) * transform.times > ENDLESS:
            raise PlanError(
                f"expected an epoch of at most 2^62 samples, got {transform.times} times {len(upstream)}; a loader "
                "begins epoch after epoch by itself"
            )
        if upstream.uneven and transform.times > MOST_PLANNED:
            raise PlanError(
                f"expected at most {MOST_PLANNED} epochs of packs that are planned anew in each, got "
                f"{transform.times}; repeat before packing, or let the loader begin epoch after epoch"
            )

    @property
    def steady(self) -> bool:
        """As the plan below."""
        return self.upstream.steady

    @property
    def periodic(self) -> bool:
        """As the plan below."""
        return self.upstream.periodic

    @property
    def uneven(self) -> bool:
        """As the plan below."""
        return self.upstream.uneven

    @property
    def empty(self) -> bool:
        """As the plan below."""
        return self.upstream.empty

    def __len__(self) -> int:
        return self.upstream.start(self._times)

    def start(self, epoch: int) -> int:
        """Where the first of its epochs below begins."""
        return self.upstream.start(epoch * self._times)

    def anchor(self, epoch: int, start: int) -> None:
        """The first of its epochs below begins there."""
        self.upstream.anchor(epoch * self._times, start)

    def sizes(self, epoch: Int) -> Int:
        """What its epochs below have together."""
        if not self.upstream.uneven:
            return super().sizes(epoch)
        return np.array([self.start(e + 1) - self.start(e) for e in epoch.tolist()], np.int64)

    def locate(self, k: Int) -> tuple[Int, Int]:
        """Through the epochs below."""
        epoch = self.upstream.locate(k)[0] // self._times
        begin = {e: self.start(e) for e in np.unique(epoch).tolist()}
        return epoch, k - np.array([begin[e] for e in epoch.tolist()], np.int64)

    def positions(self, k: Int) -> Int:
        """The same ones: epoch `j` of this plan begins with epoch `j * times` of the one below."""
        return k
