"""`Weighted`: samples drawn in proportion to weights.

Samples of equal weight form a class. A systematic draw goes down a binary tree over the classes, then takes the next
sample of the class, in a keyed permutation that is new in each pass over the class.

The tree: classes are sorted by their total weight, and each node cuts its range where the cumulative weight is nearest
to half. Of the first `n` draws of a node the lower child gets `n` times its share, rounded. So a node adds at most 1/2
to the error of its count, and passes on the error of its parent times its share of the parent. The errors of a leaf of
weight `w` add up to `w / 2 * sum(1 / w_v)`, over the nodes `v` from the leaf up to a child of the root. Cuts near half
keep this sum small. It is computed, and `WeightedPlan.bound` is its maximum over all samples. A class of `m` samples
divides its error by `m`, and adds `(m - 1) / m` at most, because its samples take turns.

Why this way: Tijdeman's order (see `penstock.plan.fair`) has a bound below 1 for any shares, but needs a table of a
whole period, which weights such as `exp(advantage)` do not have. A low-discrepancy sequence needs no tree, but has an
error that grows with the logarithm of the number of draws.

Draws with replacement search the cumulative weights for a counter-based random number.

Cost: 24 bytes for each distinct weight and 8 for each sample; a draw takes a step for each level of the tree. Shares
have the precision of float64, so that the bound holds to a thousandth of a draw for the first 2^43 draws. A share below
2^-53 may never be drawn.
Source: own. The split in two is Bresenham's line, and the tree is Fano's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, IntArray, UInt64Array
from penstock.core.frozen import set_fields
from penstock.core.ragged import ranges
from penstock.errors import PlanError
from penstock.files.user_cache import SHARED_BYTES, shared_arrays
from penstock.kernels.mixing import LOWER, SHARE, deal
from penstock.kernels.permute import permute
from penstock.plan.base import ENDLESS, DerivedPlan, Plan
from penstock.plan.keys import keys
from penstock.plan.select import check_takable
from penstock.plan.transform import PlanTransform, require_int

Draw = Literal["systematic", "random"]
TOP = float(1 << 63)
HALF = 1 << 62
SMALLEST = 2.0**-512  # of the largest weight: sums of reciprocals stay finite, and the share is far too small to draw


@dataclass(frozen=True, eq=False)
class Weighted(PlanTransform):
    """Draw the samples of the first epoch in proportion to weights.

    With `draw="systematic"`, each sample has had its share of the draws after any number of draws, to within
    `plan.bound`: below 1 for equal weights, 1.0 to 1.4 for most others, and always below 2. Draws continue through all
    epochs. `draw="random"` draws with replacement.

    Shuffle afterwards to break up the regular order of systematic draws. Counts then hold at the end of each epoch.

    Args:
        weights: `[n]` numbers of 0 or more in any scale, one for each sample of an epoch. A sample with weight 0 is
            never drawn. Memory: 8 bytes for each sample, and 24 for each distinct weight.
        draw: `"systematic"` or `"random"`. The default is `"systematic"`.
        seed: 0 to 2^64 - 1. It decides the order of samples with equal weights, and random draws. The default is 0.
        epoch_length: Draws of an epoch, at least 1. The default is None: the number of samples.

    Raises:
        PlanError: A weight is negative, infinite or NaN, all are 0, their number is wrong, or the epochs of the plan
            have different samples.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(3)}, lengths=[3]).steps()
        >>> data.apply(Weighted(np.array([1, 0, 3]), epoch_length=8))[:]["x"].tolist()
        [2, 0, 2, 2, 2, 0, 2, 2]
    """

    weights: FloatArray = field(repr=False)
    draw: Draw = "systematic"
    seed: int = 0
    epoch_length: int | None = None

    def __post_init__(self) -> None:
        set_fields(self, weights=_checked(self.weights))
        if self.draw not in ("systematic", "random"):
            raise PlanError(f"expected draw to be 'systematic' or 'random', got {self.draw!r}")
        require_int(self, "seed", 0, (1 << 64) - 1)
        if self.epoch_length is not None:
            require_int(self, "epoch_length", 1, ENDLESS)

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.weights.tobytes()).hexdigest()[:16]
        options = f"draw={self.draw!r}, seed={self.seed}, epoch_length={self.epoch_length}"
        return f"Weighted(n={len(self.weights)}, sha256={digest!r}, {options})"

    @override
    def reorder(self, plan: Plan) -> Plan:
        check_takable(plan, "weighted")
        if len(self.weights) != len(plan):
            raise PlanError(f"expected a weight for each of {len(plan):,} samples, got {len(self.weights):,}")
        return WeightedPlan(plan, self)


class WeightedPlan(DerivedPlan):
    """Plan of `Weighted`."""

    loses = "not drawn by weight in this epoch"

    def __init__(self, upstream: Plan, transform: Weighted) -> None:
        super().__init__(upstream, transform)
        self._seed, self._systematic = transform.seed, transform.draw == "systematic"
        self._length = transform.epoch_length or len(upstream)
        classes = _shared_classes(transform.weights, systematic=self._systematic)
        self._samples: IntArray = classes["samples"]
        self._size: IntArray = classes["size"]
        self._first: IntArray = classes["first"]
        self._cumulative: FloatArray = classes["cumulative"]
        self._nodes: UInt64Array = classes["nodes"]
        self.bound = float(classes["bound"])
        """No sample is ever further from its share of the draws; infinite for random draws."""

    def __len__(self) -> int:
        return self._length if len(self.upstream) else 0

    @property
    def steady(self) -> bool:
        """False: epochs may have different samples."""
        return False

    @property
    def drawn(self) -> IntArray:
        """`[m]` samples with a weight above 0, in no order."""
        return self._samples

    def positions(self, k: IntArray) -> IntArray:
        """Draw a class, then a sample of the class. Epochs continue the draws of the epochs before."""
        group, place = self._drawn(k) if self._systematic else self._random(k)
        return self._samples[self._first[group] + place]

    def _drawn(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """Class `[n]` of systematic draws, and the place `[n]` in the class."""
        group, rank = np.zeros(len(k), np.int64), k.copy()
        if len(self._nodes):
            deal(np.ascontiguousarray(k), self._nodes, group, rank)
        size = self._size[group]
        turn, place = np.divmod(rank, size)
        several = np.flatnonzero(size > 1)
        stream = turn[several] * len(self._size) + group[several]
        place[several] = permute(place[several], size[several], stream, self._seed)
        return group, place

    def _random(self, k: IntArray) -> tuple[IntArray, IntArray]:
        """Class `[n]` of random draws, and the place `[n]` in the class, from two random numbers a draw."""
        unit = (keys(self._seed, 2 * k) >> np.uint64(11)) / float(1 << 53)
        group = self._cumulative.searchsorted(unit * float(self._cumulative[-1]), side="right") - 1
        group = np.minimum(group, len(self._size) - 1)  # the product may round up to the total
        place = keys(self._seed, 2 * k + 1) % self._size[group].astype(np.uint64)
        return group, place.astype(np.int64)

    @override
    def span(self, lo: int, hi: int) -> tuple[int, int]:
        return 0, len(self.upstream)

    @override
    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        """Goes up the tree for each draw of these samples. For random draws, looks at every position."""
        if not self._systematic:
            return super().inverse(below, lo, hi)
        first = self._samples.searchsorted(below, sorter=self._order)
        known = first < len(self._order)
        known[known] = self._samples[self._order[first[known]]] == below[known]  # others have weight 0
        slot = self._order[first[known]]
        group = self._first.searchsorted(slot, side="right") - 1
        size, place = self._size[group], slot - self._first[group]
        begin, end = (_counted(self._path(group), k, len(group)) for k in (lo, hi))
        passes = -(-end // size) - begin // size  # over the class, which has each sample once in a pass
        number = np.repeat(np.arange(len(slot)), passes)
        turn = ranges(begin // size, passes)
        size, group = size[number], group[number]
        stream = turn * len(self._size) + group
        rank = turn * size + permute(place[number], size, stream, self._seed, inverse=True)
        inside = (rank >= begin[number]) & (rank < end[number])
        return np.sort(_draws(self._path(group[inside]), rank[inside]))

    @cached_property
    def _order(self) -> IntArray:
        """`[n]` places of the table of classes, in the order of their samples."""
        return np.argsort(self._samples, kind="stable")

    @cached_property
    def _parents(self) -> IntArray:
        """The node above node `i` at `i`, and above class `~i` at `i` from the end; -1 for the root."""
        parents = np.full(2 * len(self._nodes) + 1, -1)
        parents[self._nodes[:, LOWER:].view(np.int64).ravel()] = np.repeat(np.arange(len(self._nodes)), 2)
        return parents

    def _path(self, group: IntArray) -> list[_Level]:
        """The way from classes `[n]` up to the root of the tree."""
        levels: list[_Level] = []
        mine, here = np.arange(len(group)), ~group
        while True:
            above = self._parents[here]
            inner = above >= 0
            mine, here = mine[inner], here[inner]
            above = above[inner]
            if len(mine) == 0:
                return levels
            lower = self._nodes[above, LOWER].view(np.int64) == here
            levels.append(_Level(mine, self._nodes[above, SHARE].astype(object), lower))
            here = above


class _Level(NamedTuple):
    """Classes that have a node above: which of those asked for, the node's share of its lower child in 2^-63, and
    whether the class is below that child. Shares are Python's integers, for products of 128 bits."""

    mine: IntArray
    share: AnyArray
    lower: BoolArray


