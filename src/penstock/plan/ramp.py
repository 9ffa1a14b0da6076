"""Ramps: numbers that change at given positions of a run, such as the size of batches or the length of packs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from penstock.core.narrowing import is_integer
from penstock.errors import PlanError

Ramp = int | Sequence[tuple[int, int]]


def as_ramp(name: str, value: Any) -> int | tuple[tuple[int, int], ...]:
    """Return a ramp as a tuple of pairs, or as one number if it never changes."""
    try:
        pairs = [(0, value)] if is_integer(value) else [tuple(pair) for pair in value]
    except TypeError:
        pairs = []
    good = all(len(pair) == 2 and all(is_integer(n) for n in pair) and pair[1] >= 1 for pair in pairs)
    if not good or not pairs or pairs[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(pairs)):
        raise PlanError(
            f"expected {name} as a number of at least 1, or pairs of ascending positions from 0 and such numbers, "
            f"got {value!r}"
        )
    return int(pairs[0][1]) if len(pairs) == 1 else tuple((int(step), int(n)) for step, n in pairs)


def ramp_at(ramp: Ramp, position: int) -> int:
    if isinstance(ramp, int):
        return ramp
    return ramp[bisect_right([begin for begin, _ in ramp], position) - 1][1]
