"""`map_on_threads`: a list of results that several threads compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.flow.limits import PrefetchLimits
from penstock.flow.ordered_map import OrderedMap

T = TypeVar("T")
R = TypeVar("R")

_ALL = 1 << 62  # bytes: the caller keeps all results, so there is nothing to bound


def map_on_threads(
    fn: Callable[[T], R], items: Sequence[T], threads: int | None = None, *, name: str = "penstock-map"
) -> list[R]:
    """Return `fn(item)` for each item, in order, computed by several threads.

    After an error, no further item begins.

    Args:
        fn: Function of one item. Runs in any thread.
        items: The items.
        threads: Most threads. With 1, or for one item, the caller computes. The default None is the number of cores.
        name: Name of the threads.

    Returns:
        The results of all items.

    Raises:
        BaseException: The error of the first item, in their order, that failed.

    Example:
        >>> map_on_threads(len, ["a", "bc", ""], threads=2)
        [1, 2, 0]
    """
    limits = PrefetchLimits(threads, max(len(items), 1), _ALL, len(items))
    if limits.threads < 2:
        return [fn(item) for item in items]
    with OrderedMap(fn, items, limits, name=name) as results:
        return list(results)
