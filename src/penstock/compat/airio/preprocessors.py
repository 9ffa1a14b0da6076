"""What is done to examples: functions of one example, or of a batch of them, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.compat.airio.runtime import SKIP_FEATURE, AirIOInjectedRuntimeArgs
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import SpecError

Int = npt.NDArray[np.int64]
UpdateRuntimeArgs = Callable[[AirIOInjectedRuntimeArgs], AirIOInjectedRuntimeArgs]
F = TypeVar("F", bound=Callable[..., Any])


def batched(fn: F) -> F:
    """Mark a function as one of batches, so that a transform need not be told.

    >>> @batched
    ... def double(columns): return columns.map(lambda a: a * 2)
    >>> MapFnTransform(double).of_batches
    True
    """
    fn.__dict__["of_batches"] = True
    return fn


@dataclass(frozen=True)
class MapFnTransform:
    """`map_fn(example)` gives another example. With `batched` it is `map_fn(columns)`: `Columns` of `n` examples, 1-d
    features being `Ragged` until they are padded or packed, to a mapping of as many rows; each of its own row alone.

    `update_runtime_args` changes the sequence lengths that what comes behind is told.

    >>> MapFnTransform(lambda example: {"targets": example["text"]}).of_batches
    False
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

    >>> RandomMapFnTransform(lambda columns, keys: columns, batched=True).of_batches
    True
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
    """Keep the examples for which `filter_fn(example)` is true; with `batched`, `filter_fn(columns)` gives `[n]` bool.

    What is left is dense: it has a length, and every position is an example.

    >>> FilterFnTransform(lambda example: example["targets"].size > 0).of_batches
    False
    """

    filter_fn: Callable[..., Any]
    _: KW_ONLY
    batched: bool = False

    @property
    def of_batches(self) -> bool:
        """Whether the function takes batches."""
        return self.batched or _marked(self.filter_fn)


@batched
def trim(columns: Columns, runtime_args: AirIOInjectedRuntimeArgs) -> Columns:
    """Cut every feature to its sequence length; one without, or with `SKIP_FEATURE`, stays.

    >>> words = Columns({"targets": Ragged.from_rows([[1, 2, 3], [4]], "int64")})
    >>> trim(words, AirIOInjectedRuntimeArgs({"targets": 2}, "train"))["targets"].values.tolist()
    [1, 2, 4]
    """
    cut: dict[str, Any] = {}
    for name, length in runtime_args.limits.items():
        if name in columns.flat:
            held = columns.flat[name]
            cut[name] = _cut(held, np.minimum(held.lengths, length)) if isinstance(held, Ragged) else held[:, :length]
    return columns.merged(cut)


@batched
def pad(columns: Columns, runtime_args: AirIOInjectedRuntimeArgs, pad_id: int = 0) -> Columns:
    """Fill every feature up to its sequence length: `Ragged` ones become `[n, length]`. Packs are padded already, with
    the `pad_id` of the `pad` that follows the packer; their segment ids and positions are 0 there.

    Raises `SpecError` for a feature that is longer.

    >>> words = Columns({"targets": Ragged.from_rows([[1, 2], [4]], "int64")})
    >>> pad(words, AirIOInjectedRuntimeArgs({"targets": 3}, "train"), pad_id=9)["targets"].tolist()
    [[1, 2, 9], [4, 9, 9]]
    """
    filled = {
        name: _filled(name, columns.flat[name], length, pad_id)
        for name, length in runtime_args.limits.items()
        if name in columns.flat
    }
    return columns.merged(filled)


@batched
def rekey(columns: Columns, key_map: Mapping[str, str]) -> Columns:
    """The features under other names: `key_map` has the old name of each new one.

    Raises `SpecError` for a feature that is not there.

    >>> list(rekey(Columns({"text": np.zeros(1)}), {"targets": "text"}))
    ['targets']
    """
    return Columns({new: feature(columns, old) for new, old in key_map.items()}, columns.n)


@batched
def remove_features_not_in_sequence_lengths(columns: Columns, runtime_args: AirIOInjectedRuntimeArgs) -> Columns:
    """Only the features that have a sequence length, `SKIP_FEATURE` included.

    >>> both = Columns({"targets": np.zeros(1), "text": np.zeros(1)})
    >>> list(remove_features_not_in_sequence_lengths(both, AirIOInjectedRuntimeArgs({"targets": 2}, "train")))
    ['targets']
    """
    wanted = runtime_args.sequence_lengths or {}
    return Columns.of_flat({name: array for name, array in columns.flat.items() if name in wanted}, columns.n)


def feature(columns: Columns, name: str) -> Any:
    """One feature. Raises `SpecError` if examples have none of that name."""
    if name not in columns.flat:
        raise SpecError(f"expected a feature {name!r}, got examples with {list(columns)}")
    return columns.flat[name]


def joined(a: Ragged, b: Ragged) -> Ragged:
    """Each row of `a` with that of `b` behind it.

    >>> joined(Ragged.from_strings(["a", "bc"]), Ragged.from_strings(["de", "f"])).strings()
    ['ade', 'bcf']
    """
    offsets = offsets_of(a.lengths + b.lengths)
    values = np.empty(int(offsets[-1]), np.result_type(a.dtype, b.dtype))
    values[np.arange(len(a.values)) + np.repeat(offsets[:-1] - a.offsets[:-1], a.lengths)] = a.values
    values[np.arange(len(b.values)) + np.repeat(offsets[:-1] + a.lengths - b.offsets[:-1], b.lengths)] = b.values
    return Ragged(values, offsets)


def _marked(fn: Callable[..., Any]) -> bool:
    return bool(getattr(getattr(fn, "func", fn), "of_batches", False))


def _cut(held: Ragged, lengths: Int) -> Ragged:
    """The first `lengths[i]` values of row `i`."""
    offsets = offsets_of(lengths)
    return Ragged(held.values[np.arange(offsets[-1]) + np.repeat(held.offsets[:-1] - offsets[:-1], lengths)], offsets)


def _filled(name: str, held: Any, length: int, pad_id: int) -> npt.NDArray[Any]:
    longest = int(held.lengths.max(initial=0)) if isinstance(held, Ragged) else held.shape[1]
    if longest > length:
        raise SpecError(f"expected at most {length} values of {name!r}, got {longest}; trim before padding")
    if isinstance(held, Ragged):
        row = np.repeat(np.arange(len(held)), held.lengths)
        out = np.full((len(held), length), pad_id, held.dtype)
        out[row, np.arange(len(row)) - held.offsets[row]] = held.values
        return out
    if longest == length:
        return held
    out = np.full((len(held), length, *held.shape[2:]), pad_id, held.dtype)
    out[:, :longest] = held
    return out


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
