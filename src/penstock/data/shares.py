"""Parts of a mix, and their shares, by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.plan.base import DerivedPlan, Plan
from penstock.plan.mixed import MixedPlan


@dataclass(frozen=True, eq=False)
class Shares:
    """Part and share of every source of a mix."""

    names: tuple[str, ...]
    share: FloatArray


def shares_of(plan: Plan, positions: IntArray) -> Shares | None:
    """Return the parts of the mix in a plan, or None if there is no mix.

    Shares that change are the shares at each position. Packs and mixes of mixes hide the position; then they are the
    shares at the start.
    """
    numbers = _found(plan, positions)
    if numbers is None:
        return None
    share = np.broadcast_to(numbers.share, (len(positions), numbers.share.shape[1]))
    return Shares(numbers.names, share)


def _found(plan: Plan, k: IntArray | None) -> Shares | None:
    """Shares at positions `k`, or one row with the shares at the start if the position is unknown."""
    if isinstance(plan, MixedPlan):
        return _of_mix(plan, k)
    upstream: Plan | None = getattr(plan, "upstream", None)
    if upstream is None:
        return None
    return _found(upstream, plan.positions(k) if isinstance(plan, DerivedPlan) and k is not None else None)


def _of_mix(mix: MixedPlan, k: IntArray | None) -> Shares:
    begin = np.array([position for position, _ in mix.course.stretches])
    table = np.array([[float(share) for share in shares] for _, shares in mix.course.stretches])
    place = np.zeros(1, np.int64) if k is None else mix.locate(k)[1]
    share = table[begin.searchsorted(place, side="right") - 1]
    names: list[str] = []
    blocks: list[FloatArray] = []
    for number, part in enumerate(mix.parts):
        inner = _found(part.plan, None) or Shares(("",) * part.sources, np.ones((1, part.sources)))
        names += [f"{part.name}/{name}" if name else part.name for name in inner.names]
        blocks.append(share[:, number : number + 1] * inner.share)
    return Shares(tuple(names), np.concatenate(blocks, axis=1))


def plans_below(plan: Plan) -> Sequence[Plan]:
    """Return the plans directly below a plan."""
    if isinstance(plan, MixedPlan):
        return [part.plan for part in plan.parts]
    upstream: Plan | None = getattr(plan, "upstream", None)
    return [] if upstream is None else [upstream]
