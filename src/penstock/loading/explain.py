"""Time of each stage of a loader, compared with the memory bandwidth of the machine."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.columns import Columns
from penstock.core.narrowing import is_list, is_tuple
from penstock.errors import PlanError
from penstock.flow.limits import PrefetchLimits, cores
from penstock.flow.metrics import Metrics
from penstock.kernels.rows import RowMap
from penstock.loading.cursor import Cursor
from penstock.loading.engine import LoaderIterator, LoaderStats, timed_by
from penstock.loading.ticket import Batch
from penstock.loading.why import printed

COPIED = 32 << 20  # bytes of one copy: larger than caches, as jobs are
GATHERED = 128 << 20  # bytes that rows are drawn from at random
ROWS = 1 << 16  # rows drawn, at most
REPEATS = 5


@dataclass(frozen=True)
class Roofline:
    """Bytes a second on one thread."""

    memcpy: float
    gather: float


def measure_roofline(row_bytes: int) -> Roofline:
    """Measure the memory bandwidth. Cost: 200 MB and some tenths of a second."""
    source, out = np.ones(COPIED, np.uint8), np.empty(COPIED, np.uint8)
    memcpy = COPIED / _best(lambda: np.copyto(out, source))
    return Roofline(memcpy, _gather(max(1, min(row_bytes, COPIED)), out))


def _gather(row_bytes: int, out: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> float:
    table = np.ones((GATHERED // row_bytes, row_bytes), np.uint8)
    n = min(COPIED // row_bytes, ROWS)
    rows = RowMap.of(table)
    start = np.random.default_rng(0).integers(0, len(table), n)
    one = np.ones(n, np.int64)
    sample_rows = np.arange(n)
    room = out[: n * row_bytes]
    return len(room) / _best(lambda: rows.gather(start, one, sample_rows, room))


def _best(work: Callable[[], object]) -> float:
    """Seconds of the fastest call, after one that is not counted."""
    work()
    return min(_seconds(work) for _ in range(REPEATS))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


Clock = Callable[[], float]

SMALL_WAIT = 0.05  # a consumer that waits less is not delayed
CUT = "cut"  # slices and tickets: where nothing is mapped, no bytes are touched
WARM = 3  # jobs that run twice, so that their memory is allocated before measuring
LEAST_SECONDS = 0.2  # of measuring; below, one pause of the system decides the result
LEAST_JOBS = 8  # jobs end at different times: over so many, the one that is under way counts for little
MOST_JOBS = 10_000  # after so many, measuring ends
TOO_LITTLE = "not enough measured yet"
ADVICE = {
    "map": "the functions given to map() cost the most; do more in one NumPy call, or on the device",
    "hand over": "larger batches would help, or a device that takes them faster",
}
FULL_SPEED = 0.6  # of memcpy or gather: a stage that is as fast is bound by memory


@dataclass(frozen=True)
class Stage:
    """Time of one stage on one thread."""

    name: str
    seconds: float
    samples: int
    nbytes: int

    @property
    def rate(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def speed(self) -> float:
        """Bytes a second, or 0 for a stage that moves none."""
        return self.nbytes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Explanation:
    """Result of `Loader.why` without a ticket. `print` shows it as a table.

    Args:
        stages: Times of the stages on one thread, in order.
        roofline: Memory bandwidth of this machine, measured in the same call.
        delivered: Samples a second of the whole loader with a consumer that does nothing. None if the measurement took
            less than 0.2 s or fewer than 8 jobs.
        threads: Most threads of the loader.
        cores: Cores that the process may use.
        jobs: Jobs in flight at the end.
        waiting_share: Fraction of the time that the real consumer has waited so far. None if too little was measured.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.zeros((1000, 8))}, lengths=[1000]).steps()
        >>> explanation = data.loader(batch_size=100, threads=1).why(batches=8)
        >>> explanation.bottleneck.name in {stage.name for stage in explanation.stages}
        True
    """

    stages: tuple[Stage, ...]
    roofline: Roofline
    delivered: float | None
    threads: int
    cores: int
    jobs: int
    waiting_share: float | None

    @property
    def bottleneck(self) -> Stage:
        """The slowest stage."""
        return max(self.stages, key=lambda stage: stage.seconds)

    @property
    def sentence(self) -> str:
        """The bottleneck, its distance from the bandwidth of the machine, and what would help."""
        stage = self.bottleneck
        if self._seconds < LEAST_SECONDS:
            took = f"{stage.samples:,} samples took {1000 * self._seconds:.1f} ms"
            return f"{TOO_LITTLE}: {took}, expected at least {1000 * LEAST_SECONDS:.0f} ms; measure more batches"
        share = stage.seconds / self._seconds
        copy, gather = stage.speed / self.roofline.memcpy, stage.speed / self.roofline.gather
        speed = f", at {copy:.0%} of memcpy and {gather:.0%} of a gather" if stage.speed else ""
        return f"{stage.name}: {share:.0%} of the time{speed}; {self._advice(stage, max(copy, gather))}"

    def _advice(self, stage: Stage, part: float) -> str:
        if self.waiting_share is not None and self.waiting_share < SMALL_WAIT:
            return "the consumer hardly waits, so the loader holds nothing up"
        if stage.name in ADVICE:
            return ADVICE[stage.name]
        if part >= FULL_SPEED:
            return "this is what memory gives; fewer or smaller columns would help"
        if self.jobs < self.threads:
            return "more prefetch or memory would let more threads work"
        if self.threads < self.cores:
            return "more threads would help" if self.threads > 1 else "threads would help"
        return "all cores are at work; fewer or smaller columns would help"

    @property
    def _seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    def __str__(self) -> str:
        return f"{printed(self)}\n{self.sentence}"

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title="one thread, stage by stage", title_justify="left", caption_justify="left")
        table.add_column("stage")
        for name in ("samples/s", "GB/s", "of memcpy", "of gather", "of the time"):
            table.add_column(name, justify="right")
        for stage in self.stages:
            table.add_row(stage.name, *self._cells(stage))
        table.add_section()
        for name, speed in (("memcpy", self.roofline.memcpy), ("gather at random", self.roofline.gather)):
            table.add_row(name, "", f"{speed / 1e9:.2f}", "", "", "")
        waits = TOO_LITTLE if self.waiting_share is None else f"{self.waiting_share:.0%} of the time"
        delivered = TOO_LITTLE if self.delivered is None else f"{self.delivered:,.0f} samples/s"
        table.caption = f"all stages on up to {self.threads} threads: {delivered}; consumer waits: {waits}"
        return table

    def _cells(self, stage: Stage) -> tuple[str, ...]:
        speed, roof = stage.speed, self.roofline
        return (
            f"{stage.rate:,.0f}",
            f"{speed / 1e9:.2f}" if speed else "",
            f"{speed / roof.memcpy:.0%}" if speed else "",
            f"{speed / roof.gather:.0%}" if speed else "",
            f"{stage.seconds / self._seconds:.0%}" if self._seconds else "",
        )


def explain(
    cursor: Cursor,
    limits: PrefetchLimits,
    stats: LoaderStats,
    batches: int,
    hand_over: Callable[[Batch], object] | None,
    clock: Clock = time.perf_counter,
) -> Explanation:
    """Measure the next batches of a cursor, stage by stage and all together, without moving it.

    Small batches are measured for at least `LEAST_SECONDS`, over several epochs if needed.
    """
    if batches < 1:
        raise PlanError(f"expected at least one batch to measure, got {batches}")
    after, metrics = copy.copy(cursor), Metrics(clock)
    _stage_by_stage(after, batches, metrics, hand_over)
    stages = tuple(
        Stage(name, each.busy, each.counts["samples"], each.counts["nbytes"]) for name, each in metrics.stages.items()
    )
    if not stages or stages[0].samples == 0:
        raise PlanError("expected a loader with samples to give, got none; check the dataset's filters")
    delivered, width = _together(after, copy.copy(limits), batches, hand_over, clock)
    measured = stats.jobs >= LEAST_JOBS and stats.elapsed >= LEAST_SECONDS
    waiting = stats.waiting_share if measured else None
    roofline = measure_roofline(max(stage.nbytes // stage.samples for stage in stages))
    return Explanation(stages, roofline, delivered, max(limits.threads, 1), cores(), width, waiting)


def _nbytes(result: object) -> int:
    """Bytes of a stage's result: columns, or batches with their states."""
    if isinstance(result, Columns):
        return result.nbytes
    if is_list(result):
        return sum(_nbytes(part[0] if is_tuple(part) else part) for part in result)
    return 0


