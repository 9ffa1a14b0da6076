"""Between the values that users handle and columns: buffers to episodes, episodes to dicts."""

from __future__ import annotations

import copy
import string
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from penstock.core import spaces
from penstock.core.arrays import AnyArray
from penstock.core.columns import under
from penstock.core.episode import REQUIRED, Episode
from penstock.core.narrowing import is_list, is_mapping, is_tuple
from penstock.core.ragged import Array, Ragged
from penstock.core.space_columns import leaf_field, widest_box
from penstock.core.spec import Align, Field, Spec
from penstock.errors import DataError, SpecError
from penstock.formats.minari.columns import PRESENT, SHAPES
from penstock.recording.infos import is_texts
from penstock.recording.spaces import from_gymnasium
from penstock_mirrors.minari.data_collector.episode_buffer import EpisodeBuffer

_ANY_LENGTH = 2**31 - 1


def stored_space(space: gymnasium.Space[Any]) -> spaces.Space:
    """Return the standard's space for the columns of `space`. For a custom space it follows from its samples."""
    inner: Any = getattr(space, "spaces", None)  # its type there says nothing about the spaces below
    if isinstance(space, gymnasium.spaces.Dict):
        return spaces.Dict({key: stored_space(part) for key, part in inner.items()})
    if isinstance(space, gymnasium.spaces.Tuple):
        return spaces.Tuple(tuple(stored_space(part) for part in inner))
    try:
        return from_gymnasium(space)
    except SpecError:
        return _of_sample(space)


def _of_sample(space: gymnasium.Space[Any]) -> spaces.Space:
    sample = copy.deepcopy(space).sample()  # a copy, whose generator may move
    if isinstance(sample, str):
        return spaces.Text(_ANY_LENGTH, 0, string.printable)
    if not isinstance(sample, (np.ndarray, np.generic, int, float)):
        raise SpecError(f"expected a space of the standard, of text, or of arrays of one shape, got {space}")
    value = np.asarray(sample)
    return widest_box(value.shape, value.dtype)


def episode_of(buffer: EpisodeBuffer, spec: Spec, stored: Spec | None) -> Episode:
    """Return the episode in a buffer, with the spaces of `spec` and, if it is given, the columns of `stored`.

    Values are cast to the dtypes of their spaces if that is exact, or only rounds.
    """
    steps = len(buffer.rewards)
    columns: dict[str, Array] = {}
    for root, space, rows in (
        ("observations", spec.observation_space, steps + 1),
        ("actions", spec.action_space, steps),
    ):
        if space is not None:
            for path, leaf, values in leaf_values(root, space, getattr(buffer, root)):
                columns[path] = _checked(path, _column(path, leaf, values), rows)
    columns["rewards"] = _checked("rewards", _rewards(buffer.rewards, stored), steps)
    for name in ("terminations", "truncations"):
        flags = _flat(name, getattr(buffer, name))
        columns[name] = _checked(name, flags.astype(np.bool_), steps)
    fields = {path: _field(path, array, steps) for path, array in columns.items()}
    for path, values in [*_free("infos", buffer.infos or {}), *_free("", buffer.extras or {})]:
        columns[path] = _free_column(path, values, stored)
        fields[path] = _field(path, columns[path], steps)
    about = {"seed": buffer.seed, "options": buffer.options}
    return Episode(
        Spec(fields, spec.observation_space, spec.action_space),
        columns,
        0 if buffer.id is None else buffer.id,
        {name: value for name, value in about.items() if value is not None},
    )


def leaf_values(path: str, space: spaces.Space, values: Any) -> Iterator[tuple[str, spaces.Space, Any]]:
    """Path, leaf space and values of every leaf; a list of dicts or tuples counts as a dict or tuple of lists."""
    match space:
        case spaces.Dict():
            keys = list(space.spaces)
            given: object = values  # which is narrowed in its place: what is in a Sequence would be unknown
            if isinstance(given, Sequence) and all(is_mapping(row) and {*row} == {*keys} for row in values):
                values = {key: [row[key] for row in values] for key in keys}
            if not is_mapping(values) or {*values} != {*keys}:
                raise DataError(f"expected {path} as a dict with the keys {keys}, got {_brief(values)}")
            for key, inner in space.spaces.items():
                yield from leaf_values(f"{path}/{key}", inner, values[key])
        case spaces.Tuple():
            n = len(space.spaces)
            if is_list(values) and all(is_tuple(v) and len(v) == n for v in values):
                values = tuple([value[i] for value in values] for i in range(n))
            if not is_tuple(values) or len(values) != n:
                raise DataError(f"expected {path} as a tuple of {n}, got {_brief(values)}")
            for i, inner in enumerate(space.spaces):
                yield from leaf_values(f"{path}/{i}", inner, values[i])
        case _:
            yield path, space, values


def _column(path: str, space: spaces.Space, values: Any) -> Array:
    field = leaf_field(space, "step")
    if field.kind == "text":
        return Ragged.from_strings(_text(path, value) for value in values)
    array = _array(path, values)
    if array.shape == (len(array), 1) and field.shape == ():
        array = array[:, 0]
    if array.shape[1:] != field.shape and array.size:
        raise DataError(f"expected {path} of shape {field.shape}, got {array.shape[1:]}")
    return fitted(path, array.reshape(len(array), *field.shape), field.dtype)


