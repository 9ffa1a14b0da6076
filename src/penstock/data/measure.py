"""Records that a function makes sequences of: one pass finds the lengths, and reads call the function again."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.data.blocks import concatenated
from penstock.data.dataset import EpisodeDataset
from penstock.data.lengths import LengthsFile, read_lengths
from penstock.data.map_dataset import MapDataset
from penstock.errors import DataError, PlanError, SpecError
from penstock.formats.base.source import Source, check_values
from penstock.formats.memory import gather_ragged
from penstock.kernels.rows import RowMap

Int = npt.NDArray[np.int64]
Records = Callable[[Columns], Mapping[str, Any]]

KEPT = 8  # results of the function that are kept, so that all columns of a batch cost one call


def measure(
    dataset: MapDataset,
    fn: Records,
    *,
    cache: str | os.PathLike[str] | None = None,
    version: str = "",
    block: int = 4096,
    progress: bool = True,
) -> EpisodeDataset:
    """Sequences that `fn` makes of records, such as the tokens of a text, with lengths that are known: so they can be
    planned, packed and read at random without being stored.

    `fn(columns)` turns `n` records into a mapping of columns with `n` rows, some of them `Ragged`; each row may depend
    on its own record alone. One pass over `dataset` finds the length of every ragged row. The result has an episode of
    one step for each record, and the outputs as columns aligned with episodes; reading calls `fn` on the records that
    are wanted, and checks that lengths are still what they were.

    Arguments: `cache`, a file that keeps the lengths, for this data, this name of `fn` and this `version` (which is to
    be changed when `fn` is); a pass that was killed goes on where it was. `block`, records a call. `progress`, whether
    a terminal gets a bar.

    Raises `SpecError` if `fn` gives other columns than for the first record, or another number of rows, `PlanError` for
    a block below 1. Cost: one call of `fn` for every record, once; 8 bytes a record and ragged column.

    >>> import penstock
    >>> data = penstock.from_arrays({"n": np.array([3, 1, 2])}, lengths=[3]).samples()
    >>> words = measure(data, lambda c: {"tokens": Ragged(np.repeat(c["n"], c["n"]), offsets_of(c["n"]))})
    >>> len(words), words.source.value_offsets("tokens").tolist()
    (3, [0, 3, 4, 6])
    """
    if block < 1:
        raise PlanError(f"expected a block of at least 1 record, got {block}")
    if len(dataset) == 0:
        raise SpecError("expected at least one record, for what is made of it shows the columns; got none")
    records = _Records(dataset, fn, block)
    ragged = [path for path, field in records.spec.items() if field.ragged]
    name = _digest(dataset.fingerprint, _name(fn), version, records.spec.fingerprint)
    lengths = _lengths(records, ragged, cache, name, progress)
    return EpisodeDataset(MeasuredSource(dataset, fn, block, name, lengths))


def _lengths(
    records: _Records, ragged: list[str], cache: str | os.PathLike[str] | None, name: str, progress: bool
) -> dict[str, Int]:
    """The lengths of every record: those of the cache, and for the others one pass."""
    n = len(records.dataset)
    if not ragged:
        return {}
    if cache is None:
        table = np.concatenate([part for _, part in records.passed(ragged, 0, progress)])
        return {path: table[:, c].copy() for c, path in enumerate(ragged)}
    with LengthsFile(cache, ragged, name) as file:
        if not file.finished:
            for first, part in records.passed(ragged, min(file.rows, n), progress):
                file.write(first, part)
            file.finish(n)
    found = read_lengths(cache, fingerprint=name)
    if any(len(lengths) != n for lengths in found.values()):
        raise DataError(f"expected the lengths of {n} records in {cache}, got others; remove it to measure anew")
    return found


class _Records:
    """What the function makes of records; `spec` is that of the first."""

    def __init__(self, dataset: MapDataset, fn: Records, block: int) -> None:
        self.dataset, self.fn, self.block = dataset, fn, block
        first = self._called(np.zeros(1, np.int64))
        self.spec = Spec({path: _field(path, array) for path, array in first.flat.items()})

    def __call__(self, numbers: Int) -> Columns:
        """Columns of the records `[n]`, in that order, `block` of them a call."""
        parts = [self._called(numbers[i : i + self.block]) for i in range(0, len(numbers), self.block)]
        for i, part in enumerate(parts):
            self._check(part, int(numbers[i * self.block]))
        return concatenated(parts)

    def passed(self, ragged: list[str], first: int, progress: bool) -> Any:
        """From record `first` on: the number of the first of each block, and `[n, C]` lengths."""
        n = len(self.dataset)
        for at in _shown(range(first, n, self.block), f"measuring {_name(self.fn)}", progress):
            found = self(np.arange(at, min(at + self.block, n)))
            yield at, np.stack([found[path].lengths for path in ragged], axis=1)

    def _called(self, numbers: Int) -> Columns:
        made = self.fn(self.dataset.batch(numbers))
        columns = made if isinstance(made, Columns) else Columns(made)
        if columns.n != len(numbers):
            raise SpecError(f"expected {len(numbers)} rows from {_name(self.fn)}, got {columns.n}")
        return columns

    def _check(self, columns: Columns, first: int) -> None:
        found = {path: _field(path, array) for path, array in columns.flat.items()}
        if found != self.spec.fields:
            raise SpecError(
                f"expected {self.spec.fields} from {_name(self.fn)}, as for the first record, got {found} for the "
                f"records from {first} on"
            )


class MeasuredSource(Source):
    """The source behind `measure`: `lengths` `[n]` of each ragged column are known, values are made when read.

    What the function made of the last few sets of records is kept, so that reading several columns calls it once.
    """

    def __init__(self, dataset: MapDataset, fn: Records, block: int, name: str, lengths: Mapping[str, Int]) -> None:
        self._records, self._name, self._lengths = _Records(dataset, fn, block), name, dict(lengths)
        self._values = {path: offsets_of(held) for path, held in self._lengths.items()}
        self._offsets = np.arange(len(dataset) + 1)
        self._kept: OrderedDict[bytes, Columns] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        held = self._records
        return type(self), (held.dataset, held.fn, held.block, self._name, self._lengths)

    @property
    def spec(self) -> Spec:
        """The outputs of the function, aligned with episodes."""
        return self._records.spec

    @property
    def offsets(self) -> Int:
        """`[n + 1]` int64: every record is an episode of one step."""
        return self._offsets

    @property
    def fingerprint(self) -> str:
        """A digest of data, name and version of the function, and all lengths."""
        return _digest(self._name, *(offsets.tobytes().hex() for offsets in self._values.values()))

    def read_array(self, column: str, selection: Selection, out: npt.NDArray[Any]) -> None:
        """One call of the function, and a gather."""
        numbers, chosen = self._chosen(selection)
        rows = RowMap.of(np.asarray(self._made(numbers)[column]))
        rows.gather(chosen.start, chosen.length, chosen.at, out.reshape(-1).view(np.uint8))

    def read_ragged(self, column: str, selection: Selection) -> Ragged:
        """One call of the function, and a gather."""
        numbers, chosen = self._chosen(selection)
        return gather_ragged(self._made(numbers)[column], chosen)

    def value_offsets(self, column: str) -> Int:
        """As measured. Cost: none."""
        return self._values[column]

    def read_values(self, column: str, selection: Selection, out: npt.NDArray[Any]) -> None:
        """One call of the function on the records that hold the values, and a gather."""
        offsets = self.value_offsets(column)
        check_values(column, offsets, selection)
        real = selection.length > 0
        start, length = selection.start[real], selection.length[real]
        first, last = (np.searchsorted(offsets, ends, side="right") - 1 for ends in (start, start + length - 1))
        numbers = _numbers(first, last + 1 - first)
        made: Ragged = self._made(numbers)[column]
        begin = made.offsets[np.searchsorted(numbers, first)] + start - offsets[first]
        values = RowMap.of(np.ascontiguousarray(made.values))
        values.gather(begin, length, selection.at[real], out.reshape(-1).view(np.uint8))

    def _chosen(self, selection: Selection) -> tuple[Int, Selection]:
        """The records that are read, sorted, and the selection of them among those."""
        numbers = _numbers(selection.start, selection.length)
        start = np.searchsorted(numbers, selection.start)
        start[selection.length == 0] = 0
        return numbers, Selection(selection.source, start, selection.length, selection.at, selection.shape)

    def _made(self, numbers: Int) -> Columns:
        key = numbers.tobytes()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = self._checked(numbers)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made

    def _checked(self, numbers: Int) -> Columns:
        if len(numbers) == 0:
            return self._records(np.zeros(1, np.int64)).take(np.zeros(0, np.int64))
        made = self._records(numbers)
        for path, lengths in self._lengths.items():
            wrong = made[path].lengths != lengths[numbers]
            if wrong.any():
                i = int(np.argmax(wrong))
                raise DataError(
                    f"expected {lengths[numbers[i]]} values of {path}, as were measured, got {made[path].lengths[i]} - "
                    f"at record {numbers[i]}; change `version` with the function, so that it is measured anew"
                )
        return made


def _numbers(first: Int, count: Int) -> Int:
    """`[m]` the numbers in the ranges `first : first + count`, each once, sorted."""
    places = offsets_of(count)
    return np.unique(np.arange(places[-1]) + np.repeat(first - places[:-1], count))


def _field(path: str, array: npt.NDArray[Any] | Ragged) -> Field:
    if isinstance(array, Ragged):
        if array.values.ndim != 1 or len(array.shape) != 1:
            raise SpecError(f"expected {path} as one sequence of numbers a record, got {array.shape} of {array.dtype}")
        return Field(array.dtype, (), "episode", "ragged")
    return Field(array.dtype, array.shape[1:], "episode")


def _name(fn: Any) -> str:
    return f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _shown(blocks: range, what: str, progress: bool) -> Any:
    """The same numbers, with a bar on the terminal if there is one, and more than one block."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if not progress or not console.is_terminal or len(blocks) < 2:
        return blocks
    return track(blocks, what, console=console, transient=True)
