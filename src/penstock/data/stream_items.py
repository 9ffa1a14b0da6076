"""Options of a stream pack, and the sequences of its blocks.

An axis is a group of ragged columns whose sequences are equally long, and so are packed together. `items_of` turns the
row lengths of a block into items for the packing kernel: the sizes of each sequence along each axis, and where its
values begin. Overlong sequences are dropped, truncated or split here, so the kernel only sees items that fit into one
row; empty ones are counted and left out. All of it is arithmetic on `[rows, axes]` arrays; no value is copied.

`skipped` has the values of a split sequence in earlier parts. It becomes the first position of a part where positions
continue. Positions are int32, hence the limit of 2^31 for all counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.errors import DataError, PlanError, SpecError
from penstock.plan.outputs import padding_value

Overlong = Literal["error", "truncate_left", "truncate_right", "split", "drop"]
Positions = Literal["restart", "continue"]

_LONGEST = 1 << 31  # positions are int32


@dataclass(frozen=True)
class PackOptions:
    """Arguments of `IterDataset.pack`."""

    length: int | Mapping[str, int]
    open_bins: int
    max_age: int | None
    overlong: Overlong
    positions: Positions
    max_sequences: int | None
    rows: int
    fill: float | Mapping[str, float]
    keep: tuple[str, ...]
    lengths: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        lengths = list(self.length.values()) if isinstance(self.length, Mapping) else [self.length]
        for length in lengths:
            _whole("length", length, 1)
        for name, value, least in (
            ("open_bins", self.open_bins, 1),
            ("rows", self.rows, 1),
            ("max_sequences", self.most, 1),
            ("max_age", self.age + self.open_bins, self.open_bins + 1),
        ):
            _whole(name, value, least)
        if self.overlong not in get_args(Overlong):
            raise PlanError(f"expected overlong to be one of {get_args(Overlong)}, got {self.overlong!r}")
        if self.positions not in get_args(Positions):
            raise PlanError(f"expected positions to be one of {get_args(Positions)}, got {self.positions!r}")
        if not lengths:
            raise PlanError("expected a length for at least one column, got none")

    @property
    def most(self) -> int:
        return _LONGEST - 1 if self.max_sequences is None else self.max_sequences

    @property
    def age(self) -> int:
        """Most packs to open after one that is open.

        Only these, and the `open_bins` others that were open before, can be returned before it.
        """
        return 7 * self.open_bins if self.max_age is None else self.max_age - self.open_bins

    @property
    def key(self) -> str:
        """Options that determine the order and the values of packs."""
        length, fill = (sorted(v.items()) if isinstance(v, Mapping) else v for v in (self.length, self.fill))
        bounds = (self.open_bins, self.age, self.most, self.rows)
        return repr((length, *bounds, self.overlong, self.positions, fill, self.keep))

    def axes(self, block: Columns) -> tuple[StreamAxis, ...]:
        """Return the axes that columns are packed along: one for all, or one for each column."""
        ragged = [path for path, array in block.flat.items() if isinstance(array, Ragged)]
        length = self.length
        axes = _apart(length) if isinstance(length, Mapping) else (StreamAxis("", int(length), tuple(ragged)),)
        packed = [path for axis in axes for path in axis.columns]
        wrong = [p for p in packed if p not in ragged] + [p for p in self.keep if p in ragged or p not in block.flat]
        flat = all(len(block[path].shape) == 1 for path in packed if path in ragged)
        if wrong or not packed or not flat:
            raise SpecError(
                f"expected ragged columns of one sequence a row to pack and dense ones to keep, got {wrong or packed} "
                f"among {block!r}"
            )
        names = [*packed, *self.keep, *(name for axis in axes for name in axis.marks)]
        if len(set(names)) < len(names):
            raise SpecError(f"expected columns with names that differ from their marks' names, got {sorted(names)}")
        return axes

    def padding(self, path: str, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
        """Return the value of padding in the dtype of a column."""
        value = self.fill.get(path, 0) if isinstance(self.fill, Mapping) else self.fill
        return padding_value(path, value, dtype)


@dataclass(frozen=True)
class StreamAxis:
    """Columns that are packed together, because their sequences have equal lengths. A row has `capacity` places."""

    name: str
    capacity: int
    columns: tuple[str, ...]

    @property
    def marks(self) -> tuple[str, str]:
        """Names of the segment ids and positions."""
        before = f"{self.name}_" if self.name else ""
        return f"{before}segment_ids", f"{before}positions"


def _whole(name: str, value: Any, least: int) -> None:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value < _LONGEST:
        raise PlanError(f"expected {name} to be an integer from {least} to {_LONGEST - 1}, got {value!r}")


def _apart(lengths: Mapping[str, int]) -> tuple[StreamAxis, ...]:
    alone = len(lengths) == 1
    return tuple(StreamAxis("" if alone else path, int(length), (path,)) for path, length in lengths.items())


@dataclass(frozen=True)
class Passed:
    """Counts of a packer: all `sequences`, the `empty` and `overlong` ones, and the `lost` values of overlong ones."""

    sequences: int = 0
    empty: int = 0
    overlong: int = 0
    lost: int = 0


@dataclass(frozen=True, eq=False)
class Items:
    """The `n` packed sequences of a block.

    `sizes` `[n, A]` are their lengths along each axis, `starts` `[n, A]` the positions of their values in the columns
    of the axis, `skipped` `[n, A]` the values of the same sequence in earlier parts, and `row` `[n]` their rows in the
    block.
    """

    sizes: IntArray
    starts: IntArray
    skipped: IntArray
    row: IntArray


def row_lengths(block: Columns, axes: tuple[StreamAxis, ...], first: int) -> IntArray:
    """Return the length of every row along each axis, `[rows, A]`."""
    for axis in axes:
        lead = block.ragged(axis.columns[0]).offsets
        for path in axis.columns[1:]:
            if not np.array_equal(lead, block.ragged(path).offsets):
                row = int(np.argmax(block.ragged(path).lengths != np.diff(lead)))
                raise DataError(
                    f"expected {axis.columns} to be equally long, got {np.diff(lead)[row]} and "
                    f"{block.ragged(path).lengths[row]} of {path} at sequence {first + row}; give `length` by column"
                )
    return np.stack([block.ragged(axis.columns[0]).lengths for axis in axes], axis=1)


def items_of(
    lengths: IntArray, axes: tuple[StreamAxis, ...], overlong: Overlong, before: Passed
) -> tuple[Items, Passed]:
    """Return the sequences of a block, and the updated counts."""
    capacity = np.array([axis.capacity for axis in axes], np.int64)
    row = np.arange(len(lengths))
    sizes, starts = lengths, np.stack([_begins(lengths[:, a]) for a in range(len(axes))], axis=1)
    long, skipped = np.any(sizes > capacity, axis=1), np.zeros_like(sizes)
    if long.any():
        if overlong == "error":
            _refuse(int(np.argmax(long)), lengths, axes, before.sequences)
        if overlong == "drop":
            row = row[~long]
            sizes = sizes[row]
            starts = starts[row]
            skipped = skipped[row]
        elif overlong == "split":
            row, sizes, skipped = _parts(sizes, capacity)
            starts = np.where(sizes > 0, starts[row] + skipped, 0)  # a part of nothing may begin behind the end
        else:
            starts = starts + np.maximum(sizes - capacity, 0) * (overlong == "truncate_left")
            sizes = np.minimum(sizes, capacity)
    real = np.any(sizes > 0, axis=1)
    passed = Passed(
        before.sequences + len(lengths),
        before.empty + int(np.count_nonzero(~np.any(lengths > 0, axis=1))),
        before.overlong + int(np.count_nonzero(long)),
        before.lost + int(lengths.sum() - sizes.sum()),
    )
    return Items(np.ascontiguousarray(sizes[real]), starts[real], skipped[real], row[real]), passed


def _begins(lengths: IntArray) -> IntArray:
    return np.cumsum(lengths) - lengths


def _parts(sizes: IntArray, capacity: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Row, sizes and skipped values of each part. Part `p` has the `p`-th `capacity` values of an axis."""
    counts = np.maximum(np.max(-(-sizes // capacity), axis=1), 1)
    row = np.repeat(np.arange(len(sizes)), counts)
    skipped = (np.arange(len(row)) - np.repeat(_begins(counts), counts))[:, None] * capacity
    return row, np.clip(sizes[row] - skipped, 0, capacity), skipped


def _refuse(row: int, lengths: IntArray, axes: tuple[StreamAxis, ...], first: int) -> None:
    axis, length = next((a, n) for a, n in zip(axes, lengths[row].tolist(), strict=True) if n > a.capacity)
    raise DataError(
        f"expected at most {axis.capacity} {axis.columns[0]}, got {length} at sequence {first + row}; `overlong` can "
        "truncate, split or drop it"
    )
