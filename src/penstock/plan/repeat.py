"""Epochs of other lengths: `Repeat` joins epochs, and `EpochLength` cuts them anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.errors import PlanError
from penstock.plan.base import ENDLESS, DerivedPlan, Plan
from penstock.plan.transform import PlanTransform, require_int

MOST_PLANNED = 1000
"""Epochs that a plan of unequal ones is asked to have as one: their lengths are found by planning each."""


@dataclass(frozen=True)
class Repeat(PlanTransform):
    """Join `times` epochs into one, or all into one without end. A shuffle below has another order in each of them.

    Args:
        times: Number of epochs, at least 1. The default is None: without end.

    Raises:
        PlanError: `times` is below 1, or the new epoch would have more than 2^62 samples. Without end: epochs vary in
            length, as epochs of packs do that are planned again in each.

    Example:
        >>> import penstock
        >>> penstock.from_arrays({"x": [1, 2]}, lengths=[2]).steps().apply(Repeat(2))[:]["x"].tolist()
        [1, 2, 1, 2]
    """

    times: int | None = None

    def __post_init__(self) -> None:
        if self.times is not None:
            require_int(self, "times", 1)

    @override
    def reorder(self, plan: Plan) -> Plan:
        return RepeatedPlan(plan, self)


class RepeatedPlan(DerivedPlan):
    """Plan of `Repeat`: the same positions, with longer epochs."""

    same_positions = True
    loses = ""

    def __init__(self, upstream: Plan, transform: Repeat) -> None:
        super().__init__(upstream, transform)
        epochs = "epochs without end" if transform.times is None else f"{transform.times} epochs"
        if upstream.uneven and (transform.times is None or transform.times > MOST_PLANNED):
            raise PlanError(
                f"expected at most {MOST_PLANNED} epochs of packs that are planned again in each, got {epochs}; repeat "
                "before packing, or let the loader begin epoch after epoch"
            )
        self._times = max(ENDLESS // max(len(upstream), 1), 1) if transform.times is None else transform.times
        if len(upstream) * self._times > ENDLESS:
            raise PlanError(
                f"expected an epoch of at most 2^62 samples, got {epochs} of {len(upstream)}; repeat() without a "
                "number has no end"
            )

    @property
    @override
    def steady(self) -> bool:
        return self.upstream.steady

    @property
    @override
    def periodic(self) -> bool:
        return self.upstream.periodic

    @property
    @override
    def uneven(self) -> bool:
        return self.upstream.uneven

    @property
    @override
    def empty(self) -> bool:
        return self.upstream.empty

    def __len__(self) -> int:
        return self.upstream.start(self._times)

    def start(self, epoch: int) -> int:
        """Start of the first of the joined epochs."""
        return self.upstream.start(epoch * self._times)

    def set_epoch_start(self, epoch: int, start: int) -> None:
        """Set the start of the first of the joined epochs."""
        self.upstream.set_epoch_start(epoch * self._times, start)

    @override
    def sizes(self, epoch: IntArray) -> IntArray:
        if not self.upstream.uneven:
            return super().sizes(epoch)
        return np.array([self.start(e + 1) - self.start(e) for e in epoch.tolist()], np.int64)

    @override
    def locate(self, k: IntArray) -> tuple[IntArray, IntArray]:
        epoch = self.upstream.locate(k)[0] // self._times
        begin = {e: self.start(e) for e in np.unique(epoch).tolist()}
        return epoch, k - np.array([begin[e] for e in epoch.tolist()], np.int64)

    def positions(self, k: IntArray) -> IntArray:
        """The same positions: epoch `j` starts with epoch `j * times` of the repeated plan."""
        return k


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
