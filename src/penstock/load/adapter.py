"""What the adapters of the frameworks share: a loader whose batches are handed over in another form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from penstock.core.boundary import loading_state
from penstock.load.cursor import Grown, Skippable
from penstock.load.engine import LoaderIterator, LoaderStats
from penstock.load.explain import Explanation
from penstock.load.feed import State
from penstock.load.loader import Loader
from penstock.load.ticket import Batch, Ticket
from penstock.load.why import Why

T = TypeVar("T")


class Adapter(ABC, Generic[T]):
    """A `Loader` whose batches take another form, made `ahead` batches before the consumer asks for them.

    State, tickets and skipped ranges are the loader's: those of the batch that the consumer has, not of one under way.
    """

    def __init__(self, loader: Loader, ahead: int) -> None:
        self.loader, self._ahead = loader, ahead

    @abstractmethod
    def hand_over(self, batch: Batch) -> T:
        """The batch in its other form."""

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> LoaderIterator[T]:
        return self.loader.through(self.hand_over, ahead=self._ahead)

    @property
    def stats(self) -> LoaderStats:
        """As `Loader.stats`."""
        return self.loader.stats

    def state_dict(self) -> State:
        """As `Loader.state_dict`."""
        return self.loader.state_dict()

    @loading_state
    def load_state_dict(self, state: State, grown: Grown = "refuse") -> None:
        """As `Loader.load_state_dict`."""
        self.loader.load_state_dict(state, grown)

    def skip(self, what: Skippable) -> None:
        """As `Loader.skip`."""
        self.loader.skip(what)

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """As `Loader.why`."""
        return self.loader.why(ticket, column)

    def explain(self, batches: int = 64) -> Explanation:
        """As `Loader.explain`, with the hand-over as a stage of its own."""
        return self.loader.explain_through(self.hand_over, batches)
