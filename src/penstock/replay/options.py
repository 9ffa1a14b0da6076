"""`ReplayOptions`: the arguments of a replay, checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import UnionType

from penstock.data.map_dataset import MapDataset
from penstock.errors import ArgumentError, PlanError
from penstock.plan.transform import SampleTransform
from penstock.replay.completions import Completions
from penstock.replay.group_sampler import GroupSampler
from penstock.replay.offline import OfflineSamples
from penstock.replay.ratio import SampleRatio
from penstock.replay.samplers import ReplaySampler
from penstock.replay.samples import ReplaySamples
from penstock.replay.share import EpisodeShare, require_number

VERSION = 2


@dataclass(frozen=True)
class ReplayOptions:
    """Arguments of a replay."""

    path: Path | None
    capacity: int
    samples: ReplaySamples | SampleTransform
    sampler: ReplaySampler
    ratio: SampleRatio | None
    seed: int
    share: EpisodeShare
    keep_steps: int | None
    offline: OfflineSamples | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 hex digest of the arguments that decide the draws. It does not cover the data, which grow."""
        parts = (self.capacity, self.samples, self.sampler, self.seed)
        parts = parts if self.share.count == 1 else (*parts, self.share)
        parts = parts if self.offline is None else (*parts, self.offline.fingerprint)
        return hashlib.sha256(f"replay {VERSION} {parts!r}".encode()).hexdigest()

    @classmethod
    def of(
        cls,
        path: Path | None,
        capacity: int,
        samples: ReplaySamples | SampleTransform,
        sampler: ReplaySampler,
        ratio: SampleRatio | None,
        seed: int,
        share: EpisodeShare,
        keep_steps: int | None,
        repeats: bool,
        offline: MapDataset | None,
        offline_share: float | Fraction | None,
    ) -> ReplayOptions:
        """Return the options after checks. `repeats` says whether the replay repeats a journal."""
        require_kind("samples", samples, ReplaySamples | SampleTransform, "penstock.transforms.Windows(16)")
        require_kind("sampler", sampler, ReplaySampler, "penstock.replay.PrioritizedSampler()")
        require_kind("ratio", ratio, SampleRatio | None, "penstock.replay.SampleRatio(4, min_size=1000)")
        if isinstance(samples, Completions) != isinstance(sampler, GroupSampler):
            raise PlanError(
                f"expected samples=Completions(...) together with sampler=GroupSampler(...), got {samples!r} and "
                f"{sampler!r}"
            )
        share.check(path is not None and not isinstance(sampler, GroupSampler))
        capacity = require_number("capacity", capacity, 1)
        keep = _checked_keep(keep_steps, capacity * share.count, path is None, repeats)
        beside = None
        if offline is not None:
            if isinstance(sampler, GroupSampler):
                raise PlanError("expected no offline dataset with groups of completions")
            beside = OfflineSamples.of(offline, offline_share, sampler)
        elif offline_share is not None:
            raise PlanError(f"expected an offline dataset for share={offline_share}, got none; give offline=")
        return cls(path, capacity, samples, sampler, ratio, require_number("seed", seed, 0), share, keep, beside)


def require_kind(what: str, value: object, kind: type | UnionType, example: str) -> None:
    """Raise `ArgumentError` for a value of another kind."""
    if not isinstance(value, kind):
        raise ArgumentError(f"expected {what} as in {example}, got {value!r}"[:500])


def _checked_keep(keep_steps: int | None, least: int, in_memory: bool, repeats: bool) -> int | None:
    if keep_steps is None:
        return None
    if in_memory or repeats:
        raise PlanError(
            "expected keep_steps for a replay with a path that repeats no journal: memory has no files, and a repeated "
            "run needs all episodes"
        )
    if require_number("keep_steps", keep_steps, 1) < least:
        raise PlanError(
            f"expected keep_steps of at least {least:,}, the capacity of all learners of the folder, got {keep_steps:,}"
        )
    return int(keep_steps)