def fitted(path: str, array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Return `array` as `dtype` if that only rounds floats or changes nothing."""
    if array.dtype == dtype:
        return array
    if array.dtype.kind in "biufc":
        cast = array.astype(dtype)
        if (np.can_cast(array.dtype, dtype, "same_kind") and dtype.kind in "fc") or np.array_equal(cast, array):
            return cast
    raise DataError(f"expected {path} as {dtype}, got {array.dtype}, which it cannot hold; convert it")


def _rewards(values: Any, stored: Spec | None) -> AnyArray:
    array = _flat("rewards", values)
    dtype = (
        stored["rewards"].dtype if stored is not None else array.dtype if array.dtype.kind == "f" else np.dtype("f8")
    )
    return fitted("rewards", array, dtype)


def _flat(path: str, values: Any) -> AnyArray:
    array = _array(path, values)
    if array.size != len(array):
        raise DataError(f"expected one number a step in {path}, got {array.shape[1:]}")
    return array.reshape(-1)


def _free(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Path and values of every leaf of infos or extra groups; None is no value."""
    if is_tuple(tree):
        tree = {str(i): value for i, value in enumerate(tree)}
    if is_mapping(tree):
        for key, value in tree.items():
            yield from _free(f"{path}/{key}" if path else str(key), value)
    elif tree is not None and not (is_list(tree) and all(value is None for value in tree)):
        count = _texts_a_row(tree)
        if count is None:
            yield path, tree
        for i in range(count or 0):
            yield f"{path}/{i}", [row[i] for row in tree]


def _texts_a_row(values: Any) -> int | None:
    """How many texts each row is a list of, each of which becomes a column; None for other values."""
    if not is_list(values) or not all(map(is_texts, values)):
        return None
    counts = {len(row) for row in values}
    return counts.pop() if len(counts) == 1 else None


def _free_column(path: str, values: Any, stored: Spec | None) -> Array:
    if len(values) and isinstance(values[0], (str, bytes)):
        return Ragged.from_strings(_text(path, value) for value in values)
    array = _array(path, values)
    if array.dtype.kind not in "biufc":
        raise DataError(f"expected numbers, arrays of one shape, or text in {path}, got {_brief(values)}")
    known = stored is not None and path in stored.fields and not stored[path].ragged
    return fitted(path, array, stored[path].dtype) if known and stored is not None else array


def _array(path: str, values: Any) -> AnyArray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"expected values of one shape in {path}, got others: {error}") from error
    if array.ndim == 0:
        raise DataError(f"expected a row a step in {path}, got the single value {_brief(values)}")
    return array


def _text(path: str, value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if not isinstance(value, str):
        raise DataError(f"expected {path} as text, got {_brief(value)}")
    return value


def _checked(path: str, column: Array, rows: int) -> Array:
    if len(column) != rows:
        raise DataError(f"expected {rows} {path} for the steps of the rewards, got {len(column)}")
    return column


def _field(path: str, column: Array, steps: int) -> Field:
    align: Align = "boundary" if len(column) == steps + 1 else "step"
    if len(column) not in (steps, steps + 1):
        raise DataError(f"expected {steps} or {steps + 1} rows of {path}, got {len(column)}")
    if isinstance(column, Ragged):
        return Field(column.dtype, (), align, "text")
    return Field(column.dtype, column.shape[1:], align)


def as_dict(
    episode: Episode, number: int, observation_space: spaces.Space, action_space: spaces.Space
) -> dict[str, Any]:
    """Return an episode with the names of `EpisodeData`; text is lists in spaces, and object arrays elsewhere."""
    there: dict[str, Any] = {
        path: _plain(path, _cut(episode, path, array))
        for path, array in episode.columns.items()
        if not any(under(name, path) for name in (PRESENT, SHAPES)) and _is_there(episode, path)
    }
    shown = Episode.trusted(Spec(episode.spec.fields, observation_space, action_space), there, number, {})
    return {"id": number, **{name: getattr(shown, name) for name in (*REQUIRED, "infos", "extras")}}


def _is_there(episode: Episode, path: str) -> bool:
    mask = episode.columns.get(f"{PRESENT}/{path}")
    return mask is None or bool(np.asarray(mask)[0])


def _cut(episode: Episode, path: str, array: Array) -> Array:
    """A column without what it was filled up with, where other episodes have rows of a larger shape."""
    shapes = episode.columns.get(f"{SHAPES}/{path}")
    if shapes is None or isinstance(array, Ragged):
        return array
    return array[(slice(None), *map(slice, np.asarray(shapes)[0].tolist()))]


def _plain(path: str, array: Array) -> AnyArray | list[str]:
    if not isinstance(array, Ragged):
        return array
    if any(under(name, path) for name in REQUIRED):
        return array.strings()
    rows: Any = array.strings() if array.dtype == np.uint8 else [array[i] for i in range(len(array))]
    out = np.empty(len(array), object)
    out[:] = rows
    return out


def _brief(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:80] + '...'}"


def conformed(episode: Episode, spec: Spec) -> Episode:
    """Return the episode with the dtypes of `spec`, where casting is exact or only rounds floats."""
    if episode.spec is spec:
        return episode
    if episode.columns.keys() != spec.keys():
        missing, extra = sorted(spec.keys() - episode.columns.keys()), sorted(episode.columns.keys() - spec.keys())
        raise DataError(
            f"expected the columns of the dataset's first episode, got {missing} missing and {extra} too many; all "
            "episodes of a dataset need the same infos"
        )
    columns: dict[str, Array] = {
        path: array if isinstance(array, Ragged) else fitted(path, array, spec[path].dtype)
        for path, array in episode.columns.items()
    }
    return Episode(spec, columns, episode.id, episode.metadata)
