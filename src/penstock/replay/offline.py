"""Samples of an offline dataset in the batches of a replay: `OfflineRows` joins rows, `OfflineDrawing` draws samples.

An offline sample stays where it is: memory has its priority alone. Sample `i` of a dataset of `n` has the number
`i - n`, so numbers below 0 are offline samples, and all others are of the replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.ragged import Array
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError
from penstock.kernels.replay import uniform_anchors
from penstock.plan.schedule import Schedule
from penstock.replay.draw import Draw
from penstock.replay.prioritized import PrioritizedSampler
from penstock.replay.samplers import Drawing, Drawn, ReplaySampler, State, UniformSampler

SOURCE = "source"
_PREFIX = "offline "
_OTHER, _CHOICE = np.uint64(0x5851F42D4C957F2D), np.uint64(0x14057B7EF767814F)  # for other random bits
_UNIT = 1 << 53


def checked_share(share: float | Fraction) -> Fraction:
    """Return the share of a replay as a fraction. A float counts as the decimal that it prints as."""
    fraction = Fraction(str(share))
    if not 0 <= fraction <= 1:
        raise PlanError(f"expected a share of the replay within 0 to 1, got {share}")
    return fraction


@dataclass(frozen=True)
class OfflineSamples:
    """Dataset whose samples a replay draws too. `share` is of the replay, None for one pool of all samples."""

    dataset: MapDataset
    share: Fraction | None

    @classmethod
    def of(cls, dataset: MapDataset, share: float | Fraction | None, sampler: ReplaySampler) -> OfflineSamples:
        """Return the arguments after checks."""
        planned = planned_samples(dataset)
        if len(planned) == 0:
            raise PlanError(f"expected an offline dataset with samples, got an empty one: {planned.plan.why_empty()}")
        proportional = isinstance(sampler, PrioritizedSampler) and sampler.kind == "proportional"
        if share is None and not (proportional or isinstance(sampler, UniformSampler)):
            raise PlanError(
                f"expected a share= of the replay and an offline dataset for {sampler!r}, whose samples have no "
                "common measure; or give UniformSampler() or PrioritizedSampler()"
            )
        return cls(dataset, None if share is None else checked_share(share))

    @cached_property
    def rows(self) -> OfflineRows:
        """The rows of the samples."""
        return OfflineRows(planned_samples(self.dataset))

    @property
    def fingerprint(self) -> str:
        """Digest of the dataset, and the share."""
        return f"{self.rows.samples.fingerprint} {self.share}"

    def __reduce__(self) -> tuple[Any, ...]:
        return OfflineSamples, (self.dataset, self.share)


class OfflineRows:
    """Reads samples of an offline dataset, and joins them to samples of a replay."""

    def __init__(self, samples: PlannedSamples) -> None:
        self.samples = samples
        self._kinds: dict[str, dict[str, tuple[np.dtype[Any], tuple[int, ...]]]] = {}  # of outputs, of both origins

    def joined(
        self, own: Mapping[str, Array] | None, positions: IntArray, constant: Mapping[str, AnyArray]
    ) -> dict[str, Array]:
        """Return rows of a replay, or None, and after them the samples at positions with some constant columns."""
        parts: dict[str, dict[str, Array]] = {} if own is None else {"replay": dict(own)}
        if len(positions):
            offline = dict(self.samples.at(positions).flat)
            offline |= {name: np.repeat(value, len(positions)) for name, value in constant.items()}
            parts["dataset"] = offline
        self._require_same(parts)
        first, *rest = parts.values()
        count = 0 if own is None else len(next(iter(own.values())))
        label = np.repeat(np.arange(2, dtype=np.int32), [count, len(positions)])
        if not rest:
            return {**first, SOURCE: label}
        rows = {name: np.concatenate([np.asarray(part[name]) for part in parts.values()]) for name in first}
        return {**rows, SOURCE: label}

    def _require_same(self, parts: Mapping[str, Mapping[str, Array]]) -> None:
        """Refuse outputs that differ between the replay and the dataset, also if no batch has rows of both."""
        for origin, arrays in parts.items():
            self._kinds[origin] = {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
        if len(self._kinds) < 2:
            return
        own, other = self._kinds["replay"], self._kinds["dataset"]
        if own.keys() != other.keys():
            raise PlanError(
                f"expected the outputs {sorted(own)} of the replay in the offline dataset, got {sorted(other)}; "
                "select_columns() or map() the dataset to the same outputs"
            )
        for name, (dtype, shape) in own.items():
            if other[name] != (dtype, shape):
                raise PlanError(
                    f"expected {dtype} rows of shape {shape} for {name!r} in the offline dataset, as in the replay, "
                    f"got {other[name][0]} rows of shape {other[name][1]}; map() the dataset to it"
                )


class OfflineDrawing(Drawing):
    """Draws from the samples of a replay, with the drawing of its sampler, and from offline samples with another one.

    The probability of a sample is the chance of its side, which is its share or its part of all weights, times its
    probability there. Samples of the replay come first in a draw.
    """

    def __init__(self, own: Drawing, sampler: ReplaySampler, offline: OfflineSamples) -> None:
        super().__init__(own.key)
        self._own, self._count = own, len(offline.rows.samples)
        prioritized = isinstance(sampler, PrioritizedSampler)
        self._other = (sampler if prioritized else UniformSampler()).start(own.key ^ _OTHER)
        self._other.arrive(0, self._count)
        share = offline.share
        self._schedule = None if share is None else Schedule.of([share, 1 - share])

    @override
    def arrive(self, lo: int, hi: int) -> None:
        self._own.arrive(lo, hi)
        super().arrive(lo, hi)

    @override
    def has(self, n: int) -> bool:
        return True

    @override
    def draw(self, number: int, n: int) -> Drawn:
        chance, count = self._chance(number, n)
        sides = [(self._own, chance, count, 0), (self._other, 1 - chance, n - count, self._count)]
        anchors: list[IntArray] = []
        chances: list[dict[str, FloatArray]] = []
        for side, part, samples, shift in sides:
            if samples:
                drawn = side.draw(number, samples)
                known = side.chances(Draw(number, drawn.anchors, None, (side.lo, side.hi), *drawn[2:]))
                chances.append({**known, "probability": known["probability"] * part})
                anchors.append(drawn.anchors - shift)
        columns = {name: np.concatenate([each[name] for each in chances]) for name in chances[0]}
        probability = columns["probability"]
        least = min(part * side.least for side, part, *_ in sides if part > 0)
        weights = self._other.importance(probability, least, number)
        priorities = columns["priority"].astype(np.float32) if "priority" in columns else None
        return Drawn(np.concatenate(anchors), weights, probability.astype(np.float32), 1.0, priorities)

    def _chance(self, number: int, n: int) -> tuple[float, int]:
        """The chance of the replay, and how many of the next samples are from it."""
        if not self._own.has(1):
            return 0.0, 0
        if self._schedule is not None:
            counts = self._schedule.counts(number + n) - self._schedule.counts(number)
            return float(self._schedule.shares[0]), int(counts[0])
        chance = self._own.mass / (self._own.mass + self._other.mass)
        place = (np.arange(n) + uniform_anchors(self.key ^ _CHOICE, number, 0, _UNIT, n) / _UNIT) / n
        return chance, int((place < chance).sum())

    @override
    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        known = {} if draw.masses is None else {"probability": draw.masses.astype(np.float64)}
        return known if draw.priorities is None else {**known, "priority": draw.priorities.astype(np.float64)}

    @override
    def update(self, anchors: IntArray, priorities: AnyArray) -> None:
        offline = anchors < 0
        if offline.any():
            self._other.update(anchors[offline] + self._count, priorities[offline])
        if not offline.all():
            self._own.update(anchors[~offline], priorities[~offline])
        self._own.highest = self._other.highest = max(self._own.highest, self._other.highest)

    @override
    def state(self) -> State:
        return {**self._own.state(), **{_PREFIX + name: value for name, value in self._other.state().items()}}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        self._own.restore({name: value for name, value in state.items() if not name.startswith(_PREFIX)})
        self._other.restore({name.removeprefix(_PREFIX): state[name] for name in state if name.startswith(_PREFIX)})


def split_at(anchors: IntArray) -> int:
    """Return how many numbers of samples are of the replay: they come first."""
    return int((anchors >= 0).sum())
