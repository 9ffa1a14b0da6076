"""Batches of a live pipeline for a `Loader`, and the report of its stages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from penstock.core.columns import Columns
from penstock.core.narrowing import is_mapping
from penstock.core.turns import ForkSafeLock
from penstock.errors import PlanError, StateError
from penstock.flow.look import Bottleneck, StageFigures, bottleneck, figures
from penstock.flow.metrics import StageMetrics
from penstock.loading.batch_source import Batches, Job, State
from penstock.loading.ranks import Ranks
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why, printed

LEAST_SECONDS = 0.2  # of measuring; below, one pause of the system decides the result


class DecodedBatch(Protocol):
    """Arrays of a batch, with the number of the batch."""

    @property
    def index(self) -> int:
        """Number of the batch in the run."""
        ...

    @property
    def arrays(self) -> dict[str, Any]: ...


@runtime_checkable
class TicketedBatch(DecodedBatch, Protocol):
    """Arrays of a batch that has a batch ticket, such as a batch of a replay."""

    @property
    def ticket(self) -> Ticket | None:
        """Ticket of the rows, or None if they have no positions."""
        ...


@runtime_checkable
class TicketReader(Protocol):
    """Pipeline that finds the rows of its batches by their tickets, such as the batches of a replay."""

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return the episodes and rows of a batch."""
        ...


