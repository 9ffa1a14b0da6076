"""An order of any shares and any length, stored as a tree of two-way splits.

`FairTable` has a smaller error, but needs a table of the order. `SplitTree` is for orders that no table holds: shares
that do not repeat soon, or change, in mixes without an end.

Each node of a binary tree divides its picks between two children by rounding a straight line (Bresenham's line). Lines
are integers in units of 2^-63, so the order is the same on every machine. A pick goes down the tree to its source, and
arrives with its number among the picks of that source. `bound` is the largest distance of any count from its target;
`SplitTree` derives it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray, UInt64Array
from penstock.core.narrowing import is_tuple
from penstock.core.ragged import offsets_of
from penstock.kernels.mixing import mix_tree
from penstock.plan.fair import Order
from penstock.plan.targets import ONE, PickTargets

Tree = Any
"""A source, or a pair of trees."""

HALF, TOP = 1 << 62, 1 << 63


class SplitTree(Order):
    """Sources at the leaves of a binary tree; each node deals its picks to its two children.

    Of the first `n` picks of a node its left child gets `F(n)`, rounded to the nearest number: `F` is the target of the
    left child where the target of the node is `n`. So a node adds at most 1/2 to the error that it passes on, of which
    a child takes at most its part `c` of the node: `error(child) <= c * error(node) + 1/2`, none at the root.
    For two sources that is 1/2; for three below 1 while each has a share, and for four below 1 with constant shares and
    below 1.5 with shares that change. Any number of sources with constant shares stay below 2, for in a tree of
    Huffman's the parts of every second node on a path at least double. `bound` is what holds for these shares,
    typically 1.1 to 1.6.

    Source: own. The split in two is Bresenham's line; the tree, Huffman, "A method for the construction of
    minimum-redundancy codes" (1952).
    Cost: some 4 ns a level and pick; building, some 20 us a source and stretch.
    """

    def __init__(self, targets: PickTargets) -> None:
        self.sources = targets.counts.shape[1]
        weight = targets.counts[-1] + targets.rates
        nodes = list(_numbered(_best([(int(weight[s]), s) for s in targets.picked])))
        self._child = [pair for pair, _, _ in nodes]
        self._parent = {child: (node, side) for node, pair in enumerate(self._child) for side, child in enumerate(pair)}
        self._rows = [_pieces(targets, below, under) for _, below, under in nodes]
        self._begins = [[row[0] for row in rows] for rows in self._rows]
        self.pieces = self._flat()
        self.bound = max(self._errors().values())

    @override
    def picks(self, k: IntArray, source: IntArray, rank: IntArray) -> None:
        mix_tree(k, self.pieces, source, rank)

    @override
    def counts(self, k: int) -> IntArray:
        counts = np.zeros(self.sources, np.int64)
        todo = [(0, k)]
        while todo:
            node, n = todo.pop()
            if node < 0:
                counts[~node] = n
            else:
                left = self._left(node, n)
                todo += zip(self._child[node], (left, n - left), strict=True)
        return counts

    def place(self, source: int, j: int) -> int:
        """Up from the source: at each node, a search for the pick that was handed down."""
        node_number = ~source
        while node_number in self._parent:
            node, side = self._parent[node_number]
            handed = range(TOP - 1)
            j = bisect_left(handed, j + 1, key=lambda n, node=node, side=side: self._side(node, n, side)) - 1
            node_number = node
        return j

    def _left(self, node: int, n: int) -> int:
        """How many of the first `n` picks of a node go to its left child."""
        begin, left, frac, slope = self._rows[node][bisect_right(self._begins[node], n) - 1]
        return left + (((n - begin) * slope + frac) >> 63)

    def _side(self, node: int, n: int, side: int) -> int:
        left = self._left(node, n)
        return n - left if side else left

    def _errors(self) -> dict[int, float]:
        """The bound of every node and source, from the root down."""
        errors = {0: 0.0}
        for node, rows in enumerate(self._rows):
            slopes = [row[3] / TOP for row in rows]
            for child, part in zip(self._child[node], (max(slopes), 1 - min(slopes)), strict=True):
                errors[child] = part * errors[node] + 0.5
        return errors

    def _flat(self) -> UInt64Array:
        """The pieces of all nodes, as the kernel reads them."""
        first = offsets_of(np.array([len(rows) for rows in self._rows])).tolist()
        flat: list[list[int]] = []
        for node, (rows, begins) in enumerate(zip(self._rows, self._begins, strict=True)):
            children = [(first[child] if child >= 0 else child) % (1 << 64) for child in self._child[node]]
            ends = [*begins[1:], (1 << 64) - 1]
            flat += [[*row, end, *children, first[node + 1] - 1] for row, end in zip(rows, ends, strict=True)]
        return np.array(flat, np.uint64)


def _best(leaves: Sequence[tuple[int, int]]) -> Tree:
    """Of Huffman's tree and the trees that pair its last four subtrees in another way, the one with the least bound."""
    forest = [(weight, source, source) for weight, source in leaves]
    heapq.heapify(forest)
    _merge(forest, 4)
    last = [tree for _, _, tree in forest]
    _merge(forest, 1)
    trees = [forest[0][2]]
    if len(last) == 4:
        a, b, c, d = last
        trees += [((a, b), (c, d)), ((a, c), (b, d)), ((a, d), (b, c))]
    weights = {source: weight for weight, source in leaves}
    return min(trees, key=lambda tree: max(error for _, error in _worst(tree, weights)))


