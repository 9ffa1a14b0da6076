"""What a run decides and preprocessors are told: lengths, split, batch size; and which share of the data is wanted."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import PlanError

SKIP_FEATURE = -1
"""The sequence length of a feature that is neither trimmed, padded nor packed."""


@dataclass(frozen=True)
class AirIOInjectedRuntimeArgs:
    """What `get_dataset` was asked for. A function with a parameter that is annotated with this class is handed it.

    >>> AirIOInjectedRuntimeArgs({"targets": 4}, "train").length("targets")
    4
    """

    sequence_lengths: Mapping[str, int] | None
    split: str
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name, length in (self.sequence_lengths or {}).items():
            if type(length) is not int or (length < 1 and length != SKIP_FEATURE):
                raise PlanError(
                    f"expected a sequence length of 1 or more, or {SKIP_FEATURE}, got {length!r} for {name!r}"
                )

    def replace(self, **changes: Any) -> AirIOInjectedRuntimeArgs:
        """The same with some values changed."""
        return dataclasses.replace(self, **changes)

    @property
    def limits(self) -> dict[str, int]:
        """The features that have a length, with it."""
        return {name: length for name, length in (self.sequence_lengths or {}).items() if length != SKIP_FEATURE}

    def length(self, feature: str) -> int:
        """The length of a feature. Raises `PlanError` if none was given."""
        if feature not in self.limits:
            raise PlanError(
                f"expected a sequence length for {feature!r}, got {dict(self.sequence_lengths or {})}; "
                "name it in get_dataset(sequence_lengths=...)"
            )
        return self.limits[feature]


@dataclass(frozen=True)
class ShardInfo:
    """Share `index` of `num_shards`: every `num_shards`-th example from `index` on.

    >>> ShardInfo(index=0, num_shards=4).num_shards
    4
    """

    index: int
    num_shards: int


def injected(fn: Callable[..., Any], args: AirIOInjectedRuntimeArgs) -> Callable[..., Any]:
    """The function with `args` bound to the parameter that asks for them; itself if none does.

    Raises `PlanError` if several do.

    >>> def length(example, args: AirIOInjectedRuntimeArgs): return args.split
    >>> injected(length, AirIOInjectedRuntimeArgs(None, "train"))({})
    'train'
    """
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
    """A name for messages, which tells partial functions apart.

    >>> named(functools.partial(round, ndigits=2))
    'round(ndigits=2)'
    """
    if isinstance(fn, functools.partial):
        bound = [*map(repr, fn.args), *(f"{k}={v!r}" for k, v in sorted(fn.keywords.items()))]
        return f"{named(fn.func)}({', '.join(bound)})"
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))
