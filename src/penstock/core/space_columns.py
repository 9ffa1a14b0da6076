"""Columns of spaces: a space has a column for each leaf, named by the path of the leaf.

Recorders and writers ask which columns a space has. Readers and conversions ask the inverse: where a dataset has no
space, which is the widest that its columns can come from? Episodes fold columns back into the structure of a space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.columns import under
from penstock.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from penstock.core.spec import Align, Field, Spec
from penstock.errors import SpecError


def leaf_columns(root: str, space: Space | None) -> dict[str, Space]:
    """Return the leaf spaces by the path of their column."""
    leaves = () if space is None else space.leaves()
    return {f"{root}/{path}" if path else root: leaf for path, leaf in leaves}


def spec_leaves(spec: Spec) -> dict[str, Space]:
    """Return the leaf spaces of observations and actions by the path of their column."""
    return leaf_columns("observations", spec.observation_space) | leaf_columns("actions", spec.action_space)


def leaf_field(space: Space, align: Align) -> Field:
    match space:
        case Discrete():
            return Field(space.dtype, (), align)
        case Box() | MultiDiscrete():
            return Field(space.dtype, space.shape, align)
        case MultiBinary():
            return Field(np.dtype(np.int8), space.shape, align)
        case Text():
            return Field(np.dtype(np.uint8), (), align, "text")
        case _:
            raise SpecError(f"expected a space with a column of its own, got {space}")


def space_fields(space: Space, root: str, align: Align) -> dict[str, Field]:
    """Return the fields of all leaves of a space, by path."""
    return {path: leaf_field(leaf, align) for path, leaf in leaf_columns(root, space).items()}


def widest_box(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Box:
    """Return the box of all values of a dtype; of floats also the infinite ones."""
    bounds: tuple[Any, Any]
    match dtype.kind:
        case "f":
            bounds = -np.inf, np.inf
        case "b":
            bounds = False, True
        case "i" | "u":
            bounds = np.iinfo(dtype).min, np.iinfo(dtype).max
        case _:
            raise SpecError(f"expected a dtype of real numbers for a box, got {dtype}")
    low, high = (np.full(shape, bound, dtype) for bound in bounds)
    return Box(low, high, dtype)


def widest_space(root: str, fields: Mapping[str, Field]) -> Space:
    """Return the widest space that columns can come from: boxes as wide as their dtypes, in dicts."""
    if (field := fields.get(root)) is not None:
        if field.ragged or field.dtype.kind not in "biuf":
            raise SpecError(
                f"expected a space for {root}, a column of {field.kind} {field.dtype}: hand it in with the spec"
            )
        return widest_box(field.shape, field.dtype)
    paths = [path for path in fields if under(root, path)]
    keys = dict.fromkeys(path[len(root) + 1 :].split("/", 1)[0] for path in paths)
    return Dict({key: widest_space(f"{root}/{key}", fields) for key in keys})


def unflatten(space: Space | None, columns: Mapping[str, Any]) -> Any:
    """Fold leaf values into the structure of a space: dicts, tuples, or the leaf itself."""
    return _fold(space, columns, "")


def _fold(space: Space | None, columns: Mapping[str, Any], path: str) -> Any:
    if path in columns:
        return columns[path]
    if isinstance(space, Tuple):
        return tuple(_fold(s, columns, _join(path, str(i))) for i, s in enumerate(space.spaces))
    if isinstance(space, Dict):
        return {key: _fold(s, columns, _join(path, key)) for key, s in space.spaces.items()}
    prefix = f"{path}/" if path else ""
    keys = dict.fromkeys(p[len(prefix) :].split("/")[0] for p in columns if p.startswith(prefix))
    if space is not None or (path and not keys):
        raise SpecError(f"expected a column at {path!r} for {space}, got {list(columns)}")
    return {key: _fold(None, columns, _join(path, key)) for key in keys}


def _join(path: str, key: str) -> str:
    return f"{path}/{key}" if path else key
