"""Threads of a test, and of what it started."""

# pyright: basic

from __future__ import annotations

import gc
import os
import threading


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
