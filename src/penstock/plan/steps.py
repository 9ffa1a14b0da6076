"""`Steps`: every step of every episode, one a sample."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.anchored import EPISODE, Anchored, Output
from penstock.plan.base import Plan, SampleTransform, View
from penstock.plan.episodes import Episodes


@dataclass(frozen=True)
class Steps(SampleTransform):
    """Every step `t` in `0 : T` of every episode: columns `[n, ...]`.

    Step columns are read at `t`, boundary columns at `t`, episode columns at their one row. With
    `next_observations`, the batch also has the observations one row later, under that name.

    Raises `PlanError` if `next_observations` is asked of a dataset that has no `observations`, or has such a column.
    Cost: a running sum over episodes when built.

    >>> import numpy as np
    >>> from penstock.core.spec import Field, Spec
    >>> from penstock.formats.memory import MemorySource
    >>> spec = Spec({"observations": Field(np.dtype("f4"), (), "boundary"), "rewards": Field(np.dtype("f4"))})
    >>> columns = {"observations": np.arange(7, dtype="f4"), "rewards": np.zeros(5, "f4")}
    >>> plan = Steps(next_observations=True).plan(Episodes.of(MemorySource(spec, columns, np.array([0, 2, 5]))))
    >>> len(plan), [read.name for read in plan.reads]
    (5, ['observations', 'rewards', 'next_observations'])
    >>> [selection.start.tolist() for selection in plan.resolve(np.arange(5))]
    [[0, 1, 3, 4, 5], [0, 1, 2, 3, 4], [1, 2, 4, 5, 6]]
    """

    next_observations: bool = False

    def plan(self, episodes: Episodes) -> Plan:
        """The plan of all steps."""
        outputs: list[Output] = [
            (path, path, EPISODE if align == "episode" else View(align, 0, 1))
            for path, align in episodes.aligns.items()
        ]
        if self.next_observations:
            following = View("boundary", 1, 2, end=1)
            outputs += [(f"next_{path}", path, following) for path in episodes.boundary("observations")]
        return Anchored(episodes, self, outputs, squeeze=True)
