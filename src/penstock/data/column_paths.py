"""Replace columns of a batch by path, in `Columns` and in nested dicts of arrays of any framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.core.columns import Columns
from penstock.errors import SpecError


def replace_columns(columns: Any, paths: Iterable[str], fn: Callable[[str, Any], Any], purpose: str) -> Any:
    """Return a batch with some of its columns changed. The batch and its other columns stay as they are."""
    if isinstance(columns, Columns):
        changed: dict[str, Any] = {}
        for path in paths:
            if path not in columns.flat:
                raise _missing(path, purpose, columns.flat)
            changed[path] = fn(path, columns.flat[path])
        return Columns.of_flat({**columns.flat, **changed}, columns.n)
    copied = dict(columns)
    for path in paths:
        _replace(copied, path, path, fn, purpose)
    return copied


def _replace(columns: dict[str, Any], key: str, path: str, fn: Callable[[str, Any], Any], purpose: str) -> None:
    """Replace a column of a dict, which is this call's own copy, or of a dict within it, which is copied."""
    if key in columns:
        columns[key] = fn(path, columns[key])
        return
    head, _, rest = key.partition("/")
    if not rest or not isinstance(columns.get(head), Mapping):
        raise _missing(path, purpose, columns)
    columns[head] = dict(columns[head])
    _replace(columns[head], rest, path, fn, purpose)


def _missing(path: str, purpose: str, columns: Iterable[str]) -> SpecError:
    return SpecError(f"expected a column {path!r} to {purpose}, got {list(columns)}")
