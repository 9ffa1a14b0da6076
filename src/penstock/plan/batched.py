"""`Batches`: batches of samples of similar length, by number or by tokens, planned in windows.

An epoch of the plan below is cut into windows of consecutive positions. The samples of a window are sorted by length
and cut into batches, longest first: a batch takes samples until its number is reached, or until one more row of the
width of its longest sample would exceed the budget of tokens. A keyed permutation orders the batches of the window, so
that batches do not come sorted by length. The samples of a batch stand at consecutive positions. So a batch is a range
of positions, a ticket and a skipped range mean the same as elsewhere, and a state is one position.

A window is planned alone, from its lengths: resuming costs one window. Where a ramp changes the number or the budget, a
new window begins, so all batches of a window follow one rule.

Bounds: each window may end in one short batch. A batch of `m` samples and width `w` has `m * w` places, at most
`tokens`. The ranks of a loader share its rows, so their numbers of places differ by at most `w`.
Memory: 8 bytes for each sample of the last windows. Cost: one pass over the lengths of a window, and a sort.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.frozen import set_fields
from penstock.core.turns import ForkSafeLock
from penstock.errors import PlanError
from penstock.kernels.permute import permute
from penstock.plan.base import (
    ENDLESS,
    NONE,
    Plan,
    Reordered,
    check_ends,
    epoch_of,
    within,
)
from penstock.plan.ramp import Ramp, as_ramp, ramp_at
from penstock.plan.transform import PlanTransform, require_int

KEPT = 4  # windows that are kept planned


@dataclass(frozen=True)
class Batches(PlanTransform):
    """Cut samples into batches of similar length, and order them for a loader: `loader(batch_size=Batches(...))`.

    Args:
        size: Most samples of a batch over all ranks, at least 1, or a ramp: `[(0, 64), (10_000, 256)]` has batches of
            64 before position 10,000 and of 256 after. The default is None: no limit.
        tokens: Most places of a batch with its padding (samples times the width of the longest), at least 1, or a ramp.
            The default is None: no limit. One of `size` and `tokens` is required.
        multiple: Batches are padded to a width that is a multiple of this. The default is 1.
        sort: Whether to sort the samples of a window by length, and shuffle its batches. False keeps the order. The
            default is True.
        window: Samples that are sorted together, at least 1. The default is 65536.
        seed: Seed of the order of batches, 0 to 2^64 - 1. The default is 0.

    Raises:
        PlanError: Neither `size` nor `tokens` is given, a number is out of range, the positions of a ramp do not ascend
            from 0, or a sample is longer than `tokens`.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(12)}, lengths=[1, 5, 2, 4]).sequences()
        >>> sorted(batch["x"].shape for batch in data.loader(batch_size=Batches(tokens=10)))
        [(2, 2), (2, 5)]
    """

    size: Ramp | None = None
    tokens: Ramp | None = None
    multiple: int = 1
    sort: bool = True
    window: int = 65536
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size is None and self.tokens is None:
            raise PlanError("expected a size or a number of tokens for batches, got neither")
        for name in ("size", "tokens"):
            if getattr(self, name) is not None:
                set_fields(self, **{name: as_ramp(name, getattr(self, name))})
        require_int(self, "multiple", 1)
        require_int(self, "window", 1)
        require_int(self, "seed", 0, (1 << 64) - 1)

    @override
    def reorder(self, plan: Plan) -> Plan:
        return BatchedPlan(plan, self)


class _PlannedWindow(NamedTuple):
    """Planned samples `start : stop`: the position below of each, and the first position of each batch and the end."""

    start: int
    stop: int
    order: IntArray
    edges: IntArray


class BatchedPlan(Reordered):
    """Plan of `Batches`."""

    def __init__(self, upstream: Plan, transform: Batches) -> None:
        super().__init__(upstream, transform)
        self._batches = transform
        self.same_positions = not transform.sort
        ramps = [ramp for ramp in (transform.size, transform.tokens) if not (ramp is None or isinstance(ramp, int))]
        self._changes = sorted({position for ramp in ramps for position, _ in ramp if position})
        self._planned: OrderedDict[int, _PlannedWindow] = OrderedDict()
        self._lock = ForkSafeLock()

    def count_below(self, position: int) -> int | None:
        """Samples are sorted within each window, so the samples before its first one are the first ones below."""
        return position if not self._batches.sort or self._window(position).start == position else None

    def positions(self, k: IntArray) -> IntArray:
        """Look up the order of each window."""
        out = np.empty(len(k), np.int64)
        todo = np.arange(len(k))
        while len(todo):
            window = self._window(int(k[todo[0]]))
            mine = (k[todo] >= window.start) & (k[todo] < window.stop)
            chosen = todo[mine]
            out[chosen] = window.order[k[chosen] - window.start]
            todo = todo[~mine]
        return out

    @override
    def span(self, lo: int, hi: int) -> tuple[int, int]:
        return self._bounds(lo)[0], self._bounds(hi - 1)[1]

    @override
    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        parts = [NONE]
        while len(below):
            window = self._window(int(below[0]))
            mine = below[: below.searchsorted(window.stop)]
            place = np.argsort(window.order, kind="stable")[mine - window.start]
            parts.append(np.sort(window.start + place))
            below = below[len(mine) :]
        return within(np.concatenate(parts), lo, hi)

    def edges(self, lo: int, hi: int) -> IntArray:
        """Return where batches begin and end."""
        edges = [np.array([lo])]
        while edges[-1][-1] < hi:
            window = self._window(int(edges[-1][-1]))
            edges.append(window.edges[window.edges > edges[-1][-1]])
            edges[-1] = edges[-1][: int(edges[-1].searchsorted(hi)) + 1]
        return np.concatenate(edges)

    def widths(self, positions: IntArray, edges: IntArray) -> IntArray:
        """Return the padded width of batches in each view, `[b, views]`. Views of a fixed width keep it."""
        widths = np.tile([len(view.steps) for view in self.views], (len(edges) - 1, 1))
        if any(view.whole for view in self.views):
            for number, rows in enumerate(self.extents(positions)):
                if self.views[number].whole:
                    longest = np.maximum(np.maximum.reduceat(rows, edges[:-1]), 1)
                    widths[:, number] = -(-longest // self._batches.multiple) * self._batches.multiple
        return widths

    def batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch. Cost: one pass over its lengths."""
        check_ends(self, "counting its batches")
        return len(self.edges(self.start(epoch), self.start(epoch + 1))) - 1

    def _window(self, position: int) -> _PlannedWindow:
        with self._lock:
            known = next((w for w in self._planned.values() if w.start <= position < w.stop), None)
        if known is not None:
            return known
        window = self._made(position)
        with self._lock:
            self._planned[window.start] = window
            while len(self._planned) > KEPT:
                self._planned.popitem(last=False)
        return window

    def _bounds(self, position: int) -> tuple[int, int, int, int]:
        """First position of the window of a position and the one after its last, and most samples and tokens there."""
        epoch = epoch_of(self, position)
        begin, end = self.start(epoch), self.start(epoch + 1)
        bounds = [begin, *(change for change in self._changes if begin < change < end), end]
        stretch = bisect_right(bounds, position) - 1
        rule, many = self._batches, self._batches.window
        size, tokens = (ENDLESS if r is None else ramp_at(r, bounds[stretch]) for r in (rule.size, rule.tokens))
        if rule.tokens is None:  # windows of whole batches, so that only the last one is short
            many = -(-many // size) * size
        start = bounds[stretch] + (position - bounds[stretch]) // many * many
        return start, min(start + many, bounds[stretch + 1]), size, tokens

    def _made(self, position: int) -> _PlannedWindow:
        rule = self._batches
        start, stop, size, tokens = self._bounds(position)
        below = np.arange(start, stop)
        lengths = self._lengths(below)
        order = np.argsort(-lengths, kind="stable") if rule.sort else np.arange(len(below))
        cuts = _cuts(-(-lengths[order] // rule.multiple) * rule.multiple, size, tokens, below[order])
        b = len(cuts) - 1
        shuffled = np.arange(b)
        if rule.sort:
            shuffled = permute(shuffled, np.full(b, b), np.full(b, start), rule.seed)
        counts = np.diff(cuts)[shuffled]
        first = np.cumsum(counts) - counts
        place = np.arange(len(below)) - np.repeat(first, counts) + np.repeat(cuts[:-1][shuffled], counts)
        edges = start + np.concatenate([first, [len(below)]])
        return _PlannedWindow(start, stop, below[order][place], edges)

    def _lengths(self, below: IntArray) -> IntArray:
        """Width of the longest view of each sample. Only whole sequences vary; other views have a fixed width."""
        fixed = [len(view.steps) for view in self.views if not view.whole]
        lengths = np.full(len(below), max(fixed, default=1))
        if any(view.whole for view in self.views):
            for view, rows in zip(self.views, self.upstream.extents(below), strict=True):
                lengths = np.maximum(lengths, rows) if view.whole else lengths
        return lengths


def check_unplanned(plan: Plan, batch_size: int | None, *, drop_last: bool) -> None:
    """Raise an error if a number of samples is given for a plan that has batches."""
    if isinstance(plan, BatchedPlan) and (batch_size is not None or drop_last):
        raise PlanError(
            f"expected no batch_size and drop_last for a dataset whose batches are planned, got {batch_size} and "
            f"{drop_last}; give the size to Batches"
        )


def _cuts(widths: IntArray, size: int, tokens: int, positions: IntArray) -> IntArray:
    """`[b + 1]` cuts of samples into batches, each as large as `size` and `tokens` allow."""
    cuts, known = [0], widths.tolist()
    widest = 0
    for i, width in enumerate(known):
        if width > tokens:
            raise PlanError(
                f"expected samples of at most {tokens} tokens, got {width} at position {positions[i]}; give more "
                "tokens, or cut long samples with windows()"
            )
        widest = max(widest, width)
        if i - cuts[-1] + 1 > size or (i - cuts[-1] + 1) * widest > tokens:
            cuts.append(i)
            widest = width
    return np.array([*cuts, len(known)] if known else [0], np.int64)
