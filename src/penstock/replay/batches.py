"""`ReplayBatches`: endless batches of a replay for a loop or a `Loader`, alone or mixed with an offline dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from penstock.core.boundary import loading_state
from penstock.core.columns import Columns
from penstock.core.ragged import Array
from penstock.data.loadable import Loadable
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError
from penstock.flow.metrics import Metrics
from penstock.loading.skips import Skips
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why, why
from penstock.plan.schedule import Schedule
from penstock.replay.draw import REMEMBERED, Draw
from penstock.replay.offline import OfflineRows, OfflineSamples, checked_share
from penstock.replay.prioritized import PrioritizedSampler
from penstock.replay.samplers import ReplaySampler
from penstock.replay.saved import packed, unpacked
from penstock.replay.why import with_offline


class DrawSource(Protocol):
    """What `ReplayBatches` needs of a `Replay`, whose methods of these names say more."""

    @property
    def fingerprint(self) -> str:
        """Digest of the arguments."""
        ...

    @property
    def sampler(self) -> ReplaySampler:
        """How samples are drawn."""
        ...

    @property
    def offline(self) -> OfflineSamples | None:
        """Dataset whose samples the replay draws too."""
        ...

    def draw(self, n: int | None = None, *, max_tokens: int | None = None) -> tuple[Draw, Batch]:
        """Draw a batch, and read its rows."""
        ...

    def batch(self, draw: Draw, flat: dict[str, Any]) -> Batch:
        """Return the batch of a draw whose rows were read."""
        ...

    def remember(self, draw: Draw) -> None:
        """Let `why` explain a draw."""
        ...

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return where the rows of a batch are from."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        ...


@dataclass(frozen=True, eq=False)
class ReplayBatch:
    """Arrays of a batch, with the number of the batch and the ticket of its rows from the replay."""

    index: int
    arrays: dict[str, Array]
    ticket: Ticket | None


@dataclass(frozen=True)
class _Taken:
    """A batch that was drawn: its number, the samples before it, and its part from the replay."""

    index: int
    position: int
    draw: Draw | None
    online: Batch | None

    def to_state(self) -> dict[str, Any]:
        """Return plain values and arrays. The rows are in it, because they may have left memory."""
        state: dict[str, Any] = {"index": self.index, "position": self.position, "draw": None}
        if self.draw is not None and self.online is not None:
            state["draw"] = self.draw.to_state()
            state["rows"] = {name: packed(value) for name, value in self.online.flat.items()}
        return state


class ReplayBatches(Loadable):
    """Endless batches of a replay. `Replay.batches` makes it.

    A batch is drawn when it is taken. A loader that takes batches before the consumer asks for them
    draws them with the priorities of that moment. `state_dict` has the draws of batches that were taken and not
    received, with their rows, so a resumed run gets equal batches.

    Args:
        replay: The replay.
        batch_size: Samples of a batch, at least 1.
        offline: Dataset with the outputs of the replay, or None.
        share: Share of each batch that is from the replay, if there is an offline dataset.
        max_tokens: Tokens of a batch in place of its size, or None.

    Raises:
        PlanError: The batch size is below 1, the share is impossible, or the offline dataset is empty.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[5])
        >>> replay = penstock.Replay(None, 100)
        >>> replay.write(data[0])
        0
        >>> batches = replay.batches(4, offline=data.steps().shuffle(seed=0), share=0.5)
        >>> next(iter(batches))["source"].tolist()
        [0, 0, 1, 1]
    """

    def __init__(
        self,
        replay: DrawSource,
        batch_size: int | None,
        offline: MapDataset | None = None,
        share: float | Fraction = 0.5,
        *,
        max_tokens: int | None = None,
    ) -> None:
        if (batch_size is None) == (max_tokens is None) or (max_tokens is not None and offline is not None):
            raise PlanError(
                f"expected a batch size, or max_tokens without an offline dataset, got {batch_size} and {max_tokens}"
            )
        if batch_size is not None and batch_size < 1:
            raise PlanError(f"expected a batch of at least 1 sample, got {batch_size}")
        if offline is not None and len(offline) == 0:
            raise PlanError(f"expected an offline dataset with samples, got an empty one: {offline.plan.why_empty()}")
        if offline is not None and replay.offline is not None:
            raise PlanError("expected one offline dataset, got one here and one of the replay")
        self.replay = replay
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.offline = None if offline is None else OfflineRows(planned_samples(offline))
        online = Fraction(1) if offline is None else checked_share(share)
        self._schedule = Schedule.of([online, 1 - online])
        self._index = self._position = 0  # of the next batch: its number, and the samples before it
        self._taken: deque[_Taken] = deque()
        self._again: deque[_Taken] = deque()  # batches of a loaded state that come first
        self._positions: dict[int, int] = {}  # of recent batches: samples before it, by the number of its draw
        self._metrics = Metrics()

    @property
    def fingerprint(self) -> str:
        """Digest of the arguments of the replay, the batch size and the offline dataset."""
        offline = None if self.offline is None else self.offline.samples.fingerprint
        size = self.batch_size if self.max_tokens is None else f"{self.max_tokens} tokens"
        return f"{self.replay.fingerprint} {size} {offline} {self._schedule.shares}"

    @property
    def repeatable(self) -> bool:
        """False: each process sees episodes at other times."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "batches of a Replay cannot be pickled or copied: they are drawn in this process; pickle the Replay, and "
            "call batches() on the copy, or load state_dict() into batches of such a replay"
        )

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches without end. Each counts as received when it is yielded."""
        while True:
            taken = self.take()
            self.received(taken.index)
            yield Batch.of(Columns.of_flat(taken.arrays, len(next(iter(taken.arrays.values())))), taken.ticket)

    def take(self, timeout: float | None = None) -> ReplayBatch:
        """Draw the next batch, which the state still counts as not received.

        Args:
            timeout: Not used: `SampleRatio` says how long to wait for steps.

        Raises:
            PlanError: There is nothing to draw.
        """
        if self._again:
            taken = self._again.popleft()
        else:
            with self._metrics.stage("draw").work():
                draw, online = self._draw()
            taken = _Taken(self._index, self._position, draw, online)
            self._index += 1
            self._position += self.batch_size or (0 if draw is None else len(draw.anchors))
        online = taken.online
        self._taken.append(taken)
        if self.offline is not None and taken.draw is not None:
            self._note_position(taken.draw.number, taken.position)
        if self.offline is None and online is not None:
            arrays = online.flat
        else:
            with self._metrics.stage("offline").work():
                arrays = self._with_offline(online, taken.position)
        return ReplayBatch(taken.index, arrays, None if online is None else online.ticket)

    def received(self, index: int) -> None:
        """Count a batch, and all before it, as received.

        Args:
            index: Number of the batch.
        """
        while self._taken and self._taken[0].index <= index:
            draw = self._taken.popleft().draw
            samples = self.batch_size or (0 if draw is None else len(draw.anchors))
            self._metrics.stage("replay").add(batches=1, samples=samples)

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return where the rows of a recent batch are from: see `Replay.why`. Rows of the offline dataset come last.

        Args:
            ticket: Ticket of a batch.
            column: Output whose rows to list. The default is the widest range of steps.

        Raises:
            StateError: The ticket is unknown.
            PlanError: The column is unknown.
        """
        parsed = Ticket.parse(ticket)
        online = self.replay.why(parsed, column)
        position = self._positions.get(parsed.position)
        if self.offline is None or position is None:
            return online
        _, other = self._counts(position)
        first = int(self._schedule.counts(position)[1])
        samples = self.offline.samples
        lines = why(samples, Ticket(first, other, samples.plan.fingerprint[:8]), Skips(), column)
        return with_offline(online, lines, float(self._schedule.shares[0]))

    def metrics(self) -> dict[str, Any]:
        """Return counts of batches and samples: see `penstock.flow.metrics.Metrics.snapshot`."""
        return self._metrics.snapshot()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the replay, and the draws of batches that were taken and not received."""
        pending = [taken.to_state() for taken in (*self._taken, *self._again)]
        state = {"fingerprint": self.fingerprint, "index": self._index, "position": self._position, "pending": pending}
        return {**state, "replay": self.replay.state_dict()}

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. See `Replay.load_state_dict`.

        Args:
            state: Output of `state_dict`.

        Raises:
            StateError: The state belongs to other arguments, or to other episodes.
        """
        if state["fingerprint"] != self.fingerprint:
            raise StateError("expected the state of batches with the same replay, size and offline dataset, got others")
        self.replay.load_state_dict(state["replay"])
        self._index, self._position = int(state["index"]), int(state["position"])
        self._taken.clear()
        self._again.clear()
        for entry in state["pending"]:
            draw, online = None, None
            if entry["draw"] is not None:
                draw = Draw.of_state(entry["draw"])
                self.replay.remember(draw)
                online = self.replay.batch(draw, {name: unpacked(value) for name, value in entry["rows"].items()})
            self._again.append(_Taken(int(entry["index"]), int(entry["position"]), draw, online))

    def _draw(self) -> tuple[Draw, Batch] | tuple[None, None]:
        if self.max_tokens is not None:
            return self.replay.draw(max_tokens=self.max_tokens)
        own, _ = self._counts(self._position)
        return self.replay.draw(own) if own else (None, None)

    def _note_position(self, number: int, position: int) -> None:
        """Note the samples before a batch, for `why`. Batches whose draws the replay has forgotten leave."""
        self._positions[number] = position
        while number - next(iter(self._positions)) > REMEMBERED:
            del self._positions[next(iter(self._positions))]

    def _counts(self, position: int) -> tuple[int, int]:
        """Samples of the batch at a position from the replay, and from the offline dataset."""
        counts = self._schedule.counts(position + (self.batch_size or 0)) - self._schedule.counts(position)
        return int(counts[0]), int(counts[1])

    def _with_offline(self, online: Batch | None, position: int) -> dict[str, Array]:
        own = None if online is None else online.flat
        if self.offline is None:
            return {} if own is None else dict(own)
        _, other = self._counts(position)
        first = int(self._schedule.counts(position)[1])
        weighted = isinstance(self.replay.sampler, PrioritizedSampler)
        constant = {"weights": np.ones(1, np.float32)} if weighted else {}
        return self.offline.joined(own, np.arange(first, first + other), constant)
