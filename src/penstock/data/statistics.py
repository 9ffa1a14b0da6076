"""`Statistics`: counts, moments, extremes, quantiles and histograms of columns, which can be merged and saved.

All figures are derived from whole numbers: counts, exact fixed-point sums, and histograms with fixed buckets (see
`penstock.kernels.statistics`). Merging adds them, so the result depends neither on the order nor on the grouping.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import FloatArray, IntArray
from penstock.core.bins import equal_bins
from penstock.core.html import page, table
from penstock.core.narrowing import is_mapping
from penstock.core.text import counted
from penstock.errors import FormatError, PlanError, SpecError, suggestion
from penstock.files.replace import atomic_path
from penstock.kernels.statistics import LOWEST

QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
"""The quantiles in JSON and tables."""
_VERSION = 1
_LARGEST_DRAWN = 1e300
"""Larger values leave no room for the margins of a picture."""
_NARROW = 1 / 128
"""Least spread, as a share of the value furthest from zero, whose histogram says something: two buckets."""


@dataclass(frozen=True, eq=False)
class ColumnStatistics:
    """Statistics of one column over its rows.

    Every figure has the shape of a row, so that it broadcasts against rows. Pictures have figures for each channel:
    `[1, 1, C]` or `[C, 1, 1]`. Rows of more than 4,096 numbers have figures of all numbers together, `[1, ..., 1]`.

    Args:
        shape: Shape of the figures.
        count: `[*shape]` int64 number of finite values.
        nans: `[*shape]` int64 number of NaN, which no other figure contains.
        infinities: `[*shape]` int64 number of infinities, which no other figure contains.
        min: `[*shape]` float64 least value, NaN without values.
        max: `[*shape]` float64 greatest value, NaN without values.
        sums: Sum of the values of each element in C order, in units of `2**-1120`.
        squares: Sum of the squares, in the same units.
        buckets: For each element, or for all together: `[b]` float64 values, increasing, and `[b]` int64 counts.

    Example:
        >>> import penstock
        >>> rewards = penstock.statistics(penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[3]))["rewards"]
        >>> float(rewards.mean), float(rewards.quantile(0.5)), rewards.max.tolist()
        (2.3333333333333335, 2.0, 4.0)
    """

    shape: tuple[int, ...]
    count: IntArray
    nans: IntArray
    infinities: IntArray
    min: FloatArray
    max: FloatArray
    sums: tuple[int, ...] = field(repr=False)
    squares: tuple[int, ...] = field(repr=False)
    buckets: tuple[tuple[FloatArray, IntArray], ...] = field(repr=False)

    @property
    def mean(self) -> FloatArray:
        """`[*shape]` float64 mean of the finite values, NaN without values.

        Up to 1,024 rows are summed in float64, and these sums without rounding. The error is at most 2^-43 of the mean
        distance of values from the first of these rows. The mean of equal values is their value.
        """
        return self._each(lambda total, _, n: total / (n << -LOWEST)).clip(self.min, self.max)

    @property
    def std(self) -> FloatArray:
        """`[*shape]` float64 standard deviation of the population (divided by `count`), NaN without values.

        It is 0 exactly where the least and the greatest value are equal.
        """
        # No deviation is above half of the range, or below that of one pair of extremes: this bounds rounding.
        half = self.max / 2 - self.min / 2
        return self._each(_deviation).clip(half * np.sqrt(2 / np.maximum(self.count, 2)), half)

    def quantile(self, q: npt.ArrayLike) -> FloatArray:
        """Return values below which a share of the values is.

        Args:
            q: Shares within 0 and 1, of any shape.

        Returns:
            `[*q.shape, *shape]` float64: the least value `v` such that at least `q` of the finite values are at most
            `v`, with a relative error of at most 1/256. It is exact for values of at most 8 significant bits, such as
            whole numbers up to 256, and for the least and greatest value. Sizes below 1.2e-38 have an absolute error of
            at most 1e-40 instead, and all sizes above 3.4e38 count as 3.4e38, within the least and greatest value.

        Raises:
            PlanError: A share is outside 0 and 1.
        """
        shares = np.asarray(q, np.float64)
        if np.any(~((shares >= 0) & (shares <= 1))):
            raise PlanError(f"expected quantiles within 0 and 1, got {shares.tolist()}")
        estimates = np.full((shares.size, self.count.size), np.nan)
        for i, (values, counts, low, high) in enumerate(self._histograms()):
            if len(values):
                ends = np.cumsum(counts)
                # Rank in sorted order, from 1. The product of a share and a count may be just above a whole number.
                rank = np.clip(np.ceil(shares.ravel() * ends[-1] * (1 - 2**-50)), 1, ends[-1])
                estimates[:, i] = values[np.searchsorted(ends, rank)].clip(low, high)
                estimates[rank == 1, i] = low
                estimates[rank == ends[-1], i] = high
        return estimates.reshape((*shares.shape, *self.shape))

    def histogram(self, bins: int = 20) -> tuple[IntArray, FloatArray]:
        """Return counts of values in bins of equal width, from the least to the greatest value.

        Args:
            bins: Number of bins, at least 1. The default is 20.

        Returns:
            `[*shape, bins]` int64 counts, and `[*shape, bins + 1]` float64 edges. Equal values are all in the last bin,
            whose edges are that value. A value counts where its bucket is, up to 1/256 of the value away, so values
            that differ by less than that have no histogram to speak of: see `why_no_histogram`. Zeros without values.

        Raises:
            PlanError: `bins` is below 1.
        """
        if bins < 1:
            raise PlanError(f"expected at least 1 bin, got {bins}")
        counts = np.zeros((self.count.size, bins), np.int64)
        edges = np.zeros((self.count.size, bins + 1))
        for i, (values, each, low, high) in enumerate(self._histograms()):
            if len(values):
                counts[i], edges[i] = equal_bins(values.clip(low, high), bins, low, high, each)
        return counts.reshape((*self.shape, bins)), edges.reshape((*self.shape, bins + 1))

    def why_no_histogram(self, place: tuple[int, ...]) -> str:
        """Return a few words on why the histogram of an element has no shape to show, or an empty string.

        Args:
            place: Index into the figures.

        Example:
            >>> import penstock
            >>> column = penstock.statistics(penstock.from_arrays({"x": [[1e9, 3.0], [1e9 + 1, 3.0]]}, [2]))["x"]
            >>> column.why_no_histogram((0,)), column.why_no_histogram((1,))
            ('nearly constant', 'constant')
        """
        low, high = float(self.min[place]), float(self.max[place])
        if not self.count[place]:
            return "no values"
        if low == high:
            return "constant"
        if max(abs(low), abs(high)) > _LARGEST_DRAWN:
            return "too large to draw"
        return "nearly constant" if high / 2 - low / 2 < max(abs(low), abs(high)) / 2 * _NARROW else ""

    def _histograms(self) -> Iterator[tuple[FloatArray, IntArray, float, float]]:
        """Yield the buckets of each element, and their least and greatest value."""
        if len(self.buckets) == self.count.size:
            ends = zip(self.min.ravel().tolist(), self.max.ravel().tolist(), strict=True)
            yield from ((*bucket, *end) for bucket, end in zip(self.buckets, ends, strict=True))
        else:
            yield from [
                (*self.buckets[0], float(np.fmin.reduce(self.min.ravel())), float(np.fmax.reduce(self.max.ravel())))
            ] * self.count.size

    def __or__(self, other: ColumnStatistics) -> ColumnStatistics:
        if self.shape != other.shape or len(self.buckets) != len(other.buckets):
            raise SpecError(f"expected statistics of equal shapes to merge, got {self.shape} and {other.shape}")
        return ColumnStatistics(
            self.shape,
            self.count + other.count,
            self.nans + other.nans,
            self.infinities + other.infinities,
            np.fmin(self.min, other.min),
            np.fmax(self.max, other.max),
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            tuple(a + b for a, b in zip(self.squares, other.squares, strict=True)),
            tuple(_merged(a, b) for a, b in zip(self.buckets, other.buckets, strict=True)),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnStatistics) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.shape, self.sums, self.squares))

    def _each(self, figure: Callable[[int, int, int], float]) -> FloatArray:
        each = zip(self.sums, self.squares, self.count.ravel().tolist(), strict=True)
        return np.array([figure(a, b, n) if n else math.nan for a, b, n in each], np.float64).reshape(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON. `mean`, `std` and `quantiles` are for readers; `from_json` ignores them."""
        return {
            "shape": list(self.shape),
            "count": self.count.tolist(),
            "nans": self.nans.tolist(),
            "infinities": self.infinities.tolist(),
            "min": _finite(self.min),
            "max": _finite(self.max),
            "mean": _finite(self.mean),
            "std": _finite(self.std),
            "quantiles": {str(q): _finite(self.quantile(q)) for q in QUANTILES},
            "sums": [hex(total) for total in self.sums],
            "squares": [hex(total) for total in self.squares],
            "buckets": [[values.tolist(), counts.tolist()] for values, counts in self.buckets],
        }

    def to_arrays(self) -> dict[str, Any]:
        """Return what `from_json` needs, as plain values and arrays: a fraction of the time of `to_json`."""
        figures = {name: getattr(self, name) for name in ("count", "nans", "infinities", "min", "max")}
        totals = {name: [hex(total) for total in getattr(self, name)] for name in ("sums", "squares")}
        return {"shape": list(self.shape), **figures, **totals, "buckets": [list(each) for each in self.buckets]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnStatistics:
        """Return the statistics of `to_json` or `to_arrays`.

        Args:
            data: Mapping with the entries that these write.

        Raises:
            FormatError: An entry is missing or has another type or shape.
        """
        try:
            shape = tuple(int(n) for n in data["shape"])
            count, nans, infinities = (
                np.array(data[name], np.int64).reshape(shape) for name in ("count", "nans", "infinities")
            )
            least, greatest = (np.array(data[name], np.float64).reshape(shape) for name in ("min", "max"))
            sums, squares = (tuple(int(total, 16) for total in data[name]) for name in ("sums", "squares"))
            buckets = tuple((np.array(v, np.float64), np.array(n, np.int64)) for v, n in data["buckets"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"expected statistics of a column, got {str(data)[:200]}: {error!r}") from error
        size = count.size
        odd = any(v.shape != n.shape or v.ndim != 1 or np.any(np.diff(v) <= 0) or np.any(n < 0) for v, n in buckets)
        if odd or len(sums) != size or len(squares) != size or len(buckets) not in (1, size):
            raise FormatError(f"expected the figures of {size} elements with increasing buckets, got other ones")
        return cls(shape, count, nans, infinities, least, greatest, sums, squares, buckets)


class Statistics(Mapping[str, ColumnStatistics]):
    """Statistics of columns by path, and of groups of rows.

    Args:
        columns: Statistics of each column.
        groups: Statistics of each group, by its label. The default is empty.
        skipped: Columns without statistics, and why.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> whole, first, second = (penstock.statistics(part) for part in (data, data[[0]], data[[1]]))
        >>> first | second == whole
        True
    """

    def __init__(
        self,
        columns: Mapping[str, ColumnStatistics],
        groups: Mapping[Any, Statistics] | None = None,
        skipped: Mapping[str, str] | None = None,
    ) -> None:
        self._columns = dict(columns)
        self.groups = dict(groups or {})
        self.skipped = dict(skipped or {})

    def __getitem__(self, path: str) -> ColumnStatistics:
        try:
            return self._columns[path]
        except KeyError as error:
            why = self.skipped.get(path) or f"the columns are {list(self)}{suggestion(path, self)}"
            raise KeyError(f"no statistics of {path!r}: {why}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        groups = f", groups={list(self.groups)}" if self.groups else ""
        return f"Statistics({list(self)}{groups})"

    def _repr_html_(self) -> str:
        rows = [
            (path, *(np.array2string(a, precision=4, threshold=6) for a in (c.count, c.mean, c.std, c.min, c.max)))
            for path, c in self.items()
        ]
        headers = ("column", "count", "mean", "std", "min", "max")
        return page("Statistics", counted(len(self), "column"), table(headers, rows))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return self._columns == other._columns and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Statistics) -> Statistics:
        """Return the statistics of the rows of both, for columns that either has, and groups by label."""
        if not isinstance(other, Statistics):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        return Statistics(
            _union(self._columns, other._columns), _union(self.groups, other.groups), self.skipped | other.skipped
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "penstock_statistics": _VERSION,
            "columns": {path: column.to_json() for path, column in self.items()},
            "groups": [[label, group.to_json()] for label, group in self.groups.items()],
            "skipped": self.skipped,
        }

    def to_arrays(self) -> dict[str, Any]:
        """Return plain values and arrays, for processes of one machine or cluster."""
        return {
            "penstock_statistics": _VERSION,
            "columns": {path: column.to_arrays() for path, column in self.items()},
            "groups": [[label, group.to_arrays()] for label, group in self.groups.items()],
            "skipped": self.skipped,
        }

    @classmethod
    def from_json(cls, data: Any) -> Statistics:
        """Return the statistics of `to_json` or `to_arrays`.

        Args:
            data: The values.

        Raises:
            FormatError: They are something else, or of another version.
        """
        if not is_mapping(data) or data.get("penstock_statistics") != _VERSION:
            raise FormatError(f"expected statistics of version {_VERSION}, got {str(data)[:80]}")
        try:
            columns = {str(path): ColumnStatistics.from_json(column) for path, column in data["columns"].items()}
            groups = {label: cls.from_json(group) for label, group in data["groups"]}
            return cls(columns, groups, data["skipped"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"expected columns, groups and skipped columns, got {str(data)[:200]}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to a JSON file, whole or not at all.

        Args:
            path: The file, which is replaced.
        """
        with atomic_path(path, overwrite=True) as draft:
            draft.write_text(json.dumps(self.to_json(), allow_nan=False), "utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read statistics that `save` wrote.

        Args:
            path: The file.

        Raises:
            FormatError: The file contains something else.
        """
        try:
            data = json.loads(Path(path).read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"expected statistics as JSON in {path}: {error}") from error
        return cls.from_json(data)


@dataclass(frozen=True)
class Element:
    """One number of the rows of a column."""

    name: str
    place: tuple[int, ...]


def elements(path: str, column: ColumnStatistics, most: int | None = None) -> list[Element]:
    """Return the numbers of the rows of a column."""
    listed: list[Element] = []
    for i in range(min(column.count.size, column.count.size if most is None else most)):
        place = tuple(int(n) for n in np.unravel_index(i, column.shape))
        inner = [str(n) for n, length in zip(place, column.shape, strict=True) if length > 1]
        listed.append(Element(f"{path}[{', '.join(inner)}]" if inner else path, place))
    return listed


def _deviation(total: int, squares: int, n: int) -> float:
    """Standard deviation of `n` values from their sums in units of `2**LOWEST`, for variances of any size."""
    variance = ((squares * n) << -LOWEST) - total * total  # in units of `2**(2 * LOWEST)`, times `n * n`
    shift = max(variance.bit_length() - 2 * n.bit_length() - 64, 0) // 2
    return math.ldexp(math.sqrt(max(variance, 0) / ((n * n) << (2 * shift))), shift + LOWEST)


def _union(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
    both = {key: one[key] | other[key] for key in one if key in other}
    return {**one, **other, **both}


def _merged(one: tuple[FloatArray, IntArray], other: tuple[FloatArray, IntArray]) -> tuple[FloatArray, IntArray]:
    values, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, place, np.concatenate([one[1], other[1]]))
    return values, counts


def _finite(figure: FloatArray) -> Any:
    """Values for JSON, which has no NaN: null without values."""
    plain: Any = figure.tolist()
    return _without_nan(plain)


def _without_nan(plain: Any) -> Any:
    if isinstance(plain, float):
        return None if math.isnan(plain) else plain
    return [_without_nan(inner) for inner in plain]
