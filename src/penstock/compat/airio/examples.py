"""Functions of one example: applied to the records of a source, which become columns once; or to rows of columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.columns import SEPARATOR, Columns
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.data.keys import keys
from penstock.data.records import from_records
from penstock.errors import PlanError, SpecError
from penstock.formats.records import RandomAccess

Int = npt.NDArray[np.int64]
ELEMENT = "element"
"""The feature that an example has which is no dict."""
FIRST = 16  # examples that are looked at to find out their features


@dataclass(frozen=True)
class Call:
    """A function of one example, and the seed of its random numbers if it takes any."""

    fn: Callable[..., Any]
    name: str
    seed: int | None = None

    def __call__(self, example: Any, number: int) -> Any:
        """What it makes of example `number`."""
        if self.seed is None:
            return self.fn(example)
        key = int(keys(self.seed, np.array([number]))[0])
        return self.fn(example, np.random.default_rng(key))


class Chain:
    """The examples of a source after some functions: examples `numbers` of it, or all.

    Random numbers follow from the number in the source, whatever was filtered.
    """

    def __init__(self, source: RandomAccess, calls: tuple[Call, ...] = (), numbers: Int | None = None) -> None:
        self.source, self.calls = source, calls
        self.numbers = np.arange(len(source)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        number = int(self.numbers[index])
        example = self.source[number]
        for call in self.calls:
            example = call(example, number)
        return example

    def then(self, call: Call) -> Chain:
        """With one more function."""
        return Chain(self.source, (*self.calls, call), self.numbers)

    def where(self, condition: Call) -> Chain:
        """Those that meet a condition. Cost: one pass over the examples."""
        kept = [bool(condition(self[i], int(number))) for i, number in enumerate(self.numbers)]
        return Chain(self.source, self.calls, self.numbers[np.array(kept, np.bool_)])

    def episodes(self, name: str, lengths: Mapping[str, int]) -> EpisodeDataset:
        """The examples as a dataset, each an episode of one step. 1-d features are ragged, unless they are as long as
        each other and their sequence length is `SKIP_FEATURE`.

        Raises `PlanError` if there is none, `SpecError` for examples that differ in their features.
        """
        if len(self) == 0:
            raise PlanError(f"expected examples in {name}, got none; check its source and its filters")
        flat = _Flat(self)
        first = [flat[i] for i in range(min(FIRST, len(self)))]
        fields = {path: _field(path, [_present(e, path) for e in first], lengths.get(path, 0) < 0) for path in first[0]}
        flat.dtypes = {path: field.dtype for path, field in fields.items()}
        chosen = hashlib.sha256(self.numbers.tobytes()).hexdigest()
        calls = [(call.name, call.seed) for call in self.calls]
        return from_records(flat, columns=fields, fingerprint=f"{name} {len(self.source)} {chosen} {calls}")


class _Flat:
    """Examples as flat dicts of arrays, text and bytes. Empty lists take the dtype that others have."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.dtypes: Mapping[str, np.dtype[Any]] = {}

    def __len__(self) -> int:
        return len(self.chain)

    def __getitem__(self, index: int) -> dict[str, Any]:
        flat = dict(leaves(self.chain[index]))
        for path, value in flat.items():
            if isinstance(value, np.ndarray) and value.size == 0 and path in self.dtypes:
                flat[path] = value.astype(self.dtypes[path])
        return flat


@dataclass(frozen=True)
class Each:
    """A function of one example over the rows of columns. Text that was made columns is an array of its bytes."""

    call: Call

    def __call__(self, columns: Columns, numbers: Int | None = None) -> Columns:
        """The columns of what it makes of every row; 1-d features are ragged if some came in ragged."""
        made = [
            dict(leaves(self.call(_example(columns, i), 0 if numbers is None else int(numbers[i]))))
            for i in range(columns.n)
        ]
        if not made:
            return columns
        ragged = any(isinstance(array, Ragged) for array in columns.flat.values())
        return Columns({path: _stacked([_present(e, path) for e in made], ragged) for path in made[0]}, columns.n)


def leaves(example: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of an example: arrays, text and bytes. What is no dict is its `ELEMENT`."""
    items = example.items() if isinstance(example, Mapping) else [(ELEMENT, example)]
    for key, value in items:
        path = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from leaves(value, path + SEPARATOR)
        else:
            yield path, value if isinstance(value, (str, bytes)) else np.asarray(value)


def of_episodes(data: EpisodeDataset) -> RandomAccess:
    """Whole episodes as examples: their columns by name."""
    return _Episodes(data)


@dataclass(frozen=True)
class _Episodes:
    data: EpisodeDataset

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        columns = self.data[index].columns
        return {path: array[0] if isinstance(array, Ragged) else array for path, array in columns.items()}


def _example(columns: Columns, i: int) -> Any:
    row = columns.row(i)
    return row[ELEMENT] if list(row) == [ELEMENT] else row


def _present(example: Mapping[str, Any], path: str) -> Any:
    if path not in example:
        raise SpecError(f"expected a feature {path!r} in every example, got one with {sorted(example)}")
    return example[path]


def _field(path: str, values: Sequence[Any], skipped: bool) -> Field:
    """What a feature is, as the first examples have it."""
    if isinstance(values[0], (str, bytes)):
        return Field(np.dtype(np.uint8), (), "episode", "text" if isinstance(values[0], str) else "ragged")
    arrays = [np.asarray(value) for value in values]
    dtype = np.result_type(*[a.dtype for a in arrays if a.size] or [np.dtype(np.int64)])
    shapes = {a.shape for a in arrays}
    if {len(shape) for shape in shapes} == {1} and not (skipped and len(shapes) == 1):
        return Field(dtype, (), "episode", "ragged")
    if len(shapes) > 1:
        raise SpecError(f"expected {path} with one shape, or one dimension, got {sorted(shapes)}")
    return Field(dtype, arrays[0].shape, "episode")


def _stacked(values: Sequence[Any], ragged: bool) -> Array:
    if isinstance(values[0], str):
        return Ragged.from_strings(values)
    if isinstance(values[0], bytes):
        return Ragged.from_bytes(values)
    arrays = [np.asarray(value) for value in values]
    if ragged and arrays[0].ndim == 1:
        return Ragged.from_rows(arrays, np.result_type(*[a.dtype for a in arrays if a.size] or [np.dtype(np.int64)]))
    return np.stack(arrays)
