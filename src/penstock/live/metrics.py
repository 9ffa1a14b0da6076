"""What a pipeline counts while it runs, and rates from two looks at it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

LOG = logging.getLogger("penstock.live")
EXAMPLES = 100  # failures that are kept by name


class StageMetrics:
    """Counts of one stage. Written once a block, under a lock; read without one.

    `busy` are seconds of work of all its `threads` together; `counts` are by name, failures as `failed.<reason>`;
    `gauges` are the last values; `queue` gives the figures of the queue behind it; `samples` are statistics of values.

    >>> stage = StageMetrics("loader", threads=2)
    >>> stage.add(chunks=3)
    >>> stage.failed("checksum", "a.gz#0", "expected 1, got 2")
    >>> stage.snapshot()["counts"]
    {'chunks': 3, 'failed.checksum': 1}
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self.name, self.threads = name, threads
        self.busy = 0.0
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float | str] = {}
        self.samples: dict[str, dict[str, float]] = {}
        self.examples: deque[tuple[str, str, str]] = deque(maxlen=EXAMPLES)
        self.queue: Callable[[], Mapping[str, int]] = dict
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        """Add to counts."""
        with self._lock:
            for name, n in counts.items():
                self.counts[name] += n

    def failed(self, reason: str, name: str, message: str, n: int = 1) -> None:
        """Count what failed by its reason, and keep its name and message among the last hundred.

        The log has the first of each reason, and one more whenever there are twice as many.
        """
        with self._lock:
            before = self.counts[f"failed.{reason}"]
            self.counts[f"failed.{reason}"] += n
            self.examples.append((name, reason, message))
        if before.bit_length() != (before + n).bit_length():
            LOG.warning("%s: %s failed (%s), the last: %s: %s", self.name, f"{before + n:,}", reason, name, message)

    def sample(self, name: str, value: float) -> None:
        """Add a value to the statistics of its name: `count`, `sum`, `min`, `max` and `latest` since the start.

        >>> stage = StageMetrics("pool")
        >>> stage.sample("weight", 3.0)
        >>> stage.sample("weight", 1.0)
        >>> stage.snapshot()["samples"]
        {'weight': {'count': 2, 'sum': 4.0, 'min': 1.0, 'max': 3.0, 'latest': 1.0}}
        """
        with self._lock:
            held = self.samples.get(name, {"count": 0, "sum": 0.0, "min": value, "max": value})
            least, most = min(held["min"], value), max(held["max"], value)
            count, total = held["count"] + 1, held["sum"] + value
            self.samples[name] = {"count": count, "sum": total, "min": least, "max": most, "latest": value}

    @contextmanager
    def work(self) -> Generator[None]:
        """Time a piece of work."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            with self._lock:
                self.busy += spent

    def snapshot(self) -> dict[str, Any]:
        """Plain values: `threads`, `busy`, `counts`, `gauges`, `queue`, `samples`."""
        parts: dict[str, Any] = {"counts": dict(self.counts), "gauges": dict(self.gauges), "queue": dict(self.queue())}
        parts["samples"] = dict(self.samples)
        return {"threads": self.threads, "busy": self.busy, **parts}


class Metrics:
    """The stages of a pipeline, in its order.

    >>> metrics = Metrics()
    >>> metrics.stage("pool").add(draws=2)
    >>> metrics.snapshot()["stages"]["pool"]["counts"]
    {'draws': 2}
    """

    def __init__(self) -> None:
        self.stages: dict[str, StageMetrics] = {}

    def stage(self, name: str, threads: int = 1) -> StageMetrics:
        """The metrics of one stage, made when first asked for."""
        return self.stages.setdefault(name, StageMetrics(name, threads))

    def failures(self) -> dict[str, int]:
        """What failed so far, all stages, by reason."""
        total: Counter[str] = Counter()
        for stage in self.stages.values():
            found = {name: n for name, n in list(stage.counts.items()) if name.startswith("failed.")}
            total.update({name.removeprefix("failed."): n for name, n in found.items()})
        return dict(total)

    def examples(self) -> list[tuple[str, str, str]]:
        """Name, reason and message of what failed last."""
        return [example for stage in self.stages.values() for example in list(stage.examples)]

    def snapshot(self) -> dict[str, Any]:
        """Plain values: `time` in seconds (monotonic) and `stages` by name."""
        return {"time": time.monotonic(), "stages": {name: stage.snapshot() for name, stage in self.stages.items()}}


def rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What each stage did a second between two snapshots: its counts by name, and `busy`, the share of its threads.

    >>> stage = {"threads": 2, "counts": {"chunks": 10}, "busy": 1.0}
    >>> later = {"threads": 2, "counts": {"chunks": 30}, "busy": 3.0}
    >>> rates({"time": 0.0, "stages": {"loader": stage}}, {"time": 4.0, "stages": {"loader": later}})
    {'loader': {'busy': 0.25, 'chunks': 5.0}}
    """
    spent = max(after["time"] - before["time"], 1e-9)
    nothing = {"busy": 0.0, "counts": {}}
    found: dict[str, dict[str, float]] = {}
    for name, now in after["stages"].items():
        then = before["stages"].get(name, nothing)
        counts = {key: (n - then["counts"].get(key, 0)) / spent for key, n in now["counts"].items()}
        found[name] = {"busy": (now["busy"] - then["busy"]) / spent / now["threads"], **counts}
    return found
