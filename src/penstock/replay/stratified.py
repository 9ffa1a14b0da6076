"""`StratifiedSampler`: equal numbers of samples of each task, or of each episode, for any number of its steps.

Each stratum has the list of its samples in memory. Samples leave in the order in which they came, so the
ones that left are at the front of every list. A draw costs the same for any number of strata and samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import FloatArray, IntArray
from penstock.errors import ArgumentError, StateError
from penstock.kernels.replay import uniform_anchors
from penstock.replay.draw import Draw
from penstock.replay.samplers import Drawing, Drawn, ReplaySampler, State

_WITHIN = np.uint64(0xA5A5A5A5A5A5A5A5)  # so that the sample within a stratum is drawn with other bits
_UNIT = 1 << 53


@dataclass(frozen=True)
class StratifiedSampler(ReplaySampler):
    """All tasks, or all episodes, are equally likely, and so are the samples of each.

    A batch has one draw from each of `n` equal parts of the strata, so every stratum has `n / strata` samples of it:
    exactly, if that is a whole number, and otherwise within two.

    Args:
        by: A column of whole numbers, such as the task, of which each value is a stratum; or `"episode"` for the
            episodes. The default is `"episode"`.

    Raises:
        ArgumentError: `by` is no name.
        SpecError: On the first step: the replay has no such column.

    Example:
        >>> import numpy as np, penstock
        >>> columns = {"rewards": np.arange(100.0), "task": np.array([5] * 98 + [6] * 2)}
        >>> replay = penstock.Replay(None, 1000, sampler=StratifiedSampler("task"))
        >>> replay.write(penstock.from_arrays(columns, lengths=[100])[0])
        0
        >>> sorted(replay.sample(8)["task"].tolist())
        [5, 5, 5, 5, 6, 6, 6, 6]
    """

    by: str = "episode"

    def __post_init__(self) -> None:
        if not isinstance(self.by, str) or not self.by:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"expected by as the name of a column, or 'episode', got {self.by!r}")

    @override
    def start(self, key: np.uint64) -> Drawing:
        return _StratifiedDrawing(key, self)


class _Stratum:
    """Samples of one stratum: those before `head` have left."""

    def __init__(self) -> None:
        self.anchors: IntArray = np.zeros(8, np.int64)
        self.head = self.tail = 0

    def extend(self, anchors: IntArray) -> None:
        if self.tail + len(anchors) > len(self.anchors):
            live = self.anchors[self.head : self.tail]
            self.anchors = np.concatenate([live, anchors, np.zeros(len(live) + len(anchors), np.int64)])
            self.head, self.tail = 0, len(live) + len(anchors)
            return
        self.anchors[self.tail : self.tail + len(anchors)] = anchors
        self.tail += len(anchors)


class _StratifiedDrawing(Drawing):
    def __init__(self, key: np.uint64, sampler: StratifiedSampler) -> None:
        super().__init__(key)
        self.by = sampler.by
        self._labels: IntArray = np.zeros(256, np.int64)  # of the sample `a` at `a - _first`
        self._first: int = 0
        self._strata: dict[int, _Stratum] = {}
        self._order: list[int] = []  # labels of strata with samples
        self._place: dict[int, int] = {}  # of each label in the order

    @override
    def arrive(self, lo: int, hi: int) -> None:
        self._leave(min(lo, self.hi))
        before = max(self.hi, lo)
        if hi > before:
            self._enter(before, self.labels_of(np.arange(before, hi)))
        super().arrive(lo, hi)

    def _enter(self, first: int, labels: IntArray) -> None:
        if self.lo == self.hi:
            self._first = first
        end = first + len(labels) - self._first
        if end > len(self._labels):
            kept = self._labels[self.lo - self._first : first - self._first]
            self._labels = np.concatenate([kept, labels, np.zeros(len(kept) + len(labels), np.int64)])
            self._first = first - len(kept)
        else:
            self._labels[first - self._first : end] = labels
        order = np.argsort(labels, kind="stable")
        values, starts = np.unique(labels[order], return_index=True)
        for label, anchors in zip(values.tolist(), np.split(first + order, starts[1:]), strict=True):
            if label not in self._strata:
                self._strata[label] = _Stratum()
                self._place[label] = len(self._order)
                self._order.append(label)
            self._strata[label].extend(anchors)

    def _leave(self, lo: int) -> None:
        """Take out the samples before `lo`."""
        if lo <= self.lo:
            return
        left = self._labels[self.lo - self._first : lo - self._first]
        for label, count in zip(*(each.tolist() for each in np.unique(left, return_counts=True)), strict=True):
            stratum = self._strata[label]
            stratum.head += count
            if stratum.head == stratum.tail:
                del self._strata[label]
                place, last = self._place.pop(label), self._order.pop()
                if last != label:
                    self._order[place] = last
                    self._place[last] = place
        self.lo = lo

    @override
    def draw(self, number: int, n: int) -> Drawn:
        place = (np.arange(n) + uniform_anchors(self.key, number, 0, _UNIT, n) / _UNIT) / n * len(self._order)
        bits = uniform_anchors(self.key ^ _WITHIN, number, 0, _UNIT, n)
        anchors = np.empty(n, np.int64)
        masses = np.empty(n, np.float32)
        for i, stratum in enumerate(np.minimum(place.astype(np.int64), len(self._order) - 1).tolist()):
            one = self._strata[self._order[stratum]]
            count = one.tail - one.head
            anchors[i] = one.anchors[one.head + int(bits[i]) % count]
            masses[i] = 1 / count
        return Drawn(anchors, masses=masses, total=len(self._order))

    @override
    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        return {} if draw.masses is None else {"probability": draw.masses.astype(np.float64) / draw.total}

    @override
    def state(self) -> State:
        labels = self._labels[self.lo - self._first : self.hi - self._first].copy()
        return {"labels": labels, "order": np.array(self._order, np.int64)}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        labels, order = np.asarray(state["labels"], np.int64), np.asarray(state["order"], np.int64).tolist()
        if labels.shape != (self.hi - self.lo,) or set(order) != set(labels.tolist()):
            raise StateError(f"expected labels of {self.hi - self.lo} samples in the state, got {labels.shape}")
        lo, hi = self.lo, self.hi
        self._strata.clear()
        self._labels = np.zeros(256, np.int64)
        self._first = lo
        self._order, self._place = order, {label: place for place, label in enumerate(order)}
        self._strata = {label: _Stratum() for label in order}
        self.hi = lo
        self._enter(lo, labels)
        self.hi = hi
