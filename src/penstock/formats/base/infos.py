"""Infos, a dict a step, on their way to columns and to the metadata of episodes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.narrowing import is_array, is_listed, is_mapping, is_scalar
from penstock.core.ragged import Ragged
from penstock.core.spec import Align, Field

DEPTH = 32
TRUNCATED = "TimeLimit.truncated"
SIMPLE = (bool, int, float, str, np.bool_, np.integer, np.floating)


@dataclass(frozen=True, eq=False)
class Infos:
    """`columns` with their fields, `episodes`, metadata that only last steps have, and what is `left_out`, by path."""

    columns: Mapping[str, tuple[Field, AnyArray | Ragged]]
    episodes: list[dict[str, Any]]
    left_out: list[str]


def read_infos(steps: Sequence[Mapping[str, Any]], ends: IntArray, known: Container[str] | None = None) -> Infos:
    """The infos of all steps; `ends` `[E]` are the last steps of the episodes, -1 for one without steps.

    A key that every step has becomes a column `infos/<key>`, if `column_of` makes one of its values. A number or text
    that only last steps have becomes metadata of the episode; an array that all of them have, and no other step, a
    column with a row an episode. `known` are the paths that are columns, where that is known: where all steps are last
    ones nothing else tells.
    """
    rows = [dict(leaves(step)) for step in steps]
    columns: dict[str, tuple[Field, AnyArray | Ragged]] = {}
    episodes: list[dict[str, Any]] = [{} for _ in ends]
    left_out: list[str] = []
    last = set(ends.tolist())
    for name in dict.fromkeys(name for row in rows for name in row):
        path = f"infos/{name}"
        there = [i for i, row in enumerate(rows) if name in row]
        values = [rows[i][name] for i in there]
        column = column_of(values, "step") if len(there) == len(rows) and (known is None or path in known) else None
        if column is None and last.issuperset(there):
            if all(isinstance(value, SIMPLE) for value in values):
                _tell(episodes, path, ends, rows, name)
                continue
            column = column_of(values, "episode") if len(there) == len(ends) else None
        if column is None:
            left_out.append(path)
        else:
            columns[path] = column
    return Infos(columns, episodes, left_out)


def _tell(
    episodes: list[dict[str, Any]], path: str, ends: IntArray, rows: Sequence[Mapping[str, Any]], name: str
) -> None:
    for episode, end in zip(episodes, ends.tolist(), strict=True):
        if end >= 0 and name in rows[end]:
            episode[path] = plain(rows[end][name])


def column_of(values: Sequence[Any], align: Align) -> tuple[Field, AnyArray | Ragged] | None:
    """One column of text, of bytes, of numbers, of arrays of one shape or of one dimension; None for other values."""
    kinds: set[type[Any]] = {value.__class__ for value in values}
    if kinds == {str}:
        try:
            return Field(np.dtype(np.uint8), (), align, "text"), Ragged.from_strings(values)
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
    if kinds == {bytes}:
        return Field(np.dtype(np.uint8), (), align, "ragged"), Ragged.from_bytes(values)
    arrays = _arrays(values)
    dtype = _common(arrays) if arrays else None
    if arrays and dtype is not None:
        if len({array.shape for array in arrays}) == 1:
            return Field(dtype, arrays[0].shape, align), np.array(arrays, dtype)
        if {array.ndim for array in arrays} == {1}:
            return Field(dtype, (), align, "ragged"), Ragged.from_rows(arrays, dtype)
    return None


def _common(arrays: Sequence[AnyArray]) -> np.dtype[Any] | None:
    """A dtype that holds all of them as they are; truth is no number."""
    kinds = {array.dtype for array in arrays}
    dtype = np.result_type(*kinds)
    mixed = dtype.kind != "b" and np.dtype("?") in kinds
    return None if mixed or not all(np.can_cast(kind, dtype, "safe") for kind in kinds) else dtype


def _arrays(values: Sequence[Any]) -> list[AnyArray] | None:
    if any(isinstance(value, str | bytes | Mapping | set | None) for value in values):
        return None
    try:
        arrays = [np.asarray(value) for value in values]
    except (ValueError, OverflowError):  # rows of unequal lengths, or nested too deep
        return None
    return None if {array.dtype.kind for array in arrays} - set("biufc") else arrays


def leaves(value: Any, before: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Paths and values below a nested dict. Anything deeper than `depth`, and an empty dict, is a value."""
    if not is_mapping(value) or not depth or (before and not value):
        yield before, value
        return
    for key, inner in value.items():
        yield from leaves(inner, f"{before}/{key}" if before else str(key), depth - 1)


def plain(value: Any) -> Any:
    """The same with what JSON can hold: NumPy values as numbers and lists, other objects as text."""
    if is_mapping(value):
        return {str(key): plain(inner) for key, inner in value.items()}
    if is_listed(value):
        return [plain(inner) for inner in value]
    if (is_array(value) or is_scalar(value)) and value.dtype.kind in "biufU":
        return value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
