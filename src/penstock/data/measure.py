"""`measure`: sequences that a function makes from records, with lengths measured in advance.

One pass calls the function on all records and keeps only the lengths of the results, 8 bytes for each. With known
lengths, a plan can pack the sequences and read them at random. The values are computed again when they are read, and
their lengths are compared with the measured ones: a function that is not a function of the record raises an error
instead of filling the wrong rows.

Lengths can be cached in a file (`LengthsFile`), also from an interrupted pass, which then continues.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.blocks import concatenated
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.function_digest import FunctionDigest
from penstock.data.lengths import LengthsFile, read_lengths
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.names import name_of
from penstock.data.progress import tracked
from penstock.errors import DataError, PlanError, SpecError
from penstock.formats.records import MadeSource

Records = Callable[[Columns], Mapping[str, Any]]


def measure(
    dataset: MapDataset,
    fn: Records,
    *,
    cache: str | os.PathLike[str] | None = None,
    version: str | int | None = None,
    block: int = 4096,
    progress: bool | None = None,
) -> EpisodeDataset:
    """Measure the sequences that a function makes from records, such as the tokens of texts.

    With known lengths, the sequences can be planned, packed and read at random without being stored. One pass over
    `dataset` measures every `Ragged` output. Later reads call `fn` for the requested records and check the lengths.

    Args:
        dataset: The records.
        fn: Called with the columns of `n` records; returns a mapping of columns with `n` rows, some of them `Ragged`.
            Each row may depend only on its own record.
        cache: File that stores the lengths. An interrupted pass continues. Lengths are measured again after the data or
            `fn` changed. The default is None: measure in memory.
        version: Replaces the digest of `fn`, as in `MapDataset.map`. The default is None.
        block: Records for each call of `fn`, at least 1. The default is 4096.
        progress: Whether to show a progress bar. The default is None: on a terminal.

    Returns:
        A dataset with an episode of one step for each record. The outputs of `fn` are columns aligned with episodes.
        Cost: one call of `fn` for every record. Memory: 8 bytes for each record and ragged column.

    Raises:
        PlanError: `block` is below 1.
        SpecError: The dataset is empty, or `fn` returns different columns or another number of rows.
        DataError: When read, `fn` returns another length than it did when measured.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"n": np.array([3, 1, 2])}, lengths=[3]).steps()
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
    records: _Records, ragged: list[str], cache: str | os.PathLike[str] | None, name: str, progress: bool | None
) -> dict[str, IntArray]:
    """Return the lengths of every record: from the cache where they are known, and otherwise from one pass."""
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
    cached = read_lengths(cache, fingerprint=name)
    if any(len(lengths) != n for lengths in cached.values()):
        raise DataError(f"expected the lengths of {n} records in {cache}, got others; remove it to measure again")
    return cached


class _Records:
    """Output of the function for any records. `spec` comes from the first record."""

    def __init__(self, dataset: MapDataset, fn: Records, block: int) -> None:
        self.dataset = dataset
        self.fn = fn
        self.block = block
        first = self._called(np.zeros(1, np.int64))
        self.spec = Spec({path: _field(path, array) for path, array in first.flat.items()})

    def __call__(self, numbers: IntArray) -> Columns:
        """Columns of the records `[n]`, in that order, with `block` records for each call."""
        parts = [self._called(numbers[i : i + self.block]) for i in range(0, len(numbers), self.block)]
        for i, part in enumerate(parts):
            self._check(part, int(numbers[i * self.block]))
        return concatenated(parts)

    def passed(self, ragged: list[str], first: int, progress: bool | None) -> Any:
        """Yield the first record of each block, from `first` on, and the `[n, C]` lengths of the block."""
        n = len(self.dataset)
        for low in tracked(range(first, n, self.block), f"measuring {name_of(self.fn)}", progress):
            columns = self(np.arange(low, min(low + self.block, n)))
            yield low, np.stack([columns.ragged(path).lengths for path in ragged], axis=1)

    def _called(self, numbers: IntArray) -> Columns:
        outputs = self.fn(planned_samples(self.dataset).at(numbers))
        columns = outputs if isinstance(outputs, Columns) else Columns(outputs)
        if columns.n != len(numbers):
            raise SpecError(f"expected {len(numbers)} rows from {name_of(self.fn)}, got {columns.n}")
        return columns

    def _check(self, columns: Columns, first: int) -> None:
        fields = {path: _field(path, array) for path, array in columns.flat.items()}
        if fields != self.spec.fields:
            raise SpecError(
                f"expected {self.spec.fields} from {name_of(self.fn)}, as for the first record, got {fields} for the "
                f"records from {first} on"
            )


class MeasuredSource(MadeSource):
    """Source of `measure`: the lengths `[n]` of each ragged column are known, and values are computed when read."""

    def __init__(
        self, dataset: MapDataset, fn: Records, block: int, name: str, lengths: Mapping[str, IntArray]
    ) -> None:
        super().__init__(len(dataset))
        self._records = _Records(dataset, fn, block)
        self._name = name
        self._lengths = dict(lengths)
        self._values = {path: offsets_of(counts) for path, counts in self._lengths.items()}
        digest = hashlib.sha256(name.encode())
        for counts in self._lengths.values():
            digest.update(counts.tobytes())
        self._fingerprint = digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        records = self._records
        return type(self), (records.dataset, records.fn, records.block, self._name, self._lengths)

    @property
    def spec(self) -> Spec:
        """Columns of the function's output, aligned with episodes."""
        return self._records.spec

    @property
    def fingerprint(self) -> str:
        """Digest of the data, the function and all lengths."""
        return self._fingerprint

    def value_offsets(self, column: str) -> IntArray:
        """Return the measured offsets, without a read."""
        return self._values[column]

    def make(self, numbers: IntArray) -> Columns:
        """Call the function for these records, and check the lengths."""
        if len(numbers) == 0:
            return self._records(np.zeros(1, np.int64)).take(np.zeros(0, np.int64))
        records = self._records(numbers)
        for path, lengths in self._lengths.items():
            wrong = records.ragged(path).lengths != lengths[numbers]
            if wrong.any():
                i = int(np.argmax(wrong))
                got = records.ragged(path).lengths[i]
                raise DataError(
                    f"expected {lengths[numbers[i]]} values of {path}, as were measured, got {got} - "
                    f"at record {numbers[i]}; it has to give the same again; change `version` where it does not"
                )
        return records


def _field(path: str, array: AnyArray | Ragged) -> Field:
    if isinstance(array, Ragged):
        if len(array.shape) != 1:
            raise SpecError(f"expected {path} as one sequence of numbers a record, got {array.shape} of {array.dtype}")
        return Field(array.dtype, array.values.shape[1:], "episode", "ragged")
    return Field(array.dtype, array.shape[1:], "episode")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
