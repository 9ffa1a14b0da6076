"""Which array of a buffer is which column, and the names of both.

`data/<key>` has a row for each step of all episodes, and `meta/episode_ends` the row after each episode. We add arrays
to `meta`, which other readers copy and ignore:

| array | rows | for |
|---|---|---|
| `final.<key>` | one per episode | observations after the last step, so that a column has T + 1 rows |
| `<key>` | one per episode | columns of episodes |
| `<key>.values`, `<key>.ends` | values; the end of each row | ragged columns and text |
| `episode_metadata.values`, `.ends` | bytes; the end of each entry | metadata of episodes, as JSON |

The attribute `penstock` of the group names the columns and spaces. Without it, names follow `NAMES`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.group import ZarrGroup
from penstock.core.arrays import IntArray
from penstock.core.narrowing import is_dict, is_list
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, FormatError, SpecError, suggestion
from penstock.formats.base.account import LeftOut, unused_files

DATA, META = "data", "meta"
ENDS = f"{META}/episode_ends"
EPISODES = f"{META}/episode_metadata"
MARK, VERSION = "penstock", 1
PART = "part.json"  # of a part of a buffer: the first row of the part in each array
KEYS = "zarr_keys"  # metadata: the array of each column, where no attribute names the columns
NAMES: Mapping[str, str] = {
    **dict.fromkeys(("action", "actions"), "actions"),
    **dict.fromkeys(("reward", "rewards"), "rewards"),
    **dict.fromkeys(("terminal", "terminals", "terminated", "terminations"), "terminations"),
    **dict.fromkeys(("timeout", "timeouts", "truncated", "truncations"), "truncations"),
    **dict.fromkeys(("done", "dones"), "dones"),
    **dict.fromkeys(("obs", "observation", "observations"), "observations"),
    **dict.fromkeys(("next_obs", "next_observation", "next_observations"), "next_observations"),
    **dict.fromkeys(("info", "infos"), "infos"),
}
_KEYS = {"actions": "action", "rewards": "reward", "observations": "obs", "next_observations": "next_obs"}
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\- ]*")
_LONGEST = 200  # bytes of a key; file systems end at 255, and `final.` and `.values` are added


@dataclass(frozen=True, eq=False)
class ColumnArrays:
    """The arrays of one column."""

    field: Field
    rows: str
    final: str | None = None
    ends: str | None = None

    def names(self) -> list[str]:
        return [name for name in (self.rows, self.final, self.ends) if name]


@dataclass(frozen=True, eq=False)
class BufferLayout:
    """The columns of a buffer. `left_out` names arrays and rows that are of no column, and files."""

    spec: Spec
    columns: Mapping[str, ColumnArrays]
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def of(cls, group: ZarrGroup, ends: IntArray, names: Mapping[str, str] | None = None) -> BufferLayout:
        arrays, left_out = _arrays_in(group)
        stated, keys = _mark(group)
        columns: dict[str, ColumnArrays] = {}
        named: Mapping[str, Field] = {} if stated is None else stated.fields
        for path, given in named.items():
            column = stored_column(given, keys[path])
            problem = _problem(path, column, arrays, left_out, len(ends))
            if problem and column.final is not None:
                column = stored_column(Field(given.dtype, given.shape), keys[path])
                problem = _problem(path, column, arrays, left_out, len(ends))
            if problem and column.field.align == "step" and not column.field.ragged:
                raise FormatError(problem.message, path=group.store.name, where=column.rows)
            if problem:
                left_out |= dict.fromkeys(column.names(), problem)
            else:
                columns[path] = column
        steps = int(ends[-1]) if len(ends) else 0
        columns |= _unnamed(group, arrays, left_out, columns, steps, names)
        used = {name for column in columns.values() for name in column.names()}
        if len(arrays.get(f"{EPISODES}.ends", ())) >= len(ends):
            used |= {f"{EPISODES}.values", f"{EPISODES}.ends"}
        for name, array in arrays.items():
            if name not in left_out and (entry := _unused(name, array, steps, len(ends), is_used=name in used)):
                left_out[name] = entry
        spaces = (None, None) if stated is None else (stated.observation_space, stated.action_space)
        spec = Spec({path: column.field for path, column in columns.items()}, *spaces)
        files = unused_files(set(group.other_files(["", DATA, META])) - {PART}, "arrays of a Zarr group")
        return cls(spec, columns, (*dict.fromkeys(left_out.values()), *files))

    @classmethod
    def new(cls, spec: Spec) -> BufferLayout:
        for path, given in spec.fields.items():
            if given.ragged and given.shape:
                raise SpecError(f"expected ragged rows of one dimension, got {given.shape} - at {path}")
        keys = keys_of(spec)
        return cls(spec, {path: stored_column(given, keys[path]) for path, given in spec.fields.items()})

    @property
    def used(self) -> dict[str, str]:
        """The column of each array whose name says another."""
        return {stored.rows: path for path, stored in self.columns.items() if stored.rows != f"{DATA}/{path}"}

    def rows_of(self, steps: int, episodes: int) -> dict[str, int]:
        """How many rows each array has for so many steps and episodes, but for values of ragged columns."""
        rows = {ENDS: episodes}
        for stored in self.columns.values():
            count = {"step": steps, "boundary": steps + episodes, "episode": episodes}[stored.field.align]
            if stored.ends is not None:
                rows[stored.ends] = count
            elif stored.rows:
                rows[stored.rows] = episodes if stored.field.align == "episode" else steps
            if stored.final is not None:
                rows[stored.final] = episodes
        return rows

    def mark(self) -> dict[str, Any]:
        """The attribute that names the columns. The spec is text, because Zarr sorts the keys of attributes."""
        keys = {path: _key_in(column) for path, column in self.columns.items()}
        return {"version": VERSION, "spec": json.dumps(self.spec.to_json()), "keys": keys}


def stored_column(field: Field, key: str) -> ColumnArrays:
    """The arrays of a column whose key is known."""
    if field.ragged:
        return ColumnArrays(field, f"{META}/{key}.values", ends=f"{META}/{key}.ends")
    if field.row_bytes == 0:
        return ColumnArrays(field, "")
    if field.align == "episode":
        return ColumnArrays(field, f"{META}/{key}")
    final = f"{META}/final.{key}" if field.align == "boundary" else None
    return ColumnArrays(field, f"{DATA}/{key}", final)


def _key_in(column: ColumnArrays) -> str:
    name = column.rows.partition("/")[2]
    return name.removesuffix(".values") if column.field.ragged else name


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype with the machine's order of bytes."""
    return dtype.newbyteorder("=")