def _enough(seconds: float, jobs: int, least_jobs: int) -> bool:
    return jobs >= least_jobs and (seconds >= LEAST_SECONDS or jobs >= MOST_JOBS)


def _stage_by_stage(
    cursor: Cursor, batches: int, metrics: Metrics, hand_over: Callable[[Batch], object] | None
) -> None:
    """Do the jobs of these batches in this thread, epoch by epoch."""
    timed = timed_by(metrics)

    def measured(name: str, work: Callable[[], Any]) -> Any:
        result = timed(name, work)
        metrics.stage(name).add(nbytes=0 if name == CUT else _nbytes(result))
        return result

    done = jobs = 0
    while True:
        place, samples = cursor.place(), 0
        for job in place.source.jobs(place.state):
            if jobs < WARM:
                job.run()
            given = job.run(measured)
            if not given:
                break
            for batch, _ in given:
                if hand_over is not None:
                    measured("hand over", lambda batch=batch: (hand_over(batch), batch)[1])
            samples += (count := sum(batch.n for batch, _ in given))
            for stage in metrics.stages.values():
                stage.add(samples=count)
            cursor.move(place, given[-1][1])
            done, jobs = done + len(given), jobs + 1
            seconds = sum(stage.busy for stage in metrics.stages.values())
            if done >= batches and _enough(seconds, jobs, WARM):
                return
        cursor.ended(place.state, samples)
        if not samples:
            return


