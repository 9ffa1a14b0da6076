"""Base classes of transforms, and their application in order.

Episodes are chosen first (`EpisodeTransform`), then cut into samples (`SampleTransform`), then ordered and combined
(`PlanTransform`). All transforms are frozen dataclasses: their `repr` is part of fingerprints, so `require_int` makes
plain `int` of NumPy's integers. A field that a transform got later is named there only where it is set, so that states
saved before stay good: its class has `@earlier_repr(names)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_integer
from penstock.errors import ArgumentError, PlanError
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes

T = TypeVar("T")


def earlier_repr(*later: str) -> Callable[[type[T]], type[T]]:
    """Decorate a dataclass whose `repr` leaves out some fields while they have their defaults."""

    def decorate(cls: type[T]) -> type[T]:
        @wraps(cls.__repr__)
        def represent(self: Any) -> str:
            shown = (
                f"{each.name}={value!r}"
                for each in fields(self)
                if (value := getattr(self, each.name)) != each.default or each.name not in later
            )
            return f"{type(self).__name__}({', '.join(shown)})"

        cls.__repr__ = represent
        return cls

    return decorate


class EpisodeTransform(ABC):
    """Transform from episodes to episodes: `Where`, `Split`. A frozen dataclass.

    Example:
        >>> from penstock.plan import EpisodeTransform, Split
        >>> isinstance(Split((0.9, 0.1)), EpisodeTransform)
        True
    """

    @abstractmethod
    def choose(self, episodes: Episodes) -> Episodes:
        """Return the chosen episodes.

        Args:
            episodes: Table of episodes.

        Raises:
            PlanError: The transform does not fit the episodes.
        """


class SampleTransform(ABC):
    """Transform from episodes to samples: `Steps`, `Windows`, `Pairs`, `Sequences`. A frozen dataclass.

    Example:
        >>> from penstock.plan import SampleTransform, Windows
        >>> isinstance(Windows(16), SampleTransform)
        True
    """

    @abstractmethod
    def plan(self, episodes: Episodes) -> Plan:
        """Return the plan of the samples.

        Args:
            episodes: Table of episodes.

        Raises:
            PlanError: The transform does not fit the columns.
        """


class PlanTransform(ABC):
    """Transform from plan to plan: `Shuffle`, `Repeat`, `EpochLength`, `Shard`, `Pack`. A frozen dataclass.

    Example:
        >>> from penstock.plan import PlanTransform, Shuffle
        >>> isinstance(Shuffle(seed=3), PlanTransform)
        True
    """

    @abstractmethod
    def reorder(self, plan: Plan) -> Plan:
        """Return the transformed plan.

        Args:
            plan: Plan to transform.

        Raises:
            PlanError: The plan does not allow the transform.
        """


Transform = EpisodeTransform | SampleTransform | PlanTransform


def apply(start: Episodes | Plan, *transforms: Transform) -> Episodes | Plan:
    """Apply transforms in order."""
    stage: Episodes | Plan = start
    before: object = type(start).__name__
    for transform in transforms:
        stage = _step(stage, transform, before)
        before = transform
    return stage


def _step(stage: Episodes | Plan, transform: Transform, before: object) -> Episodes | Plan:
    if isinstance(stage, Episodes):
        if isinstance(transform, EpisodeTransform):
            return transform.choose(stage)
        if isinstance(transform, SampleTransform):
            return transform.plan(stage)
        _known(transform, before)
        raise PlanError(
            f"expected {transform!r} after Steps, Windows, Pairs or Sequences, got it after {before!r}, "
            "which has no samples yet"
        )
    if isinstance(transform, PlanTransform):
        return transform.reorder(stage)
    _known(transform, before)
    raise PlanError(f"expected {transform!r} before the samples are cut, got it after {before!r}")


def _known(transform: object, before: object) -> None:
    if not isinstance(transform, EpisodeTransform | SampleTransform | PlanTransform):
        raise PlanError(f"expected a transform such as Windows or Shuffle after {before!r}, got {transform!r}")


def require_transform(transform: object, kind: type, what: str, hint: str) -> None:
    """Check that a transform has the kind that a dataset can apply."""
    if not isinstance(transform, kind):
        raise ArgumentError(f"expected a transform {what}, got {transform!r}; {hint}")


def require_int(transform: object, name: str, least: int, most: int | None = None) -> None:
    """Convert a field of a frozen dataclass to a plain `int`, because its repr is part of fingerprints."""
    value = getattr(transform, name)
    whole = is_integer(value) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = f"of at least {least}" if most is None else f"within {least} to {most}"
        raise PlanError(f"expected {type(transform).__name__} {name} to be an integer {limit}, got {value!r}")
    set_fields(transform, **{name: int(value)})
