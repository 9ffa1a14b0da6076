"""Batches of a loader through a function of the test, some of them ahead of the consumer."""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.loading import Loader, LoaderIterator


def handing_over(loader: Loader[Any], hand_over: Callable[[Any], Any], ahead: int) -> LoaderIterator[Any]:
    """The batches of `loader` after `hand_over`, which is called `ahead` batches early."""
    return LoaderIterator(loader._cursor, loader._limits, hand_over, ahead, loader._metrics)
