"""Figures of a running pipeline's stages over its last looks, as a table for people and as JSON."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from penstock.flow.look import StageFigures, bottleneck, figures
from penstock_live.account import account, chunks_in_words

COLUMNS = ("stage", "threads", "busy", "", "a second", "queue", "so far")
GAUGES = ("chunks_current", "chunk_sources", "chunks_since_anchor", "frames", "reshuffles", "watching")
BAR = 10
LOOKS = 10  # that a pipeline is judged over


def rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row of text for each stage, in the order of `COLUMNS`."""
    return [_row(stage) for stage in figures(before, after)]


def _row(stage: StageFigures) -> tuple[str, ...]:
    filled = round(stage.busy * BAR)
    flows = [f"{rate:,.0f} {name}" for name, rate in stage.rates.items() if not name.startswith("failed.") and rate]
    queue = f"{stage.fill} of {stage.capacity}" if stage.capacity else ""
    dropped = f", {stage.drops:,} dropped" if stage.drops else ""
    reasons = {name.removeprefix("failed."): n for name, n in stage.totals.items() if name.startswith("failed.")}
    failed = [f"{n:,} failed: {reason}" for reason, n in reasons.items()]
    gauges = [f"{name} {_number(stage.gauges[name])}" for name in GAUGES if name in stage.gauges]
    bar = "█" * filled + "·" * (BAR - filled)
    about = ", ".join([*gauges, *failed])
    return stage.name, str(stage.threads), f"{stage.busy * 100:.0f} %", bar, ", ".join(flows), queue + dropped, about


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}"


def table(before: Mapping[str, Any], after: Mapping[str, Any], title: str = "") -> Table:
    """Return the rows as a table; the caption names the bottleneck and counts the chunks by outcome."""
    grid = Table(*COLUMNS, title=title or None, caption=sentences(before, after) or None)
    for row in rows(before, after):
        grid.add_row(*row)
    return grid


def sentences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a line that names the bottleneck, and one that counts the chunks by outcome."""
    limiting = bottleneck(before, after)
    return "\n".join(text for text in ("" if limiting is None else limiting.sentence, chunks_in_words(after)) if text)


def as_json(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values: seconds, batches and frames a second, chunks by outcome, figures of each stage, and the
    bottleneck.
    """
    limiting = bottleneck(before, after)
    stages = {stage.name: stage for stage in figures(before, after)}
    last: Mapping[str, float] = stages["tensor_generator"].rates if "tensor_generator" in stages else {}
    return {
        "seconds": after["time"] - before["time"],
        "batches_per_s": last.get("batches", 0.0),
        "frames_per_s": last.get("frames", 0.0),
        "account": account(after),
        "bottleneck": None
        if limiting is None
        else {"kind": limiting.kind, "stage": limiting.stage, "says": limiting.sentence},
        "stages": {name: _plain(stage) for name, stage in stages.items()},
    }


def _plain(stage: StageFigures) -> dict[str, Any]:
    queue = {"fill": stage.fill, "capacity": stage.capacity, "drops": stage.drops}
    counts = {"rates": dict(stage.rates), "totals": dict(stage.totals), "gauges": dict(stage.gauges)}
    return {"threads": stage.threads, "busy": stage.busy, **counts, "queue": queue}


class LookWindow:
    """The last looks at a pipeline: it is judged from the oldest of them to the newest.

    A loader that was started again counts from zero, so what was seen before is forgotten then.
    """

    def __init__(self, looks: int = LOOKS) -> None:
        self._looks: deque[Mapping[str, Any]] = deque(maxlen=looks)

    def add(self, look: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add a look; the oldest one, which is itself where there is no other."""
        if self._looks and look["time"] < self._looks[-1]["time"]:
            self._looks.clear()
        self._looks.append(look)
        return self._looks[0]

    @property
    def looks(self) -> tuple[Mapping[str, Any], ...]:
        """The looks, the oldest first."""
        return tuple(self._looks)

    def since(self, seconds: float) -> Mapping[str, Any]:
        """Return the oldest look of the last `seconds`. There must be one."""
        return next(look for look in self._looks if look["time"] >= self._looks[-1]["time"] - seconds)
