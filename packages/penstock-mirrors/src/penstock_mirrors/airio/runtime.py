"""Run-time arguments of preprocessors (sequence lengths, split, batch size), and the shard to read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import PlanError

SKIP_FEATURE = -1
"""The sequence length of a feature that is neither trimmed, padded nor packed."""


Length = int | Sequence[int]
"""A sequence length: of the first axis, or of each axis of a feature."""


@dataclass(frozen=True)
class AirIOInjectedRuntimeArgs:
    """Arguments of `get_dataset`. They are passed to a function that has a parameter annotated with this class.

    A sequence length is a number, or a list of one for each axis of a feature, which `trim` and `pad` heed.
    """

    sequence_lengths: Mapping[str, Length] | None
    split: str
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, length in (self.sequence_lengths or {}).items():
            axes = list(length) if isinstance(length, list | tuple) else [length]
            fits = bool(axes) and all(type(axis) is int and axis >= 1 for axis in axes)
            if not fits and not (type(length) is int and length == SKIP_FEATURE):
                raise PlanError(
                    f"expected a sequence length of 1 or more, a list of one for each axis, or {SKIP_FEATURE}, "
                    f"got {length!r} for {name!r}"
                )

    def replace(self, **changes: Any) -> AirIOInjectedRuntimeArgs:
        return dataclasses.replace(self, **changes)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The features that have a length, each with the lengths of its first axis or of all its axes."""
        given = {name: length for name, length in (self.sequence_lengths or {}).items() if length != SKIP_FEATURE}
        return {name: (length,) if isinstance(length, int) else tuple(length) for name, length in given.items()}

    @property
    def by_axis(self) -> bool:
        """Whether a feature has a length for each of its axes."""
        return any(not isinstance(length, int) for length in (self.sequence_lengths or {}).values())

    @property
    def limits(self) -> dict[str, int]:
        """The features that have a length, with it."""
        limited = {name: length for name, length in (self.sequence_lengths or {}).items() if length != SKIP_FEATURE}
        lists = {name: list(length) for name, length in limited.items() if not isinstance(length, int)}
        if lists:
            raise PlanError(f"expected one number as the sequence length of what is packed or converted, got {lists}")
        return {name: length for name, length in limited.items() if isinstance(length, int)}

    def length(self, feature: str) -> int:
        if feature not in self.limits:
            raise PlanError(
                f"expected a sequence length for {feature!r}, got {dict(self.sequence_lengths or {})}; "
                "name it in get_dataset(sequence_lengths=...)"
            )
        return self.limits[feature]


@dataclass(frozen=True)
class ShardInfo:
    """Share `index` of `num_shards`: every `num_shards`-th example from `index` on."""

    index: int
    num_shards: int


def injected(fn: Callable[..., Any], args: AirIOInjectedRuntimeArgs) -> Callable[..., Any]:
    """Return the function with `args` bound to the annotated parameter, or unchanged without such a parameter."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # some functions of C have no signature
        return fn
    # Annotations are text where a module postpones them.
    asking = [
        p.name
        for p in parameters
        if p.annotation is AirIOInjectedRuntimeArgs or str(p.annotation).endswith("AirIOInjectedRuntimeArgs")
    ]
    if len(asking) > 1:
        raise PlanError(f"expected one parameter of {fn!r} to ask for runtime arguments, got {asking}")
    return functools.partial(fn, **{asking[0]: args}) if asking else fn


def named(fn: Callable[..., Any]) -> str:
    """Return a name for messages that distinguishes partial functions."""
    if isinstance(fn, functools.partial):
        bound = [*map(repr, fn.args), *(f"{k}={v!r}" for k, v in sorted(fn.keywords.items()))]
        return f"{named(fn.func)}({', '.join(bound)})"
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))
