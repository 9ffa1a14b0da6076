"""The packs of one window: parts of its items, placed by the method of the rule.

Items are cut (`cut_overlong`), put in order (decreasing, keyed, or as they come), and placed by a kernel. With one
limit of at most `EXACT` rows, a bin is found by its free rows in constant time (`kernels.fit`). With several limits,
the kernel tests the open bins, at most `OPEN` of them unless the rule says otherwise. Limits that another limit implies
are left out first (`binding_axes`).

Best fit decreasing places lengths, not items: runs of equal lengths stay together as *ranks*. Exchanging items within a
run in later epochs therefore keeps every pack within its limits. The number of packs follows from the histogram of
lengths alone (`count_window`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, IntArray
from penstock.errors import PlanError
from penstock.kernels.concat import concat
from penstock.kernels.fit import best_fit, bin_slots, count_decreasing, first_fit, plan_decreasing, sort_decreasing
from penstock.kernels.open_fit import open_fit
from penstock.kernels.permute import permute
from penstock.plan.packing.rule import Rule

MOST = 4 << 20  # bytes; larger buffers are allocated each time, so that they do not stay


class Scratch(threading.local):
    """Arrays by name, handed out again and again: the first touch of a fresh page costs more than the work in it."""

    def __init__(self) -> None:
        self._held: dict[str, ByteArray] = {}

    def empty(self, name: str, n: int, dtype: type[Any]) -> AnyArray:
        """`[n]` of any values, good until this thread asks for the name again."""
        nbytes = n * np.dtype(dtype).itemsize
        buffer = self._held.get(name)
        if buffer is None or len(buffer) < nbytes:
            buffer = np.empty(nbytes, np.uint8)
            if nbytes <= MOST:
                self._held[name] = buffer
        return buffer[:nbytes].view(dtype)


SCRATCH = Scratch()


EXACT = 1 << 22
"""The most units of a capacity whose bins are found by their residual, which takes a table of that size."""
OPEN = 1024
"""The bins that stay open where the best among them is searched one by one."""
_MOST = 1 << 31
_COMPARED = 1 << 26  # shares of larger limits are equal as doubles
_ANY = 1 << 62
_NONE = np.empty(0, np.int64)


class Parts(NamedTuple):
    """The packed parts of a window: part `part[j]` of the item at place `local[j]`, `rows[j]` rows of it; and the
    places of items that get a pack to themselves. `over` items are longer than the limit, `empty` ones have no rows and
    are left out. With neither, `local` is every place."""

    local: IntArray
    part: IntArray
    rows: IntArray
    own: IntArray
    over: int
    empty: int

    @property
    def every(self) -> bool:
        """Whether part `j` is the whole item at place `j`."""
        return not self.over and not self.empty


@dataclass(frozen=True)
class Window:
    """The packs of one window. Pack `b` owns `slot[cut[b] : cut[b + 1]]`; a slot holds a rank, and rank `r` is part
    `part[r]` of the item at place `local[r]` (all parts are 0 where `part` is empty). Ranks of one run are of equal
    lengths: run `q` is `run[q] : run[q + 1]`; there are none where nothing changes places. Where items are cut
    anywhere, `begin` and `size` `[m, A]` are the rows of each rank, and else they are empty.
    """

    cut: AnyArray
    slot: AnyArray
    local: AnyArray
    part: IntArray
    run: AnyArray
    begin: IntArray
    size: IntArray


def cut_overlong(rule: Rule, lengths: IntArray) -> Parts:
    """The packed parts of items of `[m, A]` lengths: those without rows are left out, then `rule.overlong` applies."""
    limit = np.array(rule.capacity, np.int64)
    place = np.arange(len(lengths))
    empty = 0
    if lengths.size and lengths.min() == 0:
        place = np.flatnonzero(lengths.max(axis=1))
        empty, lengths = len(lengths) - len(place), lengths[place]
    over = (lengths > limit).any(1) if lengths.max(initial=0) > min(rule.capacity) else None
    if over is None or not over.any():
        return Parts(place, _NONE, lengths, _NONE, 0, empty)
    many = int(np.count_nonzero(over))
    if rule.overlong in ("drop", "own_pack"):
        own = place[over] if rule.overlong == "own_pack" else _NONE
        return Parts(place[~over], _NONE, lengths[~over], own, many, empty)
    if rule.overlong != "split":
        return Parts(place, _NONE, np.minimum(lengths, limit), _NONE, many, empty)
    if rule.method == "concat_split":
        return Parts(place, _NONE, lengths, _NONE, many, empty)
    count = (-(-lengths // limit)).max(axis=1)
    if count.sum() > _MOST:
        raise PlanError(f"expected at most 2^31 parts in a window, got {count.sum()}; take a smaller window")
    which = np.repeat(np.arange(len(lengths)), count)
    part = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    rows = np.clip(lengths[which] - part[:, None] * limit, 0, limit)
    return Parts(place[which], part, rows, _NONE, many, empty)


def binding_axes(rule: Rule, rows: IntArray) -> tuple[IntArray, IntArray, int]:
    """`[m, A]` rows and `[A]` limits in units of the alignment, where it divides the limits, and the alignment left to
    respect; without axes that some other decides: `rows[a] / limit[a] <= rows[b] / limit[b]` for every item, so that
    what fits on `b` fits on `a`."""
    limit, align = np.array(rule.capacity, np.int64), rule.align
    if (limit % align == 0).all():
        rows = -(-rows // align) if align > 1 else rows
        limit = limit // align
        align = 1
    if align > 1 or len(limit) == 1 or limit.max() > _COMPARED:
        return rows, limit, align
    share = rows / limit
    kept = list(range(len(limit)))
    for a in range(len(limit)):
        if any(b != a and (share[:, a] <= share[:, b]).all() for b in kept):
            kept.remove(a)
    return rows[:, kept], limit[kept], 1


def is_exact(limit: IntArray, align: int) -> bool:
    """Whether bins can be found by their residual."""
    return len(limit) == 1 and align == 1 and int(limit[0]) <= EXACT


def is_countable(rule: Rule) -> bool:
    """Whether the histogram of lengths on the one axis tells how many packs there are."""
    return rule.method == "best_fit_decreasing" and is_exact(np.array(rule.capacity), rule.align)


def count_window(rule: Rule, parts: Parts) -> tuple[int, int] | None:
    """Packs and most sequences in one, from the histogram of lengths alone; None where that does not tell."""
    rows, limit, align = binding_axes(rule, parts.rows)
    if rule.method != "best_fit_decreasing" or not is_exact(limit, align):
        return None
    counts = np.bincount(rows[:, 0], minlength=int(limit[0]) + 1).astype(np.int32)
    packs, most = count_decreasing(counts, int(limit[0]), rule.most)
    return packs + len(parts.own), max(most, min(len(parts.own), 1))


def plan_window(rule: Rule, parts: Parts, number: int) -> Window:
    """The packs of window `number`, which names its random order for good."""
    if rule.method == "concat_split":
        return _with_own(_concatenated(rule, parts), parts)
    rows, limit, align = binding_axes(rule, parts.rows)
    if rule.method == "best_fit_decreasing" and is_exact(limit, align):
        return _with_own(_decreasing(rule, rows[:, 0], int(limit[0]), parts), parts)
    m = len(rows)
    order, run = _ranked(rows, limit, align) if rule.exchanges else (None, _NONE)
    sequence = None
    if rule.method == "random_fit":
        sequence = permute(np.arange(m), np.full(m, m), np.full(m, number), rule.seed_for("order"))
    bin_of = np.empty(m, np.int64)
    packs = _fit(rule, _taken(_taken(rows, order), sequence), limit, align, bin_of)
    slot, cut = np.empty(m, np.int64), np.empty(packs, np.int64)
    bin_slots(bin_of, packs, slot, cut)
    slot = slot if sequence is None else sequence[slot]
    local = order if parts.every and order is not None else _taken(parts.local, order)
    part = _taken(parts.part, order) if len(parts.part) else _NONE
    return _with_own(Window(cut, slot, local, part, run, _NONE, _NONE), parts)


def _decreasing(rule: Rule, rows: IntArray, capacity: int, parts: Parts) -> Window:
    """All of `plan_window` in one go, in narrow integers where they suffice."""
    m = len(rows)
    narrow = np.uint16 if m <= 1 << 16 else np.uint32
    room = SCRATCH.empty("room", 4 * m, np.int32).reshape(4, m)
    cut, slot, order, run = np.empty((4, m), narrow)
    packs, runs = plan_decreasing(np.ascontiguousarray(rows), capacity, rule.most, room, cut, slot, order, run)
    local = order if parts.every else parts.local.take(order)
    part = parts.part.take(order) if len(parts.part) else _NONE
    return Window(cut[:packs].copy(), slot, local, part, run[:runs].copy(), _NONE, _NONE)


def _taken(values: IntArray, order: IntArray | None) -> IntArray:
    return values if order is None else values.take(order, axis=0)


def _with_own(window: Window, parts: Parts) -> Window:
    """Append a pack for each item that is alone in one; each is also a run."""
    if len(parts.own) == 0:
        return window
    m = len(window.slot)
    more = np.arange(m, m + len(parts.own))
    axes = window.begin.shape[1:]
    begin, size = window.begin, window.size
    if len(axes):
        begin = np.concatenate([begin, np.zeros((len(more), *axes), np.int64)])
        size = np.concatenate([size, np.full((len(more), *axes), -1)])
    run = np.append(window.run, more) if len(window.run) or m == 0 else _NONE
    cut, slot = np.append(window.cut, more), np.append(window.slot, more)
    return Window(cut, slot, np.append(window.local, parts.own), window.part, run, begin, size)


def _ranked(rows: IntArray, limit: IntArray, align: int) -> tuple[IntArray, IntArray]:
    """Decreasing by the largest share of a limit: the item of each rank, and where runs of equal items begin."""
    m = len(rows)
    if is_exact(limit, align):
        order, run = np.empty(m, np.int64), np.empty(m, np.int64)
        runs = sort_decreasing(np.ascontiguousarray(rows[:, 0]), int(limit[0]), order, run)
        return order, run[:runs].copy()
    order = np.lexsort((*(-rows.T[::-1]), -(rows / limit).max(axis=1)))
    ranked = rows[order]
    return order, np.flatnonzero(np.append(True, (ranked[1:] != ranked[:-1]).any(1))[:m])


def _fit(rule: Rule, rows: IntArray, limit: IntArray, align: int, bin_of: IntArray) -> int:
    """The bin of each of `[m, A]` rows, in the order they come; gives the number of bins."""
    if rule.open_bins is None and rule.method != "next_fit" and is_exact(limit, align):
        fit = first_fit if rule.method == "first_fit" else best_fit
        return fit(np.ascontiguousarray(rows[:, 0]), int(limit[0]), rule.most, bin_of)
    keep = 1 if rule.method == "next_fit" else min(rule.open_bins or OPEN, max(len(rows), 1))
    least = rows.min(axis=0, initial=_ANY) if rule.exchanges else np.zeros(len(limit), np.int64)
    best, block = rule.method not in ("first_fit", "next_fit"), rule.flush == "block" or rule.method == "next_fit"
    return open_fit(rows, limit, 1 / limit, least, align, rule.most, keep, best, block, bin_of)


def _concatenated(rule: Rule, parts: Parts) -> Window:
    limit, axes = np.array(rule.capacity, np.int64), len(rule.capacity)
    wanted = np.ascontiguousarray(parts.rows), limit, rule.align, rule.most, rule.head, rule.whole
    least = int((-(-wanted[0] // limit)).max(axis=1, initial=0).sum())
    if least > _MOST:
        raise PlanError(f"expected at most 2^31 parts in a window, got {least}; take a smaller window")
    room = len(parts.local) + least
    rows = index, begin, size = _rooms(room, axes)
    pieces, _ = concat(*wanted, *rows)
    if pieces > room:  # heads and alignment take more
        rows = index, begin, size = _rooms(pieces, axes)
        concat(*wanted, *rows)
    index = index[:pieces]
    begin = begin[:pieces]
    size = size[:pieces]
    cut = np.flatnonzero(np.diff(index[:, 0], prepend=-1))
    return Window(cut, np.arange(pieces, dtype=np.int64), parts.local[index[:, 1]], _NONE, _NONE, begin, size)


def _rooms(pieces: int, axes: int) -> tuple[IntArray, IntArray, IntArray]:
    return np.empty((pieces, 2), np.int64), np.empty((pieces, axes), np.int64), np.empty((pieces, axes), np.int64)
