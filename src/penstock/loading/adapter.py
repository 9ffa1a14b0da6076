"""`Adapter`: base class of loaders that convert batches for a framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from penstock.core.boundary import loading_state
from penstock.data.plan_picture import PlanPicture
from penstock.loading.batch_source import State
from penstock.loading.cursor import Changed, Grown, Skippable
from penstock.loading.engine import LoaderIterator, LoaderStats
from penstock.loading.explain import Explanation
from penstock.loading.loader import Loader
from penstock.loading.pipeline_source import LiveExplanation
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why

T = TypeVar("T")


class Adapter(ABC, Generic[T]):
    """A `Loader` whose batches are converted `ahead` batches before the consumer asks for them.

    State, tickets and skipped ranges count the batches that the consumer has received.

    Args:
        loader: Loads the batches.
        ahead: Number of batches to convert in advance.
    """

    def __init__(self, loader: Loader, ahead: int) -> None:
        self.loader, self._ahead = loader, ahead

    @abstractmethod
    def hand_over(self, batch: Batch) -> T:
        """Convert a batch.

        Args:
            batch: Batch of the loader.
        """

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> LoaderIterator[T]:
        return self.loader.through(self.hand_over, ahead=self._ahead)

    def peek(self) -> T:
        """Return the first batch of the next loop, which still gets it, as `Loader.peek` does.

        Raises:
            PlanError: There are no more batches.
        """
        return self.hand_over(self.loader.peek())

    def set_epoch(self, epoch: int) -> None:
        """Begin the next loop at the start of an epoch, as `Loader.set_epoch` does.

        Args:
            epoch: Number of the epoch, 0 or more.

        Raises:
            PlanError: There is no such epoch.
            StateError: A state of another epoch was just loaded, which the call would throw away.
        """
        self.loader.set_epoch(epoch)

    @property
    def stats(self) -> LoaderStats:
        """Counts and times, as in `Loader.stats`."""
        return self.loader.stats

    def metrics(self) -> dict[str, Any]:
        """Return counts and times of all stages, as `Loader.metrics` does."""
        return self.loader.metrics()

    def state_dict(self) -> State:
        """Return the position of the consumer, as `Loader.state_dict` does."""
        return self.loader.state_dict()

    @loading_state
    def load_state_dict(self, state: State, grown: Grown = "refuse", changed: Changed = "refuse") -> None:
        """Continue from a saved state, as `Loader.load_state_dict` does.

        Args:
            state: Output of `state_dict`.
            grown: What to do if episodes were appended since: `"refuse"`, `"finish_epoch"` or `"next_epoch"`. The
                default is `"refuse"`.
            changed: What to do if the state belongs to another mix: `"refuse"`, or `"continue"` with the next sample of
                each part. The default is `"refuse"`.

        Raises:
            StateError: The state belongs to another dataset, plan or version.
        """
        self.loader.load_state_dict(state, grown, changed)

    def skip(self, what: Skippable) -> None:
        """Leave samples out of the following batches, as `Loader.skip` does.

        Args:
            what: A batch ticket, or positions as a pair `(lo, hi)` or a `range`.

        Raises:
            StateError: The ticket belongs to another plan.
            PlanError: The dataset is not a `MapDataset`, or the range is impossible.
        """
        self.loader.skip(what)

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return the episodes and rows of a batch, as `Loader.why` does.

        Args:
            ticket: Batch ticket of any rank.
            column: Column whose rows to list. The default is the widest range of steps.

        Raises:
            StateError: The ticket belongs to another plan.
        """
        return self.loader.why(ticket, column)

    def show(self, batches: int = 16, *, position: int | None = None) -> PlanPicture:
        """Show what the loader will serve, as `Loader.show` does.

        Args:
            batches: Most batches to show, at least 1. The default is 16.
            position: First position, 0 or more. The default is None: the position of the loader.

        Raises:
            PlanError: The dataset is not a `MapDataset`, there are no batches, or a number is out of range.
        """
        return self.loader.show(batches, position=position)

    def explain(self, batches: int = 64) -> Explanation | LiveExplanation:
        """Measure every stage, as `Loader.explain` does, with the conversion as one more stage.

        Args:
            batches: Number of batches to measure. The default is 64.
        """
        return self.loader.explain_through(self.hand_over, batches)
