"""Try again what failed for a reason that may pass: waits grow twofold from one try to the next, with seeded jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.locations.objects import TransientError

R = TypeVar("R")


@dataclass(frozen=True)
class Retry:
    """How often and when requests are repeated.

    Args:
        tries: Requests at most. The default is 6.
        first: Seconds before the second request. The default is 0.1. Each further wait is twice as long.
        longest: Seconds of a wait at most. The default is 10.
        asked: Seconds of a wait at most where the server says when to ask again (`Retry-After`). The default is 60.
        seed: Seed of the jitter: each wait is between half of its length and all of it. The default is 0.
        wait: Function that waits some seconds. The default is `time.sleep`.

    Example:
        >>> waits = []
        >>> Retry(tries=3, wait=waits.append)(lambda: 1), waits
        (1, [])
    """

    tries: int = 6
    first: float = 0.1
    longest: float = 10.0
    asked: float = 60.0
    seed: int = 0
    wait: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __call__(self, request: Callable[[], R]) -> R:
        """Return the result of the first try that succeeds.

        Raises:
            TransientError: All tries failed; the error of the last.
        """
        jitter: random.Random | None = None
        for number in range(self.tries - 1):
            try:
                return request()
            except TransientError as error:
                jitter = jitter or random.Random(self.seed)
                grown = min(self.first * 2**number, self.longest) * (0.5 + jitter.random() / 2)
                self.wait(max(grown, min(error.after, self.asked)))
        return request()
