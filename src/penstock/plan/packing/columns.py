"""Columns of packs: values given by name, columns that share the places of a row, and the place of each piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import under
from penstock.core.narrowing import is_tuple
from penstock.core.ragged import offsets_of
from penstock.core.selection import Selection
from penstock.errors import PlanError, suggestion
from penstock.plan.base import Plan
from penstock.plan.outputs import Read
from penstock.plan.packing.index import PackPieces


def is_by_name(length: object) -> bool:
    """Whether lengths are pairs of a column and a number, as a mapping becomes them."""
    return is_tuple(length) and all(is_tuple(pair) and isinstance(pair[0], str) for pair in length)


def by_name(what: str, pairs: Sequence[tuple[str, Any]], names: Sequence[str], *, required: bool) -> dict[str, Any]:
    """Value of every name, from the given value for the name or for a prefix of it."""
    for prefix, _ in pairs:
        if not any(under(prefix, name) for name in names):
            raise PlanError(
                f"expected {what} for columns among {list(names)}, got {prefix!r}{suggestion(prefix, names)}"
            )
    values_of = {name: [value for prefix, value in pairs if under(prefix, name)] for name in names}
    missing = [name for name, values in values_of.items() if not values]
    if missing and required:
        hint = "select_columns() the ones to pack"
        raise PlanError(f"expected a {what} for every column, got none for {missing}; {hint}")
    return {name: values[-1] for name, values in values_of.items() if values}


@dataclass(frozen=True)
class PackedAxis:
    """Views with equal numbers of rows in every sample, the outputs read through them, and their limit."""

    views: tuple[int, ...]
    names: tuple[str, ...]
    limit: int


def packed_axes(plan: Plan, limits: Mapping[str, int]) -> tuple[PackedAxis, ...]:
    """Return the columns of a plan, grouped by their numbers of rows."""
    groups: dict[tuple[object, ...], list[Read]] = {}
    for read in plan.reads:
        view = plan.views[read.view]
        if view.align != "episode":
            groups.setdefault(view.axis, []).append(read)
    if not groups:
        raise PlanError(f"expected columns with rows to pack, got {[r.name for r in plan.reads]}")
    axes: list[PackedAxis] = []
    for reads in groups.values():
        limit = {limits[read.name] for read in reads}
        if len(limit) > 1:
            raise PlanError(f"expected one length for {[r.name for r in reads]}, which have the same rows, got {limit}")
        views = tuple(dict.fromkeys(read.view for read in reads))
        axes.append(PackedAxis(views, tuple(read.name for read in reads), limit.pop()))
    return tuple(axes)


@dataclass(frozen=True, eq=False)
class PieceLayout:
    """Places of the `m` pieces of `n` packs: piece `i` is number `number[i]` of its pack. With `head`, pieces that
    continue an item have so many rows free in front of them."""

    pieces: PackPieces
    number: IntArray
    head: int
    n: int

    @classmethod
    def of(cls, pieces: PackPieces, head: int, n: int) -> PieceLayout:
        """Return the layout of pieces that are in the order of their packs."""
        first = np.searchsorted(pieces.pack, pieces.pack)  # of each piece: the first of its pack
        return cls(pieces, np.arange(len(first)) - first, head, n)

    def slots(self, below: Selection, width: int) -> Selection:
        """One place a piece, for episode columns."""
        item = below.destination // below.shape[1]
        slot = self.pieces.pack[item] * width + self.number[item]
        return Selection(
            below.source, below.start, below.length, slot, (self.n, width), None, self.number[item] + 1, slot * 0
        )

    def rows(self, below: Selection, axis: int, width: int, continued: bool) -> Selection:
        """The spans of each piece in order, from its offset on, cut to its part."""
        if below.real is not None:
            below = below.spans(below.real)
        item, within = below.destination // below.shape[1], _within(below)
        pieces = self.pieces
        begin = pieces.begin[item, axis]
        lo = np.maximum(within, begin)
        rows = np.minimum(within + below.length, begin + pieces.length[item, axis]) - lo
        destination = pieces.pack[item] * width + pieces.destination[item, axis] + lo - begin
        headed = (lo == begin) & (begin > 0) if self.head else None
        position = lo if continued else lo - begin + (0 if headed is None else (begin > 0) * self.head)
        selection = Selection(
            below.source,
            below.start + (lo - within),
            rows,
            destination,
            (self.n, width),
            None,
            self.number[item] + 1,
            position,
            headed,
        )
        return selection if (rows > 0).all() else selection.spans(rows > 0)


def _within(selection: Selection) -> IntArray:
    """`[m]` how many rows of its sample come before each span, padding not counted."""
    sample = selection.destination // selection.shape[1]
    before = offsets_of(selection.length)[:-1]
    return before - before[np.searchsorted(sample, sample)]
