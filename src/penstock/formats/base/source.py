"""`Source`: a dataset opened for reading."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from operator import index
from typing import Any, ClassVar, Self

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import is_of_call, refusal
from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.narrowing import is_path
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.recycler import Recycler
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field, Spec
from penstock.core.text import counted
from penstock.errors import ExpiredRowError, PenstockError
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.metadata import LazyMetadata, number_columns

BLOCK_BYTES = 4 << 20  # short episodes are iterated in blocks of at most about this size
_memory = Recycler(4 * BLOCK_BYTES)  # of all blocks of this process, once nothing refers to them
ROWS = 4096  # ragged rows that are read at a time to measure them
# What a format implements, or makes quicker, of a source: all that reads; `spec` and `offsets` are known at `open`.
_GUARDED = {
    *("read", "read_array", "view_array", "read_ragged", "read_values", "value_offsets"),
    *("episode", "episode_metadata", "table", "__init__", "refresh", "metadata", "fingerprint", "fingerprint_of"),
    "account",
}
LEAST_STEP_BYTES = 64  # a step counts for as much at least, for ragged columns say nothing of their size


class Source(ABC):
    """A dataset opened for reading: E episodes whose steps are numbered by global rows.

    Episode `e` has the step rows `offsets[e] : offsets[e + 1]`, the boundary rows
    `offsets[e] + e : offsets[e + 1] + e + 1` (one more for each episode), and the episode row `e`. Row numbers are
    never reused. Reading is safe from any number of threads, and after a fork.

    A format implements `read_array` and `read_ragged`, each for one column. Everything else has a default. Errors that
    the data causes in a subclass become `FormatError` with path and column (`core/boundary.py`). Sources that call
    functions of users set `parses = False` to keep their errors.

    Example:
        >>> import numpy as np, penstock
        >>> source = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3]).source
        >>> len(source), source.offsets.tolist(), source.episode(1).rewards.tolist()
        (2, [0, 2, 5], [2.0, 3.0, 4.0])
    """

    parses: ClassVar[bool] = True
    location: object = None  # the path or location that was opened, for messages; `Format.open` sets it
    opened: Mapping[str, Any] | None = None  # location, format and options of `penstock.open`, for other processes
    unfinished: LeftOut | None = None  # entry of the account where the work that writes the dataset has not ended

    def __repr__(self) -> str:
        place = "" if self.location is None else f"{str(self.location)!r}, "
        size = f"{counted(len(self), 'episode')}, {counted(self.steps, 'step')}"
        return f"{type(self).__name__}({place}{size}, columns={list(self.spec)})"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.parses:
            for name in _GUARDED & vars(cls).keys():
                setattr(cls, name, _guarded(vars(cls)[name]))

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """Columns and spaces."""

    @property
    @abstractmethod
    def offsets(self) -> IntArray:
        """First step row of each episode, and the end, `[E + 1]` int64."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Digest that changes whenever the data changes."""

    def fingerprint_of(self, episodes: int) -> str | None:
        """Return the fingerprint of an earlier, shorter dataset, or None if it is unknown.

        Args:
            episodes: Number of episodes of the earlier dataset.
        """
        return self.fingerprint if episodes == len(self) else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the whole dataset."""
        return {}

    @property
    def account(self) -> Account:
        """What became of everything that the reader found: used as which column, or left out, and why.

        The default is empty: all columns have the names of the files, and nothing was left out. Cost: none, because
        readers build it while they index.
        """
        return Account().with_left_out(self.unfinished)

    @property
    def extent(self) -> tuple[int, int]:
        """Readable step rows, `[lo, hi)`. A growing source moves them to the right."""
        return int(self.offsets[0]), int(self.offsets[-1])

    @abstractmethod
    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Read rows of an array column.

        Args:
            column: Path of the column.
            selection: Rows to read, and their places.
            out: `[n * L, *shape]`, C-contiguous. Covered places are filled; the others keep their values.
        """

    def view_array(self, column: str, first: int, n: int) -> AnyArray | None:
        """Return rows of an array column as they are in memory or in a mapped file, if that needs no copy.

        Args:
            column: Path of the column.
            first: First row.
            n: Number of rows.

        Returns:
            `[n, *shape]`, aligned and not to be written to, or None: `read_array` has to read them.
        """
        return None

    def remote_ranges(self, column: str, selection: Selection) -> list[Wanted]:
        """Return the bytes behind a URL that `read_array` or `read_ragged` would fetch, so that they are fetched ahead.

        The default returns none, which costs speed alone.

        Args:
            column: Path of a column.
            selection: Rows that will be read. They exist.
        """
        return []

    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        """Read rows of a ragged column. Only sources with ragged columns need this method.

        Args:
            column: Path of the column.
            selection: Rows to read, and their places.

        Returns:
            The `n * L` rows of the grid. Places without a span are empty rows.

        Raises:
            KeyError: The source has no such ragged column.
        """
        raise KeyError(
            f"{type(self).__name__} has no ragged column {column!r} (selection of {len(selection.destination)} spans)"
        )

    def value_offsets(self, column: str) -> IntArray:
        """Return the offsets of a ragged column.

        Args:
            column: Path of the column.

        Returns:
            `[rows + 1]` int64. Row `r` has the values `offsets[r] : offsets[r + 1]`. Cost: one pass over the column,
            unless the source stores offsets.
        """
        field = self.spec[column]
        rows = int(self.rows(field.align)[-1])
        lengths = [self._ragged_rows(column, a, min(a + ROWS, rows)).lengths for a in range(0, rows, ROWS)]
        return offsets_of(np.concatenate(lengths) if lengths else [])

    def read_values(self, column: str, selection: Selection, out: AnyArray) -> None:
        """Read values of a ragged column.

        Args:
            column: Path of the column.
            selection: Values to read, numbered as in `value_offsets`, and their places.
            out: `[n * L]`. Covered places are filled; the others keep their values.

        Raises:
            ExpiredRowError: A value is out of range.
        """
        offsets = self.value_offsets(column)
        check_values(column, offsets, selection)
        for start, length, destination in zip(
            *(a.tolist() for a in (selection.start, selection.length, selection.destination)), strict=True
        ):
            a, b = np.searchsorted(offsets, [start, start + length - 1], side="right").tolist()
            values = self._ragged_rows(column, a - 1, b).values
            skipped = start - int(offsets[a - 1])
            out[destination : destination + length] = values[skipped : skipped + length]

    def _ragged_rows(self, column: str, first: int, last: int) -> Ragged:
        return self.read_ragged(column, Selection.consecutive(first, last))

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """Return the metadata of episodes, such as seed, options and statistics.

        Args:
            episodes: Numbers of the episodes.
        """
        return [{} for _ in episodes]

    def refresh(self) -> bool:
        """Read episodes that were appended since. Return True if there are any."""
        return False

    def close(self) -> None:
        """Close the files. Reading afterwards is an error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def steps(self) -> int:
        """Total number of steps."""
        lo, hi = self.extent
        return hi - lo

    def rows(self, align: Align) -> IntArray:
        """Return the first row of each episode, and the end, `[E + 1]` int64.

        Args:
            align: Row space: `"step"`, `"boundary"` or `"episode"`.
        """
        e = np.arange(len(self.offsets))
        return {"step": self.offsets, "boundary": self.offsets + e, "episode": e}[align]

    def rows_between(self, align: Align, first: int, last: int) -> IntArray:
        """Return a part of `rows(align)`, at the cost of that part, `[last - first + 1]` int64.

        Args:
            align: Row space: `"step"`, `"boundary"` or `"episode"`.
            first: First entry.
            last: Last entry, which is included.
        """
        e = np.arange(first, last + 1)
        if align == "episode":
            return e
        offsets = self.offsets[first : last + 1]
        return offsets + e if align == "boundary" else offsets

    def episode_rows(self, align: Align, e: int) -> tuple[int, int]:
        """Return the first row of an episode and the row after its last. Cost: O(1).

        Args:
            align: Row space: `"step"`, `"boundary"` or `"episode"`.
            e: Number of the episode.
        """
        if align == "episode":
            return e, e + 1
        extra, offsets = e if align == "boundary" else 0, self.offsets
        start, stop = int(offsets[e]), int(offsets[min(e + 1, len(offsets) - 1)])
        return start + extra, stop + extra + (align == "boundary")

    def read(self, columns: Sequence[str], selection: Selection) -> dict[str, Array]:
        """Read columns of one alignment.

        Args:
            columns: Paths of the columns.
            selection: Rows to read, and their places.

        Returns:
            Arrays `[n, L, *shape]`, and ragged ones `[n, L]`. Padding is zero.

        Raises:
            ExpiredRowError: A row is outside the extent.
            KeyError: A column is unknown.
        """
        return {column: self._read(column, self.spec[column], selection) for column in columns}

    def _read(self, column: str, field: Field, selection: Selection) -> Array:
        self.check(field.align, selection)
        if field.ragged:
            return self.read_ragged(column, selection).reshape(*selection.shape)
        allocate = np.empty if selection.complete else np.zeros
        out = allocate((selection.shape[0] * selection.shape[1], *field.shape), field.dtype)
        self.read_array(column, selection, out)
        return out.reshape(*selection.shape, *field.shape)

    def check(self, align: Align, selection: Selection) -> None:
        """Raise an error if a span is outside the rows of an alignment.

        Args:
            align: Row space: `"step"`, `"boundary"` or `"episode"`.
            selection: Spans to check.

        Raises:
            ExpiredRowError: A span is out of range.
        """
        if len(selection.start) == 0:
            return
        episodes = len(self)
        first, end = self.episode_rows(align, 0)[0] if episodes else 0, self.episode_rows(align, episodes)[0]
        lo, hi = int(selection.start.min()), int((selection.start + selection.length).max())
        if lo < first or hi > end:
            raise ExpiredRowError(f"expected {align} rows within {first}:{end}, got {lo}:{hi}")

    def episode(self, e: int) -> Episode:
        """Read one whole episode with its metadata.

        Args:
            e: Number of the episode. Negative numbers count from the end.

        Raises:
            IndexError: There is no such episode.
        """
        offsets = self.offsets
        e = _number(e, len(offsets) - 1)
        return self._steps(e, int(offsets[e]), int(offsets[e + 1]))

    def part(self, e: int, first: int, last: int) -> Episode:
        """Read some steps of an episode as an episode. Other steps are not read.

        Columns with T + 1 rows have the row after the last step too, and columns with one row an episode have it.

        Args:
            e: Number of the episode, 0 or more.
            first: First step, counted in the episode.
            last: Step after the last.

        Raises:
            IndexError: There is no such episode, or it does not have these steps.
        """
        start, stop = self.episode_rows("step", e) if 0 <= e < len(self) else (0, -1)
        if not 0 <= first <= last <= stop - start:
            raise IndexError(f"expected steps of an episode, got {first}:{last} of episode {e}")
        return self._steps(e, start + first, start + last)

    def _steps(self, e: int, begin: int, end: int) -> Episode:
        """Step rows of episode `e` as an episode."""
        spec = self.spec
        rows = {"step": (begin, end), "boundary": (begin + e, end + e + 1), "episode": (e, e + 1)}
        spans = {align: Selection.consecutive(*rows[align]) for align in spec.aligns}
        columns = {path: self._whole(path, field, spans[field.align]) for path, field in spec.fields.items()}
        return Episode.trusted(spec, columns, e, LazyMetadata(self, e))

    def _whole(self, column: str, field: Field, span: Selection, empty: Callable[..., AnyArray] = np.empty) -> Array:
        if field.ragged:
            return self.read_ragged(column, span)
        out = empty((span.shape[1], *field.shape), field.dtype)
        self.read_array(column, span, out)
        return out

    def episodes(self, order: Iterable[int] | None = None) -> Iterator[Episode]:
        """Iterate over episodes. Short ones are read together, in any order.

        Args:
            order: Numbers of the episodes. Negative numbers count from the end. The default is None: all.

        Returns:
            An iterator. Memory: about 4 MiB, or one episode. Keeping an array may keep arrays that were read with it.

        Raises:
            IndexError: There is no such episode.
        """
        bytes_a_step = max(sum(field.row_bytes for field in self.spec.values()), LEAST_STEP_BYTES)
        limits = max(BLOCK_BYTES // bytes_a_step, 1), self._long // bytes_a_step
        for numbers in _blocks(range(len(self)) if order is None else order, self.offsets, *limits):
            yield from [self.episode(numbers[0])] if len(numbers) == 1 else self._block(numbers)

    @property
    def _long(self) -> int:
        """Bytes of the longest episodes that are read with others."""
        return BLOCK_BYTES // 16

    def _block(self, numbers: list[int]) -> Iterator[Episode]:
        """Episodes from one read of every column."""
        spec, episodes = self.spec, np.array(numbers, np.int64)
        start, one = self.offsets[episodes], np.ones_like(episodes)
        steps = self.offsets[episodes + 1] - start
        rows = {"step": (start, steps), "boundary": (start + episodes, steps + 1), "episode": (episodes, one)}
        begins = np.flatnonzero(np.diff(episodes, prepend=-2) != 1)  # each of a run of consecutive numbers
        cuts = {align: offsets_of(rows[align][1]) for align in spec.aligns}
        spans = {align: _spans(rows[align][0][begins], cuts[align], begins) for align in spec.aligns}
        ends = {align: each.tolist() for align, each in cuts.items()}
        fields = spec.fields.items()
        whole = [(path, self._whole(path, f, spans[f.align], _memory.empty), ends[f.align]) for path, f in fields]
        for i, e in enumerate(numbers):
            columns = {path: array[places[i] : places[i + 1]] for path, array, places in whole}
            yield Episode.trusted(spec, columns, e, LazyMetadata(self, e))

    def table(self) -> Columns:
        """Return ids, lengths and numeric metadata as columns with a row for each episode.

        Returns:
            `id`, `total_steps`, and every metadata entry that is a number in some episode. An entry is int64 if all
            episodes have an integer, and otherwise float64 with NaN where it is missing. Cost: reads all metadata, no
            values.
        """
        stored = self.episode_metadata(range(len(self)))
        table: dict[str, AnyArray] = {"id": np.arange(len(self)), "total_steps": np.diff(self.offsets)}
        table |= {name: column for name, column in number_columns(stored).items() if name not in table}
        return Columns(table)


def _guarded(member: Any) -> Any:
    """Wrap a method or property, so that errors of the data become `FormatError`."""
    if isinstance(member, property):
        return property(_guarded(member.fget))
    if not callable(member):  # a cached property, or a value
        return member

    @wraps(member)
    def guarded(self: Source, *args: Any, **kwargs: Any) -> Any:
        try:
            return member(self, *args, **kwargs)
        except Exception as error:
            if not self.parses or is_of_call(error, kwargs):
                raise
            if (instead := _refusal(self, member.__name__, args, error)) is None:
                raise
            raise instead from error

    return guarded


def _refusal(source: Source, name: str, args: tuple[Any, ...], error: Exception) -> Exception | None:
    """The error to raise instead of an error of a source's method, or None to keep it."""
    if name == "__init__":
        return refusal(error, args[0] if args and is_path(args[0]) else None)
    if isinstance(error, PenstockError) or not args:
        return refusal(error, source.location)
    first, where = args[0], None
    if name in ("read_array", "read_ragged", "read_values", "value_offsets"):
        where, field = str(first), source.spec[first]  # an unknown column is the caller's `KeyError`
        if name != "read_array" and not field.ragged:
            return None
        if name in ("read_array", "read_ragged") and len(args) > 1:
            source.check(field.align, args[1])  # rows that do not exist are `ExpiredRowError`
    elif name == "episode":
        where = f"episode {first}"
        if not -len(source) <= first < len(source):
            return None
    elif name == "episode_metadata" and not all(0 <= e < len(source) for e in first):
        return None
    return refusal(error, source.location, where)