def paths_of(keys: Iterable[str], names: Mapping[str, str] | None = None) -> dict[str, str]:
    """The column of each key below `data`, by `names` or the table `NAMES`; others are observations."""
    listed, given = list(keys), dict(names or {})
    if wrong := [key for key in given if key not in listed]:
        raise ArgumentError(f"no key {wrong[0]!r} in the buffer{suggestion(wrong[0], listed)}; there are {listed}")
    paths: dict[str, str] = {}
    for key in listed:
        head, _, rest = key.partition("/")
        known = NAMES.get(head)
        path = f"observations/{key}" if known is None else f"{known}/{rest}" if rest else known
        paths[key] = given.get(key, path)
    alone = [key for key, path in paths.items() if path == "observations"]
    if alone and any(path.startswith("observations/") for path in paths.values()):
        paths |= {key: f"observations/{key}" for key in alone if key not in given}
    return paths


def keys_of(spec: Mapping[str, Field]) -> dict[str, str]:
    """A key for each column, none twice: short names as others have them, otherwise the path with dots."""
    keys: dict[str, str] = {}
    taken = {"episode_ends", "episode_metadata"}
    for path in spec:
        short = path.removeprefix("observations/")
        if path not in _KEYS and NAMES.get(short, path) != path:
            short = path  # "observations/action" is no action
        plain = _KEYS.get(path, short).replace("/", ".")
        choices = (plain, path.replace("/", "."), *(f"{plain}.{i}" for i in range(len(spec))))
        key = next(key for key in map(_safe, choices) if key.casefold() not in taken)
        if len(key.encode()) > _LONGEST:
            raise SpecError(f"expected a column name of at most {_LONGEST} bytes once quoted, got {key[:80]}...")
        taken.add(key.casefold())
        keys[path] = key
    return keys


def _safe(key: str) -> str:
    if _SAFE.fullmatch(key):
        return key
    try:
        return "_" + quote(key, safe="")
    except UnicodeEncodeError as error:
        raise SpecError(f"expected a column name of valid Unicode, got {key!r}") from error


def _arrays_in(group: ZarrGroup) -> tuple[dict[str, ZarrArray], dict[str, LeftOut]]:
    """The arrays of a group but the ends of episodes, and the unreadable arrays, by name."""
    arrays: dict[str, ZarrArray] = {}
    left_out: dict[str, LeftOut] = {}
    for name in (name for name in group.arrays("") if name != ENDS):
        try:
            arrays[name] = group.array(name)
        except FormatError as error:
            left_out[name] = _unread(group, name, error)
    return arrays, left_out


