"""Functions of one example: applied to the records of a source, which become columns once; or to rows of columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray, UInt64Array
from penstock.core.columns import SEPARATOR, Columns
from penstock.core.narrowing import is_array, is_mapping
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.data.from_arrays import from_records
from penstock.errors import PlanError, SpecError
from penstock.formats.records import RandomAccess
from penstock_mirrors.airio.runtime import SKIP_FEATURE, Length

ELEMENT = "element"
"""Feature name of an example that is not a dict."""
FIRST = 16  # examples that are looked at to find out their features


@dataclass(frozen=True)
class Call:
    """A function of one example, or of columns, by a name that goes into fingerprints."""

    fn: Callable[..., Any]
    name: str


class Chain:
    """The examples of a source after some functions: examples `numbers` of it, or all."""

    def __init__(self, source: RandomAccess, calls: tuple[Call, ...] = (), numbers: IntArray | None = None) -> None:
        self.source, self.calls = source, calls
        self.numbers = np.arange(len(source)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        example = self.source[int(self.numbers[index])]
        for call in self.calls:
            example = call.fn(example)
        return example

    def then(self, call: Call) -> Chain:
        """Return the examples with one more function applied."""
        return Chain(self.source, (*self.calls, call), self.numbers)

    def where(self, condition: Call) -> Chain:
        """Return the examples that meet a condition. Cost: one pass over the examples."""
        kept = np.array([bool(condition.fn(self[i])) for i in range(len(self))], np.bool_)
        return Chain(self.source, self.calls, self.numbers[kept])

    def episodes(self, name: str, lengths: Mapping[str, Length]) -> EpisodeDataset:
        """Return the examples as a dataset of one-step episodes. 1-d features are ragged, unless they are as long as
        each other and their sequence length is `SKIP_FEATURE`; features of more axes, where their first axes differ or
        they have a sequence length of one number.
        """
        if len(self) == 0:
            raise PlanError(f"expected examples in {name}, got none; check its source and its filters")
        flat = _Flat(self)
        first = [flat[i] for i in range(min(FIRST, len(self)))]
        fields = {path: _field(path, [_present(e, path) for e in first], lengths.get(path)) for path in first[0]}
        flat.fields = fields
        chosen = hashlib.sha256(self.numbers.tobytes()).hexdigest()
        calls = [call.name for call in self.calls]
        return from_records(flat, columns=fields, fingerprint=f"{name} {len(self.source)} {chosen} {calls}")


class _Flat:
    """Examples as flat dicts of arrays, text and bytes. Empty lists take the dtype that others have."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.fields: Mapping[str, Field] = {}

    def __len__(self) -> int:
        return len(self.chain)

    def __getitem__(self, index: int) -> dict[str, Any]:
        flat = dict(leaves(self.chain[index]))
        for path, value in flat.items():
            if is_array(value) and value.size == 0 and path in self.fields:
                flat[path] = _as_nothing(value, self.fields[path])
        return flat


@dataclass(frozen=True)
class Each:
    """A function of one example over the rows of columns. The columns in `texts` are handed to it as text; any other
    text is an array of its bytes by now."""

    fn: Callable[..., Any]
    texts: tuple[str, ...] = ()
    nothing: Columns | None = None

    def of_none(self, columns: Columns, keys: UInt64Array | None = None) -> Each:
        """Return a copy that knows its columns for zero rows: a rank's share of a batch may be empty."""
        return replace(self, nothing=self(columns, keys).take(slice(0, 0)))

    def __call__(self, columns: Columns, keys: UInt64Array | None = None) -> Columns:
        """Return the results of all rows as columns; 1-d features are ragged if an input column was ragged."""
        examples = [dict(leaves(value)) for value in self.values(columns, keys)]
        if not examples:
            return columns if self.nothing is None else self.nothing
        ragged = {path for path, array in columns.flat.items() if isinstance(array, Ragged)}
        return Columns(
            {path: _stacked(path, [_present(e, path) for e in examples], ragged) for path in examples[0]}, columns.n
        )

    def values(self, columns: Columns, keys: UInt64Array | None = None) -> list[Any]:
        """Return the function's result for each row. With keys, the function gets a random number generator."""
        rows = [columns.row(i) for i in range(columns.n)]
        for row in rows:
            row.update({name: row[name].tobytes().decode("utf-8") for name in self.texts})
        examples = [row[ELEMENT] if list(row) == [ELEMENT] else row for row in rows]
        if keys is None:
            return [self.fn(example) for example in examples]
        return [self.fn(e, np.random.default_rng(key)) for e, key in zip(examples, keys.tolist(), strict=True)]