def check_values(column: str, offsets: IntArray, selection: Selection) -> None:
    """Raise an error if a span is outside the values of a ragged column."""
    if len(selection.start) == 0:
        return
    lo, hi = int(selection.start.min()), int((selection.start + selection.length).max())
    if lo < 0 or hi > offsets[-1]:
        raise ExpiredRowError(f"expected values of {column} within 0:{offsets[-1]}, got {lo}:{hi}")


def _number(e: int, n: int) -> int:
    """The number of one of `n` episodes, which may count from the end."""
    if not -n <= e < n:
        raise IndexError(f"expected an episode within 0:{n}, got {e}")
    return index(e) % n


def _blocks(order: Iterable[int], offsets: IntArray, budget: int, longest: int) -> Iterator[list[int]]:
    """Numbers of episodes that are read together: at most `budget` steps, or one episode above `longest`."""
    block: list[int] = []
    n, left = len(offsets) - 1, 0  # steps that the block still has room for
    for number in order:
        e = _number(number, n)
        steps = int(offsets[e + 1] - offsets[e])
        if not block or steps > left or steps > longest:
            if block:
                yield block
            block, left = [], budget if steps <= longest else 0  # a long one gains nothing by others
        block.append(e)
        left -= steps
    if block:
        yield block


def _spans(start: IntArray, cuts: IntArray, begins: IntArray) -> Selection:
    """Rows of episodes, which end at `cuts`, as a grid of one sample. Episodes that begin a span begin elsewhere."""
    destination = cuts[begins]
    length = np.diff(destination, append=cuts[-1])
    return Selection(destination * 0, start, length, destination, (1, int(cuts[-1])))
