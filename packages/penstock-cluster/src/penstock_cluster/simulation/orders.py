"""`Order`: the orders of samples that a simulation compares."""

from __future__ import annotations

from penstock.data.map_dataset import MapDataset

Order = tuple[int, int] | None
"""Block and pool of `shuffle`, or None: a full shuffle."""
GIVEN: Order = (0, 0)
"""The order that the dataset has already."""


def in_order(dataset: MapDataset, order: Order, seed: int) -> MapDataset:
    """Return the samples in an order."""
    if order is None:
        return dataset.shuffle(seed)
    return dataset if order == GIVEN else dataset.shuffle(seed, block=order[0], pool=order[1])


def default_orders(samples: int, batch_size: int, hosts: int) -> list[Order]:
    """Return a full shuffle, and shuffles by blocks that fit an epoch."""
    pooled = [(64, 256), (256, 64), (1024, 16), (4096, 8)]
    single = sorted({max(batch_size // many, 1) for many in (hosts, max(hosts // 8, 1)) if batch_size // many >= 8})
    return [None, *(each for each in pooled if each[0] * each[1] < samples), *((size, 1) for size in single[:1])]


def order_name(order: Order) -> str:
    """Return the call that makes an order."""
    if order is None:
        return "shuffle()"
    return "as it is" if order == GIVEN else f"shuffle(block={order[0]}, pool={order[1]})"
