"""`Ragged`: rows of varying length, as one array of values and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.frozen import set_fields
from penstock.errors import SpecError

PREVIEW = 8, 40  # values and characters of a row that a preview shows
LONG = 64  # values of a row, from which a copy of the row is faster than the indices of its values


@dataclass(frozen=True, eq=False, repr=False)
class Ragged:
    """Rows of varying length: row `i` is `values[offsets[i]:offsets[i + 1]]`.

    Text is UTF-8 bytes in uint8 `values`. Integer indices return the values of a row, and slices and index arrays
    return a `Ragged`. In a grid `[n, L]`, an integer returns the `L` rows of a sample as a `Ragged`.

    Args:
        values: `[sum of lengths, ...]`, any dtype.
        offsets: `[n + 1]` int64, from 0 to the number of values, never decreasing.
        grid: Shape of the rows: `(n,)`, or `(n, L)` for windows. The default is `(n,)`.

    Raises:
        SpecError: The offsets do not fit the values or the grid.

    Example:
        >>> texts = Ragged.from_strings(["go", "", "left"])
        >>> len(texts), texts.strings()
        (3, ['go', '', 'left'])
    """

    values: AnyArray
    offsets: IntArray
    grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.offsets) - 1
        if n < 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.values) or np.any(np.diff(self.offsets) < 0):
            raise SpecError(
                f"expected offsets from 0 that never decrease and end at {len(self.values)}, the number of values, "
                f"got {n + 1} offsets {_ends(self.offsets)}"
            )
        set_fields(self, grid=self.grid or (n,))
        if int(np.prod(self.grid)) != n:
            raise SpecError(f"expected a grid of {n} rows, got {self.grid}")

    @classmethod
    def from_rows(cls, rows: Sequence[npt.ArrayLike], dtype: npt.DTypeLike | None = None) -> Ragged:
        """Build from a sequence of arrays. The values are copied once.

        Args:
            rows: One array `[length, ...]` for each row.
            dtype: Dtype of the values. The default is the common dtype of the rows.

        Example:
            >>> Ragged.from_rows([[1, 2], [], [3]], dtype="int64").lengths.tolist()
            [2, 0, 1]
        """
        arrays = [np.asarray(row, dtype) for row in rows]
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype or np.float64)
        return cls(values if dtype is None else values.astype(dtype, copy=False), offsets_of([len(a) for a in arrays]))

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> Ragged:
        """Build from strings, encoded as UTF-8.

        Args:
            strings: One string for each row.

        Example:
            >>> Ragged.from_strings(["é"]).values.tolist()
            [195, 169]
        """
        return cls.from_bytes(s.encode("utf-8") for s in strings)

    @classmethod
    def from_bytes(cls, blobs: Iterable[bytes]) -> Ragged:
        """Build from byte strings.

        Args:
            blobs: One byte string for each row.

        Example:
            >>> len(Ragged.from_bytes([b"ab", b"c"]))
            2
        """
        rows = list(blobs)
        return cls(np.frombuffer(b"".join(rows), np.uint8), offsets_of([len(r) for r in rows]))

    def __len__(self) -> int:
        return self.grid[0]

    def __repr__(self) -> str:
        return f"Ragged({self.preview()}, {self.dtype}{list(self.shape)})"

    def preview(self, rows: int = 4, *, text: bool = False) -> str:
        """Return the first rows as short text: strings if they are UTF-8 text, otherwise values.

        Args:
            rows: Most rows to show. The default is 4.
            text: Whether the values are known to be text. By default, bytes that decode to printable text are.

        Example:
            >>> Ragged.from_strings(["go", "left"]).preview(), Ragged.from_rows([[1, 2], [3]]).preview()
            ("['go', 'left']", '[[1, 2], [3]]')
        """
        count = len(self.offsets) - 1
        shown = [self.values[self.offsets[i] : self.offsets[i + 1]] for i in range(min(rows, count))]
        strings = [_text(row, known=text) for row in shown]
        listed = [row[: PREVIEW[0]].tolist() for row in shown] if None in strings else strings
        return repr(listed) if count <= rows else f"{repr(listed)[:-1]}, ...]"

    @property
    def shape(self) -> tuple[int, ...]:
        """Grid of rows, `(n,)` or `(n, L)`."""
        return self.grid

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Size of values and offsets in bytes."""
        return self.values.nbytes + self.offsets.nbytes

    @property
    def lengths(self) -> IntArray:
        """Length of each row, `[n]` int64."""
        return np.diff(self.offsets)

    def __getitem__(self, index: int | slice | AnyArray) -> Any:
        """Return the values of one row for an integer, and a `Ragged` for a slice or an index array.

        Args:
            index: Row number, slice or index array. In a grid `[n, L]` it selects samples of `L` rows.
        """
        numbers = np.arange(len(self))[index]
        inner = self.grid[1:]
        if inner:
            rows = np.asarray(numbers)[..., None] * inner[0] + np.arange(inner[0])
            return self.take(rows.ravel()).reshape(*np.shape(numbers), *inner)
        if np.ndim(numbers) == 0:
            return self.values[self.offsets[numbers] : self.offsets[numbers + 1]]
        return self.take(numbers)

    def take(self, rows: IntArray) -> Ragged:
        """Take rows, with one gather of the values.

        Args:
            rows: `[m]` int64 row numbers, counted in flat order.

        Returns:
            A flat `Ragged` with `m` rows.
        """
        lengths = self.lengths[rows]
        starts, offsets = self.offsets[rows], offsets_of(lengths)
        total = int(offsets[-1])
        if total > LONG * len(lengths):
            values = np.empty((total, *self.values.shape[1:]), self.values.dtype)
            spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
            np.concatenate([self.values[start:end] for start, end in spans], out=values)
            return Ragged(values, offsets)
        index = np.arange(total, dtype=np.int64) + np.repeat(starts - offsets[:-1], lengths)
        return Ragged(self.values[index], offsets)

    def reshape(self, *grid: int) -> Ragged:
        """Return the same rows in another grid.

        Args:
            grid: New shape of the rows, such as `n, L`.

        Raises:
            SpecError: The grid has another number of rows.
        """
        return Ragged(self.values, self.offsets, grid)

    def strings(self) -> list[str]:
        """Decode each row as UTF-8, in flat order.

        Raises:
            UnicodeDecodeError: A row is not UTF-8.
        """
        return [blob.decode("utf-8") for blob in self.blobs()]

    def blobs(self) -> list[bytes]:
        """Return each row as `bytes`, in flat order."""
        data, cuts = self.values.tobytes(), (self.offsets * self.values.itemsize).tolist()
        return [data[a:b] for a, b in pairwise(cuts)]

    @staticmethod
    def concatenate(parts: Sequence[Ragged]) -> Ragged:
        """Concatenate rows. Grids `[n, L]` are concatenated along `n`.

        Args:
            parts: At least one `Ragged`.

        Raises:
            SpecError: Grids have different `L`.

        Example:
            >>> Ragged.concatenate([Ragged.from_strings(["a"]), Ragged.from_strings(["b"])]).strings()
            ['a', 'b']
        """
        inner = {p.grid[1:] for p in parts}
        if len(inner) > 1:
            raise SpecError(f"expected ragged columns of one grid to join, got {sorted(p.grid for p in parts)}")
        values, lengths = (np.concatenate(arrays) for arrays in ([p.values for p in parts], [p.lengths for p in parts]))
        return Ragged(values, offsets_of(lengths), (sum(map(len, parts)), *inner.pop()))


