"""`EpochLength`: a fixed epoch length."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.errors import PlanError
from penstock.plan.base import DerivedPlan, Plan
from penstock.plan.transform import PlanTransform, require_int


@dataclass(frozen=True)
class EpochLength(PlanTransform):
    """Set a fixed epoch length. Each epoch continues where the last one ended.

    After `j` epochs, exactly the first `j * samples` positions of the plan below were used. In a mix that never stops,
    shares are exact over all epochs together. Shuffle before `EpochLength` for a new order whenever the data is used
    up, or after it for a new order in each fixed-length epoch.

    Args:
        samples: Samples of an epoch, at least 1.

    Raises:
        PlanError: `samples` is below 1, or the plan has epochs of varying length.

    Example:
        >>> import numpy as np, penstock
        >>> epochs = penstock.from_arrays({"x": np.arange(5)}, lengths=[5]).steps().apply(EpochLength(3))
        >>> loader = epochs.loader(batch_size=3)
        >>> [batch["x"].tolist() for _ in range(3) for batch in loader]
        [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    """

    samples: int

    def __post_init__(self) -> None:
        require_int(self, "samples", 1)

    def reorder(self, plan: Plan) -> Plan:
        """Return the plan with the fixed epoch length."""
        return EpochLengthPlan(plan, self)


class EpochLengthPlan(DerivedPlan):
    """Plan of `EpochLength`."""

    same_positions = True
    loses = "not in this epoch of with_epoch_length"

    def __init__(self, upstream: Plan, transform: EpochLength) -> None:
        super().__init__(upstream, transform)
        if upstream.uneven:
            raise PlanError(
                f"expected epochs of one length for {transform!r}, got packs that are planned again in each"
            )
        self._samples = transform.samples if len(upstream) else 0

    def __len__(self) -> int:
        return self._samples

    @property
    def steady(self) -> bool:
        """Whether an epoch is some whole epochs of a plan with the same samples every epoch."""
        return self.upstream.steady and self._has_whole_epochs

    @property
    def periodic(self) -> bool:
        """Whether an epoch is some whole epochs of a plan with the same order every epoch."""
        return self.upstream.periodic and self._has_whole_epochs

    @property
    def _has_whole_epochs(self) -> bool:
        return self._samples % max(len(self.upstream), 1) == 0

    @override
    def positions(self, k: IntArray) -> IntArray:
        return k
