"""What all tests of trainers say of the samples that a program took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def joined(batches: Sequence[Sequence[int]]) -> list[int]:
    """The samples of batches, in their order."""
    return [sample for batch in batches for sample in batch]


def global_order(ranks: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """The samples of all ranks, batch after batch. Every rank has as many batches as the others."""
    return [sample for shares in zip(*ranks, strict=True) for share in shares for sample in share]


def check_epochs(order: list[int], samples: int, epochs: int = 2) -> None:
    """Check that each epoch has each sample once, in another order."""
    parts = [order[samples * e : samples * (e + 1)] for e in range(epochs)]
    assert len(order) == samples * epochs
    assert [sorted(part) for part in parts] == [list(range(samples))] * epochs
    assert len({tuple(part) for part in parts}) == epochs


def check_equal(one: dict[str, NDArray[np.float32]], other: dict[str, NDArray[np.float32]], exact: bool = True) -> None:
    """Check that two models have equal parameters, bit for bit or up to rounding."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=0, atol=0 if exact else 1e-6)
