"""Checks of a closed episode: finite values, and members of the spaces. They test whole columns."""

from __future__ import annotations

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
from penstock.kernels.bounds import DTYPES, are_within

Verdict = Literal["error", "warn", "keep"]


class RecordingWarning(UserWarning):
    """A recorded value looks wrong. It is issued once for each column and kind."""


class Checks:
    """Check closed episodes for values that are not finite, or outside their space.

    Cost: one pass over the columns, without temporaries, for valid data.
    """

    def __init__(self, spec: Spec, nan: Verdict, outside: Verdict) -> None:
        self.nan: Verdict = nan
        self.outside: Verdict = outside
        self._said: set[tuple[str, str]] = set()
        rewards = Box(np.array(-np.inf), np.array(np.inf), np.dtype(np.float64))
        spaces = {**spec_leaves(spec), "rewards": rewards}
        self._leaves = [_Leaf(path, space, _bounds(space, spec[path].dtype)) for path, space in spaces.items()]

    def __call__(self, number: int, columns: dict[str, Array]) -> None:
        for leaf in self._leaves:
            values = columns[leaf.path]
            bounds = leaf.bounds
            if bounds is None or isinstance(values, Ragged) or not are_within(values, bounds[0], bounds[1]):
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


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, its space, and the least and greatest finite values of the elements of a row; None: ask the space."""

    path: str
    space: Space
    bounds: tuple[AnyArray, AnyArray] | None


def _bounds(space: Space, dtype: np.dtype[Any]) -> tuple[AnyArray, AnyArray] | None:
    """Bounds of the elements of a row: one if all are alike."""
    low, high = _limits(space)
    if low is None or dtype not in DTYPES:
        return None
    low, high = (np.array(bound, dtype).reshape(-1) for bound in (low, high))
    alike = len(low) > 0 and (low == low[0]).all() and (high == high[0]).all()
    return (low[:1], high[:1]) if alike else (low, high)


def _limits(space: Space) -> tuple[Any, Any]:
    match space:
        case Box() if space.dtype.kind == "f":
            finite = np.finfo(space.dtype)
            return np.maximum(space.low, finite.min), np.minimum(space.high, finite.max)
        case Box() if space.dtype.kind in "iu":
            return space.low, space.high
        case Discrete() if space.dtype.kind in "iu" and space.start + space.n - 1 <= np.iinfo(space.dtype).max:
            return space.start, space.start + space.n - 1
        case MultiDiscrete():
            return space.start, np.asarray(space.start) + (space.nvec - 1)
        case MultiBinary():
            return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
        case _:
            return None, None


def _rows(flags: BoolArray) -> BoolArray:
    return np.logical_or.reduce(flags.reshape(len(flags), -1), axis=1)


def _brief(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:200] + "..."
