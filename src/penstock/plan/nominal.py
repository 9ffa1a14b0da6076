"""`Nominal`: epochs of a length of one's choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.errors import PlanError
from penstock.plan.base import DerivedPlan, Plan, PlanTransform, settle

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Nominal(PlanTransform):
    """Epochs of `samples` samples, however many the plan below has; an epoch goes on where the one before it ended.

    So nothing is left out and nothing comes twice before its turn: after `j` epochs, exactly the first `j * samples`
    positions below have been given. Over a mix that never stops, the shares are exact through all epochs. Shuffle
    below it for a new order whenever the data are used up, above it for one within each nominal epoch.

    Raises `PlanError` if `samples` is below 1, and over packs whose epochs have no one length.

    >>> import numpy as np, penstock
    >>> epochs = penstock.from_arrays({"x": np.arange(5)}, lengths=[5]).samples().apply(Nominal(3))
    >>> [epochs.batch(np.arange(3 * e, 3 * e + 3))["x"].tolist() for e in range(3)]
    [[0, 1, 2], [3, 4, 0], [1, 2, 3]]
    """

    samples: int

    def __post_init__(self) -> None:
        settle(self, "samples", 1)

    def reorder(self, plan: Plan) -> Plan:
        """The same positions, counted in other epochs."""
        return NominalPlan(plan, self)


class NominalPlan(DerivedPlan):
    """What `Nominal` makes of a plan."""

    def __init__(self, upstream: Plan, transform: Nominal) -> None:
        super().__init__(upstream, transform)
        if upstream.uneven:
            raise PlanError(f"expected epochs of one length for {transform!r}, got packs that are planned anew in each")
        self._samples = transform.samples if len(upstream) else 0

    def __len__(self) -> int:
        return self._samples

    @property
    def steady(self) -> bool:
        """Only where a nominal epoch is some whole epochs of a steady plan."""
        return self.upstream.steady and self._whole

    @property
    def periodic(self) -> bool:
        """Only where a nominal epoch is some whole epochs of a periodic plan."""
        return self.upstream.periodic and self._whole

    @property
    def _whole(self) -> bool:
        return self._samples % max(len(self.upstream), 1) == 0

    def positions(self, k: Int) -> Int:
        """The same ones."""
        return k
