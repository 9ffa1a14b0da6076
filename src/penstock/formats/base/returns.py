"""Returns of episodes: the sums of their rewards, by the one name that filters, checks and the viewer have for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.formats.base.source import Source

RETURN = "return"
BLOCK = 1 << 20  # rewards are read so many rows at a time


def has_returns(spec: Spec) -> bool:
    """Whether every step has one reward."""
    field = spec.fields.get("rewards")
    return field is not None and not field.ragged and not field.shape and field.align == "step"


def returns_of(source: Source) -> FloatArray | None:
    """`[E]` sum of the rewards of every episode, or None if there is no column of one reward a step.

    Cost: reads the rewards once, a block of rows at a time.
    """
    if not has_returns(source.spec):
        return None
    returns = np.zeros(len(source))
    for lo, rewards in _reward_blocks(source):
        episode = np.searchsorted(source.offsets, np.arange(lo, lo + len(rewards)), side="right") - 1
        returns += np.bincount(episode, rewards, len(source))
    return returns


def _reward_blocks(source: Source) -> Iterator[tuple[int, FloatArray]]:
    first, end = source.extent
    for lo in range(first, end, BLOCK):
        selection = Selection.consecutive(lo, min(lo + BLOCK, end))
        yield lo, np.asarray(source.read(["rewards"], selection)["rewards"], np.float64).ravel()
