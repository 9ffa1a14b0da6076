"""`LiveWatch`: figures of a running loader over the last minutes, for the live page.

A thread reads the figures once a second, as `penstock top` does, and keeps the last `LOOKS`. The bottleneck is judged
over the last minute. A loader that was started again counts from zero, so its earlier figures are forgotten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.svg import ChartLine, chart, color
from penstock.errors import FormatError
from penstock.flow.look import CONSUMER, StageFigures, bottleneck, figures
from penstock_live.account import account
from penstock_live.stage_table import COLUMNS, LookWindow, rows

Snapshot = Mapping[str, Any]
Look = Callable[[], Snapshot]
INTERVAL = 1.0  # seconds between two looks
LOOKS = 900  # a quarter of an hour
JUDGED = 60.0  # seconds over which stages are judged
POINTS = 120  # of a chart
HEIGHT = 110.0  # pixels of a chart
DELIVERED = ("consumer", "tensor_generator", "loader")  # stages that count batches, the one to show first
BAR = COLUMNS.index("")  # column of `rows` with a bar of characters, which the page draws


class LiveWatch:
    """Figures of a running loader over time."""

    def __init__(self, look: Look, name: str) -> None:
        self._look = look
        self._name = name
        self._lock = threading.Lock()
        self._window = LookWindow(LOOKS)
        self._problem = "no figures yet"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-look", daemon=True)

    def start(self) -> None:
        """Begin to look once a second."""
        self._thread.start()

    def close(self) -> None:
        """End looking."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self.take_look()
        while not self._ended.wait(INTERVAL):
            self.take_look()

    def take_look(self) -> None:
        """Read the figures now. What goes wrong is part of the next answer."""
        try:
            taken = self._look()
        except (OSError, FormatError) as error:
            with self._lock:
                self._problem = str(error)
            return
        with self._lock:
            self._problem = ""
            self._window.add(taken)

    def figures(self, width: float = 760) -> dict[str, Any]:
        """Return the stages over the last minute, the bottleneck, the account of live data, and charts over time."""
        with self._lock:
            problem, looks = self._problem, self._window.looks
            before = self._window.since(JUDGED) if looks else None
        if before is None or len(looks) < 2:
            return {"name": self._name, "problem": problem, "stages": []}
        after = looks[-1]
        limiting = bottleneck(before, after)
        table = [[cell for i, cell in enumerate(row) if i != BAR] for row in rows(before, after)]
        charts = _charts(looks, min(max(width, 200.0), 2000.0))
        return {
            "name": self._name,
            "problem": problem,
            "seconds": after["time"] - before["time"],
            "kept": after["time"] - looks[0]["time"],
            "heads": [name for i, name in enumerate(COLUMNS) if i != BAR],
            "stages": table,
            "busy": [stage.busy for stage in figures(before, after)],
            "bottleneck": None if limiting is None else limiting.sentence,
            "advice": "" if limiting is None else limiting.advice,
            "account": account(after),
            "memory": after.get("memory"),
            "charts": charts,
        }


def _charts(looks: Sequence[Snapshot], width: float) -> list[tuple[str, str]]:
    """Title and drawing of each chart: batches a second, busy stages, waiting, queues and memory."""
    every = max(-(-(len(looks) - 1) // POINTS), 1)
    chosen = looks[(len(looks) - 1) % every :: every]  # with the last one
    steps = [figures(before, after) for before, after in pairwise(chosen)]
    names = [stage.name for stage in steps[-1]]
    ends = (f"{looks[-1]['time'] - looks[0]['time']:,.0f} s ago", "now")

    def over_time(value: Callable[[StageFigures], float | None], of: Sequence[str]) -> list[ChartLine]:
        lines: list[ChartLine] = []
        for name in of:
            points = [next((value(stage) for stage in step if stage.name == name), None) for step in steps]
            numbers = np.array([np.nan if point is None else point for point in points], np.float64)
            if np.isfinite(numbers).any():
                lines.append(ChartLine(name, numbers, color(names.index(name))))
        return lines

    rate = [name for name in DELIVERED if name in names][:1]
    threads = [name for name in names if name != CONSUMER]
    memory = np.array([look.get("memory", np.nan) for look in chosen[1:]], np.float64) / 1e9
    listed: list[tuple[str, list[ChartLine], str, float | None]] = [
        ("Batches a second", over_time(lambda stage: stage.rates.get("batches"), rate), "", None),
        ("Busy share of each stage's threads", over_time(lambda stage: stage.busy, threads), "%", 1.0),
        ("Time that somebody waits for a result", over_time(lambda stage: stage.waited, names), "%", 1.0),
        ("Fill of the queues", over_time(_fill, names), "%", 1.0),
        ("Memory of the process", [ChartLine("", memory, color(0))] if np.isfinite(memory).any() else [], "GB", None),
    ]
    return [
        (title, chart(lines, ends, width, HEIGHT, title, low=0.0, high=high, unit=unit).html)
        for title, lines, unit, high in listed
        if lines
    ]


def _fill(stage: StageFigures) -> float | None:
    return stage.fill / stage.capacity if stage.capacity else None
