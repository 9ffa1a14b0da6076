"""`Sequences`: every episode whole, one a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.selection import Selection
from penstock.core.spec import Align
from penstock.plan.anchored import EPISODE
from penstock.plan.base import Mark, Plan, Read, SampleTransform, View, chained, checked
from penstock.plan.episodes import Episodes

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sequences(SampleTransform):
    """Whole episodes: columns `[n, L, ...]` with `L` the steps of the longest, shorter ones padded, and a `mask`.

    This is what `Pack` packs; unpacked it is mostly padding. Boundary columns are read at the steps `0 : T`, and with
    `final` at `0 : T + 1`, under a mask of their own for each. A ragged column of numbers with one row an episode
    (tokens of a document) becomes `[n, longest]`, with `<column>_mask`; other episode columns keep their one row.

    Cost: a table per episode when built.

    >>> from penstock.core.spec import Field, Spec
    >>> from penstock.formats.memory import MemorySource
    >>> spec = Spec({"rewards": Field(np.dtype("f4"))})
    >>> source = MemorySource(spec, {"rewards": np.zeros(9, "f4")}, np.array([0, 4, 9]))
    >>> (selection,) = Sequences().plan(Episodes.of(source)).resolve(np.arange(2))
    >>> selection.start.tolist(), selection.length.tolist(), selection.shape
    ([0, 4], [4, 5], (2, 5))
    """

    final: bool = False

    def plan(self, episodes: Episodes) -> Plan:
        """The plan of all episodes."""
        return Whole(episodes, self)


class Whole(Plan):
    """What `Sequences` makes of episodes."""

    def __init__(self, episodes: Episodes, transform: Sequences) -> None:
        self._episodes = episodes
        self.fingerprint = chained(episodes.fingerprint, transform)
        self._first: list[Int] = []  # of each view: the first row of each episode, and how many it has
        self._rows: list[Int] = []
        views: dict[tuple[str, str], View] = {}
        reads: list[Read] = []
        marks: dict[View, Mark] = {}
        for path, align in episodes.aligns.items():
            column = path if path in episodes.ragged else ""
            view = views.get((align, column)) or views.setdefault(
                (align, column), self._view(episodes, align, column, transform.final)
            )
            number = list(views.values()).index(view)
            reads.append(Read(path, path, number, squeeze=view is EPISODE))
            if view is not EPISODE and not any(mark.axis == view.axis for mark in marks):
                first = not any(not mark.column for mark in marks) and not column
                marks[view] = Mark("mask" if first else f"{path}_mask", number)
        self.views, self.reads, self.marks = tuple(views.values()), tuple(reads), tuple(marks.values())

    def _view(self, episodes: Episodes, align: Align, column: str, final: bool) -> View:
        end = int(final and align == "boundary")
        if column:
            first, rows = episodes.extents(column)
        elif align == "episode":
            first, rows = episodes.index, np.ones_like(episodes.index)
        else:
            first = episodes.start + episodes.index if align == "boundary" else episodes.start
            rows = episodes.length + end
        self._first.append(first)
        self._rows.append(rows)
        if align == "episode" and not column:
            return EPISODE
        longest = max(1, int(rows.max(initial=0)))
        return View("values" if column else align, 0, longest, end=end, column=column, whole=True)

    @property
    def steady(self) -> bool:
        """Every epoch is the same."""
        return True

    @property
    def periodic(self) -> bool:
        """Every epoch is the same."""
        return True

    def __len__(self) -> int:
        return len(self._episodes)

    def why_empty(self) -> str:
        """No episodes."""
        return self._episodes.reason

    def resolve(self, positions: Int) -> tuple[Selection, ...]:
        """One span a sample and view, none where an episode is empty."""
        _, e = self.locate(checked(self, positions))
        return tuple(self._select(number, view, e) for number, view in enumerate(self.views))

    def lengths(self, positions: Int) -> tuple[Int, ...]:
        """Out of the table."""
        _, e = self.locate(checked(self, positions))
        return tuple(rows[e] for rows in self._rows)

    def length_table(self, view: int) -> Int:
        """The table."""
        return self._rows[view]

    def _select(self, number: int, view: View, e: Int) -> Selection:
        n, width = len(e), view.hi
        first, rows, at = self._first[number][e], self._rows[number][e], np.arange(0, n * width, width)
        source = self._episodes.source[e]
        held = rows > 0
        if not held.all():
            source, first, rows, at = source[held], first[held], rows[held], at[held]
        return Selection(source, first, rows, at, (n, width))
