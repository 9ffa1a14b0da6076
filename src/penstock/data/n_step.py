"""Sums of rewards over n steps, for samples of a dataset and of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.spec import Spec
from penstock.errors import PlanError, SpecError
from penstock.plan.n_step import REAL, SUMMED

Arrays = dict[str, Any]


@dataclass(frozen=True)
class NStepSums:
    """Function of the rewards, flags and mask `[b, n]` of n steps. See `EpisodeDataset.transitions`."""

    n_step: int
    gamma: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise PlanError(f"expected gamma within 0 to 1, got {self.gamma}")

    @property
    def fingerprint(self) -> str:
        """The numbers."""
        return repr(self)

    def __call__(self, columns: Columns, positions: IntArray) -> Columns:
        """Replace the rows of n steps by sums."""
        flat = dict(columns.flat)
        if missing := [name for name in SUMMED if name not in flat]:
            raise SpecError(f"expected the columns {list(SUMMED)} to sum rewards, got no {missing}; select them too")
        return Columns.of_flat(self.summed(flat), columns.n)

    def summed(self, flat: Arrays) -> Arrays:
        """Return the arrays with sums up to the first termination, and `discounts`."""
        powers = np.power(self.gamma, np.arange(self.n_step + 1), dtype=np.float64)
        counted = flat.pop(REAL)
        ended = flat["terminations"] != 0
        counted[:, 1:] &= ~np.logical_or.accumulate(ended[:, :-1], axis=1)
        steps = counted.sum(1)
        for name in ("terminations", "truncations"):
            flat[name] = flat[name][np.arange(len(steps)), steps - 1]
        rewards = flat["rewards"]
        sums = np.einsum("bn...,bn->b...", rewards, counted * powers[:-1])
        flat["rewards"] = sums.astype(np.result_type(rewards.dtype, np.float32))
        flat["discounts"] = np.where(flat["terminations"], 0.0, powers[steps]).astype(np.float32)
        return flat


def require_summable(spec: Spec, n_step: int) -> None:
    """Raise `PlanError` or `SpecError` unless a dataset has rewards, and one flag a step."""
    if missing := [path for path in SUMMED if path not in spec]:
        raise PlanError(f"expected the columns {list(SUMMED)} for rewards of {n_step} steps, got no {missing}")
    if wide := {path: spec[path].shape for path in SUMMED[1:] if spec[path].shape}:
        raise SpecError(f"expected one flag a step for rewards of {n_step} steps, got rows of {wide}")
