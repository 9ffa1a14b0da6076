"""Records that a function makes sequences of: one pass finds the lengths, and reads call the function again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.blocks import concatenated
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.function_digest import FunctionDigest
from penstock.data.lengths import LengthsFile, read_lengths
from penstock.data.map_dataset import MapDataset
from penstock.data.names import name_of
from penstock.errors import DataError, PlanError, SpecError
from penstock.formats.records import MadeSource

Int = npt.NDArray[np.int64]
Records = Callable[[Columns], Mapping[str, Any]]


def measure(
    dataset: MapDataset,
    fn: Records,
    *,
    cache: str | os.PathLike[str] | None = None,
    version: str | int | None = None,
    block: int = 4096,
    progress: bool = True,
) -> EpisodeDataset:
    """Sequences that `fn` makes of records, such as the tokens of a text, with lengths that are known: so they can be
    planned, packed and read at random without being stored.

    `fn(columns)` turns `n` records into a mapping of columns with `n` rows, some of them `Ragged`; each row may depend
    on its own record alone. One pass over `dataset` finds the length of every ragged row. The result has an episode of
    one step for each record, and the outputs as columns aligned with episodes; reading calls `fn` on the records that
    are wanted, and checks that lengths are still what they were.

    Arguments: `cache`, a file that keeps the lengths, for this data and this `fn`: the lengths are measured again when
    what it computes has changed (see `MapDataset.map`, also for `version`, which stands in place of that). A pass that
    was killed goes on where it was. `block`, records a call. `progress`, whether
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
    name = _digest(dataset.fingerprint, FunctionDigest.of(fn, version).text, records.spec.fingerprint)
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
        for at in _shown(range(first, n, self.block), f"measuring {name_of(self.fn)}", progress):
            found = self(np.arange(at, min(at + self.block, n)))
            yield at, np.stack([found[path].lengths for path in ragged], axis=1)

    def _called(self, numbers: Int) -> Columns:
        made = self.fn(self.dataset.batch(numbers))
        columns = made if isinstance(made, Columns) else Columns(made)
        if columns.n != len(numbers):
            raise SpecError(f"expected {len(numbers)} rows from {name_of(self.fn)}, got {columns.n}")
        return columns

    def _check(self, columns: Columns, first: int) -> None:
        found = {path: _field(path, array) for path, array in columns.flat.items()}
        if found != self.spec.fields:
            raise SpecError(
                f"expected {self.spec.fields} from {name_of(self.fn)}, as for the first record, got {found} for the "
                f"records from {first} on"
            )


class MeasuredSource(MadeSource):
    """The source behind `measure`: `lengths` `[n]` of each ragged column are known, values are made when read."""

    def __init__(self, dataset: MapDataset, fn: Records, block: int, name: str, lengths: Mapping[str, Int]) -> None:
        super().__init__(len(dataset))
        self._records, self._name, self._lengths = _Records(dataset, fn, block), name, dict(lengths)
        self._values = {path: offsets_of(held) for path, held in self._lengths.items()}
        digest = hashlib.sha256(name.encode())
        for held in self._lengths.values():
            digest.update(held.tobytes())
        self._fingerprint = digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        held = self._records
        return type(self), (held.dataset, held.fn, held.block, self._name, self._lengths)

    @property
    def spec(self) -> Spec:
        """The outputs of the function, aligned with episodes."""
        return self._records.spec

    @property
    def fingerprint(self) -> str:
        """A digest of data, of what the function computes, and of all lengths."""
        return self._fingerprint

    def value_offsets(self, column: str) -> Int:
        """As measured. Cost: none."""
        return self._values[column]

    def make(self, numbers: Int) -> Columns:
        """One call of the function for `block` of them; lengths must be as measured."""
        if len(numbers) == 0:
            return self._records(np.zeros(1, np.int64)).take(np.zeros(0, np.int64))
        made = self._records(numbers)
        for path, lengths in self._lengths.items():
            wrong = made[path].lengths != lengths[numbers]
            if wrong.any():
                i = int(np.argmax(wrong))
                raise DataError(
                    f"expected {lengths[numbers[i]]} values of {path}, as were measured, got {made[path].lengths[i]} - "
                    f"at record {numbers[i]}; it has to give the same again; change `version` where it does not"
                )
        return made


def _field(path: str, array: npt.NDArray[Any] | Ragged) -> Field:
    if isinstance(array, Ragged):
        if len(array.shape) != 1:
            raise SpecError(f"expected {path} as one sequence of numbers a record, got {array.shape} of {array.dtype}")
        return Field(array.dtype, array.values.shape[1:], "episode", "ragged")
    return Field(array.dtype, array.shape[1:], "episode")


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
