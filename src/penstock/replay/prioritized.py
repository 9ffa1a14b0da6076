"""`PrioritizedSampler`: draw samples in proportion to their priorities, or to the ranks of their priorities.

Weights of anchors are in a sum tree, which draws and changes in logarithmic time. With ranks, a changed priority gets
the rank of its class in a table, until enough priorities have changed and all ranks are computed again. Sources: Schaul
et al. 2015 (priorities, importance weights), Kapturowski et al. 2019 (`sequence_priorities`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, FloatArray, IntArray
from penstock.errors import ArgumentError, DataError, PlanError, StateError
from penstock.replay.draw import Draw
from penstock.replay.samplers import Drawing, Drawn, ReplaySampler, State
from penstock.replay.sum_tree import SumTree


@dataclass(frozen=True)
class PrioritizedSampler(ReplaySampler):
    """Prioritized experience replay: samples in proportion to `priority ** alpha`, with importance weights.

    A batch has one draw from each of `n` equal parts of the sum of priorities. Its column `weights` has the importance
    weights `(N * P) ** -beta`, divided by the largest one that any sample in the store has. New samples get the highest
    weight so far.

    With `kind="rank"`, the probability is `1 / rank ** alpha`, with ranks by priority. Ranks are renewed when an eighth
    of the samples are new or have new priorities. In between, a new priority gets the rank that it had then, to within
    1/4096 of all samples, and new samples the ranks 1, 2, 3 and so on.

    Args:
        alpha: Exponent of priorities, 0 or more. 0 is uniform. The default is 0.6.
        beta: Exponent of the importance weights, 0 to 1, or `(first, last, samples)`: it grows linearly over so many
            drawn samples. The default is 0.4.
        epsilon: Added to every priority, above 0, so that each sample can be drawn. The default is 1e-6.
        kind: `"proportional"` or `"rank"`. The default is `"proportional"`.

    Raises:
        PlanError: A number is out of range, or `kind` is unknown.

    Example:
        >>> import numpy as np, penstock
        >>> replay = penstock.Replay(None, 100, sampler=PrioritizedSampler(alpha=1.0))
        >>> replay.write(penstock.from_arrays({"rewards": np.arange(4.0)}, lengths=[4])[0])
        0
        >>> batch = replay.sample(4)
        >>> replay.update(batch.ticket, [0.0, 0.0, 0.0, 8.0])
        0
        >>> replay.sample(6)["rewards"].tolist()
        [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    """

    alpha: float = 0.6
    beta: float | tuple[float, float, int] = 0.4
    epsilon: float = 1e-6
    kind: Literal["proportional", "rank"] = "proportional"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < np.inf:
            raise PlanError(f"expected alpha to be 0 or more, got {self.alpha}")
        first, last, samples = self.betas
        if not (0 <= first <= 1 and 0 <= last <= 1 and samples >= 1):
            raise PlanError(f"expected beta within 0 to 1, or (first, last, samples), got {self.beta!r}")
        if not 0 < self.epsilon < np.inf:
            raise PlanError(f"expected epsilon above 0, got {self.epsilon}")
        if self.kind not in ("proportional", "rank"):
            raise PlanError(f"expected kind to be 'proportional' or 'rank', got {self.kind!r}")

    @property
    def betas(self) -> tuple[float, float, int]:
        """First and last beta, and the number of samples between them."""
        return self.beta if isinstance(self.beta, tuple) else (self.beta, self.beta, 1)

    def start(self, key: np.uint64) -> Drawing:
        """Return the drawing of an empty store."""
        return _RankDrawing(key, self) if self.kind == "rank" else _PriorityDrawing(key, self)


class _PriorityDrawing(Drawing):
    """Weights `(priority + epsilon) ** alpha` in a sum tree."""

    def __init__(self, key: np.uint64, sampler: PrioritizedSampler) -> None:
        super().__init__(key)
        self.sampler, self.tree = sampler, SumTree()

    def arrive(self, lo: int, hi: int) -> None:
        before = max(self.hi, lo)
        if lo > self.lo:
            self.tree.drop(lo)
        if hi > before:
            self.enter(before, hi)
        super().arrive(lo, hi)

    def enter(self, lo: int, hi: int) -> None:
        """Add new anchors."""
        self.tree.extend(lo, hi, self.highest)

    def draw(self, number: int, n: int) -> Drawn:
        anchors, weights = self.tree.draw(self.key, number, n)
        return Drawn(anchors, self._importance(weights, self.tree.least, number), weights, self.tree.total)

    @property
    def mass(self) -> float:
        return self.tree.total

    @property
    def least(self) -> float:
        return self.tree.least / self.tree.total

    def importance(self, probability: FloatArray, least: float, number: int) -> Float32Array:
        return self._importance(probability.astype(np.float32), least, number)

    def _importance(self, weights: Float32Array, least: float, number: int) -> Float32Array:
        first, last, samples = self.sampler.betas
        beta = first + (last - first) * min(number / samples, 1.0)
        return (np.float32(least) / weights) ** np.float32(beta)

    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        if draw.masses is None or not draw.total > 0:
            return {}
        masses = draw.masses.astype(np.float64)
        return {"probability": masses / draw.total, "priority": self.priorities_of(draw, masses)}

    def priorities_of(self, draw: Draw, masses: FloatArray) -> FloatArray:
        """Return the priorities of a draw, `[n]` float64, to the rounding of float32. NaN if `alpha` is 0."""
        if self.sampler.alpha == 0:
            return np.full(len(masses), np.nan)
        return np.maximum(masses ** (1 / self.sampler.alpha) - self.sampler.epsilon, 0)

    def update(self, anchors: IntArray, priorities: AnyArray) -> None:
        with np.errstate(over="ignore"):
            weights = ((priorities + self.sampler.epsilon) ** self.sampler.alpha).astype(np.float32)
        if not np.isfinite(weights).all():
            raise DataError("expected priorities whose power alpha is a finite float32, got larger ones; scale them")
        self.highest = max(self.highest, float(weights.max(initial=0)))
        self.tree.set(anchors, np.maximum(weights, _SMALLEST))

    def state(self) -> State:
        return {"weights": self.tree.weights, "highest": self.highest}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.tree.restore(self.lo, _of_length(state["weights"], self.hi - self.lo))
        self.highest = float(state["highest"])


_SMALLEST = np.finfo(np.float32).tiny  # so that no weight rounds to 0, which means that nothing can be drawn
RENEW = 8  # ranks are renewed when this part of the anchors has changed
LEAST_CHANGES = 64
CLASSES = 4096  # entries of the table by which a new priority gets a rank


class _RankDrawing(_PriorityDrawing):
    """Weights `rank ** -alpha` in a sum tree. `_values` has the priority of each anchor, infinite for new ones."""

    def __init__(self, key: np.uint64, sampler: PrioritizedSampler) -> None:
        super().__init__(key, sampler)
        self._values, self._origin = np.zeros(LEAST_CHANGES, np.float32), 0  # anchor `a` is at `a - _origin`
        self._classes = np.zeros(0, np.float32)  # descending: priorities of every `n / CLASSES`-th rank
        self._changes = self._added = self._ranked = 0  # since ranks were renewed; anchors that had ranks then

    @property
    def priorities(self) -> Float32Array:
        """`[hi - lo]` float32 priority of each anchor."""
        return self._values[self.lo - self._origin : self.hi - self._origin]

    def enter(self, lo: int, hi: int) -> None:
        ranks = np.arange(self._added + 1, self._added + 1 + hi - lo)
        self.tree.extend(lo, hi, 1.0)
        self.tree.set(np.arange(lo, hi), self._weights(ranks))
        self._added += hi - lo
        self._changes += hi - lo
        if hi - self._origin > len(self._values):
            kept = self._values[max(self.lo - self._origin, 0) : lo - self._origin]
            self._values = np.empty(2 * (len(kept) + hi - lo), np.float32)
            self._values[: len(kept)], self._origin = kept, lo - len(kept)
        self._values[lo - self._origin : hi - self._origin] = np.inf

    def draw(self, number: int, n: int) -> Drawn:
        if self._changes >= max(LEAST_CHANGES, (self.hi - self.lo) // RENEW):
            self._renew()
        drawn = super().draw(number, n)
        return drawn._replace(priorities=self._values[drawn.anchors - self._origin])

    def priorities_of(self, draw: Draw, masses: FloatArray) -> FloatArray:
        return np.full(len(masses), np.nan) if draw.priorities is None else draw.priorities.astype(np.float64)

    def update(self, anchors: IntArray, priorities: AnyArray) -> None:
        given = priorities.astype(np.float32)
        self._values[anchors - self._origin] = given
        place = np.searchsorted(-self._classes, -given)
        ranks = 1 + place * self._ranked // max(len(self._classes), 1)
        self.tree.set(anchors, self._weights(ranks))
        self._changes += len(anchors)

    def state(self) -> State:
        counts = np.array([self._changes, self._added, self._ranked])
        arrays = {"priorities": self.priorities.copy(), "classes": self._classes.copy(), "counts": counts}
        return {"weights": self.tree.weights, **arrays}

    def restore(self, state: Mapping[str, Any]) -> None:
        n = self.hi - self.lo
        self.tree.restore(self.lo, _of_length(state["weights"], n))
        self._values, self._origin = _of_length(state["priorities"], n).copy(), self.lo
        self._classes = np.array(state["classes"], np.float32)
        self._changes, self._added, self._ranked = (int(count) for count in state["counts"])

    def _renew(self) -> None:
        order = np.argsort(-self.priorities, kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(1, len(order) + 1)
        self.tree.restore(self.lo, self._weights(ranks))
        few = min(CLASSES, len(order))
        self._classes = self.priorities[order[np.arange(few) * len(order) // few]]
        self._changes = 0
        self._added = 0
        self._ranked = len(order)

    def _weights(self, ranks: IntArray) -> Float32Array:
        return (ranks ** -float(self.sampler.alpha)).astype(np.float32)


def sequence_priorities(errors: AnyArray, mask: AnyArray | None = None, eta: float = 0.9) -> AnyArray:
    """Return one priority for each sequence: a mix of the largest and the mean error, as in R2D2.

    Args:
        errors: `[n, L]` float errors of the steps. Signs do not count.
        mask: `[n, L]` bool, True for steps that count. The default is None: all.
        eta: Share of the largest error, 0 to 1. The default is 0.9.

    Returns:
        `[n]` floats, 0 for a sequence without steps that count.

    Raises:
        PlanError: `eta` is out of range.

    Example:
        >>> sequence_priorities(np.array([[1.0, -3.0], [2.0, 2.0]]), eta=0.5).tolist()
        [2.5, 2.0]
    """
    if not 0 <= eta <= 1:
        raise PlanError(f"expected eta within 0 to 1, got {eta}")
    size = np.abs(np.asarray(errors))
    real = np.ones(size.shape, np.bool_) if mask is None else np.asarray(mask, np.bool_)
    size = np.where(real, size, 0)
    return eta * size.max(1, initial=0) + (1 - eta) * size.sum(1) / np.maximum(real.sum(1), 1)


def checked_priorities(priorities: Any, anchors: IntArray) -> Float32Array:
    """Return priorities as float32."""
    given: AnyArray = np.asarray(priorities)
    if given.dtype.kind not in "fiu" or anchors.ndim != 1:
        raise ArgumentError(f"expected numbers as priorities, got {given.dtype}")
    if given.shape != anchors.shape:
        raise DataError(f"expected {len(anchors)} priorities, one for each sample, got {list(given.shape)}")
    wrong = ~(np.isfinite(given) & (given >= 0))
    if wrong.any():
        i = int(np.argmax(wrong))
        raise DataError(
            f"expected finite priorities of 0 or more, got {given[i]} for sample {i} of the batch; check the loss for "
            "NaN, and take absolute errors"
        )
    return np.ascontiguousarray(given, np.float32)


def _of_length(weights: Any, n: int) -> Float32Array:
    array = np.asarray(weights, np.float32)
    if array.shape != (n,) or not (array >= 0).all():
        raise StateError(f"expected {n} weights of 0 or more in the state, got {array.dtype}{list(array.shape)}")
    return array
