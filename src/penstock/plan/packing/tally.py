"""What packing did with the items of one window, or of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from penstock.core.arrays import Int32Array, IntArray
from penstock.plan.packing.rule import Rule
from penstock.plan.packing.window import Parts, Window


@dataclass(frozen=True)
class PackingStats:
    """Packs, pieces, most pieces in one pack; items that were empty, truncated, split, dropped, or alone in a pack; and
    per axis, rows that are packed, rows lost, and of the packs with one oversized item, all rows and the most in
    one."""

    packs: int
    pieces: int
    most: int
    empty: int
    truncated: int
    split: int
    dropped: int
    own: int
    rows: tuple[int, ...]
    lost: tuple[int, ...]
    own_rows: tuple[int, ...]
    longest: tuple[int, ...]

    @classmethod
    def none(cls, axes: int) -> PackingStats:
        zero = (0,) * axes
        return cls(0, 0, 0, 0, 0, 0, 0, 0, zero, zero, zero, zero)

    @classmethod
    def sum(cls, tallies: Iterable[PackingStats]) -> PackingStats:
        """All together; there is at least one."""
        each = list(tallies)
        return cls(
            packs=sum(t.packs for t in each),
            pieces=sum(t.pieces for t in each),
            most=max(t.most for t in each),
            empty=sum(t.empty for t in each),
            truncated=sum(t.truncated for t in each),
            split=sum(t.split for t in each),
            dropped=sum(t.dropped for t in each),
            own=sum(t.own for t in each),
            rows=tuple(map(sum, zip(*(t.rows for t in each), strict=True))),
            lost=tuple(map(sum, zip(*(t.lost for t in each), strict=True))),
            own_rows=tuple(map(sum, zip(*(t.own_rows for t in each), strict=True))),
            longest=tuple(map(max, zip(*(t.longest for t in each), strict=True))),
        )


def tally_of_counts(counts: Int32Array, planned: tuple[int, int]) -> PackingStats:
    """The tally of one window of one axis, from the histogram of its lengths, none of which is too long. The first
    entry, of items without rows, counts what was left out."""
    pieces, rows = int(counts[1:].sum()), int(counts @ np.arange(len(counts)))
    return replace(
        PackingStats.none(1), packs=planned[0], pieces=pieces, most=planned[1], empty=int(counts[0]), rows=(rows,)
    )


def tally_of(rule: Rule, lengths: IntArray, parts: Parts, planned: tuple[int, int] | Window) -> PackingStats:
    """The tally of one window. `planned`: its packs, or how many there are and the most pieces in one."""
    packed = _totals(parts.rows)
    all_rows = _totals(lengths)
    own = lengths[parts.own]
    own_rows = _totals(own)
    pieces, split = len(parts.rows) + len(own), 0
    if rule.overlong == "split" and parts.over:
        split = parts.over
    if isinstance(planned, Window):
        pieces = len(planned.slot)
        packs, most = len(planned.cut), int(np.diff(planned.cut, append=pieces).max(initial=0))
        if rule.method == "concat_split":
            cut = planned.local[(planned.begin > 0).any(1)]  # in the order of items
            split = int(np.count_nonzero(np.diff(cut, prepend=-1)))
    else:
        packs, most = planned
    return PackingStats(
        packs=packs,
        pieces=pieces,
        most=most,
        empty=parts.empty,
        truncated=parts.over if rule.overlong in ("truncate_left", "truncate_right") else 0,
        split=split,
        dropped=parts.over if rule.overlong == "drop" else 0,
        own=len(own),
        rows=tuple(a + b for a, b in zip(packed, own_rows, strict=True)),
        lost=tuple(t - a - b for t, a, b in zip(all_rows, packed, own_rows, strict=True)),
        own_rows=own_rows,
        longest=tuple(own.max(axis=0, initial=0).tolist()),
    )


def _totals(rows: IntArray) -> tuple[int, ...]:
    """Rows per axis. Lengths are at most 2^40, so halves of them add up without overflow."""
    if int(rows.max(initial=0)) * len(rows) < 1 << 62:
        return tuple(rows.sum(axis=0).tolist())
    high, low = (rows >> 20).sum(axis=0), (rows & ((1 << 20) - 1)).sum(axis=0)
    return tuple((int(h) << 20) + int(part) for h, part in zip(high, low, strict=True))