def _counted(path: list[_Level], draws: int, n: int) -> IntArray:
    """`[n]` how many of the first draws are of each class."""
    count = np.full(n, draws, object)
    for mine, share, lower in reversed(path):
        to_lower = (count[mine] * share + HALF) >> 63
        count[mine] = np.where(lower, to_lower, count[mine] - to_lower)
    return count.astype(np.int64)


def _draws(path: list[_Level], rank: IntArray) -> IntArray:
    """`[n]` the draws that are the `rank[n]`-th of their class, from 0: the least that hand so many to its side."""
    number = rank.astype(object)
    for mine, share, lower in path:
        n, whole = number[mine], 2 * HALF
        to_lower = -((HALF - (n + 1) * whole) // np.where(lower, share, 1)) - 1
        number[mine] = np.where(lower, to_lower, (n * whole + HALF) // np.where(lower, 1, whole - share))
    return number.astype(np.int64)


def _shared_classes(weights: FloatArray, *, systematic: bool) -> Mapping[str, AnyArray]:
    """The classes of weights, in memory that the processes of a machine share if it is large."""
    if weights.nbytes < SHARED_BYTES:
        return _classes(weights, systematic=systematic)
    key = f"weighted {len(weights)} {systematic} {hashlib.sha256(weights.data).hexdigest()}"
    return shared_arrays(key, lambda: _classes(weights, systematic=systematic))


def _classes(weights: FloatArray, *, systematic: bool) -> dict[str, AnyArray]:
    """Samples class after class, and of each class its first place, number of samples, and node of the tree."""
    used = np.flatnonzero(weights)
    weight, group = np.unique(weights[used], return_inverse=True)
    total = weight * np.bincount(group, minlength=len(weight))
    by_total = np.argsort(total, kind="stable")
    rank = np.empty_like(by_total)
    rank[by_total] = np.arange(len(by_total))
    group = rank[group]
    size = np.bincount(group, minlength=len(weight))
    cumulative = np.concatenate([np.zeros(1), np.cumsum(total[by_total])])
    nodes, errors = _tree(cumulative) if systematic else (np.zeros((0, 3), np.uint64), total)
    bound = float(((errors + size - 1) / size).max(initial=0)) if systematic else np.inf
    return {
        "samples": used[np.argsort(group, kind="stable")],
        "size": size,
        "first": np.cumsum(size) - size,
        "cumulative": cumulative,
        "nodes": nodes,
        "bound": np.array(bound),
    }


def _checked(weights: object) -> FloatArray:
    """`[n]` weights as float64. Raises `PlanError` for weights that say nothing."""
    try:
        array = np.ascontiguousarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"expected weights as numbers, got {weights!r}") from error
    if array.ndim != 1:
        raise PlanError(f"expected one weight for each sample, [n], got an array of shape {list(array.shape)}")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise PlanError(
            f"expected finite weights of 0 or more, got {array[wrong[0]]} for sample {wrong[0]} and {len(wrong)} such "
            "weights in all"
        )
    largest = array.max(initial=0)
    if len(array) and not largest:
        raise PlanError(f"expected at least one weight above 0, got {len(array):,} zeros")
    array = array / (largest or 1.0)  # no sum overflows, and scales that differ by a power of 2 give equal plans
    array[array < SMALLEST] = 0
    return array


def _tree(cumulative: FloatArray) -> tuple[UInt64Array, FloatArray]:
    """Nodes of the tree over `[G]` classes, `[G - 1, 3]` as the kernel `deal` reads them, and the error of each class.

    Built level by level, from cumulative weights `[G + 1]`. `error` sums `1 / w_v` on the way down.
    """
    begin = np.zeros(1, np.int64)
    end = np.full(1, len(cumulative) - 1)
    error = np.zeros(1)
    errors = np.zeros(len(cumulative) - 1)
    levels = [np.zeros((0, 3), np.uint64)]
    number = 0
    while True:
        inner = end - begin > 1
        begin = begin[inner]
        end = end[inner]
        error = error[inner]
        if len(begin) == 0:
            return np.concatenate(levels), errors
        number += len(begin)  # of the first node of the next level
        half = (cumulative[begin] + cumulative[end]) / 2
        middle = cumulative.searchsorted(half)
        middle -= half - cumulative[middle - 1] < cumulative[middle] - half
        middle = np.clip(middle, begin + 1, end - 1)
        share = (cumulative[middle] - cumulative[begin]) / (cumulative[end] - cumulative[begin])
        begin, end = np.stack([begin, middle], axis=1).ravel(), np.stack([middle, end], axis=1).ravel()
        weight = cumulative[end] - cumulative[begin]
        error = np.repeat(error, 2) + 1 / weight
        leaf = end - begin == 1
        errors[begin[leaf]] = weight[leaf] * error[leaf] / 2
        child = np.where(leaf, ~begin, number - 1 + np.cumsum(~leaf))
        slope = np.minimum(share * TOP, TOP - 2048).astype(np.uint64)
        levels.append(np.column_stack([slope, child.view(np.uint64).reshape(-1, 2)]))
