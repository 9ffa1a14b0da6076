"""Checks of a closed episode: finite values, and members of the spaces. They test whole columns."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.ragged import Array, Ragged
from penstock.core.space_columns import spec_leaves
from penstock.core.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from penstock.core.spec import Spec
from penstock.errors import DataError

Verdict = Literal["error", "warn", "keep"]


_FEW = 4096  # elements up to which two comparisons cost less than a reduction along an axis,
_SHORT = 512  # and up to which lists cost less, if few elements of a row have bounds of their own
_RANGES = 8


class RecordingWarning(UserWarning):
    """A recorded value looks wrong. It is issued once for each column and kind."""


class Checks:
    """Check closed episodes for values that are not finite, or outside their space.

    Cost: two passes over the columns, without temporaries for valid data.
    """

    def __init__(self, spec: Spec, nan: Verdict, outside: Verdict) -> None:
        self.nan: Verdict = nan
        self.outside: Verdict = outside
        self._said: set[tuple[str, str]] = set()
        self._leaves = [_leaf(path, space) for path, space in spec_leaves(spec).items()]
        self._leaves.append(_leaf("rewards", Box(np.array(-np.inf), np.array(np.inf), np.dtype(np.float64))))

    def __call__(self, number: int, columns: dict[str, Array]) -> None:
        for leaf in self._leaves:
            values = columns[leaf.path]
            if isinstance(values, Ragged) or not leaf.holds(values):
                self._look(number, leaf, values)

    def _look(self, number: int, leaf: _Leaf, values: Array) -> None:
        if self.nan != "keep" and not isinstance(values, Ragged) and values.dtype.kind in "fc":
            finite = np.isfinite(values)
            if not finite.all():
                self._report(self.nan, number, leaf.path, values, _rows(~finite), "finite")
        if self.outside != "keep":
            inside = leaf.space.contains(values)
            if not inside.all():
                self._report_outside(number, leaf.path, values, ~inside, leaf.space)

    def _report_outside(self, number: int, path: str, values: Array, out: BoolArray, space: Any) -> None:
        if not isinstance(values, Ragged) and values.dtype.kind in "fc":
            out = out & ~_rows(np.isnan(values))  # NaN is the other check's
        if out.any():
            self._report(self.outside, number, path, values, out, f"in {_brief(space)},", "outside")

    def _report(
        self,
        verdict: Verdict,
        number: int,
        path: str,
        values: Array,
        bad: BoolArray,
        what: str,
        kind: str = "nan",
    ) -> None:
        row = int(np.argmax(bad))
        value = values[row : row + 1].strings()[0] if isinstance(values, Ragged) else values[row]
        message = (
            f"expected {what} {path}, got {_brief(value)} - at row {row} of episode {number}; "
            f"{int(bad.sum())} of {len(bad)} rows are so; {kind}='keep' records them unseen"
        )
        if verdict == "error":
            raise DataError(f"{message}, the episode was not saved")
        if (path, kind) not in self._said:
            self._said.add((path, kind))
            warnings.warn(f"{message}; not said again for {path}", RecordingWarning, stacklevel=2)


Range = tuple[slice, Any, Any]  # elements of a flat column, and their bounds


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, its space, and its finite bounds, or None without bounds to compare.

    `ranges` are the bounds that a finite number may miss, or None for too many.
    """

    path: str
    space: Space
    low: Any
    high: Any
    ranges: tuple[Range, ...] | None

    def holds(self, values: AnyArray) -> bool:
        """Whether all rows are certainly finite members, from two passes at most."""
        if self.low is None:
            return False
        if self.ranges is not None and 0 < values.size <= _SHORT:
            return _are_within(values.reshape(-1).tolist(), self.ranges)
        if self.ranges == ():
            return bool(np.isfinite(values).all())
        if values.ndim > 1 and values.size <= _FEW:
            return bool((values >= self.low).all() and (values <= self.high).all())
        least, greatest = np.minimum.reduce(values), np.maximum.reduce(values)  # NaN is passed on, and fails
        if values.ndim == 1:
            return bool(self.low <= least and greatest <= self.high)
        return bool(((least >= self.low) & (greatest <= self.high)).all())


def _are_within(numbers: list[Any], ranges: tuple[Range, ...]) -> bool:
    if not math.isfinite(sum(numbers)):  # a minimum may overlook NaN
        return False
    for part, low, high in ranges:
        chosen = numbers[part]
        if min(chosen) < low or max(chosen) > high:
            return False
    return True


def _leaf(path: str, space: Space) -> _Leaf:
    low, high = _bounds(space)
    ranges = None if low is None else _ranges(low, high)
    if low is not None and np.ndim(low) == 0:
        low, high = low.item(), high.item()
    return _Leaf(path, space, low, high, ranges)


def _ranges(low: AnyArray, high: AnyArray) -> tuple[Range, ...] | None:
    """The bounds of the elements of a row: one range if all are equal, none where the dtype has no other values."""
    bounds = list(zip(low.reshape(-1).tolist(), high.reshape(-1).tolist(), strict=True))
    most = np.finfo(low.dtype).max.item() if low.dtype.kind == "f" else None
    if len(set(bounds)) == 1:
        return () if bounds[0] == (None if most is None else (-most, most)) else ((slice(None), *bounds[0]),)
    own = [
        (slice(i, None, len(bounds)), *each) for i, each in enumerate(bounds) if most is None or each != (-most, most)
    ]
    return tuple(own) if len(own) <= _RANGES else None


def _bounds(space: Space) -> tuple[Any, Any]:
    match space:
        case Box() if space.dtype.kind == "f":
            finite = np.finfo(space.dtype)
            return np.maximum(space.low, finite.min), np.minimum(space.high, finite.max)
        case Box() if space.dtype.kind in "biu":
            return space.low, space.high
        case Discrete():
            return np.array(space.start), np.array(space.start + space.n - 1)
        case MultiDiscrete():
            return np.asarray(space.start), np.asarray(space.start) + (space.nvec - 1)
        case MultiBinary():
            return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
        case _:
            return None, None


def _rows(flags: BoolArray) -> BoolArray:
    return np.logical_or.reduce(flags.reshape(len(flags), -1), axis=1)


def _brief(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:200] + "..."
