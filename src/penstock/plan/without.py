"""`Without`: the same order without some episodes.

Samples of the episodes are left out, and the others keep their order, and with it their goals, their random functions
and which samples a shuffle or a mix gave before them. So a run without an episode differs from the run with it in that
alone, which is what data attribution compares, and a request to remove data costs no other order.

The places of the samples that are left out are found by `Plan.uses`, epoch by epoch. Position `k` is the `k`-th of the
others: a search in these places. `Plan.originals` says which position that was. Memory: 8 bytes for each sample that is
left out of the last epochs.

A pack has sequences of several episodes. Leaving it out would leave out the others too, and packing again would change
all packs. So packs stay where they are, and the rows of the episodes become padding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.cache import Cache
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_integer
from penstock.core.selection import Selection
from penstock.errors import PlanError
from penstock.plan.base import NONE, DerivedPlan, Plan, SameOrder, check_ends, checked, real_rows, within
from penstock.plan.transform import PlanTransform
from penstock.plan.varying import VaryingEpochs

KEPT = 4  # epochs whose left out samples are kept


@dataclass(frozen=True, eq=False)
class Without(PlanTransform):
    """Leave out the samples of some episodes. All other samples keep their order, goals and random functions.

    Apply it last: a shuffle, mix or pack that comes later has another order. Samples with a goal from one of the
    episodes are left out too. Packs keep their places, and rows of the episodes in them become padding; segment ids of
    the other sequences stay. Epochs of a mix, of draws by weight or of a share of a shuffle then vary in length.

    Args:
        episodes: Numbers of episodes, by the number of their source.

    Raises:
        PlanError: A number is negative, the plan has no end, or packs have a column `cu_seqlens`, which cannot describe
            padding between sequences.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(6)}, lengths=[2, 3, 1]).steps()
        >>> data.apply(Without({0: [1]}))[:]["x"].tolist()
        [0, 1, 5]
    """

    episodes: Mapping[int, Sequence[int]] | tuple[tuple[int, tuple[int, ...]], ...] = field(repr=False)

    def __post_init__(self) -> None:
        given = self.episodes.items() if isinstance(self.episodes, Mapping) else self.episodes
        known = [(source, list(numbers)) for source, numbers in given]
        for number in [n for source, numbers in known for n in (source, *numbers)]:
            if not is_integer(number) or isinstance(number, bool) or number < 0:
                raise PlanError(f"expected numbers of sources and episodes of 0 or more, got {number!r}")
        ordered = tuple((int(source), tuple(sorted({int(n) for n in numbers}))) for source, numbers in sorted(known))
        set_fields(self, episodes=ordered)

    @property
    def by_source(self) -> dict[int, IntArray]:
        """Ascending numbers of episodes, `[e]` int64, by the number of their source."""
        pairs: Any = self.episodes
        return {source: np.array(numbers, np.int64) for source, numbers in pairs}

    def __repr__(self) -> str:
        n = sum(map(len, self.by_source.values()))
        return f"Without(n={n}, sha256={hashlib.sha256(repr(self.episodes).encode()).hexdigest()[:16]!r})"

    @override
    def reorder(self, plan: Plan) -> Plan:
        kinds = {mark.kind for mark in plan.marks}
        if "cu_seqlens" in kinds:
            raise PlanError(
                f"expected packs without cu_seqlens for {self!r}, whose sequences then have padding between them; give "
                "pack() other marks, or leave episodes out before pack()"
            )
        return BlankedPlan(plan, self) if "segment_ids" in kinds else WithoutPlan(plan, self)


class WithoutPlan(DerivedPlan):
    """Plan of `Without`, of samples that are of one episode each."""

    loses = "left out by without"

    def __init__(self, upstream: Plan, transform: Without) -> None:
        super().__init__(upstream, transform)
        check_ends(upstream, "leaving episodes out")
        self._transform = transform
        self._episodes = transform.by_source
        self._epochs = VaryingEpochs(lambda e: self._many(e) - len(self._left_out(e)), f"{transform!r} leaves out all")
        self._known = Cache(KEPT)

    def __reduce__(self) -> tuple[type[WithoutPlan], tuple[Plan, Without]]:
        return WithoutPlan, (self.upstream, self._transform)

    @property
    @override
    def steady(self) -> bool:
        return self.upstream.steady

    @property
    @override
    def periodic(self) -> bool:
        return self.upstream.periodic

    @property
    @override
    def uneven(self) -> bool:
        return not self.upstream.steady

    @property
    @override
    def empty(self) -> bool:
        if self.upstream.empty or not self.uneven:
            return self.upstream.empty or len(self) == 0
        return self._epochs.barren

    def __len__(self) -> int:
        return self._many(0) - len(self._left_out(0))

    @override
    def start(self, epoch: int) -> int:
        return self._epochs.start(epoch) if self.uneven else epoch * len(self)

    @override
    def sizes(self, epoch: IntArray) -> IntArray:
        return self._epochs.sizes(epoch) if self.uneven else super().sizes(epoch)

    @override
    def locate(self, k: IntArray) -> tuple[IntArray, IntArray]:
        return self._epochs.locate(k) if self.uneven else super().locate(k)

    @override
    def set_epoch_start(self, epoch: int, start: int) -> None:
        if self.uneven:
            self._epochs.set_start(epoch, start)

    @override
    def count_below(self, position: int) -> int | None:
        """All samples before the next one, which were given or left out."""
        return int(self.positions(np.array([position]))[0])

    @override
    def originals(self, positions: IntArray) -> IntArray:
        return self.upstream.originals(self.positions(positions))

    def positions(self, k: IntArray) -> IntArray:
        """The positions of the samples that are kept."""
        epoch, place = self.locate(k)
        out = np.empty(len(k), np.int64)
        for e in np.unique(epoch).tolist():
            mine, left_out = epoch == e, self._left_out(e)
            kept = left_out - np.arange(len(left_out))  # how many are kept before each
            out[mine] = self.upstream.start(e) + place[mine] + kept.searchsorted(place[mine], side="right")
        return out

    @override
    def span(self, lo: int, hi: int) -> tuple[int, int]:
        first, last = self.positions(np.array([lo, hi - 1])).tolist()
        return first, last + 1

    @override
    def inverse(self, below: IntArray, lo: int, hi: int) -> IntArray:
        epoch, place = self.upstream.locate(below)
        parts = [NONE]
        for e in np.unique(epoch).tolist():
            mine, left_out = place[epoch == e], self._left_out(e)
            mine = mine[~np.isin(mine, left_out)]
            parts.append(self.start(e) + mine - left_out.searchsorted(mine))
        return within(np.concatenate(parts), lo, hi)

    def _many(self, epoch: int) -> int:
        return int(self.upstream.sizes(np.array([epoch]))[0])

    def _left_out(self, epoch: int) -> IntArray:
        """The places of an epoch below that are left out, ascending."""
        key = 0 if self.upstream.periodic else epoch

        def places() -> tuple[IntArray, int]:
            first = self.upstream.start(key)
            end = first + self._many(key)
            parts = [self.upstream.uses(source, e, first, end) - first for source, e in self._episodes.items()]
            return np.unique(np.concatenate([NONE, *parts])), 1

        return self._known.get(key, places)


class BlankedPlan(SameOrder):
    """Plan of `Without`, of packs: they keep their places, and rows of the episodes become padding."""

    loses = WithoutPlan.loses

    def __init__(self, upstream: Plan, transform: Without) -> None:
        super().__init__(upstream, transform)
        self._episodes = transform.by_source
        self._rows = {
            (view, source): _ascending(*upstream.rows_of_episodes(view, source, episodes))
            for source, episodes in self._episodes.items()
            for view in range(len(upstream.views))
        }

    @property
    @override
    def even(self) -> tuple[int, ...] | None:
        return None

    @override
    def length_table(self, view: int) -> IntArray | None:
        return None

    @override
    def lengths(self, positions: IntArray) -> tuple[IntArray, ...]:
        return tuple(real_rows(selection) for selection in self.resolve(positions))

    @override
    def extents(self, positions: IntArray) -> tuple[IntArray, ...]:
        return self.upstream.extents(checked(self, positions))

    @override
    def uses(self, source: int, episodes: IntArray, lo: int, hi: int) -> IntArray:
        left_out = self._episodes.get(source, NONE)
        return self.upstream.uses(source, episodes[~np.isin(episodes, left_out)], lo, hi)

    @override
    def resolve(self, positions: IntArray) -> tuple[Selection, ...]:
        below = self.upstream.resolve(checked(self, positions))
        return tuple(self._blanked(view, selection) for view, selection in enumerate(below))

    def _blanked(self, view: int, selection: Selection) -> Selection:
        kept = np.ones(len(selection.start), np.bool_)
        for source in self._episodes:
            first, last = self._rows[view, source]
            owner = first.searchsorted(selection.start, side="right") - 1
            inside = (owner >= 0) & (selection.start < np.append(last, 0)[owner])
            kept &= ~(inside & (selection.source == source))
        return selection if kept.all() else selection.spans(kept)


def _ascending(first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    order = np.lexsort((last, first))  # an empty episode begins where the next one does
    return first[order], last[order]
