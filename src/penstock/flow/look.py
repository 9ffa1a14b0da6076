"""Figures of each stage of a running pipeline between two snapshots, and the stage that limits the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.flow.metrics import rates

WAITS = 0.1  # of the time that the consumer waits for a batch: less, and it is the limit, also when stages are busy
BUSY = 0.5  # of its threads' time: less, and no stage is the limit
CONSUMER = "consumer"  # the stage that gets the batches of a loader

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
    "plan",
    "fetch",
    "map",
    "cut",
    "loader",
    "consumer",
)
"""The stages of a pipeline, from files to batches; stages of several streams have the stream's name behind a dot."""

ADVICE = {
    "plan": "larger batches, since each call of a plan has a fixed cost",
    "fetch": "more threads, fewer or smaller columns, or data that are decoded in advance (penstock cache)",
    "map": "fewer and larger NumPy calls in the functions given to map(), or their work on the device",
    "cut": "larger batches",
    "hand_over": "larger batches, or a device that takes them faster",
    "chunk_source_loader": "more threads, or files nearer to this machine",
}
MORE_THREADS = "more threads, or less work in this stage"
"""What would mend a stage that is the bottleneck, and all other stages."""


@dataclass(frozen=True)
class Bottleneck:
    """`stage` limits the pipeline. `kind` is `stage`, `consumer` (batches wait for the consumer), or `input` (no stage
    is busy: all data were read, or reading waits for a disk)."""

    kind: Literal["stage", "consumer", "input"]
    stage: str
    busy: float

    @property
    def sentence(self) -> str:
        if self.kind == "consumer":
            return "the consumer is the bottleneck: batches wait to be got"
        share = f"{self.busy * 100:.0f} %"
        if self.kind == "input":
            return f"no stage is the bottleneck ({self.stage} is busiest, {share}): all wait for input"
        return f"{self.stage} is the bottleneck: busy {share} of the time"

    @property
    def advice(self) -> str:
        """Change that would mend it, in words."""
        if self.kind == "consumer":
            return "a faster training step, for batches are ready before they are needed"
        if self.kind == "input":
            return "a faster disk or network, more prefetch or memory, or new data where the stream has read them all"
        return ADVICE.get(self.stage.partition(".")[0], MORE_THREADS)


@dataclass(frozen=True)
class StageFigures:
    """One stage between two looks.

    `busy` is the share of its threads' time, `rates` are its counts a second, `totals` its counts, `gauges` its last
    values. Of the queue behind it: `fill` and `capacity`, 0 for none, and `drops` so far. `waited` is the share of the
    time that somebody waited to get something, or that the consumer waited for a batch; None where that is not known.
    """

    name: str
    threads: int
    busy: float
    rates: Mapping[str, float]
    fill: int
    capacity: int
    drops: int
    waited: float | None
    totals: Mapping[str, int]
    gauges: Mapping[str, float | str]


def figures(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[StageFigures]:
    """What each stage did between two snapshots (`penstock.flow.metrics.Metrics.snapshot`), from files to batches."""
    listed: list[StageFigures] = []
    places = {name: i for i, name in enumerate(ORDER)}
    every = rates(before, after)
    for name in sorted(every, key=lambda name: (places.get(name.partition(".")[0], len(ORDER)), name)):
        stage = after["stages"][name]
        per_second = {count: rate for count, rate in every[name].items() if count != "busy"}
        fill, capacity, drops = (int(stage["queue"].get(what, 0)) for what in ("fill", "capacity", "drops"))
        waited = None
        where = "gauges" if name == CONSUMER else "queue"
        if "waited_seconds" in stage[where] and (capacity or name == CONSUMER):
            earlier: Mapping[str, float] = before["stages"].get(name, {}).get(where, {})
            total: float = stage[where]["waited_seconds"]
            spent = total - earlier.get("waited_seconds", 0.0)
            spent = total if spent < 0 else spent  # the queue of another epoch counts from zero
            waited = spent / max(after["time"] - before["time"], 1e-9)
        now = (fill, capacity, drops, waited, stage["counts"], stage["gauges"])
        listed.append(StageFigures(name, stage["threads"], every[name]["busy"], per_second, *now))
    return listed


def bottleneck(before: Mapping[str, Any], after: Mapping[str, Any]) -> Bottleneck | None:
    """What limits a pipeline between two of its snapshots; None without stages.

    Everything is judged by time that was spent between them, and nothing by how it was at one of them: a queue may be
    full by chance. The consumer is the limit where it hardly waited for batches. Else the threads are that are busiest,
    if they work at least half of the time: the stage that takes most of it is named, of those whose work they do.
    """
    stages = figures(before, after)
    if not stages:
        return None
    threads: dict[str, list[StageFigures]] = {}
    for stage in stages:
        threads.setdefault(str(stage.gauges.get("part_of", stage.name)), []).append(stage)
    share = {name: sum(stage.busy for stage in group) for name, group in threads.items()}
    first = max(share, key=lambda name: share[name])
    busiest = max(threads[first], key=lambda stage: stage.busy)
    waits = {stage.name: stage.waited for stage in stages if stage.waited is not None}
    ends = (
        [waits.pop(CONSUMER, 0.0), *list(waits.values())[-1:]] if waits else []
    )  # without threads, no queue is waited at
    if ends and max(ends) < WAITS:
        return Bottleneck("consumer", busiest.name, busiest.busy)
    return Bottleneck("stage" if share[first] >= BUSY else "input", busiest.name, busiest.busy)
