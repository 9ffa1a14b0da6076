"""`EpisodeFunction`: a function of many whole episodes at once, and the episodes that it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Align, Spec
from penstock.errors import SpecError, suggestion
from penstock.formats.base.source import LazyMetadata, Source

Compute = Callable[["EpisodeRows"], AnyArray]


@final
class EpisodeRows:
    """Rows of consecutive episodes. Each column is read for all of them at once, when it is first used.

    Arrays are read-only. One thread uses an object.

    Args:
        source: The source of the episodes.
        first: Number of the first episode.
        last: Number of the episode after the last.
        known: Columns that were read before. The default is none.

    Example:
        >>> import numpy as np, penstock
        >>> source = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[2, 3, 1]).source
        >>> rows = EpisodeRows(source, 1, 3)
        >>> rows["rewards"].tolist(), rows.offsets("step").tolist(), rows.lengths.tolist()
        ([2.0, 3.0, 4.0, 5.0], [0, 3, 4], [3, 1])
    """

    def __init__(self, source: Source, first: int, last: int, known: Mapping[str, Array] | None = None) -> None:
        self.source = source
        self.first = first
        self.last = last
        self._columns = {path: read_only(array) for path, array in (known or {}).items()}
        self._offsets: dict[Align, IntArray] = {}

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def spec(self) -> Spec:
        """Columns of the source."""
        return self.source.spec

    @property
    def lengths(self) -> IntArray:
        """Steps of each episode, `[E]` int64."""
        return np.diff(self.offsets("step"))

    @property
    def columns_read(self) -> tuple[str, ...]:
        """Columns that were read so far."""
        return tuple(self._columns)

    def offsets(self, align: Align) -> IntArray:
        """Return the first row of each episode among these rows, and the end, `[E + 1]` int64.

        Args:
            align: Row space: `"step"`, `"boundary"` or `"episode"`.
        """
        if align not in self._offsets:
            rows = self.source.rows_between(align, self.first, self.last)
            self._offsets[align] = rows - rows[0]
        return self._offsets[align]

    def __getitem__(self, column: str) -> Array:
        """Return the rows of all these episodes.

        Args:
            column: Path of the column.

        Raises:
            KeyError: There is no such column.
        """
        if column not in self._columns:
            self._columns[column] = read_only(self._read(column))
        return self._columns[column]

    def episode(self, i: int) -> Episode:
        """Return one of the episodes. Its columns are read when they are first used.

        Args:
            i: Number of the episode among these, from 0.
        """
        number = self.first + i
        columns = _EpisodeColumns(self, i)
        return _LazyEpisode.trusted(self.spec, columns, number, LazyMetadata(self.source, number))

    def _read(self, column: str) -> Array:
        column_field = self.spec[column]
        begin, end = self.source.rows_between(column_field.align, self.first, self.last)[[0, -1]].tolist()
        span = Selection.consecutive(begin, end)
        if column_field.ragged:
            return self.source.read_ragged(column, span)
        out = np.empty((end - begin, *column_field.shape), column_field.dtype)
        if len(out):
            self.source.read_array(column, span, out)
        return out


class _EpisodeColumns(Mapping[str, Array]):
    """Columns of one of the episodes, read when they are used."""

    def __init__(self, rows: EpisodeRows, i: int) -> None:
        self._rows, self._i = rows, i

    @property
    def steps(self) -> int:
        cuts = self._rows.offsets("step")
        return int(cuts[self._i + 1] - cuts[self._i])

    def __getitem__(self, column: str) -> Array:
        cuts = self._rows.offsets(self._rows.spec[column].align)
        return self._rows[column][cuts[self._i] : cuts[self._i + 1]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows.spec)

    def __len__(self) -> int:
        return len(self._rows.spec)


class _LazyEpisode(Episode):
    """Episode that knows its length without reading a column."""

    def __len__(self) -> int:
        columns = self.columns
        return columns.steps if isinstance(columns, _EpisodeColumns) else super().__len__()


@dataclass(frozen=True)
class EpisodeFunction:
    """Function of many whole episodes at once, for `EpisodeDataset.with_column`.

    `penstock.columns.returns_to_go` and the other ready-made functions are such objects. Make one for a function of
    your own that is faster for many episodes together than for one at a time.

    Args:
        compute: Called with `EpisodeRows`; returns one row for each row of these episodes in the alignment `align`. It
            must be a function of the episodes alone, and give the same values for any grouping of episodes.
        columns: Columns that `compute` reads, each with the alignments that it may have.
        align: Alignment of the result. The default is `"step"`.
        dtype: Dtype of the result. The default is float32.
        shape: Shape of a row of the result. The default is `()`.
        text: How the function prints. The default is `compute` itself.

    Example:
        >>> import numpy as np, penstock
        >>> squares = EpisodeFunction(lambda rows: rows["rewards"] ** 2, {"rewards": ("step",)})
        >>> data = penstock.from_arrays({"rewards": np.arange(3.0)}, lengths=[2, 1]).with_column("squares", squares)
        >>> data.steps()[:]["squares"].tolist()
        [0.0, 1.0, 4.0]
    """

    compute: Compute
    columns: Mapping[str, tuple[Align, ...]]
    align: Align = "step"
    dtype: npt.DTypeLike = "float32"
    shape: tuple[int, ...] = ()
    text: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return self.text or f"EpisodeFunction({self.compute!r})"

    def check(self, spec: Spec) -> None:
        """Raise an error if a dataset lacks a column that the function reads.

        Args:
            spec: Columns of the dataset.

        Raises:
            SpecError: A column is missing, or has another alignment.
        """
        for path, aligns in self.columns.items():
            if path not in spec.fields:
                raise SpecError(f"expected a column {path!r} for {self!r}, got {list(spec)}{suggestion(path, spec)}")
            if spec[path].align not in aligns:
                wanted = " or ".join(map(repr, aligns))
                raise SpecError(f"expected {path!r} with align {wanted} for {self!r}, got {spec[path].align!r}")


def read_only(array: Array) -> Array:
    """Return a view of a column that cannot be written to."""
    if isinstance(array, Ragged):
        return Ragged(_frozen(array.values), array.offsets, array.grid)
    return _frozen(array)


def _frozen(array: AnyArray) -> AnyArray:
    view = array.view()
    view.flags.writeable = False
    return view
