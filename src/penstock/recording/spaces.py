"""Convert Gymnasium's spaces to penstock's and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from penstock.core import spaces
from penstock.errors import SpecError

GymSpace = gymnasium.Space[Any]


def from_gymnasium(space: GymSpace) -> spaces.Space:
    """Convert a Gymnasium space. `to_gymnasium` converts it back to an equal space. Cost: one copy of the bounds."""
    for kind, convert in _FROM.items():
        if isinstance(space, kind):
            return convert(space)
    raise SpecError(
        f"expected a space among {', '.join(kind.__name__ for kind in _FROM)}, got {space}; wrap the environment so "
        "that it gives one of these (pad or flatten values of varying size), or record the parts through `on_step`"
    )


def to_gymnasium(space: spaces.Space) -> GymSpace:
    convert = _TO.get(type(space))
    if convert is None:
        raise SpecError(f"expected a space among {', '.join(kind.__name__ for kind in _TO)}, got {space}")
    return convert(space)


def _from_dict(space: gymnasium.spaces.Dict) -> spaces.Space:
    for key in space.spaces:
        if type(key) is not str:
            raise SpecError(f"expected the keys of a Dict space to be strings, got {key!r}; rename it in a wrapper")
    return spaces.Dict({key: from_gymnasium(inner) for key, inner in space.spaces.items()})


def _from_binary(space: gymnasium.spaces.MultiBinary) -> spaces.Space:
    n = space.n
    return spaces.MultiBinary(int(n) if isinstance(n, (int, np.integer)) else tuple(int(i) for i in n))


def _to_text(space: spaces.Text) -> GymSpace:
    return gymnasium.spaces.Text(space.max_length, min_length=space.min_length, charset=space.charset)


_FROM: dict[type[Any], Callable[[Any], spaces.Space]] = {
    gymnasium.spaces.Box: lambda s: spaces.Box(s.low.copy(), s.high.copy(), np.dtype(s.dtype)),
    gymnasium.spaces.Discrete: lambda s: spaces.Discrete(int(s.n), int(s.start), np.dtype(s.dtype)),
    gymnasium.spaces.MultiDiscrete: lambda s: spaces.MultiDiscrete(s.nvec.copy(), s.start.copy(), np.dtype(s.dtype)),
    gymnasium.spaces.MultiBinary: _from_binary,
    gymnasium.spaces.Text: lambda s: spaces.Text(int(s.max_length), int(s.min_length), "".join(s.character_list)),
    gymnasium.spaces.Tuple: lambda s: spaces.Tuple(tuple(from_gymnasium(inner) for inner in s.spaces)),
    gymnasium.spaces.Dict: _from_dict,
}

_TO: dict[type[spaces.Space], Callable[[Any], GymSpace]] = {
    spaces.Box: lambda s: gymnasium.spaces.Box(s.low.copy(), s.high.copy(), s.shape, s.dtype.type),
    spaces.Discrete: lambda s: gymnasium.spaces.Discrete(s.n, start=s.start, dtype=s.dtype.type),
    spaces.MultiDiscrete: lambda s: gymnasium.spaces.MultiDiscrete(s.nvec, dtype=s.dtype.type, start=s.start),
    spaces.MultiBinary: lambda s: gymnasium.spaces.MultiBinary(s.n),
    spaces.Text: _to_text,
    spaces.Tuple: lambda s: gymnasium.spaces.Tuple([to_gymnasium(inner) for inner in s.spaces]),
    spaces.Dict: lambda s: gymnasium.spaces.Dict([(key, to_gymnasium(inner)) for key, inner in s.spaces.items()]),
}
