"""`BatchSource` and `Job`: work for the threads of a loader, in the order of the batches, with the state of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.files.remote import Wanted
from penstock.loading.ticket import Batch

State = dict[str, Any]
Batches = list[tuple[Batch, State]]
Timed = Callable[[str, Callable[[], Any]], Any]
"""Does the work of a stage, and may measure it."""


def untimed(_: str, work: Callable[[], Any]) -> Any:
    """Do the work of a stage without measuring it."""
    return work()


@dataclass(frozen=True)
class Job:
    """Work for one thread, which results in some batches. No batches end the epoch."""

    work: Callable[[Timed], Iterable[tuple[Batch, State]]]
    nbytes: int = 0
    remote_ranges: Callable[[], list[Wanted]] = list

    def run(self, timed: Timed = untimed) -> Batches:
        """Return the batches, each with the state after the consumer received it."""
        return list(self.work(timed))


class BatchSource(Protocol):
    """Cuts one epoch into jobs, from any state on."""

    @property
    def fingerprint(self) -> str:
        """Digest of data and order."""
        ...

    def start(self) -> State:
        """Return the state before the first batch."""
        ...

    def epoch(self, state: State) -> int | None:
        """Return the epoch that `jobs` yields from a state on, or None if there is none or epochs are not counted."""
        ...

    def next_epoch(self, state: State) -> State:
        """Return the state at the start of the epoch after the last batch before a state."""
        ...

    def jobs(self, state: State) -> Iterator[Job]:
        """Yield the jobs from a state to the end of its epoch."""
        ...

    def first(self, state: State) -> Batch | None:
        """Load the first batch from a state on, and leave it to the jobs too. Return None if there is none."""
        ...

    def received(self, state: State) -> None:
        """Note that the consumer received the batch that led to a state."""
        ...

    def metadata(self, state: State) -> State:
        """Return additional fields of a saved state."""
        ...

    def resumed(self, saved: State) -> tuple[BatchSource, State]:
        """Return the source and the state of a saved state, `{**metadata(state), **state}`."""
        ...
