"""Figures of each stage of a running pipeline between two snapshots, and the stage that limits the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.flow.metrics import rates

WAITS = 0.1  # of the time that the consumer waits for a batch: less, and it is the limit, also when stages are busy
BUSY = 0.5  # of its threads' time: less, and no stage is the limit
LOOKS = 10  # that a pipeline is judged over

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
"""The stages of a pipeline, from files to batches; stages of several streams have the stream's name behind a dot."""


@dataclass(frozen=True)
class Bottleneck:
    """`stage` limits the pipeline. `kind` is `stage`, `consumer` (batches wait for the consumer), or `input` (no stage
    is busy: all data were read, or reading waits for a disk)."""

    kind: Literal["stage", "consumer", "input"]
    stage: str
    busy: float

    @property
    def sentence(self) -> str:
        """The bottleneck in words.

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
    queue behind it `fill` and `capacity`, 0 for none, `drops` so far, and `waited`, the share of the time that somebody
    waited to get something, None where that is not known; `totals` of its counts; its `gauges`."""

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
    """What each stage did between two snapshots (`penstock.flow.metrics.Metrics.snapshot`), from files to batches.

    >>> stage = {"threads": 1, "counts": {"frames": 5}, "busy": 0.0, "queue": {}, "gauges": {}}
    >>> after = {"time": 2.0, "stages": {"pool": {**stage, "busy": 0.5, "counts": {"frames": 25}}}}
    >>> [one] = figures({"time": 0.0, "stages": {"pool": stage}}, after)
    >>> one.busy, one.rates
    (0.25, {'frames': 10.0})
    """
    listed: list[StageFigures] = []
    places = {name: i for i, name in enumerate(ORDER)}
    every = rates(before, after)
    for name in sorted(every, key=lambda name: (places.get(name.partition(".")[0], len(ORDER)), name)):
        stage = after["stages"][name]
        per_second = {count: rate for count, rate in every[name].items() if count != "busy"}
        fill, capacity, drops = (int(stage["queue"].get(what, 0)) for what in ("fill", "capacity", "drops"))
        earlier = before["stages"].get(name, {}).get("queue", {})
        waited = None
        if capacity and "waited_seconds" in stage["queue"]:
            spent = stage["queue"]["waited_seconds"] - earlier.get("waited_seconds", 0.0)
            waited = spent / max(after["time"] - before["time"], 1e-9)
        now = (fill, capacity, drops, waited, stage["counts"], stage["gauges"])
        listed.append(StageFigures(name, stage["threads"], every[name]["busy"], per_second, *now))
    return listed


def bottleneck(before: Mapping[str, Any], after: Mapping[str, Any]) -> Bottleneck | None:
    """What limits a pipeline between two of its snapshots; None without stages.

    Everything is judged by time that was spent between them, and nothing by how it was at one of them: a queue may be
    full by chance. The consumer is the limit where it hardly waited for batches. Else the threads are that are busiest,
    if they work at least half of the time: the stage that takes most of it is named, of those whose work they do.

    >>> queue = {"capacity": 4, "waited_seconds": 0.0}
    >>> stage = {"threads": 1, "counts": {}, "busy": 0.0, "queue": queue, "gauges": {}}
    >>> before = {"time": 0.0, "stages": {"pool": stage, "unpacker": stage}}
    >>> waited = {**stage, "busy": 0.9, "queue": {**queue, "waited_seconds": 0.7}}
    >>> after = {"time": 1.0, "stages": {"pool": {**stage, "busy": 0.1}, "unpacker": waited}}
    >>> bottleneck(before, after)
    Bottleneck(kind='stage', stage='unpacker', busy=0.9)
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
    waited = next((stage.waited for stage in reversed(stages) if stage.waited is not None), None)
    if waited is not None and waited < WAITS:
        return Bottleneck("consumer", busiest.name, busiest.busy)
    return Bottleneck("stage" if share[first] >= BUSY else "input", busiest.name, busiest.busy)


class LookWindow:
    """The last looks at a pipeline: it is judged from the oldest of them to the newest.

    A loader that was started again counts from zero, so what was seen before is forgotten then.

    >>> window = LookWindow(looks=2)
    >>> [window.add({"time": time, "stages": {}})["time"] for time in (1.0, 2.0, 3.0, 0.5)]
    [1.0, 1.0, 2.0, 0.5]
    """

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks: deque[Mapping[str, Any]] = deque(maxlen=looks)

    def add(self, look: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add a look; the oldest one, which is itself where there is no other."""
        if self._looks and look["time"] < self._looks[-1]["time"]:
            self._looks.clear()
        self._looks.append(look)
        return self._looks[0]
