"""Preprocessors: NumPy functions of one example, or of a batch of examples."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import SpecError
from penstock_mirrors.airio.runtime import SKIP_FEATURE, AirIOInjectedRuntimeArgs

UpdateRuntimeArgs = Callable[[AirIOInjectedRuntimeArgs], AirIOInjectedRuntimeArgs]
F = TypeVar("F", bound=Callable[..., Any])


def batched(fn: F) -> F:
    """Mark a function as a function of batches, so that transforms need no `batched=True`."""
    fn.__dict__["of_batches"] = True
    return fn


@dataclass(frozen=True)
class MapFnTransform:
    """Replace each example by `map_fn(example)`.

    With `batched`, call `map_fn(columns)` with `Columns` of `n` examples and expect a mapping of `n` rows, where each
    row depends only on the same input row. 1-d features are `Ragged` until they are padded or packed.
    `update_runtime_args` changes the sequence lengths for later preprocessors.
    """

    map_fn: Callable[..., Any]
    _: KW_ONLY
    update_runtime_args: UpdateRuntimeArgs | None = None
    batched: bool = False

    @property
    def of_batches(self) -> bool:
        """Whether the function takes batches."""
        return self.batched or _marked(self.map_fn)


@dataclass(frozen=True)
class RandomMapFnTransform:
    """`map_fn(example, rng)` with a `numpy.random.Generator` that follows from the seed and the example's position
    alone; with `batched`, `map_fn(columns, keys)` with `[n]` uint64 keys.
    """

    map_fn: Callable[..., Any]
    _: KW_ONLY
    update_runtime_args: UpdateRuntimeArgs | None = None
    batched: bool = False

    @property
    def of_batches(self) -> bool:
        """Whether the function takes batches."""
        return self.batched or _marked(self.map_fn)


@dataclass(frozen=True)
class FilterFnTransform:
    """Keep examples for which `filter_fn(example)` is true; with `batched`, `filter_fn(columns)` returns `[n]` bool.

    The result is dense: it has a length, and every position is an example. `update_runtime_args` changes the sequence
    lengths for later preprocessors.
    """

    filter_fn: Callable[..., Any]
    _: KW_ONLY
    update_runtime_args: UpdateRuntimeArgs | None = None
    batched: bool = False

    @property
    def of_batches(self) -> bool:
        """Whether the function takes batches."""
        return self.batched or _marked(self.filter_fn)


@batched
def trim(columns: Any, runtime_args: AirIOInjectedRuntimeArgs) -> Any:
    """Cut every feature to its sequence length; one without, or with `SKIP_FEATURE`, stays.

    A number cuts the first axis, a list each axis. Takes `Columns`, or one example.
    """
    return _each_feature(columns, runtime_args, _trimmed)


@batched
def pad(columns: Any, runtime_args: AirIOInjectedRuntimeArgs, pad_id: int = 0) -> Any:
    """Fill every feature up to its sequence length: `Ragged` ones become `[n, length, ...]`. Packs are padded already,
    with the `pad_id` of the `pad` that follows the packer; their segment ids and positions are 0 there.

    A number fills the first axis, a list each axis. Takes `Columns`, or one example.
    """
    return _each_feature(columns, runtime_args, functools.partial(_filled, pad_id=pad_id))


@batched
def rekey(columns: Columns, key_map: Mapping[str, str | None] | None = None) -> Columns:
    """Rename features: `key_map` maps each new name to the old name, or to None for empty text.

    Without a map, names stay.
    """
    if not key_map:
        return columns
    nothing = Ragged.from_strings([""] * columns.n)
    return Columns({new: feature(columns, old) if old else nothing for new, old in key_map.items()}, columns.n)


@batched
def remove_features_not_in_sequence_lengths(columns: Columns, runtime_args: AirIOInjectedRuntimeArgs) -> Columns:
    """Keep only the features that have a sequence length, including `SKIP_FEATURE`."""
    wanted = runtime_args.sequence_lengths or {}
    return Columns.of_flat({name: array for name, array in columns.flat.items() if name in wanted}, columns.n)


def feature(columns: Columns, name: str) -> Any:
    if name not in columns.flat:
        raise SpecError(f"expected a feature {name!r}, got examples with {list(columns)}")
    return columns.flat[name]


def joined(a: Ragged, b: Ragged) -> Ragged:
    """Concatenate each row of `a` with the same row of `b`."""
    offsets = offsets_of(a.lengths + b.lengths)
    values = np.empty((int(offsets[-1]), *a.values.shape[1:]), np.result_type(a.dtype, b.dtype))
    values[np.arange(len(a.values)) + np.repeat(offsets[:-1] - a.offsets[:-1], a.lengths)] = a.values
    values[np.arange(len(b.values)) + np.repeat(offsets[:-1] + a.lengths - b.offsets[:-1], b.lengths)] = b.values
    return Ragged(values, offsets)


def _marked(fn: Callable[..., Any]) -> bool:
    return bool(getattr(getattr(fn, "func", fn), "of_batches", False))


def _each_feature(
    columns: Any, runtime_args: AirIOInjectedRuntimeArgs, change: Callable[[str, Any, tuple[int, ...]], Any]
) -> Any:
    """The features that have a sequence length changed, of `Columns` or of one example."""
    if isinstance(columns, Columns):
        features = {name: columns.flat[name] for name in runtime_args.shapes if name in columns.flat}
        return columns.merged({name: change(name, features[name], runtime_args.shapes[name]) for name in features})
    example = dict(typing.cast(Mapping[str, Any], columns))
    for name, lengths in runtime_args.shapes.items():
        if name in example:
            example[name] = change(name, np.asarray(example[name])[None], lengths)[0]
    return example


def _trimmed(name: str, values: Any, lengths: tuple[int, ...]) -> Any:
    """The first values of each row."""
    inner = tuple(slice(0, length) for length in lengths[1:])
    _check_axes(name, values, lengths)
    if not isinstance(values, Ragged):
        return values[:, : lengths[0], *inner]
    kept = np.minimum(values.lengths, lengths[0])
    offsets = offsets_of(kept)
    rows = np.arange(offsets[-1], dtype=np.int64) + np.repeat(values.offsets[:-1] - offsets[:-1], kept)
    return Ragged(values.values[rows][:, *inner] if inner else values.values[rows], offsets)


def _filled(name: str, values: Any, lengths: tuple[int, ...], pad_id: int) -> AnyArray:
    """Each row, and `pad_id` behind it."""
    _check_axes(name, values, lengths)
    inner = values.values.shape[1:] if isinstance(values, Ragged) else values.shape[2:]
    longest = int(values.lengths.max(initial=0)) if isinstance(values, Ragged) else values.shape[1]
    padded_shape = (longest, *inner)[: len(lengths)]
    if any(size > length for size, length in zip(padded_shape, lengths, strict=True)):
        shown = lengths[0] if len(lengths) == 1 else list(lengths)
        got = padded_shape[0] if len(padded_shape) == 1 else list(padded_shape)
        raise SpecError(f"expected at most {shown} values of {name!r}, got {got}; trim before padding")
    shape = (*lengths, *inner[len(lengths) - 1 :])
    if not isinstance(values, Ragged) and values.shape[1:] == shape:
        return values
    out = np.full((len(values), *shape), pad_id, values.dtype)
    places = tuple(slice(0, size) for size in inner)
    if isinstance(values, Ragged):
        row = np.repeat(np.arange(len(values)), values.lengths)
        out[row, np.arange(len(row)) - values.offsets[row], *places] = values.values
    else:
        out[:, :longest, *places] = values
    return out


def _check_axes(name: str, values: Any, lengths: tuple[int, ...]) -> None:
    axes = values.values.ndim if isinstance(values, Ragged) else values.ndim - 1
    if axes < 1 or (len(lengths) > 1 and len(lengths) != axes):
        raise SpecError(f"expected a sequence length for each of {axes} axes of {name!r}, got {list(lengths)}")


__all__ = [
    "SKIP_FEATURE",
    "FilterFnTransform",
    "MapFnTransform",
    "RandomMapFnTransform",
    "batched",
    "pad",
    "rekey",
    "remove_features_not_in_sequence_lengths",
    "trim",
]
