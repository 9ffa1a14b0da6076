"""From columns with their rows an episode to a spec: alignment, dtypes, and what to do where episodes differ.

Required columns (observations, actions, rewards, flags) must be in every episode, with T + 1 or T rows. All others are
optional: their alignment is read off their lengths, and `infos` says what becomes of one that some episodes lack or
have in another shape. `"union"` adds a mask `present/<column>`, and `shapes/<column>` for rows that were filled up. In
files, the items of a tuple are called `_index_i`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import ByteArray, IntArray
from penstock.core.columns import under
from penstock.core.space_columns import space_fields, spec_leaves, widest_space
from penstock.core.spaces import Box, Dict, Space, Tuple
from penstock.core.spec import Align, Field, Kind, Spec
from penstock.errors import FormatError, SpecError
from penstock.formats.base.account import LeftOut

ROOTS = ("observations", "actions")
FLAGS = ("rewards", "terminations", "truncations")
IMAGE_SIDE = 32  # smaller arrays are not images, by the standard
_INDEX = "_index_"
Infos = Literal["strict", "union", "skip"]

MODES: tuple[Infos, ...] = ("strict", "union", "skip")
PRESENT = "present"
SHAPES = "shapes"


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
        out.append(_INDEX + key if isinstance(space, Tuple) else key)
        space = _child(space, key)
    return "/".join(out)


def column_path(stored: str, space: Space | None) -> str:
    """The column of a dataset at `stored`, the path in an episode group below `observations` or `actions`."""
    root, *rest = stored.split("/")
    out = [root]
    for key in rest:
        item = key[len(_INDEX) :] if key.startswith(_INDEX) and key[len(_INDEX) :].isdigit() else None
        key = item if item is not None and (space is None or isinstance(space, Tuple)) else key  # noqa: PLW2901
        out.append(key)
        space = _child(space, key)
    return "/".join(out)


def _child(space: Space | None, key: str) -> Space | None:
    if isinstance(space, Tuple):
        return space.spaces[int(key)] if key.isdigit() and int(key) < len(space.spaces) else None
    return space.spaces.get(key) if isinstance(space, Dict) else None


def check_columns(spec: Spec) -> Spec:
    """The spec with both spaces, if a Minari dataset can hold it."""
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


@dataclass(frozen=True, eq=False)
class ColumnStorage:
    """How some episodes store a column: `rows[i]` rows in episode `episode[i]`, all of one kind, dtype and shape."""

    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    episode: IntArray
    rows: IntArray


@dataclass(frozen=True, eq=False)
class SpecColumn:
    """A column that made it into the spec: its field, which episodes lack it (none for a required one), and `[E, rank]`
    the shape that rows have in each episode, where these differ (0 in episodes that lack it)."""

    path: str
    field: Field
    missing: IntArray
    shapes: IntArray | None = None


def steps(stored: Mapping[str, Sequence[ColumnStorage]], episodes: int, path: object) -> IntArray:
    """`[E]` steps of every episode, from the rewards."""
    parts = stored.get("rewards", ())
    lengths = np.full(episodes, -1, np.int64)
    for part in parts:
        lengths[part.episode] = part.rows
    if np.any(lengths < 0):
        where = f"episode {int(np.argmin(lengths))}/rewards"
        raise FormatError("expected rewards in every episode, got none", path=path, where=where)
    return lengths


def resolve(
    stored: Mapping[str, Sequence[ColumnStorage]], lengths: IntArray, infos: Infos, path: object
) -> tuple[list[SpecColumn], list[LeftOut]]:  # fmt: skip
    """The columns of a dataset whose episodes have `lengths` `[E]` steps, and the columns that `infos` leaves out."""
    missing = [name for name in (*ROOTS, *FLAGS) if not any(under(name, column) for column in stored)]
    if missing and len(lengths):
        raise FormatError(f"expected the columns {[*ROOTS, *FLAGS]}, got no {missing}", path=path)
    resolved: list[SpecColumn] = []
    left_out: list[LeftOut] = []
    for column, parts in stored.items():
        try:
            below = next((other for other in stored if other != column and under(column, other)), None)
            if below is not None:
                message = f"expected a column, or columns below it, got {column} in some episodes and {below} in others"
                hint = "" if required(column) else "; open with infos='skip' to leave it out"
                raise FormatError(message + hint, path=path, where=column)
            resolved.append(_column(column, parts, lengths, infos, path))
        except FormatError as error:
            if required(column) or infos != "skip":
                raise
            left_out.append(skipped(column, str(error)))
    return resolved, left_out


def _column(column: str, parts: Sequence[ColumnStorage], lengths: IntArray, infos: Infos, path: object) -> SpecColumn:
    episode, rows = (np.concatenate([getattr(part, name) for part in parts]) for name in ("episode", "rows"))
    absent = np.setdiff1d(np.arange(len(lengths)), episode)
    if len(episode) + len(absent) != len(lengths):
        raise FormatError("expected a column once in an episode, got it twice", path=path, where=column)
    if len(absent) and (required(column) or infos != "union"):
        hint = "" if required(column) else "; open with infos='union' to fill it in, or infos='skip' to leave it out"
        have = f"episode {int(episode[0])} has it" if len(episode) else "none has it"
        raise FormatError(
            f"expected {column} in every episode, got none in {len(absent)} of {len(lengths)} ({have}){hint}",
            path=path,
            where=f"episode {int(absent[0])}/{column}",
        )
    align = _align(column, episode, rows, lengths, path)
    shape = _largest(parts) if infos == "union" and not required(column) else None
    field = _field(column, parts, align, shape, path)
    return SpecColumn(column, field, absent, _shapes(parts, len(lengths)) if shape is not None else None)


def unread(unreadable: Mapping[str, str], infos: Infos, path: object) -> list[LeftOut]:
    """The entries of optional columns of kinds that are not read."""
    for column, message in unreadable.items():
        if infos != "skip":
            error = FormatError(f"{message}; open with infos='skip' to leave {column} out")  # the place is in it
            error.path, error.where = path, column
            raise error
    return [skipped(column, message) for column, message in unreadable.items()]


def skipped(column: str, message: str) -> LeftOut:
    """The entry of a column that `infos="skip"` leaves out."""
    return LeftOut("column", column, "skipped", message.partition(" - at ")[0].partition("; open with")[0])


def _largest(parts: Sequence[ColumnStorage]) -> tuple[int, ...] | None:
    """The shape that holds the rows of all parts, if they are arrays with equally many axes and of several shapes."""
    shapes = {part.shape for part in parts}
    alike = {(part.kind, len(part.shape)) for part in parts} == {("array", len(parts[0].shape))}
    return tuple(map(max, *shapes)) if len(shapes) > 1 and alike else None


def _shapes(parts: Sequence[ColumnStorage], episodes: int) -> IntArray:
    shapes = np.zeros((episodes, len(parts[0].shape)), np.int64)
    for part in parts:
        shapes[part.episode] = part.shape
    return shapes


def _align(column: str, episode: IntArray, rows: IntArray, lengths: IntArray, path: object) -> Align:
    expected = {"boundary": lengths[episode] + 1, "step": lengths[episode], "episode": np.ones_like(episode)}
    allowed: tuple[Align, ...] = ("boundary", "step", "episode")
    if required(column):
        allowed = ("boundary",) if under("observations", column) else ("step",)
    for align in allowed:
        if np.array_equal(rows, expected[align]):
            return align
    wrong = rows != expected[allowed[0]]
    if len(allowed) > 1:
        wrong &= rows != expected["step"]
    first = int(np.argmax(wrong)) if wrong.any() else 0
    count = int(lengths[episode[first]])
    wanted = f"{int(expected[allowed[0]][first])}" if len(allowed) == 1 else "T + 1, T or one, alike in all episodes,"
    hint = "" if required(column) else "; open with infos='skip' to leave it out"
    raise FormatError(
        f"expected {wanted} rows for {count} steps, got {int(rows[first])}{hint}",
        path=path,
        where=f"episode {int(episode[first])}/{column}",
    )


def _field(
    column: str, parts: Sequence[ColumnStorage], align: Align, shape: tuple[int, ...] | None, path: object
) -> Field:
    """The field of all parts, which have one shape where no `shape` is given that holds all."""
    first = parts[0]
    for part in parts[1:]:
        if part.kind != first.kind or (shape is None and part.shape != first.shape):
            fill = "infos='union' to fill up, or " if _largest(parts) is not None else ""
            hint = "" if required(column) else f"; open with {fill}infos='skip' to leave it out"
            raise FormatError(
                f"expected rows of one kind and shape in all episodes, got {first.kind} {first.shape} and "
                f"{part.kind} {part.shape}{hint}",
                path=path,
                where=f"episode {int(part.episode[0])}/{column}",
            )
    try:
        dtype = np.result_type(*(part.dtype.newbyteorder("=") for part in parts))
    except TypeError as error:
        raise FormatError(f"expected dtypes that have one in common, got {error}", path=path, where=column) from error
    return Field(dtype, first.shape if shape is None else shape, align, first.kind)


def derived(columns: Sequence[SpecColumn]) -> dict[str, SpecColumn]:
    """The columns that `"union"` adds, by path: masks of columns that are missing somewhere, and shapes that differ."""
    none = np.zeros(0, np.int64)
    fields: dict[str, Field] = {}
    for column in columns:
        if len(column.missing):
            fields[f"{PRESENT}/{column.path}"] = Field(np.dtype(np.bool_), (), "episode")
        if column.shapes is not None:
            fields[f"{SHAPES}/{column.path}"] = Field(np.dtype(np.int64), column.shapes.shape[1:], "episode")
    return {path: SpecColumn(path, field, none) for path, field in fields.items()}


def fill_value(field: Field) -> ByteArray:
    """The bytes of a row that stands for a missing one: NaN where the dtype has it, else zero."""
    row = np.zeros(field.shape, field.dtype)
    if field.dtype.kind in "fc":
        row[...] = np.nan
    return np.frombuffer(row.tobytes(), np.uint8)


def of_spaces(observation_space: Space | None, action_space: Space | None) -> dict[str, Field]:
    """The fields of a dataset without episodes, as its spaces say; flags and rewards have their usual dtypes."""
    fields: dict[str, Field] = {}
    if observation_space is not None:
        fields |= space_fields(observation_space, "observations", "boundary")
    if action_space is not None:
        fields |= space_fields(action_space, "actions", "step")
    flag = Field(np.dtype(np.bool_))
    return {**fields, "rewards": Field(np.dtype(np.float64)), "terminations": flag, "truncations": flag}


def in_order(paths: Iterable[str], known: Mapping[str, Space]) -> list[str]:
    """The standard's columns first, in its order and in the order of the spaces; then the others as they come."""
    roots = {name: i for i, name in enumerate((*ROOTS, *FLAGS, "infos"))}
    leaf = {path: i for i, path in enumerate(known)}
    return sorted(paths, key=lambda path: (roots.get(path.split("/", 1)[0], len(roots)), leaf.get(path, len(leaf))))
