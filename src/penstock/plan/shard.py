"""`Shard`: every `count`-th sample of a plan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.errors import PlanError
from penstock.plan.base import DerivedPlan, Plan, within
from penstock.plan.transform import PlanTransform, require_int


@dataclass(frozen=True)
class Shard(PlanTransform):
    """Keep every `count`-th sample: position `j` of an epoch is position `j * count + index` of the epoch below.

    The shards `0 : count` together have every sample exactly once. If samples do not divide evenly, the first shards
    have one more. A shard of a shuffle has other samples in every epoch, so its packs are planned again in each.
    Shuffle after `shard` to keep the samples of a shard fixed.

    Args:
        index: Number of the shard, 0 to `count - 1`.
        count: Number of shards, at least 1.

    Raises:
        PlanError: A number is out of range, or the plan has epochs of varying length.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"x": [1, 2, 3, 4, 5]}, lengths=[5]).steps()
        >>> [data.apply(Shard(index, count=2))[:]["x"].tolist() for index in (0, 1)]
        [[1, 3, 5], [2, 4]]
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        require_int(self, "count", 1)
        require_int(self, "index", 0, self.count - 1)

    @override
    def reorder(self, plan: Plan) -> Plan:
        return ShardPlan(plan, self)


class ShardPlan(DerivedPlan):
    """Plan of `Shard`."""

    loses = "in another shard"

    def __init__(self, upstream: Plan, transform: Shard) -> None:
        super().__init__(upstream, transform)
        self._index, self._count = transform.index, transform.count
        if upstream.uneven:
            raise PlanError(f"expected epochs of one length for {transform!r}; give the loader a rank instead")

    def __len__(self) -> int:
        return len(range(self._index, len(self.upstream), self._count))

    @property
    @override
    def steady(self) -> bool:
        return self.upstream.periodic or (self.upstream.steady and self._count == 1)

    @property
    @override
    def periodic(self) -> bool:
        return self.upstream.periodic

    @override
    def count_below(self, position: int) -> int | None:
        """Samples that all shards together have taken, if each is at this position."""
        epoch, j = divmod(position, len(self))
        return epoch * len(self.upstream) + j * self._count

    def positions(self, k: IntArray) -> IntArray:
        """Every `count`-th position of the same epoch."""
        epoch, j = self.locate(k)
        return epoch * len(self.upstream) + j * self._count + self._index

    @override
    def span(self, lo: int, hi: int) -> tuple[int, int]:
        first, last = self.positions(np.array([lo, hi - 1])).tolist()
        return first, last + 1

    @override
    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        epoch, place = self.upstream.locate(below)
        j, rest = np.divmod(place - self._index, self._count)
        return within((epoch * len(self) + j)[rest == 0], lo, hi)