def _unread(group: ZarrGroup, name: str, error: FormatError) -> LeftOut:
    """The entry of an array that is not read: it has no rows, or values of another type, or is damaged."""
    try:
        shape: Any = group.description(name).get("shape")
    except FormatError:
        return LeftOut.of_error("array", name, error)
    if not is_list(shape) or (shape and 0 not in shape[1:]):
        return LeftOut.of_error("array", name, error)
    message = f"expected a row of values for each step, got the shape {shape}"
    return LeftOut("array", name, "other-length", message)


def _unnamed(
    group: ZarrGroup,
    arrays: Mapping[str, ZarrArray],
    left_out: dict[str, LeftOut],
    columns: Mapping[str, ColumnArrays],
    steps: int,
    names: Mapping[str, str] | None,
) -> dict[str, ColumnArrays]:
    """The columns of arrays that no attribute names. Those with fewer rows than steps go to `left_out`."""
    used = {name for column in columns.values() for name in column.names()}
    others = {name[len(DATA) + 1 :]: name for name in arrays if name.startswith(f"{DATA}/") and name not in used}
    short = {name for name in others.values() if len(arrays[name]) < steps}
    left_out |= {name: _of_rows(name, arrays[name], f"{steps} steps, as {ENDS} says") for name in short}
    if short and len(short) == len(others) and not columns:
        raise FormatError(left_out[min(short)].message, path=group.store.name, where=min(short))
    unnamed: dict[str, ColumnArrays] = {}
    for key, path in paths_of([key for key, name in others.items() if name not in short], names).items():
        if path in columns or path in unnamed:
            other = {**columns, **unnamed}[path].rows
            message = f"expected one array for the column {path!r}, got {key!r} and {other!r}"
            raise FormatError(f"{message}; give them other names with `names`", path=group.store.name)
        array = arrays[others[key]]
        unnamed[path] = ColumnArrays(Field(native(array.dtype), array.shape[1:]), others[key])
    return unnamed


def _of_rows(name: str, array: ZarrArray, rows: str) -> LeftOut:
    return LeftOut("array", name, "other-length", f"expected a row for each of {rows}, got {len(array)}")


def _unused(name: str, array: ZarrArray, steps: int, episodes: int, *, is_used: bool) -> LeftOut | None:
    """The entry of an array that no column uses, or whose last rows are of no episode."""
    if is_used and name.startswith(f"{DATA}/") and len(array) > steps:
        message = f"expected {steps} rows, as {ENDS} says, got {len(array)}: the last are in no episode"
        return LeftOut("rows", name, "unused-rows", message)
    if is_used:
        return None
    if name.startswith(f"{META}/") and len(array) < episodes:
        return _of_rows(name, array, f"{episodes} episodes")
    message = f"expected arrays in {DATA}, and in {META} those that the attribute {MARK!r} of the group names"
    return LeftOut("array", name, "unused-array", message)


def _mark(group: ZarrGroup) -> tuple[Spec | None, Mapping[str, str]]:
    """The columns that the attribute of the group names, and their keys."""
    mark: Any = group.attributes.get(MARK)
    if not is_dict(mark) or mark.get("version") != VERSION:
        return None, {}
    keys: Any = mark.get("keys")
    try:
        spec = Spec.from_json(json.loads(mark.get("spec") or ""))
    except (SpecError, TypeError, ValueError, RecursionError, AttributeError, OverflowError) as error:
        raise FormatError(
            f"expected the columns of a buffer, got {error}", path=group.store.name, where=MARK
        ) from error
    if not is_dict(keys) or keys.keys() != spec.fields.keys() or not all(isinstance(key, str) for key in keys.values()):
        raise FormatError("expected a key for each column", path=group.store.name, where=MARK)
    return spec, keys


def _problem(
    path: str,
    column: ColumnArrays,
    arrays: Mapping[str, ZarrArray],
    left_out: Mapping[str, LeftOut],
    episodes: int,
) -> LeftOut | None:
    """What keeps a column that the attribute names from being read."""
    per_episode = {column.final, (column.ends or column.rows) if column.field.align == "episode" else None}
    for name in column.names():
        array = arrays.get(name)
        if array is None:
            reason, message = "damaged-part", f"expected an array {name!r}, got none"
            if name in left_out:
                reason, message = left_out[name].reason, left_out[name].message
            return LeftOut("column", path, reason, message)
        shape = () if column.field.ragged else column.field.shape
        dtype = np.dtype(np.int64) if name == column.ends else column.field.dtype
        if array.shape[1:] != shape or native(array.dtype) != native(dtype):
            message = f"expected rows of {dtype}{list(shape)}, got {array.dtype}{list(array.shape[1:])}"
            return LeftOut("column", path, "damaged-part", message)
        if name in per_episode and len(array) < episodes:
            return LeftOut("column", path, "other-length", _of_rows(name, array, f"{episodes} episodes").message)
    return None
