"""Continue a run over another mix: counts of each part, by name, and a record of the mixes before.

A state of a mix has, for each part, the digest of its plan and the number of samples that it has given. A new mix
starts each part of the same name after these samples. The samples of a part are read in its order, by a number that
counts through its epochs, so none is lost or repeated within the part, whatever the weights are before and after. A
part that is a mix has such a record too.

Transforms may stand above a mix. Some know at every position how many samples of the mix were given, such as shards.
Others know it only at the end of an epoch, such as shuffles and packs: elsewhere a record has no counts, and the
position at which there are some.

The record of a mix has what its parts do not determine: weights, stop, names of outputs, first samples. With the parts,
the earlier plan is made again, and a ticket from before names the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_dict, is_list
from penstock.data.mix import MixCourse, continued, mix_below, position_in_mix
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import StateError
from penstock.loading.skips import LARGEST, Skips
from penstock.plan.base import DerivedPlan, Plan, epoch_of
from penstock.plan.mixed import MixedPlan

EPOCHS_AHEAD = 8  # among whose ends a position with known counts is looked for
MOST_CARRIED = 1 << 16  # skipped samples whose positions in another mix are found
MOST_PARTS = 64  # of a mix whose counts are part of a state


@dataclass(frozen=True)
class PartCount:
    """Samples of one part of a mix."""

    plan: str
    begin: int
    count: int
    mix: MixRecord | None = None


@dataclass(frozen=True)
class MixRecord:
    """A mix at a position."""

    position: int
    parts: Mapping[str, PartCount]
    course: MixCourse
    known: int | None = None

    @classmethod
    def of(cls, dataset: PlannedSamples, position: int) -> MixRecord | None:
        """Return the record of a dataset, or None if it is no mix, or one of more than 64 parts."""
        return cls._of(dataset.plan, position)

    @classmethod
    def _of(cls, plan: Plan, position: int) -> MixRecord | None:
        mix = mix_below(plan)
        if mix is None or mix.empty or plan.empty or len(mix.parts) > MOST_PARTS:
            return None
        place = position_in_mix(plan, position)
        if place is None:
            return cls(position, {}, MixCourse.of(mix), _next_known(plan, position))
        counts = zip(mix.parts, mix.begin.tolist(), mix.counts(place).tolist(), strict=True)
        parts = {
            part.name: PartCount(part.plan.fingerprint[:8], begin, count, cls._of(part.plan, count))
            for part, begin, count in counts
        }
        return cls(position, parts, MixCourse.of(mix))

    def to_json(self) -> dict[str, Any]:
        parts = {
            name: [part.plan, part.begin, part.count] + ([] if part.mix is None else [part.mix.to_json()])
            for name, part in self.parts.items()
        }
        known = {} if self.parts else {"known": self.known}
        return {"position": self.position, "parts": parts, "course": self.course.to_json(), **known}

    @classmethod
    def from_json(cls, value: object) -> MixRecord:
        """Make a record from the output of `to_json`."""
        given = value if is_dict(value) else {}
        position = given.get("position")
        parts = given.get("parts")
        course = given.get("course")
        known = given.get("known")
        if type(position) is not int or not is_dict(parts):
            raise StateError(f"expected the parts and the course of a mix in a state, got {value!r}")
        counts = {str(name): _part(part) for name, part in parts.items()}
        return cls(position, counts, MixCourse.from_json(course), known if type(known) is int else None)

    def dataset(self, now: PlannedSamples) -> PlannedSamples | None:
        """Return the dataset of this record, or None if the parts of another mix do not have its samples."""
        plan = mix_below(now.plan)
        plans = {part.name: part.plan.fingerprint[:8] for part in plan.parts} if plan is not None else {}
        if any(plans.get(name) != part.plan for name, part in self.parts.items()):
            return None
        return continued(now, {name: part.begin for name, part in self.parts.items()}, self.course)


def records(value: object) -> tuple[MixRecord, ...]:
    """Return the records of a saved state."""
    if not is_list(value):
        raise StateError(f"expected a list of mixes in a state, got {value!r}")
    return tuple(MixRecord.from_json(each) for each in value)


def next_mix(now: PlannedSamples, seams: tuple[MixRecord, ...]) -> PlannedSamples:
    """Return a mix whose parts continue after the samples that earlier mixes have taken."""
    plan = mix_below(now.plan)
    if plan is None:
        raise StateError(f"expected a mix to continue with changed='continue', got the chain {' > '.join(now.chain)}")
    for seam in seams:
        if not seam.parts:
            where = "" if seam.known is None else f", such as {seam.known:,}"
            raise StateError(
                f"expected a state at the end of an epoch{where}, got one at position {seam.position:,}: a shuffle, "
                "pack or sorted batches above the mix have taken other samples than its first ones. Continue from a "
                "state there, or shuffle, pack and sort the datasets before they are mixed"
            )
    begin: dict[str, int] = {}
    inner: dict[str, tuple[MixRecord, ...]] = {}
    for part in plan.parts:
        before = [seam.parts[part.name] for seam in seams if part.name in seam.parts]
        digest = part.plan.fingerprint[:8]
        if not before or before[-1].plan == digest:
            begin[part.name] = before[-1].count if before else 0
            continue
        records_of_part = tuple(count.mix for count in before if count.mix is not None)
        if before[-1].mix is None or mix_below(part.plan) is None:
            raise StateError(
                f"expected part {part.name!r} of the mix with the plan {before[-1].plan}, got {digest}, which has "
                "other samples or another order; give it another name to begin with its first sample"
            )
        begin[part.name], inner[part.name] = 0, records_of_part
    mixed = continued(now, begin, change=lambda name, part: next_mix(part, inner[name]) if name in inner else part)
    if mixed is None:
        raise StateError(
            f"expected a mix that can be made again with other first samples, got the chain {' > '.join(now.chain)}; "
            "use filter(), weighted() and without() on the datasets before they are mixed"
        )
    return mixed


def carried_skips(now: PlannedSamples, seam: MixRecord, skips: Skips) -> Skips:
    """Return the skipped positions of a mix that continues another one: skipped samples ahead follow their part.

    Samples of parts that have no share now are not skipped in a later mix.
    """
    ahead = skips.within(seam.position, LARGEST)
    many = sum(hi - lo for lo, hi in ahead)
    if not many:
        return Skips()
    before = seam.dataset(now)
    old, new = (None if samples is None else _bare(samples.plan) for samples in (before, now))
    if many > MOST_CARRIED or not isinstance(old, MixedPlan) or not isinstance(new, MixedPlan):
        raise StateError(
            f"expected at most {MOST_CARRIED:,} skipped samples of a mix that has all its parts and no other order "
            f"above it, to find them in the new mix, got {many:,} in the chain {' > '.join(now.chain)}; give the parts "
            "that left weight 0, or clear state['skipped']"
        )
    k: IntArray = np.concatenate([np.arange(lo, hi) for lo, hi in ahead])
    part, j = old.picks(k)
    there = {each.name: number for number, each in enumerate(new.parts)}
    positions = [
        new.places(there[each.name], np.sort(j[part == number]))
        for number, each in enumerate(old.parts)
        if each.name in there
    ]
    return Skips((position, position + 1) for position in np.concatenate(positions).tolist())


def _bare(plan: Plan) -> Plan:
    """The plan below those that have its positions."""
    while isinstance(plan, DerivedPlan) and plan.same_positions:
        plan = plan.upstream
    return plan


def _next_known(plan: Plan, position: int) -> int | None:
    """The next end of an epoch at which the counts of a mix are known."""
    epoch = epoch_of(plan, position)
    ends = (plan.start(epoch + more) for more in range(1, EPOCHS_AHEAD + 1))
    return next((end for end in ends if end <= LARGEST and position_in_mix(plan, end) is not None), None)


def _part(value: object) -> PartCount:
    entry: list[Any] = value if is_list(value) else []
    match entry:
        case [str() as plan, int() as begin, int() as count, *mix] if 0 <= begin <= count <= LARGEST and len(mix) < 2:
            return PartCount(plan, begin, count, MixRecord.from_json(mix[0]) if mix else None)
        case _:
            raise StateError(f"expected digest, first sample and count of a part of a mix, got {value!r}")
