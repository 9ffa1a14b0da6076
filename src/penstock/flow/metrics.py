"""Counts and times of the stages of a pipeline, and rates between two snapshots of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

_WORKING = threading.local()  # `stage`: the one whose work this thread does
LOG = logging.getLogger("penstock_live")
EXAMPLES = 100  # failures that are kept by name


class StageMetrics:
    """Counts of one stage. Written once a block, under a lock; read without one.

    `busy` is the time in seconds that all its `threads` together worked, with unfinished work; `counts` are by name,
    failures as `failed.<reason>`; `gauges` are the last values; `queue` returns the figures of the queue after the
    stage; `samples` are statistics of values.
    """

    def __init__(self, name: str, threads: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.threads = threads
        self._clock = clock
        self._busy, self._most = 0.0, 0  # seconds of work that is done; threads that worked at once
        self._begun: dict[int, float] = {}  # when each thread that works now began
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float | str] = {}
        self.samples: dict[str, dict[str, float]] = {}
        self.examples: deque[tuple[str, str, str]] = deque(maxlen=EXAMPLES)
        self.queue: Callable[[], Mapping[str, float]] = dict
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        with self._lock:
            for name, n in counts.items():
                self.counts[name] += n

    def failed(self, reason: str, name: str, message: str, n: int = 1) -> None:
        """Count what failed by its reason, and keep its name and message among the last hundred.

        The log has the first failure of each reason, and another one each time that their number has doubled.
        """
        with self._lock:
            before = self.counts[f"failed.{reason}"]
            self.counts[f"failed.{reason}"] += n
            self.examples.append((name, reason, message))
        if before.bit_length() != (before + n).bit_length():
            LOG.warning("%s: %s failed (%s), the last: %s: %s", self.name, f"{before + n:,}", reason, name, message)

    def sample(self, name: str, value: float) -> None:
        """Add a value to the statistics of its name: `count`, `sum`, `min`, `max` and `latest` since the start."""
        with self._lock:
            summary = self.samples.get(name, {"count": 0, "sum": 0.0, "min": value, "max": value})
            least, most = min(summary["min"], value), max(summary["max"], value)
            count, total = summary["count"] + 1, summary["sum"] + value
            self.samples[name] = {"count": count, "sum": total, "min": least, "max": most, "latest": value}

    @contextmanager
    def work(self) -> Generator[None]:
        """Time a piece of work of this thread.

        Work of another stage within it counts for that one alone: a second of a thread is a second of one stage. So no
        stage is busy for longer than its threads ran.
        """
        outer: StageMetrics | None = getattr(_WORKING, "stage", None)
        if outer is self:
            yield
            return
        if outer is not None:
            outer._pause()
        _WORKING.stage = self
        self._go_on()
        try:
            yield
        finally:
            self._pause()
            _WORKING.stage = outer
            if outer is not None:
                outer._go_on()

    def _go_on(self) -> None:
        with self._lock:
            self._begun[threading.get_ident()] = self._clock()
            self._most = max(self._most, len(self._begun))

    def _pause(self) -> None:
        with self._lock:
            begin = self._begun.pop(threading.get_ident())
            self._busy += self._clock() - begin

    @property
    def busy(self) -> float:
        """Seconds of work so far."""
        with self._lock:
            return self._busy_at(self._clock()) if self._begun else self._busy

    def _busy_at(self, now: float) -> float:
        return self._busy + sum(now - begin for begin in self._begun.values())

    def figures(self) -> tuple[dict[str, int], dict[str, float | str]]:
        return dict(self.counts), dict(self.gauges)

    def snapshot(self) -> dict[str, Any]:
        """Plain values: `threads`, `busy`, `counts`, `gauges`, `queue`, `samples`."""
        return snapshot([self], self._clock)[1][0]


class ConsumerMetrics(StageMetrics):
    """What a consumer received: counts `batches` and `samples`, gauges `waited_seconds` and
    `elapsed_seconds` (sums).

    `received` is called for every batch, so the figures are attributes, which costs half of two calls of `add`.
    """

    batches = received_samples = 0
    waited = elapsed = 0.0

    def received(self, samples: int, waited: float, elapsed: float) -> None:
        """Count a batch, the seconds that the consumer waited for it, and all seconds since the batch before."""
        with self._lock:
            self.batches += 1
            self.received_samples += samples
            self.waited += waited
            self.elapsed += elapsed

    def figures(self) -> tuple[dict[str, int], dict[str, float | str]]:
        """Return the counts and the sums of seconds."""
        counts = {"batches": self.batches, "samples": self.received_samples}
        return counts, {"waited_seconds": self.waited, "elapsed_seconds": self.elapsed}


@contextmanager
def idle() -> Generator[None]:
    """Wait for something in the midst of work: the time does not count for the stage that this thread works for."""
    stage: StageMetrics | None = getattr(_WORKING, "stage", None)
    if stage is None:
        yield
        return
    stage._pause()  # pyright: ignore[reportPrivateUsage]  as a method of the class
    try:
        yield
    finally:
        stage._go_on()  # pyright: ignore[reportPrivateUsage]


def snapshot(stages: Sequence[StageMetrics], clock: Callable[[], float]) -> tuple[float, list[dict[str, Any]]]:
    """The time, and plain values of each of several stages at that time.

    All locks are taken while the clock is read. Read before or after, a stage could seem busier than its threads. They
    are taken in one order, for two threads may look at stages that two pipelines share.
    """
    queues = [dict(stage.queue()) for stage in stages]
    with ExitStack() as locks:
        for _, stage in sorted({id(stage): stage for stage in stages}.items()):
            locks.enter_context(stage._lock)  # pyright: ignore[reportPrivateUsage]  as a method of the class
        now = clock()
        return now, [
            {
                "threads": max(stage.threads, stage._most),  # pyright: ignore[reportPrivateUsage]  several maps may run it
                "busy": stage._busy_at(now),  # pyright: ignore[reportPrivateUsage]
                **dict(zip(("counts", "gauges"), stage.figures(), strict=True)),
                "queue": queue,
                "samples": dict(stage.samples),
            }
            for stage, queue in zip(stages, queues, strict=True)
        ]


class Metrics:
    """The stages of a pipeline, in its order."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.stages: dict[str, StageMetrics] = {}
        self._clock = clock

    def __reduce__(self) -> tuple[type[Metrics], tuple[Callable[[], float]]]:
        return Metrics, (self._clock,)  # a copy counts from zero

    def stage(self, name: str, threads: int = 1) -> StageMetrics:
        """The metrics of one stage, made when first asked for."""
        known = self.stages.get(name)
        return known or self.stages.setdefault(name, StageMetrics(name, threads, self._clock))

    def consumer(self) -> ConsumerMetrics:
        """The metrics of the consumer, stage `consumer`, made when first asked for."""
        consumer = self.stages.setdefault("consumer", ConsumerMetrics("consumer"))
        assert isinstance(consumer, ConsumerMetrics), "no stage has this name"
        return consumer

    def failures(self) -> dict[str, int]:
        """What failed so far, all stages, by reason."""
        total: Counter[str] = Counter()
        for stage in list(self.stages.values()):  # threads add stages
            counts = {name: n for name, n in list(stage.counts.items()) if name.startswith("failed.")}
            total.update({name.removeprefix("failed."): n for name, n in counts.items()})
        return dict(total)

    def examples(self) -> list[tuple[str, str, str]]:
        """Name, reason and message of what failed last."""
        return [example for stage in list(self.stages.values()) for example in list(stage.examples)]

    def snapshot(self) -> dict[str, Any]:
        """Plain values: `time` in seconds (monotonic) and `stages` by name."""
        stages = dict(self.stages)
        now, figures = snapshot(list(stages.values()), self._clock)
        return {"time": now, "stages": dict(zip(stages, figures, strict=True))}


def rates(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What each stage did a second between two snapshots: its counts by name, and `busy`, the share of its threads."""
    spent = max(after["time"] - before["time"], 1e-9)
    nothing: dict[str, Any] = {"busy": 0.0, "counts": {}}
    by_stage: dict[str, dict[str, float]] = {}
    for name, now in after["stages"].items():
        then = before["stages"].get(name, nothing)
        counts = {key: (n - then["counts"].get(key, 0)) / spent for key, n in now["counts"].items()}
        by_stage[name] = {"busy": (now["busy"] - then["busy"]) / spent / now["threads"], **counts}
    return by_stage
