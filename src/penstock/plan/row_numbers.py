"""`RowNumbers`: the step, episode and source of every row, as outputs of the samples."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from penstock.errors import PlanError, suggestion
from penstock.plan.base import Plan, SameOrder
from penstock.plan.outputs import DerivedOutput, MarkKind, Read
from penstock.plan.transform import PlanTransform, earlier_repr, require_int


@earlier_repr("padding")
@dataclass(frozen=True)
class RowNumbers(PlanTransform):
    """Add outputs that tell where each row of a sample comes from.

    Each output is int32, `[n, L]`, or `[n]` where a sample is one step, with -1 or another number in padding of zeros.
    Padding that repeats a row has the number of this row. Nothing is read.

    Args:
        step: Name of the output with the number of each row in its episode, from 0. None leaves it out. The default is
            `"timesteps"`.
        episode: Name of the output with the number of its episode in the source. None leaves it out. The default is
            `"episodes"`.
        source: Name of the output with the number of its source in `MapDataset.sources`. The default is None: left out.
        of: Output whose rows are numbered. The default is None: the first one with rows of steps or observations.
        padding: Number of padding. 0 suits `torch.nn.Embedding`, which takes no negative number; a mask then tells
            padding from step 0. The default is -1.

    Raises:
        PlanError: There is no such output, a name is taken, no name is given, or `padding` is no int32.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
        >>> batch = data.windows(2, pad="zero").apply(RowNumbers())[[1, 2]]
        >>> batch["timesteps"].tolist(), batch["episodes"].tolist()
        ([[1, -1], [0, 1]], [[0, -1], [1, 1]])
    """

    step: str | None = "timesteps"
    episode: str | None = "episodes"
    source: str | None = None
    of: str | None = None
    padding: int = -1

    def __post_init__(self) -> None:
        require_int(self, "padding", -(1 << 31), (1 << 31) - 1)

    @override
    def reorder(self, plan: Plan) -> Plan:
        return NumberedPlan(plan, self)


class NumberedPlan(SameOrder):
    """Plan of `RowNumbers`."""

    def __init__(self, upstream: Plan, transform: RowNumbers) -> None:
        super().__init__(upstream, transform)
        kinds: dict[MarkKind, str | None] = {
            "step_numbers": transform.step,
            "episode_numbers": transform.episode,
            "source_numbers": transform.source,
        }
        names = [name for name in kinds.values() if name is not None]
        taken = {*(read.name for read in upstream.reads), *(mark.name for mark in upstream.marks)} & set(names)
        if not names or taken or len(set(names)) < len(names):
            raise PlanError(f"expected new, different names of outputs in {transform!r}, got {sorted(taken) or names}")
        read = _numbered(upstream, transform)
        self.marks += tuple(
            DerivedOutput(name, read.view, kind, squeeze=read.squeeze, padding=transform.padding)
            for kind, name in kinds.items()
            if name
        )


def _numbered(plan: Plan, transform: RowNumbers) -> Read:
    """The output whose rows are numbered."""
    reads = {read.name: read for read in plan.reads if plan.views[read.view].align in ("step", "boundary")}
    if transform.of is not None and transform.of not in reads:
        known = list(reads)
        raise PlanError(f"expected an output among {known}, got {transform.of!r}{suggestion(transform.of, known)}")
    if not reads:
        raise PlanError(f"expected an output with rows of steps, got {[read.name for read in plan.reads]}")
    return next(iter(reads.values())) if transform.of is None else reads[transform.of]
