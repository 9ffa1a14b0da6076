"""`MixedPlan`: the plan of a mix, whose samples come from several plans.

`MixSchedule` says which part sample `k` is from, and how many samples of that part came before it. The part's own plan
resolves the sample at that position. Parts keep their own order, and continue in the next epoch of the mix where the
last one ended.

Sources are numbered over all parts. Outputs of equal names are joined: a *way* has the view of each part through which
an output is read, and becomes one view of the mix, as wide as the widest of them. Spans are sorted by their offset in
the grid, as every selection has them. A sample without rows has no span, so selections name the origin of each sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.selection import Selection
from penstock.errors import PlanError
from penstock.plan.base import (
    ENDLESS,
    NONE,
    Plan,
    chained,
    checked,
)
from penstock.plan.outputs import DerivedOutput, Read, View
from penstock.plan.schedule import MixSchedule
from penstock.plan.weights import MixReport

ORIGIN = "__origin__"
"""The column of a mark of the kind `"origin"`, which no function and no consumer gets to see."""


@dataclass(frozen=True)
class MixPart:
    """One plan of a mix: its name, and how many sources it reads from."""

    name: str
    plan: Plan
    sources: int


class MixedPlan(Plan):
    """Sample `k` is the next sample, in its own order, of the part that `course` picks at `k`.

    The sources of the parts are numbered one part after the other. `label` is a column `[n]` int32 that tells which
    part a sample is from; None leaves the column out. With `origin` there is a column `ORIGIN`, by which the functions
    of each part find their samples. Parts must have the same outputs, as wide as each other; with `union` an output
    that a part lacks is padding there, with a mark `<output>_present`, and narrow ones are padded. `begin` is how many
    samples each part has given before position 0, in a mix that continues another one.

    Raises `PlanError` where parts differ, naming the difference.
    """

    loses = "not reached by the mix in this epoch"

    def __init__(
        self,
        parts: Sequence[MixPart],
        course: MixSchedule,
        *,
        label: str | None = "source",
        union: bool = False,
        origin: bool = False,
        begin: Sequence[int] = (),
    ) -> None:
        self.parts = tuple(parts)
        self.course = course
        self.label = label
        self.union = union
        self._origin = origin
        self.begin = np.array(begin if any(begin) else [0] * len(self.parts), np.int64)
        first = np.cumsum([0] + [part.sources for part in parts])
        self.first, self._sources = tuple(first[:-1].tolist()), int(first[-1])  # the first source of each part
        outputs = _Joined(self.parts, union)
        self.views, self._below = outputs.views()
        self.reads = tuple(self._read(name, view, outputs) for name, view in outputs.outputs.items())
        self.marks = self._made_marks(outputs)
        digest = [(part.name, part.plan.fingerprint) for part in parts]
        changes = [(position, [str(share) for share in shares]) for position, shares in course.stretches]
        self.fingerprint = chained(f"mix until {course.stop}", (digest, changes, label, union))
        if course.limits:
            self.fingerprint = chained(self.fingerprint, f"limits {course.limits}")
        if self.begin.any():
            self.fingerprint = chained(self.fingerprint, f"begin {self.begin.tolist()}")
        # What each part has given when an epoch of the mix ends; endless mixes have one epoch.
        self._each_epoch = course.offset(1) if course.length is not None else np.zeros(len(parts), np.int64)

    def _read(self, name: str, view: int, outputs: _Joined) -> Read:
        reads = [outputs.reads[c].get(name) for c in range(len(self.parts))]
        columns = [
            None if read is None else read.of(source)
            for read, part in zip(reads, self.parts, strict=True)
            for source in range(part.sources)
        ]
        model = next(read for read in reads if read is not None)
        if all(column == model.column for column in columns):
            return replace(model, view=view, columns=())
        return replace(model, view=view, columns=tuple(columns))

    def _made_marks(self, outputs: _Joined) -> tuple[DerivedOutput, ...]:
        marks = [replace(model, view=view) for model, view in outputs.marks]
        for read in self.reads:
            having = tuple(source for source in range(self._sources) if read.of(source) is not None)
            if len(having) < self._sources:
                marks.append(DerivedOutput(f"{read.name}_present", outputs.whole, "present", having=having))
        if self.label is not None:
            if any(read.name == self.label for read in self.reads):
                raise PlanError(f"expected no output named {self.label!r}, which tells the part; choose another label")
            marks.append(DerivedOutput(self.label, outputs.whole, "source", having=self.first))
        if self._origin:
            marks.append(DerivedOutput(ORIGIN, outputs.whole, "origin"))
        return tuple(marks)

    @property
    def steady(self) -> bool:
        """Whether every epoch has the same samples: only where each part is used up in every epoch."""
        return self._used_up and all(part.plan.steady for part in self._picked)

    @property
    def periodic(self) -> bool:
        """Only where each part is used up in every epoch, and periodic."""
        return self._used_up and all(part.plan.periodic for part in self._picked)

    @property
    def _picked(self) -> list[MixPart]:
        return [part for part, count in zip(self.parts, self._each_epoch.tolist(), strict=True) if count]

    @property
    def _used_up(self) -> bool:
        """Whether an epoch of the mix is some whole epochs of each part."""
        rest = (n % max(len(part.plan), 1) for n, part in zip(self._each_epoch.tolist(), self.parts, strict=True))
        begins = (n % max(len(part.plan), 1) for n, part in zip(self.begin.tolist(), self.parts, strict=True))
        return self.course.length is not None and not any(rest) and not any(begins)

    @property
    @override
    def even(self) -> tuple[int, ...] | None:
        below: list[tuple[int, ...]] = []
        for c, part in enumerate(self.parts):
            even = part.plan.even
            if even is None:
                return None
            below.append(tuple(0 if (view := way[c]) is None else even[view] for way in self._below))
        return below[0] if len(set(below)) == 1 else None

    def __len__(self) -> int:
        return ENDLESS if self.course.length is None else self.course.length

    def why_empty(self) -> str:
        """Of each part that has no samples, why."""
        empty = [f"{part.name!r}: {part.plan.why_empty()}" for part in self.parts if part.plan.empty]
        return f"the mix gives no samples ({'; '.join(empty)})" if empty else "the mix stops before its first sample"

    def report(self) -> MixReport:
        """The shares of samples and rows that an epoch gives to each part, next to the wanted shares."""
        mean = [Fraction(part.plan.rows(), max(len(part.plan), 1)) for part in self.parts]
        return self.course.realised([part.name for part in self.parts], mean)

    def picks(self, positions: IntArray) -> tuple[IntArray, IntArray]:
        """`[n]` the part of each position, and `[n]` the position within that part's plan."""
        epoch, place = self.locate(checked(self, positions))
        part, j = self.course.picks(place)
        return part, j + epoch * self._each_epoch[part] + self.begin[part]

    def counts(self, position: int) -> IntArray:
        """`[D]` samples of each part before a position, with the samples before position 0."""
        epoch, place = (int(value[0]) for value in self.locate(np.array([position])))
        return self.begin + epoch * self._each_epoch + self.course.counts(place)

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        if lo >= hi or self.empty:
            return NONE
        number = self._part_of(source)
        plan = self.parts[number].plan
        if plan.empty:
            return NONE
        return self.places(number, plan.uses(source - self.first[number], episodes, *self.below(number, lo, hi)))

    def places(self, number: int, j: IntArray) -> IntArray:
        """Return the positions of samples `[n]` of a part. Those that the mix never gives are left out."""
        each, begin = int(self._each_epoch[number]), int(self.begin[number])
        if each == 0 and self.course.length is not None:
            return NONE
        j = j[j >= begin] - begin
        if each == 0:
            return self.course.places(number, j[j < self.course.counts(ENDLESS)[number]])
        epoch, rank = np.divmod(j, each)
        return epoch * len(self) + self.course.places(number, rank)

    def below(self, number: int, lo: int, hi: int) -> tuple[int, int]:
        """Return the range of positions that a part has in `lo : hi`."""
        first, last = self.counts(lo), self.counts(hi)
        return int(first[number]), int(last[number])

    def view_below(self, view: int, number: int) -> int | None:
        """Return the view of a part that is joined into a view; None if the part lacks it."""
        return self._below[view][number]

    @override
    def rows_of_episodes(self, view: int, source: int, episodes: IntArray) -> tuple[IntArray, IntArray]:
        number = self._part_of(source)
        below = self.view_below(view, number)
        if below is None:
            return NONE, NONE
        return self.parts[number].plan.rows_of_episodes(below, source - self.first[number], episodes)

    def _part_of(self, source: int) -> int:
        if not 0 <= source < self._sources:
            raise PlanError(f"expected a source within 0:{self._sources}, got {source}")
        return bisect_right(self.first, source) - 1

    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """Each part resolves its own samples. All selections tell the origin of each sample, which spans cannot where a
        sample has no rows."""
        resolved: list[tuple[int, IntArray, tuple[Selection, ...]]] = []
        for part, mine, j in self._by_part(positions):
            resolved.append((part, mine, self.parts[part].plan.resolve(j)))
        origin = np.zeros(len(positions), np.int64)
        for part, mine, selections in resolved:
            inner = selections[0].origin
            origin[mine] = self.first[part] + (0 if inner is None else inner)
        return tuple(
            replace(self._laid(number, len(view.steps), resolved, len(positions)), origin=origin)
            for number, view in enumerate(self.views)
        )

    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        """Those of each part; 0 where it lacks the view."""
        return self._of_parts(positions, lambda plan, j: plan.lengths(j))

    @override
    def extents(self, positions: IntArray) -> tuple[IntArray, ...]:
        return self._of_parts(positions, lambda plan, j: plan.extents(j))

    def _of_parts(
        self, positions: IntArray, figures: Callable[[Plan, IntArray], tuple[IntArray, ...]]
    ) -> tuple[IntArray, ...]:
        """A figure of each sample for each view, asked of the parts; 0 where a part lacks the view."""
        out = [np.zeros(len(positions), np.int64) for _ in self.views]
        for part, mine, j in self._by_part(positions):
            below = figures(self.parts[part].plan, j)
            for number, figure in enumerate(out):
                if (view := self._below[number][part]) is not None:
                    figure[mine] = below[view]
        return tuple(out)

    def _by_part(self, positions: IntArray) -> list[tuple[int, IntArray, IntArray]]:
        """Each part that is picked, with the samples `[m]` it gives and their positions in its plan."""
        part, j = self.picks(positions)
        order = np.argsort(part, kind="stable")
        numbers, first = np.unique(part[order], return_index=True)
        cuts = np.append(first, len(order)).tolist()
        return [(p, mine := order[cuts[i] : cuts[i + 1]], j[mine]) for i, p in enumerate(numbers.tolist())]

    def _laid(
        self, number: int, width: int, resolved: Sequence[tuple[int, IntArray, tuple[Selection, ...]]], n: int
    ) -> Selection:
        """The spans of all parts in one grid, ordered by place."""
        pieces: list[Selection] = []
        for part, mine, selections in resolved:
            if (view := self._below[number][part]) is not None:
                pieces.append(_moved(selections[view], mine, width, self.first[part]))
        return _merged(pieces, (n, width))