Array = AnyArray | Ragged


def offsets_of(lengths: npt.ArrayLike) -> IntArray:
    """Return the running sum of lengths, starting at 0, `[n + 1]` int64."""
    sizes = np.asarray(lengths, np.int64)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def ranges(start: IntArray, size: IntArray) -> IntArray:
    """Return the numbers `start[r] : start[r] + size[r]` of all ranges, one range after the other."""
    first = offsets_of(size)
    return np.arange(first[-1], dtype=np.int64) + np.repeat(start - first[:-1], size)


def located(first: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the run of each row, where run `r` has the rows `first[r] : first[r + 1]`, and its number in the run."""
    run = np.searchsorted(first, rows, side="right") - 1
    return run, rows - first[run]


def equal_runs(numbers: IntArray) -> Iterator[tuple[int, int, int]]:
    """Yield each number with begin and end of its places; a number whose places are apart comes several times."""
    first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    begin: list[int] = first.tolist()
    yield from zip(numbers[first].tolist(), begin, [*begin, len(numbers)][1:], strict=True)


def _ends(offsets: IntArray) -> str:
    return "" if len(offsets) == 0 else f"from {offsets[0]} to {offsets[-1]}"


def _text(row: AnyArray, *, known: bool) -> str | None:
    """The start of a row as text, or None if it is not printable UTF-8 and not known to be text."""
    if row.dtype != np.uint8 or row.ndim != 1:
        return None
    start = bytes(row[: PREVIEW[1]])
    text = start.decode("utf-8", "ignore" if len(row) > PREVIEW[1] else "replace")  # the cut may split a character
    whole = len(text.encode()) > len(start) - 4 and "\ufffd" not in text
    return text if known or (whole and "".join(text.split()).isprintable()) else None
