"""`Shard`: one machine's share of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock.plan.base import DerivedPlan, Plan, PlanTransform, settle

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard(PlanTransform):
    """Share `index` of `count`: position `j` of an epoch is position `j * count + index` of the epoch below.

    The shares `0 : count` hold every sample of an epoch exactly once; if the samples do not divide evenly, the first
    shares have one more. A share of a shuffle has other samples in every epoch: packs of it are planned again in each.
    Shuffle after `shard` for shares that keep their samples. Raises `PlanError` if `index` is not within `0 : count`.

    >>> Shard(index=1, count=4)
    Shard(index=1, count=4)
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        settle(self, "count", 1)
        settle(self, "index", 0, self.count - 1)

    def reorder(self, plan: Plan) -> Plan:
        """The share of the plan."""
        return Share(plan, self)


class Share(DerivedPlan):
    """What `Shard` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Shard) -> None:
        super().__init__(upstream, transform)
        self._index, self._count = transform.index, transform.count
        if upstream.uneven:
            raise PlanError(f"expected epochs of one length for {transform!r}; give the loader a rank instead")

    def __len__(self) -> int:
        return len(range(self._index, len(self.upstream), self._count))

    @property
    def steady(self) -> bool:
        """Only where the samples of this share keep their places in every epoch, or where it is the whole."""
        return self.upstream.periodic or (self.upstream.steady and self._count == 1)

    @property
    def periodic(self) -> bool:
        """As the plan below."""
        return self.upstream.periodic

    def positions(self, k: Int) -> Int:
        """Every `count`-th position of the same epoch."""
        epoch, j = self.locate(k)
        return epoch * len(self.upstream) + j * self._count + self._index
