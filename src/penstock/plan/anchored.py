"""Samples at anchor steps: arithmetic for `Steps`, `Windows` and `Pairs`.

Sample `i` of an episode has its anchor at step `first + i * stride`. Each view is a range of rows around the anchor. A
running sum of samples per episode (`Episodes.groups`) finds the episode of a sample by a guided search; nothing is
stored for each sample. For all episodes of a large source, the sum has an entry for each block of episodes.

With `pad="drop"`, anchors are chosen so that all ranges are inside the episode (`_room`), so every sample has equal
numbers of rows. Otherwise ranges are clipped to the episode, and the missing rows are zeros or copies of the nearest
row. Limits of padding (`pads`) move the first and the last anchor, also to steps before or behind the episode.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import under
from penstock.core.ragged import ranges
from penstock.core.selection import Selection
from penstock.errors import PlanError
from penstock.plan.base import FixedPlan, chained, checked, in_each_epoch
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import (
    DerivedOutput,
    Read,
    RowSpace,
    View,
)

Pad = Literal["drop", "zero", "repeat"]
Output = tuple[str, str, View]
"""Name in the batch, column of the source, and the rows it is read from."""

EPISODE = View("episode", 0, 1)
"""The one row that a column aligned with episodes has."""


@dataclass(frozen=True, eq=False, slots=True)
class Anchors:
    """Anchor step of each sample, and its episode."""

    source: IntArray
    index: IntArray
    start: IntArray
    length: IntArray
    step: IntArray

    def rows(self, align: RowSpace) -> IntArray:
        """Return the first row of each episode in a row space, `[n]`."""
        return {"step": self.start, "boundary": self.start + self.index, "episode": self.index}[align]


class AnchoredPlan(FixedPlan):
    """Plan whose sample `i` of an episode has its anchor at step `first + i * stride`, and reads each view
    from there.

    With `pad="drop"`, the anchors are the steps `t` in `0 : T` for which every view is inside the episode. Otherwise
    rows outside are padding. `first` is 0 and anchors continue to the end, unless `pads` limits the padding before and
    after the episode.

    Building it costs a pass over the episodes: 56 bytes for each, or half a byte if they are all of a source with more
    than `locate.FEW`. A call finds the episode of each position, then uses arithmetic. `first`, `spare` (steps at the
    end without an anchor), `stride` and `pad` are public, because replay uses them for episodes that the table does not
    have yet.
    """

    def __init__(
        self,
        episodes: Episodes,
        transform: object,
        outputs: Sequence[Output],
        *,
        masks: Sequence[tuple[str, View]] = (),
        places: Sequence[tuple[str, View]] = (),
        squeeze: bool | Collection[str] = False,
        stride: int = 1,
        pad: Pad = "drop",
        pads: tuple[int | None, int | None] = (None, None),
        final: bool = False,
    ) -> None:
        self.stride = stride
        self.pad = pad
        _check_names([name for name, *_ in (*outputs, *masks, *places)])
        self.views = tuple(dict.fromkeys([*(view for _, _, view in outputs), *(view for _, view in places)]))
        number = {view: i for i, view in enumerate(self.views)}
        squeezed = {name for name, _, _ in outputs} if squeeze is True else set(squeeze or ())
        self.reads = tuple(
            Read(name, column, number[view], name in squeezed or view.align == "episode")
            for name, column, view in outputs
        )
        place_marks = [DerivedOutput(name, number[view], "place") for name, view in places]
        self.marks = (*(DerivedOutput(name, number[view]) for name, view in masks), *place_marks)
        self.fingerprint = chained(episodes.fingerprint, transform)
        ranges = [view for view in self.views if view.align != "episode"]
        self.first, self.spare = _room(ranges, -int(final)) if pad == "drop" else _padded_room(ranges, *pads)
        self.inside = pad == "drop" or min(self.first, self.spare) >= 0
        """Whether every anchor is a step of its episode."""
        self.episodes = episodes = episodes if self.inside else _without_empty(episodes)
        self._samples = episodes.groups(self.first + self.spare, stride)
        self._reason = "" if self._samples.n else _reason(episodes, self.first + self.spare + 1)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the running sum, which takes less time to make again than to send."""
        return {name: value for name, value in vars(self).items() if name != "_samples"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._samples = self.episodes.groups(self.first + self.spare, self.stride)

    def __len__(self) -> int:
        return self._samples.n

    def why_empty(self) -> str:
        """Whether there are no episodes, or none that is long enough."""
        return self._reason

    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        """Find episode and anchor step `t` of each position, then the rows of every view."""
        return self.select(self.anchors(positions))

    def select(self, anchors: Anchors) -> tuple[Selection, ...]:
        """Return the rows of every view."""
        rows = {align: anchors.rows(align) for align in ("step", "boundary", "episode")}
        return tuple(
            self._select(view, anchors.source, rows[view.align], anchors.step, anchors.length) for view in self.views
        )

    def anchors(self, positions: IntArray) -> Anchors:
        """Return episode and anchor step of samples."""
        _, place = self.locate(checked(self, positions))
        i, source, index, start, length = self._samples.locate(place)
        return Anchors(source, index, start, length, i * self.stride + self.first)

    def owners(self, positions: IntArray) -> IntArray:
        """Return the row of each sample's episode in `episodes`, `[n]`."""
        _, place = self.locate(checked(self, positions))
        return self._samples.group_of(place)

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        rows = self.episodes.rows_of(source, episodes)
        return in_each_epoch(ranges(self._samples.starts(rows), self.samples_in(rows)), len(self), lo, hi)

    @override
    def rows_of_episodes(self, view: int, source: int, episodes: IntArray) -> tuple[IntArray, IntArray]:
        return self.episodes.extent_of(self.views[view].align, self.episodes.rows_of(source, episodes))

    def samples_in(self, rows: IntArray) -> IntArray:
        """Return the number of samples of rows of the table of episodes, `[n]`."""
        return self._samples.starts(rows + 1) - self._samples.starts(rows)

    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        """Widths of the views without padding, or the parts of the views inside the episode."""
        if self.even is None:
            return super().lengths(positions)
        n = len(checked(self, positions))
        return tuple(np.full(n, rows) for rows in self.even)

    @property
    @override
    def even(self) -> tuple[int, ...] | None:
        return tuple(len(view.steps) for view in self.views) if self.pad == "drop" else None

    def _select(self, view: View, source: IntArray, row: IntArray, t: IntArray, length: IntArray) -> Selection:
        if view.align == "episode":
            return _spans(source, row, 1)
        if view.steps != range(view.lo, view.hi):
            if self.pad == "drop":
                return _picked(source, row + t, view.steps)
            return _picked_inside(source, row, t, length + view.end, view.steps, repeat=self.pad == "repeat")
        if self.pad == "drop":
            return _spans(source, row + (t + view.lo), view.hi - view.lo)
        clipped = _clipped(source, row, t, length + view.end, view)
        return clipped if self.pad == "zero" else _repeated(clipped, source, row, t, length + view.end, view)


def _reason(episodes: Episodes, steps: int) -> str:
    """Why no episode is long enough for a sample of so many steps."""
    if len(episodes) == 0:
        return episodes.reason
    longest = episodes.longest
    return f"no episode is as long as {steps:,} step{'s' * (steps != 1)}; the longest has {longest:,}"


def _room(views: Sequence[View], least: int) -> tuple[int, int]:
    """First step that can be an anchor, and number of steps at the end that cannot.

    `least` is -1 if all of them can, and the observation after them too.
    """
    first = max([0, *(-view.steps[0] for view in views)])
    spare = max([least, *(view.steps[-1] - view.end for view in views)])
    return first, spare


def _padded_room(views: Sequence[View], before: int | None, after: int | None) -> tuple[int, int]:
    """First anchor, and steps at the end that are none, so that so many rows are padded. Without a limit: 0."""
    first = 0 if before is None else max((-view.steps[0] for view in views), default=0) - before
    spare = 0 if after is None else max((view.steps[-1] - view.end for view in views), default=0) - after
    return first, spare


def _without_empty(episodes: Episodes) -> Episodes:
    """Return the episodes that have a step: an anchor outside of others would have no row to repeat."""
    steps = np.flatnonzero(episodes.length)
    return episodes if len(steps) == len(episodes) else episodes.take(steps, "with a step")


def _spans(source: IntArray, start: IntArray, width: int) -> Selection:
    """One span of `width` rows a sample."""
    n = len(start)
    return Selection(source, start, np.full(n, width), np.arange(0, n * width, width), (n, width))


def _picked(source: IntArray, anchor: IntArray, steps: Sequence[int]) -> Selection:
    """Single rows `[n, L]` at `steps` from each anchor."""
    n, width = len(anchor), len(steps)
    rows = (anchor[:, None] + np.array(steps)).ravel()
    return Selection(np.repeat(source, width), rows, np.ones(n * width, np.int64), np.arange(n * width), (n, width))


def _picked_inside(
    source: IntArray, row: IntArray, t: IntArray, limit: IntArray, steps: Sequence[int], *, repeat: bool
) -> Selection:
    """Single rows `[n, L]` at `steps` from each anchor, inside `0 : limit`; others are padding or the nearest row."""
    n, width = len(t), len(steps)
    wanted = t[:, None] + np.array(steps)
    nearest = np.clip(wanted, 0, limit[:, None] - 1)
    real = (wanted == nearest).ravel()
    chosen = np.ones(n * width, bool) if repeat else real
    rows = (row[:, None] + nearest).ravel()[chosen]
    sources = np.repeat(source, width)[chosen]
    places = np.flatnonzero(chosen)
    return Selection(sources, rows, np.ones_like(rows), places, (n, width), real if repeat else None)


def _clipped(source: IntArray, row: IntArray, t: IntArray, limit: IntArray, view: View) -> Selection:
    """Part of each range inside `0 : limit`. Samples without such a part have no span."""
    n, width = len(t), view.hi - view.lo
    begin = np.clip(t + view.lo, 0, limit)
    length = np.clip(t + view.hi, 0, limit) - begin
    destination = np.arange(0, n * width, width) + begin - (t + view.lo)
    inside = length > 0
    if inside.all():
        return Selection(source, row + begin, length, destination, (n, width))
    return Selection(source[inside], (row + begin)[inside], length[inside], destination[inside], (n, width))


def _repeated(real: Selection, source: IntArray, row: IntArray, t: IntArray, limit: IntArray, view: View) -> Selection:
    """`real`, and a span of the nearest row for every open place."""
    open_ = np.flatnonzero(~real.mask().ravel())
    i, step = open_ // real.shape[1], open_ % real.shape[1]
    nearest = np.clip(t[i] + view.lo + step, 0, limit[i] - 1)
    order = np.argsort(np.concatenate([real.destination, open_]), kind="stable")

    def merged(covered: IntArray, added: IntArray) -> IntArray:
        return np.concatenate([covered, added])[order]

    return Selection(
        merged(real.source, source[i]),
        merged(real.start, row[i] + nearest),
        merged(real.length, np.ones_like(open_)),
        merged(real.destination, open_),
        real.shape,
        order < len(real.destination),
    )


def _check_names(names: Sequence[str]) -> None:
    ordered = sorted(names, key=lambda name: name.split("/"))
    for one, other in pairwise(ordered):
        if under(one, other):
            raise PlanError(f"expected outputs of different names, got {one!r} and {other!r}; rename one of them")
