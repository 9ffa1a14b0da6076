"""What the figures of a running pipeline say: which stage holds up the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.live.metrics import rates

FULL = 0.75  # of the last queue: whoever reads it is slower than all stages
BUSY = 0.5  # of its threads' time: less, and no stage is the limit


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
        if self.kind == "input":
            return f"no stage is the bottleneck ({self.stage} is busiest, {self.busy:.0%}): all wait for input"
        return f"{self.stage} is the bottleneck: busy {self.busy * 100:.0f} % of the time"


def bottleneck(before: Mapping[str, Any], after: Mapping[str, Any]) -> Bottleneck | None:
    """What limits a pipeline, from two snapshots (`penstock.live.metrics.Metrics.snapshot`); None without stages.

    The consumer, where the queue behind the last stage is nearly full at both looks. Else the stage whose threads are
    busiest, if they work at least half of the time.

    >>> stage = {"threads": 1, "counts": {}, "busy": 0.0, "queue": {"fill": 0, "capacity": 4}}
    >>> before = {"time": 0.0, "stages": {"pool": stage, "unpacker": stage}}
    >>> after = {"time": 1.0, "stages": {"pool": {**stage, "busy": 0.1}, "unpacker": {**stage, "busy": 0.9}}}
    >>> bottleneck(before, after)
    Bottleneck(kind='stage', stage='unpacker', busy=0.9)
    """
    busy = {name: rate["busy"] for name, rate in rates(before, after).items()}
    if not busy:
        return None
    busiest = max(busy, key=lambda name: busy[name])
    queued = [name for name, stage in after["stages"].items() if stage["queue"].get("capacity")]
    if queued and all(_fill(look, queued[-1]) >= FULL for look in (before, after)):
        return Bottleneck("consumer", busiest, busy[busiest])
    return Bottleneck("stage" if busy[busiest] >= BUSY else "input", busiest, busy[busiest])


def _fill(look: Mapping[str, Any], name: str) -> float:
    """How full the queue behind a stage is."""
    queue = look["stages"].get(name, {}).get("queue", {})
    return queue.get("fill", 0) / queue["capacity"] if queue.get("capacity") else 0.0
