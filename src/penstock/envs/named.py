"""Environments that another distribution makes by name, `benchmark/task`.

An entry point of the group `penstock.environments` names a module with the functions of `NamedEnvironments`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import gymnasium

GROUP = "penstock.environments"


class NamedEnvironments(Protocol):
    """The functions of such a module. `settings` are texts `key=value`, as on the command line."""

    def available(self) -> tuple[str, ...]:
        """Return the names of the benchmarks. Nothing is imported for it."""
        ...

    def make(self, env: str, settings: Sequence[str]) -> gymnasium.Env[Any, Any]: ...

    def described(self, env: str, settings: Sequence[str]) -> dict[str, Any]:
        """Return metadata of datasets of this environment, as plain values."""
        ...


@cache
def modules() -> tuple[NamedEnvironments, ...]:
    return tuple(point.load() for point in importlib.metadata.entry_points(group=GROUP))


def benchmarks() -> list[str]:
    """The names before the slash."""
    return [name for module in modules() for name in module.available()]


def makers_of(env: str) -> NamedEnvironments | None:
    """The module that makes `benchmark/task`; None for other names, which are Gymnasium's."""
    benchmark, slash, _ = env.partition("/")
    return next((module for module in modules() if slash and benchmark in module.available()), None)