def _together(
    cursor: Cursor, limits: PrefetchLimits, batches: int, hand_over: Callable[[Batch], object] | None, clock: Clock
) -> tuple[float | None, int]:
    """Samples a second of the whole loader, None if too little was measured; and its jobs in flight at the end."""
    metrics = Metrics()
    first = LoaderStats()
    begin = None
    with closing(_endless(cursor, limits, metrics, hand_over or _nothing)) as given:
        for _ in given:
            stats = LoaderStats.of(metrics)
            if begin is None:  # until threads have started and memory is allocated
                if stats.batches >= batches // 2 and stats.jobs > limits.width:
                    begin, first = clock(), stats
                continue
            seconds, jobs = clock() - begin, stats.jobs - first.jobs
            if stats.batches - first.batches >= batches - batches // 2 and _enough(
                seconds, jobs, max(LEAST_JOBS, 2 * limits.width)
            ):
                rate = (stats.samples - first.samples) / seconds if seconds >= LEAST_SECONDS else None
                return rate, limits.width
    return None, limits.width


def _endless(
    cursor: Cursor, limits: PrefetchLimits, metrics: Metrics, hand_over: Callable[[Batch], Any]
) -> Generator[Any]:
    """Yield the batches of epoch after epoch, until one is empty."""
    before = -1
    while (batches := LoaderStats.of(metrics).batches) > before:
        before = batches
        with closing(LoaderIterator(cursor, limits, hand_over, 1, metrics)) as iterator:
            yield from iterator


def _nothing(batch: Batch) -> Batch:
    return batch
