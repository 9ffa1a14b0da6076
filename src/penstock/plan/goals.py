"""`Goals`: a goal for each sample, drawn from rows of the dataset (hindsight goals).

The row of a goal is a function of the seed and the position: counter-based random numbers choose it, so a goal needs no
state and resumes with its position. It is read as one more view of one row. A later epoch has other positions, and so
other goals.

A geometric distance is found by a search in the table of `(1 - p)^j`, a running product. A logarithm might round in
another way on another machine, and give another row.

Bounds: random numbers have 53 bits, so a row of an episode is drawn with its probability to within 2^-53.
Source: Andrychowicz et al., "Hindsight experience replay" (2017), section 3.3 and 4.5 for the strategies; Eysenbach et
al., "C-learning" (2021), for the geometric distribution over future states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from typing_extensions import override

from penstock.core.arrays import BoolArray, FloatArray, IntArray
from penstock.core.frozen import set_fields
from penstock.core.selection import Selection
from penstock.errors import PlanError, suggestion
from penstock.kernels.locate import Groups, OffsetGroups
from penstock.plan.anchored import AnchoredPlan, Anchors
from penstock.plan.base import (
    DerivedPlan,
    Plan,
    SameOrder,
    blocks,
    checked,
)
from penstock.plan.keys import keys
from penstock.plan.outputs import DerivedOutput, Read, View
from penstock.plan.transform import PlanTransform, require_int

Strategy = Literal["future", "final", "episode", "geometric", "random"]
STRATEGIES = ("future", "final", "episode", "geometric", "random")
GUIDE = 1 << 14  # cells of the guide to geometric distances; it takes 128 kB
OTHER_STREAM = 0xD1B54A32D192ED03  # an odd constant: keys of samples differ from keys of positions


@dataclass(frozen=True)
class Goals(PlanTransform):
    """Draw a goal for each sample, from the states of a column.

    An episode of `T` steps has the states `0 : T + 1` if `column` is a boundary column, such as observations, and
    `0 : T` if it has one row for each step. The anchor of a sample is step `t`.

    * `"future"`: each state from `t + offset` to the last of the episode is equally likely.
    * `"final"`: the last state of the episode.
    * `"episode"`: each state of the episode is equally likely.
    * `"geometric"`: state `t + offset - 1 + d`, where `d` has the geometric distribution `p * (1 - p)^(d - 1)`. A state
      beyond the end becomes the last one.
    * `"random"`: each state of all episodes is equally likely, also of other episodes.

    If `t + offset` is beyond the last state, the last state is the goal.

    With `original`, one of `k + 1` samples keeps its recorded goal. In any `k + 1` epochs that have all samples, each
    sample comes once with its recorded goal and `k` times with a drawn one.

    Args:
        strategy: How goals are drawn. The default is `"future"`.
        column: Column of achieved goals or states, step or boundary. The default is `"observations"`.
        original: Column of recorded goals, with the dtype and shape of `column`. It is read at the anchor. The default
            is None: all goals are drawn.
        k: Drawn goals for each recorded one, at least 1. Only with `original`; the default is 4 then.
        p: Parameter of the geometric distribution, above 0 and at most 1; a discount `gamma` is `p = 1 - gamma`. Only
            for `"geometric"`, and required there.
        offset: Steps from the anchor to the first state that can be a goal, 0 or more. The default is 1.
        name: Name of the output. The default is `"goal"`.
        seed: 0 to 2^64 - 1. The default is 0.

    Raises:
        PlanError: An option is out of range, a column is missing or has one row for each episode, or the samples are
            not samples at steps, as packs and mixes are not. `MapDataset.goals` draws in each dataset of a mix.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"observations": np.arange(11), "actions": np.arange(9)}, lengths=[4, 5])
        >>> goals = data.steps().apply(Goals("final"))
        >>> goals[:]["goal"].tolist()
        [4, 4, 4, 4, 10, 10, 10, 10, 10]
    """

    strategy: Strategy = "future"
    column: str = "observations"
    original: str | None = None
    k: int | None = None
    p: float | None = None
    offset: int = 1
    name: str = "goal"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise PlanError(f"expected a strategy among {list(STRATEGIES)}, got {self.strategy!r}")
        if self.strategy != "geometric" and self.p is not None:
            raise PlanError(f"expected p only for the strategy 'geometric', got p={self.p} for {self.strategy!r}")
        if self.strategy == "geometric" and not (self.p is not None and 0 < self.p <= 1):
            raise PlanError(f"expected p above 0 and at most 1 for the strategy 'geometric', got {self.p!r}")
        if self.p is not None:
            set_fields(self, p=float(self.p))
        if self.original is None and self.k is not None:
            raise PlanError(f"expected k only together with a column of original goals, got k={self.k}")
        if self.original is not None:
            set_fields(self, k=4 if self.k is None else self.k)
            require_int(self, "k", 1)
        require_int(self, "offset", 0)
        require_int(self, "seed", 0, (1 << 64) - 1)

    @override
    def reorder(self, plan: Plan) -> Plan:
        return GoalPlan(plan, self)


class GoalPlan(SameOrder):
    """Plan of `Goals`: the samples below, with the row of a goal as one more view."""

    def __init__(self, upstream: Plan, transform: Goals) -> None:
        super().__init__(upstream, transform)
        self._goals = transform
        self._base, self._direct = _base(upstream)
        aligns = self._base.episodes.aligns
        for column in filter(None, (transform.column, transform.original)):
            if column not in aligns:
                known = list(aligns)
                raise PlanError(f"expected a column of goals among {known}, got {column!r}{suggestion(column, known)}")
        align = aligns[transform.column]
        if align == "episode":
            raise PlanError(
                f"expected a step or boundary column to draw goals from, got {transform.column!r}, which has one row "
                "for each episode"
            )
        self._boundary = align == "boundary"
        name, first = transform.name, len(upstream.views)
        self.views = (*upstream.views, View(align, 0, 1, drawn=name))
        reads = [Read(name, transform.column, first, squeeze=True)]
        if transform.original is not None:
            aligned = aligns[transform.original]
            self.views = (*self.views, View(aligned, 0, 1, drawn=f"{name}/original"))
            reads = [
                Read(f"{name}/drawn", transform.column, first, squeeze=True),
                Read(f"{name}/original", transform.original, first + 1, squeeze=True),
            ]
            self.marks = (*upstream.marks, DerivedOutput(f"{name}_drawn", first, "drawn"))
        taken = [read.name for read in upstream.reads if read.name.split("/")[0] == name]
        if taken:
            raise PlanError(f"expected no output named {name!r}, got {taken}; give goals() another name")
        self.reads = (*upstream.reads, *reads)
        self._ascending = -_survival(transform.p, self._base) if transform.p is not None else np.zeros(0)
        self._guide = self._ascending.searchsorted(-np.arange(GUIDE + 1) / GUIDE)
        self._states: Groups | OffsetGroups | None = None
        if transform.strategy == "random":  # a state for each step, and one more in boundary columns
            self._states = self._base.episodes.groups(-int(self._boundary), 1)

    @property
    def steady(self) -> bool:
        """Whether every epoch has the same samples: goals are drawn again in each epoch, except final ones."""
        return self.upstream.steady and self._fixed

    @property
    def periodic(self) -> bool:
        """Whether every epoch has the same order and goals."""
        return self.upstream.periodic and self._fixed

    @property
    def _fixed(self) -> bool:
        return self._goals.strategy == "final" and self._goals.original is None

    @property
    def even(self) -> tuple[int, ...] | None:
        """Rows of the plan below, and one row of the goal."""
        below = self.upstream.even
        return None if below is None or self._goals.original is not None else (*below, 1)

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        """A goal of any episode is drawn for each position alone, so `"random"` looks at all of them."""
        own = super().uses(source, episodes, lo, hi)
        if self._states is None:
            return own
        parts = [own]
        for k in blocks(lo, hi) if not self.empty else ():
            _, of, index, _, _ = self._goal_states(self._states, k)
            drawn = self._goals.original is None or self._drawn(k, self._below(k))
            parts.append(k[drawn & (of == source) & np.isin(index, episodes)])
        return np.unique(np.concatenate(parts))

    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        """Rows of the plan below, and one row of the goal."""
        below = self.upstream.lengths(positions)
        if self._goals.original is None:
            return (*below, np.ones(len(positions), np.int64))
        drawn = self._drawn(np.asarray(positions), self._below(np.asarray(positions))).astype(np.int64)
        return (*below, drawn, 1 - drawn)

    @override
    def extents(self, positions: IntArray) -> tuple[IntArray, ...]:
        return self.lengths(positions)

    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """Draw the state of each goal, and select its row."""
        k = checked(self, positions)
        below = self._below(k)
        anchors = self._base.anchors(below)
        selections = self._base.select(anchors) if self._direct else self.upstream.resolve(k)
        source, row = self._rows(k, anchors)
        if self._goals.original is None:
            return (*selections, _single(source, row, np.ones(len(k), np.bool_)))
        drawn = self._drawn(k, below)
        own = anchors.rows(self.views[-1].align)
        if self.views[-1].align != "episode":
            own = own + anchors.step
        return (*selections, _single(source, row, drawn), _single(anchors.source, own, ~drawn))

    def _distances(self, unit: FloatArray) -> IntArray:
        """How many entries of `_survival` are above each number `[n]`.

        The guide has the answer at the edges of equal cells of `0 : 1`. Only cells with different edges need a search.
        """
        cell = (unit * GUIDE).astype(np.int64)
        low, other = self._guide[cell], self._guide[cell + 1]
        open_ = np.flatnonzero(low != other)
        low[open_] = self._ascending.searchsorted(-unit[open_])
        return low

    def _unit(self, k: IntArray) -> FloatArray:
        """A random number `[n]` in `0 : 1` for each position."""
        return (keys(self._goals.seed, k) >> np.uint64(11)) / float(1 << 53)

    def _goal_states(self, states: Groups | OffsetGroups, k: IntArray) -> IntArray:
        """`[5, n]` a state of any episode for each position: step, source, number and start of its episode, and
        steps."""
        return states.locate(_uniform(self._unit(k), np.full(len(k), states.n)))

    def _below(self, k: IntArray) -> IntArray:
        """Positions in the base plan."""
        plan = self.upstream
        while isinstance(plan, DerivedPlan):
            k, plan = plan.positions(k), plan.upstream
        return k

    def _drawn(self, k: IntArray, below: IntArray) -> BoolArray:
        """Whether the goal of each sample is drawn, and not the recorded one: one turn of `k + 1` by epochs."""
        turns = np.uint64((self._goals.k or 0) + 1)
        place = self._base.locate(below)[1]
        phase = keys(self._goals.seed ^ OTHER_STREAM, place) % turns
        return (phase + self.locate(k)[0].astype(np.uint64)) % turns != 0

    def _rows(self, k: IntArray, anchors: Anchors) -> tuple[IntArray, IntArray]:
        """Source `[n]` and row `[n]` of each drawn goal."""
        if self._states is not None:
            step, source, number, first, _ = self._goal_states(self._states, k)
            return source, first + step + (number if self._boundary else 0)
        unit = self._unit(k)
        last = anchors.length if self._boundary else anchors.length - 1
        first = np.minimum(anchors.step + self._goals.offset, last)
        if self._goals.strategy == "final":
            state = last
        elif self._goals.strategy == "episode":
            state = _uniform(unit, last + 1)
        elif self._goals.strategy == "future":
            state = first + _uniform(unit, last + 1 - first)
        else:
            state = np.minimum(first + self._distances(unit), last)
        return anchors.source, anchors.rows(self.views[len(self.upstream.views)].align) + state


def _base(plan: Plan) -> tuple[AnchoredPlan, bool]:
    """The plan of the samples at steps, and whether all plans above it only change positions."""
    direct = True
    while isinstance(plan, DerivedPlan):
        direct = direct and type(plan).resolve is DerivedPlan.resolve
        plan = plan.upstream
    if not isinstance(plan, AnchoredPlan):
        raise PlanError(
            f"expected samples at steps to draw goals for, got {type(plan).__name__}; call goals() after steps(), "
            "windows() or pairs(), before samples are packed, and before a mix is filtered or weighted"
        )
    if not plan.inside:
        raise PlanError(
            "expected samples whose anchors are steps, to draw goals for, got windows that begin with padding before "
            "their anchor or end behind it; give windows() a past of pad_before, and as many more steps as pad_after"
        )
    return plan, direct


def _survival(p: float, base: AnchoredPlan) -> FloatArray:
    """`(1 - p)^j` for `j` from 1 on, to the longest distance in an episode, or below 2^-53."""
    longest = base.episodes.longest + 1
    return np.multiply.accumulate(np.full(min(longest, int(37 / p) + 1), 1 - p))


def _uniform(unit: FloatArray, size: IntArray) -> IntArray:
    """Integers `[n]` in `0 : size`, from numbers `[n]` in `0 : 1`."""
    return np.minimum((unit * size).astype(np.int64), size - 1)


def _single(source: IntArray, row: IntArray, chosen: BoolArray) -> Selection:
    """One row for each chosen sample, and none for the others."""
    rows = np.flatnonzero(chosen)
    if len(rows) < len(row):
        source, row = source[rows], row[rows]
    return Selection(source, row, np.ones_like(rows), rows, (len(chosen), 1))
