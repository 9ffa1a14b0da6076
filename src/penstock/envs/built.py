"""The spaces of an environment that has to be built to know them, as plain data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core import spaces
from penstock.errors import SpecError

if TYPE_CHECKING:
    import gymnasium


def built_spaces(factory: Callable[[], gymnasium.Env[Any, Any]]) -> tuple[spaces.Space, spaces.Space]:
    """Observation and action space of the environment that `factory` builds; it is closed again.

    Raises `SpecError` for spaces other than `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary` and dicts of them.
    """
    env = factory()
    try:
        return plain_space(env.observation_space), plain_space(env.action_space)
    finally:
        env.close()


def plain_space(space: gymnasium.Space[Any]) -> spaces.Space:
    """The plain-data twin of a space of Gymnasium that a benchmark may have. Raises `SpecError` for another."""
    import gymnasium.spaces as theirs

    match space:
        case theirs.Box():
            return spaces.Box(space.low.copy(), space.high.copy(), np.dtype(space.dtype))
        case theirs.Discrete():
            return spaces.Discrete(int(space.n), int(space.start), np.dtype(space.dtype))
        case theirs.MultiDiscrete():
            return spaces.MultiDiscrete(space.nvec.copy(), space.start.copy(), np.dtype(space.dtype))
        case theirs.MultiBinary():
            shape = space.shape
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        case theirs.Dict():
            return spaces.Dict({str(name): plain_space(inner) for name, inner in space.spaces.items()})
        case _:
            raise SpecError(f"expected a space of numbers or a dict of such, got {space}")
