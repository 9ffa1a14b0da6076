"""`PrefetchLimits`: how many threads work ahead, on how many items and bytes."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.errors import PlanError

MEMORY = 1 << 30  # bytes ahead by default, or a quarter of what is free, if that is less
LEAST_MEMORY = 1 << 24


class PrefetchLimits:
    """Limits for work ahead of a consumer: at most `width` items and `memory` bytes, but always one item.

    If neither `threads` nor `items` is given, `width` starts at 1 and grows by one each time that the consumer waits,
    up to `most`. Otherwise `width` is `items`.
    """

    __slots__ = ("memory", "most", "threads", "width")

    def __init__(
        self,
        threads: int | None = None,
        items: int | None = None,
        memory: int | None = None,
        limit: int | None = None,
    ) -> None:
        if threads is not None and threads < 0:
            raise PlanError(f"expected threads >= 0, got {threads}; 0 works in the caller")
        if items is not None and items < 1:
            raise PlanError(f"expected at least one item of prefetch, got {items}")
        if memory is not None and memory < 1:
            raise PlanError(f"expected memory of at least one byte, got {memory}")
        wanted = cores() if threads is None else threads
        self.threads = wanted if limit is None else min(wanted, limit)
        self.memory = min(MEMORY, max(free_memory() // 4, LEAST_MEMORY)) if memory is None else memory
        self.most = items or self.threads + 1
        self.width = 1 if threads is None and items is None else self.most

    def waited(self) -> None:
        """Count that the consumer asked before the next result was ready."""
        self.width = min(self.width + 1, self.most)

    def has_items(self, items: int) -> bool:
        """Return whether one more item may start."""
        return items == 0 or items < self.width


def cores() -> int:
    """Return the number of cores that this process may use, by its CPU affinity where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Return the free memory in bytes, as the system estimates it, or all memory if it does not."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        if "MemAvailable" in lines:
            return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
