"""A clock that tests move: retries wait in no time."""

# pyright: basic

from __future__ import annotations

import threading
import warnings

import pytest

from penstock.errors import RemoteWarning
from penstock.locations import retry


class Clock:
    """Takes the place of the module `time` where requests are repeated."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.waits.append(seconds)
            self.now += seconds

    def monotonic(self) -> float:
        return self.now


def without_waiting(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let retries wait by a clock of their own, which is returned, and without a word."""
    warnings.filterwarnings("ignore", category=RemoteWarning)
    clock = Clock()
    monkeypatch.setattr(retry, "time", clock)
    return clock