class _Joined:
    """The outputs of the parts by name, and the distinct ways in which their views go together.

    A way is a tuple with the view of each part, None for a part that lacks it.
    """

    def __init__(self, parts: Sequence[MixPart], union: bool) -> None:
        self.parts, self.union = parts, union
        self.reads = [{read.name: read for read in part.plan.reads} for part in parts]
        self.ways: dict[tuple[int | None, ...], int] = {}
        self.outputs: dict[str, int] = {}
        for name in dict.fromkeys(name for reads in self.reads for name in reads):
            self.outputs[name] = self._way(name, [reads[name].view if name in reads else None for reads in self.reads])
            squeezed = {reads[name].squeeze for reads in self.reads if name in reads}
            if len(squeezed) > 1:
                raise PlanError(f"expected {name} with an equal number of axes in every part, got {self._widths(name)}")
        self.marks = self._joined_marks()
        complete = [number for way, number in self.ways.items() if None not in way]
        if not complete:
            raise PlanError(f"expected an output that every part has, got {[list(reads) for reads in self.reads]}")
        self.whole = complete[0]

    def views(self) -> tuple[tuple[View, ...], tuple[tuple[int | None, ...], ...]]:
        """The view of each way, as wide as the widest part, and the ways."""
        views: list[View] = []
        for way in self.ways:
            present = [part.plan.views[v] for part, v in zip(self.parts, way, strict=True) if v is not None]
            widest = max(present, key=lambda view: len(view.steps))
            views.append(widest)
        return tuple(views), tuple(self.ways)

    def _way(self, name: str, views: Sequence[int | None]) -> int:
        way = tuple(views)
        lacking = [part.name for part, view in zip(self.parts, way, strict=True) if view is None]
        if lacking and not self.union:
            shared = [each for each in self.reads[0] if all(each in reads for reads in self.reads)]
            raise PlanError(
                f"expected {name!r} in every part of a mix, got none in {lacking}; on each part take the columns that "
                f"all have, select_columns({', '.join(map(repr, shared))}); or name the same values alike, with "
                "penstock.convert(..., rename=...); or fill what a part lacks: union=True"
            )
        present = [part.plan.views[v] for part, v in zip(self.parts, way, strict=True) if v is not None]
        if len({view.align == "values" for view in present}) > 1:
            raise PlanError(f"expected {name!r} as values of a ragged column in every part or in none, got {present}")
        if len({len(view.steps) for view in present if not view.whole}) > 1 and not self.union:
            raise PlanError(
                f"expected {name!r} as wide in every part of a mix, got {self._widths(name)}; or union=True"
            )
        return self.ways.setdefault(way, len(self.ways))

    def _widths(self, name: str) -> dict[str, int]:
        return {
            part.name: len(part.plan.views[reads[name].view].steps)
            for part, reads in zip(self.parts, self.reads, strict=True)
            if name in reads
        }

    def _joined_marks(self) -> list[tuple[DerivedOutput, int]]:
        """Marks that some part has, over the view they draw on in every part."""
        common: list[tuple[DerivedOutput, int]] = []
        marks_of = [
            {mark.name: mark for mark in part.plan.marks if mark.kind not in ("source", "origin")}
            for part in self.parts
        ]
        for name in dict.fromkeys(name for marks in marks_of for name in marks):
            model = next(marks[name] for marks in marks_of if name in marks)
            if len({(marks[name].kind, marks[name].width) for marks in marks_of if name in marks}) > 1:
                raise PlanError(
                    f"expected {name!r} to be the same mark in every part, got {[m.get(name) for m in marks_of]}"
                )
            if model.kind == "place":  # drawn from its own view alone, so that parts without it have no span there
                common.append((model, self._way(name, [m[name].view if name in m else None for m in marks_of])))
            elif all(name in marks for marks in marks_of):
                common.append((model, self._way(name, [marks[name].view for marks in marks_of])))
            elif self.union or model.kind == "mask":
                common.append((model, self._beside(name, marks_of)))
            else:
                raise PlanError(f"expected {name!r} in every part of a mix, got it in some; or union=True")
        return common

    def _beside(self, name: str, marks_of: Sequence[dict[str, DerivedOutput]]) -> int:
        """The way of an output that parts with this mark read through its view: in the others it tells what is real."""
        for way, number in self.ways.items():
            if all(way[c] == marks[name].view for c, marks in enumerate(marks_of) if name in marks) and None not in way:
                return number
        raise PlanError(
            f"expected an output under {name!r} that every part has, got none; select_columns() what all have"
        )


