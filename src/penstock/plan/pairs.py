"""`Pairs`: a step and a later one of the same episode."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.spec import Align
from penstock.errors import PlanError
from penstock.plan.anchored import EPISODE, Anchored, Output
from penstock.plan.base import Plan, SampleTransform, View, settle
from penstock.plan.episodes import Episodes


@dataclass(frozen=True)
class Pairs(SampleTransform):
    """Steps `t` and `t + offset` of one episode: columns `[n, 2, ...]`, never across an episode's end.

    An episode of `T` steps has `T - offset` pairs. With `last`, only boundary columns (and episode columns) are
    read, so that the observation after the last step can be a partner, and there are `T + 1 - offset`. For partners
    under names of their own use `Windows(1, columns={"target": ("observations", k, k + 1)})`.

    Raises `PlanError` if `offset` is below 1, or if `last` is asked where there are no boundary columns.
    Cost: a running sum over episodes when built.

    >>> import numpy as np
    >>> from penstock.core.spec import Field, Spec
    >>> from penstock.formats.memory import MemorySource
    >>> spec = Spec({"rewards": Field(np.dtype("f4"))})
    >>> source = MemorySource(spec, {"rewards": np.zeros(5, "f4")}, np.array([0, 2, 5]))
    >>> (selection,) = Pairs().plan(Episodes.of(source)).resolve(np.arange(3))
    >>> selection.start.tolist(), selection.shape
    ([0, 2, 3], (3, 2))
    """

    offset: int = 1
    last: bool = False

    def __post_init__(self) -> None:
        settle(self, "offset", 1)

    def plan(self, episodes: Episodes) -> Plan:
        """The plan of all pairs."""
        aligns: dict[str, Align] = {
            path: align for path, align in episodes.aligns.items() if align != "step" or not self.last
        }
        if self.last and "boundary" not in aligns.values():
            raise PlanError(f"expected boundary columns for {self!r}, got {dict(episodes.aligns)}")
        outputs: list[Output] = []
        for path, align in aligns.items():
            pair = View(align, 0, self.offset + 1, every=self.offset, end=int(self.last))
            outputs.append((path, path, EPISODE if align == "episode" else pair))
        return Anchored(episodes, self, outputs)