@runtime_checkable
class BatchPipeline(Protocol):
    """Pipeline that makes batches with its own threads, such as `penstock_live.LivePipeline`."""

    @property
    def fingerprint(self) -> str:
        """Digest of the options that decide the order."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether every process that runs the pipeline gets the same batches."""
        ...

    def take(self, timeout: float | None = None) -> DecodedBatch:
        """Return the next batch, which the state still counts as not received. Raises `StopIteration` at the end."""
        ...

    def received(self, index: int) -> None:
        """Count a batch, and all before it, as received."""
        ...

    def metrics(self) -> dict[str, Any]:
        """Return a snapshot of the stages: see `penstock.flow.metrics.Metrics.snapshot`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that were received."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class PipelineSource:
    """Batches of a live pipeline. State `{"batch": n}`: the consumer has the batches with numbers below `n`.

    Batches that were taken from the pipeline wait in `_waiting` until the consumer received them. So an iterator that
    is restarted after an interrupt, and the loop after `Loader.why`, get them again.
    """

    def __init__(self, pipeline: BatchPipeline, ranks: Ranks) -> None:
        if ranks.world > 1 and not pipeline.repeatable:
            raise PlanError(
                f"expected a pipeline with equal batches in all processes for rank {ranks.rank} of {ranks.world}, got "
                "one that follows its files, which each process sees at other times; give each rank its own part, "
                f"ChunkSourceSplitter([1] * {ranks.world}).split(inlet)[{ranks.rank}] or "
                f"Replay(path, ..., index={ranks.rank}, count={ranks.world}), and the Loader rank=0, world=1"
            )
        self.pipeline, self._ranks = pipeline, ranks
        self._waiting: deque[tuple[int, Batch]] = deque()
        self._taking = ForkSafeLock()  # one thread at a time takes, so that batches wait in their order

    @property
    def fingerprint(self) -> str:
        return self.pipeline.fingerprint

    def start(self) -> State:
        """Return the state before the first batch."""
        return {"batch": 0}

    def epoch(self, state: State) -> None:
        """Return None: epochs are not counted."""

    def next_epoch(self, state: State) -> State:
        """Return the same state: a pipeline goes through its data once."""
        return state

    def jobs(self, state: State) -> Iterator[Job]:
        """Yield one job for each batch: first the batches that wait already."""
        for index, batch in list(self._waiting):
            if index >= state["batch"]:
                yield Job(lambda _, index=index, batch=batch: [(batch, {"batch": index + 1})])
        while True:
            yield Job(lambda _: self._next())

    def _next(self) -> Batches:
        taken = self.take()
        return [] if taken is None else [(taken[1], {"batch": taken[0] + 1})]

    def take(self) -> tuple[int, Batch] | None:
        """Take the rows of this rank of the next batch. Return None at the end of the pipeline."""
        with self._taking:
            try:
                decoded = self.pipeline.take()
            except StopIteration:
                return None
            columns = Columns(decoded.arrays)
            samples = columns.n
            if self._ranks.world > 1:
                first, last = (int(edge[0]) for edge in self._ranks.share(np.array(columns.n)))
                columns = columns.take(slice(first, last))
            ticket = decoded.ticket if isinstance(decoded, TicketedBatch) else None
            taken = decoded.index, Batch.of(columns, ticket, self._ranks.weight(columns.n, samples))
            self._waiting.append(taken)
            return taken

    def first(self, state: State) -> Batch | None:
        """Load the first batch from a state on, and leave it to the jobs too. Return None if there is none."""
        batches = next(self.jobs(state)).run()
        return batches[0][0] if batches else None

    def received(self, state: State) -> None:
        """Count the batches before a state as received."""
        while self._waiting and self._waiting[0][0] < state["batch"]:
            index, _ = self._waiting.popleft()
            self.pipeline.received(index)

    def metadata(self, state: State) -> State:
        """Return the state of the pipeline. It has integer arrays."""
        return {"pipeline": self.pipeline.state_dict()}

    def resumed(self, saved: State) -> tuple[PipelineSource, State]:
        if set(saved) != {"pipeline", "batch"} or not is_mapping(saved["pipeline"]):
            raise StateError(f"expected the state of a Loader of a live pipeline, got one with {sorted(saved)}")
        self.pipeline.load_state_dict(saved["pipeline"])
        return self, self.start()

    def explain(self, hand_over: Callable[[Batch], object] | None, batches: int, memory: int) -> LiveExplanation:
        """Take batches, which the loop gets later, and report the stages meanwhile."""
        stage = StageMetrics("hand_over")
        before = self._snapshot(stage)
        samples = 0
        nbytes = 0
        for _ in range(batches):
            if nbytes > memory or (taken := self.take()) is None:
                break
            batch = taken[1]
            if hand_over is not None:
                with stage.work():
                    hand_over(batch)
            stage.add(batches=1, samples=batch.n)
            samples, nbytes = samples + batch.n, nbytes + batch.nbytes
        if samples == 0:
            raise PlanError("expected a live pipeline with batches to measure, got none; it has ended")
        after = self._snapshot(stage)
        seconds = after["time"] - before["time"]
        stages = [each for each in figures(before, after) if each.name != stage.name or hand_over is not None]
        return LiveExplanation(tuple(stages), samples, seconds, bottleneck(before, after))

    def _snapshot(self, stage: StageMetrics) -> dict[str, Any]:
        snapshot = self.pipeline.metrics()
        return {**snapshot, "stages": {**snapshot["stages"], stage.name: stage.snapshot()}}


@dataclass(frozen=True)
class LiveExplanation:
    """Result of `Loader.why` for a live pipeline. `print` shows it as a table.

    Args:
        stages: Stages of the pipeline, from files to batches, while the batches were taken.
        samples: Number of samples that were taken.
        seconds: Time that this took.
        bottleneck: Stage that limits the pipeline, or None if it has no stages.

    Example:
        >>> LiveExplanation((), samples=1000, seconds=2.0, bottleneck=None).delivered
        500.0
    """

    stages: tuple[StageFigures, ...]
    samples: int
    seconds: float
    bottleneck: Bottleneck | None

    @property
    def delivered(self) -> float | None:
        """Samples a second, or None if less than 0.2 s were measured."""
        return self.samples / self.seconds if self.seconds >= LEAST_SECONDS else None

    @property
    def sentence(self) -> str:
        """The bottleneck in words."""
        if self.delivered is None or self.bottleneck is None:
            took = f"{self.samples:,} samples took {1000 * self.seconds:.1f} ms"
            least = f"expected at least {1000 * LEAST_SECONDS:.0f} ms"
            return f"not enough measured yet: {took}, {least}; measure more batches"
        return self.bottleneck.sentence

    def __str__(self) -> str:
        return f"{printed(self)}\n{self.sentence}"

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title="all threads, stage by stage", title_justify="left", caption_justify="left")
        table.add_column("stage")
        for name in ("threads", "busy", "a second", "queue"):
            table.add_column(name, justify="right")
        for stage in self.stages:
            rates = [f"{rate:,.0f} {name}" for name, rate in stage.rates.items() if rate]
            queue = f"{stage.fill} of {stage.capacity}" if stage.capacity else ""
            table.add_row(stage.name, str(stage.threads), f"{stage.busy:.0%}", ", ".join(rates), queue)
        if self.delivered is not None:
            table.caption = f"the whole pipeline: {self.delivered:,.0f} samples/s"
        return table
