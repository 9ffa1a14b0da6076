"""`SampleRatio`: how many samples a learner draws for each step that arrives, as Reverb's rate limiters keep it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.errors import PlanError


@dataclass(frozen=True)
class SampleRatio:
    """Bounds on samples drawn for each step that arrived.

    Nothing is drawn before `min_size` steps have arrived. From then on, the number of drawn samples stays within
    `tolerance` of `samples_per_insert * (arrived - min_size)`: a learner that is ahead waits for the collector, and a
    collector in the same process that is ahead waits for the learner. Collectors in other processes write to a folder
    and do not wait.

    Args:
        samples_per_insert: Samples for each step, above 0. In a store of one-step transitions, 8 means that each
            transition is drawn 8 times on average.
        min_size: Steps before the first sample, at least 1. The default is 1.
        tolerance: Samples by which either side may be ahead. At least one batch, and the samples for one episode.
            The default is `samples_per_insert * min_size`.
        wait: `"block"` waits in `sample` and `write`. `"report"` never waits: `sample` raises before `min_size` steps,
            and `may_sample` and `may_insert` of `Replay.refresh` say who is ahead. Use it where one thread does both.
            The default is `"block"`.
        timeout: Seconds to block before an error. The default is None: no limit.

    Raises:
        PlanError: A number is out of range.

    Example:
        >>> ratio = SampleRatio(2.0, min_size=100)
        >>> ratio.may_sample(arrived=99, drawn=0, n=10), ratio.may_sample(arrived=100, drawn=0, n=10)
        (False, True)
        >>> ratio.may_sample(arrived=100, drawn=200, n=10), ratio.may_insert(arrived=250, drawn=90)
        (False, False)
    """

    samples_per_insert: float
    min_size: int = 1
    tolerance: float | None = None
    wait: Literal["block", "report"] = "block"
    timeout: float | None = None

    def __post_init__(self) -> None:
        if not self.samples_per_insert > 0:
            raise PlanError(f"expected samples_per_insert above 0, got {self.samples_per_insert}")
        if self.min_size < 1:
            raise PlanError(f"expected a min_size of at least 1 step, got {self.min_size}")
        if self.tolerance is not None and self.tolerance < max(1.0, self.samples_per_insert):
            raise PlanError(
                f"expected a tolerance of at least {max(1.0, self.samples_per_insert)} samples, one or those for one "
                f"step, got {self.tolerance}"
            )
        if self.wait not in ("block", "report"):
            raise PlanError(f"expected wait to be 'block' or 'report', got {self.wait!r}")

    @property
    def slack(self) -> float:
        """Samples by which either side may be ahead."""
        return self.samples_per_insert * self.min_size if self.tolerance is None else self.tolerance

    def ahead(self, arrived: int, drawn: int) -> float:
        """Return by how many samples the learner is ahead of its share, negative if it is behind.

        Args:
            arrived: Steps that arrived.
            drawn: Samples that were drawn.
        """
        return drawn - self.samples_per_insert * (arrived - self.min_size)

    def may_sample(self, arrived: int, drawn: int, n: int) -> bool:
        """Return whether `n` more samples may be drawn.

        Args:
            arrived: Steps that arrived.
            drawn: Samples that were drawn.
            n: Samples of the next batch.
        """
        return arrived >= self.min_size and self.ahead(arrived, drawn + n) <= self.slack

    def may_insert(self, arrived: int, drawn: int) -> bool:
        """Return whether another episode may be added.

        Args:
            arrived: Steps that arrived.
            drawn: Samples that were drawn.
        """
        return arrived < self.min_size or self.ahead(arrived, drawn) >= -self.slack


class TurnSignal:
    """Lets threads wait until the learner or a collector has gone on."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._changes = 0  # draws and arrivals

    def tell(self) -> None:
        """Wake the threads that wait."""
        with self._news:
            self._changes += 1
            self._news.notify_all()

    def wait(
        self,
        may: Callable[[], bool],
        timeout: float | None,
        look: float | None,
        what: str,
        progress: Callable[[], str],
    ) -> None:
        """Wait until `may` returns True."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._changes
            if may():
                return
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise PlanError(
                    f"expected the other side to go on within {timeout} s before {what}, with {progress()}; run it in "
                    "another thread or process, or use wait='report'"
                )
            limits = [limit for limit in (left, look) if limit is not None]
            with self._news:
                self._news.wait_for(lambda seen=seen: self._changes != seen, min(limits, default=None))
