"""Warnings about settings of a configuration that have no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock_chess.lczero.config import QueueConfig, ShufflingChunkPoolConfig
from penstock_chess.lczero.graph import Branch, Feed

GAMMA = ShufflingChunkPoolConfig().hanse_sampling_gamma
CAPACITY = QueueConfig().queue_capacity


def without_effect(branches: Sequence[Branch], queues: Mapping[str, Sequence[QueueConfig]]) -> list[str]:
    """Return a warning for each setting without effect: here, or, as in the original, without another field."""
    settings = [setting for branch in branches for feed in branch.feeds for setting in _of_feed(feed)]
    tensors = {branch.names["tensor_generator"] for branch in branches}  # their capacity says how many batches wait
    others = {name: outputs for name, outputs in queues.items() if name not in tensors}
    sized = [name for name, outputs in others.items() if any(queue.queue_capacity != CAPACITY for queue in outputs)]
    bounded = f"queue_capacity of {sized}, as what waits behind these stages is bounded in bytes"
    return [*dict.fromkeys(settings), *([bounded] if sized else [])]


def _of_feed(feed: Feed) -> list[str]:
    pool = feed.pool
    unpacker = feed.unpacker
    settings = list[str]()
    if unpacker.position_sampling is not None and unpacker.position_count is None:
        settings.append(f"position_sampling of {feed.names['chunk_unpacker']!r}, without position_count")
    if not isinstance(pool, ShufflingChunkPoolConfig):
        return settings
    name = feed.names["shuffling_chunk_pool"]
    if not pool.hanse_sampling_threshold and pool.position_sampling is not None:
        settings.append(f"position_sampling of {name!r}, without hanse_sampling_threshold")
    if not pool.hanse_sampling_threshold and pool.hanse_sampling_gamma != GAMMA:
        settings.append(f"hanse_sampling_gamma of {name!r}, without hanse_sampling_threshold")
    if pool.position_cache_size and pool.cachehit_output is None:
        settings.append(f"position_cache_size of {name!r}, without cachehit_output")
    return settings
