"""What the figures of a running pipeline say: what each stage does, and which one holds up the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.live.metrics import rates

FULL = 0.75  # of the last queue: whoever reads it is slower than all stages
BUSY = 0.5  # of its threads' time: less, and no stage is the limit

ORDER = (
    "file_path_provider",
    "chunk_source_loader",
    "restored",
    "shuffling_chunk_pool",
    "chunk_loading",
    "chunk_validator",
    "chunk_rescorer",
    "chunk_unpacker",
    "shuffling_frame_sampler",
    "tensor_generator",
)
"""The stages of a pipeline, from files to batches; those of several streams have their names behind a dot."""


@dataclass(frozen=True)
class Bottleneck:
    """`stage` holds up the others; `kind` is `stage`, `consumer` (batches wait to be got), or `input` (nothing
    is busy: what is there was read, or reading waits for a disk)."""

    kind: Literal["stage", "consumer", "input"]
    stage: str
    busy: float

    @property
    def sentence(self) -> str:
        """It in words.

        >>> Bottleneck("stage", "chunk_unpacker", 0.97).sentence
        'chunk_unpacker is the bottleneck: busy 97 % of the time'
        """
        if self.kind == "consumer":
            return "the consumer is the bottleneck: batches wait to be got"
        share = f"{self.busy * 100:.0f} %"
        if self.kind == "input":
            return f"no stage is the bottleneck ({self.stage} is busiest, {share}): all wait for input"
        return f"{self.stage} is the bottleneck: busy {share} of the time"


@dataclass(frozen=True)
class StageFigures:
    """One stage between two looks: `busy`, the share of its threads' time; `rates` of its counts, a second; of the
    queue behind it `fill` and `capacity`, 0 for none, and `drops` so far; `totals` of its counts; its `gauges`."""

    name: str
    threads: int
    busy: float
    rates: Mapping[str, float]
    fill: int
    capacity: int
    drops: int
    totals: Mapping[str, int]
    gauges: Mapping[str, float | str]


def figures(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[StageFigures]:
    """What each stage did between two snapshots (`penstock.live.metrics.Metrics.snapshot`), from files to batches.

    >>> stage = {"threads": 1, "counts": {"frames": 5}, "busy": 0.0, "queue": {}, "gauges": {}}
    >>> after = {"time": 2.0, "stages": {"pool": {**stage, "busy": 0.5, "counts": {"frames": 25}}}}
    >>> [one] = figures({"time": 0.0, "stages": {"pool": stage}}, after)
    >>> one.busy, one.rates
    (0.25, {'frames': 10.0})
    """
    found: list[StageFigures] = []
    places = {name: i for i, name in enumerate(ORDER)}
    every = rates(before, after)
    for name in sorted(every, key=lambda name: (places.get(name.partition(".")[0], len(ORDER)), name)):
        stage = after["stages"][name]
        per_second = {count: rate for count, rate in every[name].items() if count != "busy"}
        fill, capacity, drops = (int(stage["queue"].get(what, 0)) for what in ("fill", "capacity", "drops"))
        now = (fill, capacity, drops, stage["counts"], stage["gauges"])
        found.append(StageFigures(name, stage["threads"], every[name]["busy"], per_second, *now))
    return found


def bottleneck(before: Mapping[str, Any], after: Mapping[str, Any]) -> Bottleneck | None:
    """What limits a pipeline, from two of its snapshots; None without stages.

    The consumer, where the queue behind the last stage is nearly full at both looks. Else the stage whose threads are
    busiest, if they work at least half of the time.

    >>> stage = {"threads": 1, "counts": {}, "busy": 0.0, "queue": {"fill": 0, "capacity": 4}, "gauges": {}}
    >>> before = {"time": 0.0, "stages": {"pool": stage, "unpacker": stage}}
    >>> after = {"time": 1.0, "stages": {"pool": {**stage, "busy": 0.1}, "unpacker": {**stage, "busy": 0.9}}}
    >>> bottleneck(before, after)
    Bottleneck(kind='stage', stage='unpacker', busy=0.9)
    """
    stages = figures(before, after)
    if not stages:
        return None
    busiest = max(stages, key=lambda stage: stage.busy)
    queued = [stage for stage in stages if stage.capacity]
    earlier = before["stages"].get(queued[-1].name, {}).get("queue", {}) if queued else {}
    if queued and min(earlier.get("fill", 0), queued[-1].fill) >= FULL * queued[-1].capacity:
        return Bottleneck("consumer", busiest.name, busiest.busy)
    return Bottleneck("stage" if busiest.busy >= BUSY else "input", busiest.name, busiest.busy)
