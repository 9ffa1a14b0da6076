"""`Sequences`: every whole episode as a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.plan.anchored import EPISODE
from penstock.plan.base import FixedPlan, Plan, chained, checked, in_each_epoch
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import DerivedOutput, Read, View
from penstock.plan.transform import SampleTransform

_TABLE = 1 << 26  # most episodes whose lengths are given as one array


@dataclass(frozen=True)
class Sequences(SampleTransform):
    """Whole episodes as samples `[n, L, ...]`, padded to the steps `L` of the longest, with a `mask`.

    `Pack` packs them; without packing they are mostly padding. A ragged numeric column with one row for each episode,
    such as the tokens of a document, becomes `[n, longest]` with a `<column>_mask`. Other episode columns keep their
    one row. Building the plan costs a pass over the lengths.

    Args:
        final: Whether boundary columns include the observation after the last step, with a separate mask. The default
            is False.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5)}, lengths=[2, 3])
        >>> batch = data.apply(Sequences())[:]
        >>> batch["rewards"].tolist(), batch["mask"].sum(axis=1).tolist()
        ([[0, 1, 0], [2, 3, 4]], [2, 3])
    """

    final: bool = False

    @override
    def plan(self, episodes: Episodes) -> Plan:
        return SequencePlan(episodes, self)


class SequencePlan(FixedPlan):
    """Plan of `Sequences`."""

    def __init__(self, episodes: Episodes, transform: Sequences) -> None:
        self.episodes = episodes
        self.fingerprint = chained(episodes.fingerprint, transform)
        self._extents: list[tuple[IntArray, IntArray] | None] = []
        """Of views of values: the first value of each episode, and how many it has."""
        views: dict[tuple[str, str], View] = {}
        reads: list[Read] = []
        marks: dict[View, DerivedOutput] = {}
        for path, align in episodes.aligns.items():
            column = path if path in episodes.ragged else ""
            view = views.get((align, column)) or views.setdefault(
                (align, column), self._view(episodes, align, column, transform.final)
            )
            number = list(views.values()).index(view)
            reads.append(Read(path, path, number, squeeze=view is EPISODE))
            if view is not EPISODE and not any(mark.axis == view.axis for mark in marks):
                first = not any(not mark.column for mark in marks) and not column
                marks[view] = DerivedOutput("mask" if first else f"{path}_mask", number)
        self.views = tuple(views.values())
        self.reads = tuple(reads)
        self.marks = tuple(marks.values())

    def _view(self, episodes: Episodes, align: Align, column: str, final: bool) -> View:
        self._extents.append(episodes.extents(column) if column else None)
        if align == "episode" and not column:
            return EPISODE
        end = int(final and align == "boundary")
        extents = self._extents[-1]
        longest = episodes.longest + end if extents is None else int(extents[1].max(initial=0))
        return View("values" if column else align, 0, max(1, longest), end=end, column=column, whole=True)

    def _rows(self, number: int, e: IntArray) -> tuple[IntArray, IntArray]:
        """First row of episodes `[n]` in a view, and the number of rows of each."""
        view, extents = self.views[number], self._extents[number]
        if extents is not None:
            return extents[0][e], extents[1][e]
        _, index, start, length = self.episodes.rows_at(e)
        if view.align == "episode":
            return index, np.ones_like(index)
        return (start + index if view.align == "boundary" else start), length + view.end

    def __len__(self) -> int:
        return len(self.episodes)

    @override
    def why_empty(self) -> str:
        return self.episodes.reason

    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """One span for each sample and view, and none for an empty episode."""
        _, e = self.locate(checked(self, positions))
        return tuple(self._select(number, view, e) for number, view in enumerate(self.views))

    @override
    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        _, e = self.locate(checked(self, positions))
        return tuple(self._rows(number, e)[1] for number in range(len(self.views)))

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        return in_each_epoch(self.episodes.rows_of(source, episodes), len(self), lo, hi)

    @override
    def rows_of_episodes(self, view: int, source: int, episodes: IntArray) -> tuple[IntArray, IntArray]:
        rows, extents = self.episodes.rows_of(source, episodes), self._extents[view]
        if extents is None:
            return self.episodes.extent_of(self.views[view].align, rows)
        return extents[0][rows], extents[0][rows] + extents[1][rows]

    def samples_in(self, rows: IntArray) -> IntArray:
        """Return the number of samples of rows of the table of episodes, `[n]`."""
        return np.ones_like(rows)

    def owners(self, positions: IntArray) -> IntArray:
        """Return the row of each sample's episode in `episodes`, `[n]`."""
        return self.locate(checked(self, positions))[1]

    @override
    def length_table(self, view: int) -> IntArray | None:
        extents = self._extents[view]
        if extents is not None:
            return extents[1]
        if self.views[view].align == "episode" or len(self) > _TABLE:
            return None
        return self.episodes.length + self.views[view].end

    def _select(self, number: int, view: View, e: IntArray) -> Selection:
        n, width = len(e), view.hi
        first, rows = self._rows(number, e)
        destination = np.arange(0, n * width, width)
        source = self.episodes.rows_at(e)[0]
        nonempty = rows > 0
        if not nonempty.all():
            source = source[nonempty]
            first = first[nonempty]
            rows = rows[nonempty]
            destination = destination[nonempty]
        return Selection(source, first, rows, destination, (n, width))
