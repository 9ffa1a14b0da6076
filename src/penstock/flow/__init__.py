"""Ordered background work: one bounded map over threads, one queue, one set of limits and one kind of metrics.

Example:
    >>> from penstock.flow import OrderedMap, PrefetchLimits
    >>> list(OrderedMap(str, range(3), PrefetchLimits(threads=2)))
    ['0', '1', '2']
"""

from penstock.flow.limits import PrefetchLimits, cores
from penstock.flow.lossy import LossyQueue
from penstock.flow.on_threads import for_each, map_on_threads
from penstock.flow.ordered_map import OrderedMap
from penstock.flow.queue import BlockQueue, QueueClosed

__all__ = [
    "BlockQueue",
    "LossyQueue",
    "OrderedMap",
    "PrefetchLimits",
    "QueueClosed",
    "cores",
    "for_each",
    "map_on_threads",
]
