"""Threads of a test, and of what it started."""

# pyright: basic

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def threads_before() -> set[threading.Thread]:
    """The threads of now, with those that end what an earlier test left."""
    gc.collect()
    return set(threading.enumerate())


def wait_for_others(threads: set[threading.Thread]) -> None:
    """Wait until all other threads have ended, and those that they started."""
    while others := set(threading.enumerate()) - threads:
        for thread in others:
            try:
                thread.join(60)
            except RuntimeError:  # another thread is about to start it
                os.sched_yield()
                continue
            assert not thread.is_alive()


@contextmanager
def taking_turns() -> Iterator[None]:
    """Let threads change turns as often as they can, also inside of functions in C that make Python objects."""

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        for _ in range(50):
            pass

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    gc.callbacks.append(let_others_run)
    try:
        yield
    finally:
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