def _moved(selection: Selection, mine: IntArray, width: int, first_source: int) -> Selection:
    """The spans of samples `[m]` at their places in a grid as wide as `width`."""
    below = selection.shape[1]
    sample = selection.destination // below
    destination = mine[sample] * width + selection.destination - sample * below
    return replace(selection, source=selection.source + first_source, destination=destination, shape=(0, width))


def _merged(pieces: Sequence[Selection], shape: tuple[int, int]) -> Selection:
    none = np.zeros(0, np.int64)
    if not pieces:
        return Selection(none, none, none, none, shape)
    order = np.argsort(np.concatenate([p.destination for p in pieces]), kind="stable")
    source, start, length, destination = (
        np.concatenate([getattr(p, name) for p in pieces])[order]
        for name in ("source", "start", "length", "destination")
    )
    real = segment = position = None
    if any(p.real is not None for p in pieces):
        parts = [np.ones(len(p.length), np.bool_) if p.real is None else p.real for p in pieces]
        real = np.concatenate(parts)[order]
    if any(p.segment is not None for p in pieces):
        numbers = [np.ones_like(p.length) if p.segment is None else p.segment for p in pieces]
        segment = np.concatenate(numbers)[order]
        position = np.concatenate([_positions(p) for p in pieces])[order]
    return Selection(source, start, length, destination, shape, real, segment, position)


def _positions(selection: Selection) -> IntArray:
    return selection.destination % selection.shape[1] if selection.position is None else selection.position