def _merge(forest: list[tuple[int, int, Tree]], least: int) -> None:
    """Join the two lightest trees until so many are left; ties go to the lower source."""
    while len(forest) > least:
        one, other = heapq.heappop(forest), heapq.heappop(forest)
        heapq.heappush(forest, (one[0] + other[0], min(one[1], other[1]), (one[2], other[2])))


def _worst(tree: Tree, weights: dict[int, int]) -> list[tuple[int, float]]:
    """Weight and greatest error of each source of a tree whose root has none, while shares do not change."""
    if not is_tuple(tree):
        return [(weights[tree], 0.0)]
    parts = [_worst(child, weights) for child in tree]
    totals = [sum(weight for weight, _ in part) or 1 for part in parts]
    return [(w, e + w / total / 2) for part, total in zip(parts, totals, strict=True) for w, e in part]


def _numbered(tree: Tree) -> Iterator[tuple[tuple[int, int], list[int], list[int]]]:
    """Of every node, the root first: its children (`~source` for a source), and the sources below it and its left."""
    number, todo = 1, [tree]
    for node in todo:
        ids: list[int] = []
        for child in node:
            if isinstance(child, tuple):
                ids.append(number)
                todo.append(child)
                number += 1
            else:
                ids.append(~child)
        yield (ids[0], ids[1]), _sources(node), _sources(node[0])


def _sources(tree: Tree) -> list[int]:
    return [s for child in tree for s in _sources(child)] if is_tuple(tree) else [tree]


def _pieces(targets: PickTargets, below: list[int], under: list[int]) -> list[list[int]]:
    """The straight pieces of `F` for a node with the sources `below`, `under` its left child: begin, whole part and
    fraction (in 2^-63) of `F + 1/2` there, and slope."""
    kept = np.flatnonzero(targets.touched[:, below].any(axis=1) | (np.arange(len(targets.knots)) == 0))
    n, left = (targets.counts[kept][:, columns].sum(axis=1).tolist() for columns in (below, under))
    n.append(n[-1] + int(targets.rates[below].sum()))
    left.append(left[-1] + int(targets.rates[under].sum()))
    rows: list[list[int]] = []
    for m, rise in enumerate(np.diff(np.array(n, object)).tolist()):
        if rise == 0:
            continue
        begin, gain = -(-n[m] // ONE), left[m + 1] - left[m]
        whole, part = divmod(left[m] + (begin * ONE - n[m]) * gain // rise + ONE // 2, ONE)
        while rows and rows[-1][0] == begin:
            rows.pop()
        rows.append(_joined(rows, [begin, whole, part >> 1, gain * TOP // rise]))
    return rows or [[0, 0, HALF, HALF]]


def _joined(rows: list[list[int]], row: list[int]) -> list[int]:
    """The next piece, moved by the last bits that slopes lost, so that no pick gives its left child none or two."""
    if not rows:
        return row
    begin, whole, _, slope = row
    least = rows[-1][1] + (((begin - 1 - rows[-1][0]) * rows[-1][3] + rows[-1][2]) >> 63)
    if whole > least + 1:
        return [begin, least + 1, TOP - 1, slope]
    return [begin, least, 0, slope] if whole < least else row