def leaves(example: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield paths and values of an example: arrays, text and bytes. An example that is not a dict is its `ELEMENT`."""
    items = example.items() if is_mapping(example) else [(ELEMENT, example)]
    for key, value in items:
        path = f"{before}{key}"
        if is_mapping(value):
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


def _present(example: Mapping[str, Any], path: str) -> Any:
    if path not in example:
        raise SpecError(f"expected a feature {path!r} in every example, got one with {sorted(example)}")
    return example[path]


def _field(path: str, values: Sequence[Any], length: Length | None) -> Field:
    """Return the field of a feature from its values in the first examples; `length` is its sequence length."""
    if isinstance(values[0], (str, bytes)):
        return Field(np.dtype(np.uint8), (), "episode", "text" if isinstance(values[0], str) else "ragged")
    arrays = [np.asarray(value) for value in values]
    dtype = np.result_type(*[a.dtype for a in arrays if a.size] or [np.dtype(np.int64)])
    # An empty list has one axis even if other values have more.
    shapes = {a.shape for a in arrays if a.size} or {a.shape for a in arrays}
    axes, inner = {len(shape) for shape in shapes}, {shape[1:] for shape in shapes}
    same = len({a.shape for a in arrays}) == 1
    if same and (axes == {0} or length == SKIP_FEATURE or (axes != {1} and not isinstance(length, int))):
        return Field(dtype, arrays[0].shape, "episode")
    if len(axes) > 1 or axes == {0} or len(inner) > 1:
        raise SpecError(
            f"expected {path} with one shape, or shapes that differ in the first axis alone, got {sorted(shapes)}; "
            "give `trim` and `pad` a list of its lengths, one for each axis, as the first preprocessors"
        )
    return Field(dtype, inner.pop(), "episode", "ragged")


def _as_nothing(value: AnyArray, field: Field) -> AnyArray:
    """An empty list as a feature that others show to have another dtype, and maybe more axes."""
    return np.zeros((0, *field.shape), field.dtype) if field.kind == "ragged" else value.astype(field.dtype)


def _stacked(path: str, values: Sequence[Any], ragged: Set[str]) -> Array:
    """Return one column with the values of some rows.

    A 1-d column is ragged if any column was `ragged` before; a column with more axes is ragged if the same column was,
    or if its values differ in length.
    """
    if isinstance(values[0], str):
        return Ragged.from_strings(values)
    if isinstance(values[0], bytes):
        return Ragged.from_bytes(values)
    arrays = [np.asarray(value) for value in values]
    shapes = {a.shape for a in arrays}
    axes, inner = {len(shape) for shape in shapes}, {shape[1:] for shape in shapes}
    if len(axes) == len(inner) == 1 and axes != {0}:
        if (ragged and axes == {1}) or path in ragged or len(shapes) > 1:
            dtype = np.result_type(*[a.dtype for a in arrays if a.size] or [np.dtype(np.int64)])
            return Ragged.from_rows(arrays, dtype)
    elif len(shapes) > 1:
        raise SpecError(f"expected {path} with shapes that differ in the first axis alone, got {sorted(shapes)}")
    return np.stack(arrays)
