"""Past statistics, finer for recent times, for any period that ends now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Snapshot = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full a queue was at several looks."""

    least: int
    most: int
    total: int
    looks: int
    latest: int

    @classmethod
    def of(cls, fill: int) -> Fullness:
        """Add one observation."""
        return cls(fill, fill, fill, 1, fill)

    def __add__(self, newer: Fullness) -> Fullness:
        least, most = min(self.least, newer.least), max(self.most, newer.most)
        return Fullness(least, most, self.total + newer.total, self.looks + newer.looks, newer.latest)

    def fields(self) -> dict[str, int]:
        """Return the fields of a `StatisticsProtoInt64`."""
        return {"min": self.least, "max": self.most, "sum": self.total, "count": self.looks, "latest": self.latest}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A snapshot, and how full the queues were at the looks since the entry before it, by stage."""

    snapshot: Snapshot
    fullness: Mapping[str, Fullness]

    @property
    def time(self) -> float:
        return self.snapshot["time"]


class History:
    """Snapshots of the past: at most two for each doubling of age.

    Counts of a period are differences of two snapshots. What cannot be had by differences, how full queues were, is
    summed up between one snapshot and the next; a snapshot that goes leaves its share to the next one.
    """

    def __init__(self, finest: float = 0.25) -> None:
        self._finest = finest
        self._entries: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def wants(self, now: float) -> bool:
        """Return whether a snapshot of this time would be kept: the last is not too near."""
        return not self._entries or now - self._entries[-1].time >= self._finest

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop snapshots that are close to others."""
        now = snapshot["time"]
        if not self.wants(now):
            return
        queues = {name: stage["queue"] for name, stage in snapshot["stages"].items()}
        looks = {name: Fullness.of(int(queue["fill"])) for name, queue in queues.items() if queue}
        self._entries.append(_Entry(snapshot, looks))
        # From the newest back: of three in a row the middle goes, if its neighbours are nearer than half of their age.
        kept = self._entries[-2:][::-1]
        for i in range(len(self._entries) - 3, -1, -1):
            older = self._entries[i]
            if len(kept) > 2 and i > 0 and kept[-2].time - older.time < (now - kept[-2].time) / 2:
                kept[-2] = replace(kept[-2], fullness=_sum(kept[-1].fullness, kept[-2].fullness))
                kept[-1] = older
            else:
                kept.append(older)
        self._entries = kept[::-1]

    def at(self, time: float) -> Snapshot:
        """Return the newest snapshot that is not younger than a time; the oldest where all are."""
        older = [entry.snapshot for entry in self._entries if entry.time <= time]
        return older[-1] if older else self._entries[0].snapshot

    def fullness(self, before: float, after: float) -> dict[str, Fullness]:
        """Return how full the queue of each stage was at the looks after one time and up to another."""
        total: dict[str, Fullness] = {}
        for entry in self._entries:
            if before < entry.time <= after:
                total = _sum(total, entry.fullness)
        return total


def _sum(older: Mapping[str, Fullness], newer: Mapping[str, Fullness]) -> dict[str, Fullness]:
    return {**older, **{name: older[name] + fill if name in older else fill for name, fill in newer.items()}}
