"""Spaces in files: names of nested parts, which spaces are images, and spaces guessed from columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.core.columns import under
from penstock.core.space_columns import spec_leaves, widest_space
from penstock.core.spaces import Box, Dict, Space, Tuple
from penstock.core.spec import Spec
from penstock.errors import SpecError

ROOTS = ("observations", "actions")
FLAGS = ("rewards", "terminations", "truncations")
IMAGE_SIDE = 32  # smaller arrays are not images, by the standard
INDEX = "_index_"


def required(path: str) -> bool:
    """Whether the standard asks for the column."""
    return path in FLAGS or any(under(root, path) for root in ROOTS)


def is_image(space: Space | None) -> bool:
    """Whether the standard takes a space for an image: uint8, 2 or 3 dimensions, sides of 32 or more, 0 to 255."""
    return (
        isinstance(space, Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
        and min(space.shape[:2]) >= IMAGE_SIDE
        and not space.low.any()
        and bool((space.high == 255).all())
    )


def stored_path(path: str, spec: Spec) -> str:
    """A column's place in an episode group: items of tuples are `_index_i` there."""
    root, *rest = path.split("/")
    space = {"observations": spec.observation_space, "actions": spec.action_space}.get(root)
    out = [root]
    for key in rest:
        out.append(INDEX + key if isinstance(space, Tuple) else key)
        space = _child(space, key)
    return "/".join(out)


def column_path(stored: str, space: Space | None) -> str:
    """The column of a dataset at `stored`, the path in an episode group below `observations` or `actions`.

    Without a space, every name `_index_i` counts as item `i` of a tuple.
    """
    root, *rest = stored.split("/")
    out = [root]
    for key in rest:
        item = key[len(INDEX) :] if key.startswith(INDEX) and key[len(INDEX) :].isdigit() else None
        key = item if item is not None and (space is None or isinstance(space, Tuple)) else key  # noqa: PLW2901
        out.append(key)
        space = _child(space, key)
    return "/".join(out)


def _child(space: Space | None, key: str) -> Space | None:
    if isinstance(space, Tuple):
        return space.spaces[int(key)] if key.isdigit() and int(key) < len(space.spaces) else None
    return space.spaces.get(key) if isinstance(space, Dict) else None


def check_columns(spec: Spec) -> Spec:
    """The spec with both spaces, if a Minari dataset can hold it.

    Raises `SpecError` if the standard's columns are missing, misaligned, or do not have the leaves of the spaces.
    """
    for name, align in (
        *((r, a) for r, a in zip(ROOTS, ("boundary", "step"), strict=True)),
        *((f, "step") for f in FLAGS),
    ):
        fields = {path: field for path, field in spec.fields.items() if under(name, path)}
        if not fields or (name in FLAGS and fields.keys() != {name}):
            raise SpecError(f"expected the column {name!r} of the Minari standard, got {list(spec)}")
        wrong = [path for path, field in fields.items() if field.align != align]
        if wrong:
            raise SpecError(f"expected {wrong} to be aligned with {align} rows, got {fields[wrong[0]].align}")
    spaces = [
        space or widest_space(name, spec.fields)
        for name, space in zip(ROOTS, (spec.observation_space, spec.action_space), strict=True)
    ]
    whole = Spec(spec.fields, *spaces)
    have = {path for path in spec if any(under(root, path) for root in ROOTS)}
    if spec_leaves(whole).keys() != have:
        raise SpecError(f"expected the columns {sorted(spec_leaves(whole))} that the spaces name, got {sorted(have)}")
    return whole


def outside(space: Space, rows: Any, limit: int) -> Iterator[int]:
    """Numbers of the first `limit` rows that are not members of a leaf space."""
    yield from np.flatnonzero(~space.contains(rows))[:limit].tolist()
