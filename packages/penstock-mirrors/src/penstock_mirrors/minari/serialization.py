"""Spaces as JSON text and back, extensible to custom spaces with `.register`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import gymnasium

from penstock.core.spaces import Space
from penstock.errors import SpecError
from penstock.recording.spaces import from_gymnasium, to_gymnasium

GymSpace = gymnasium.Space[Any]
Reader = Callable[[dict[str, Any]], GymSpace]


class UnknownSpaceError(SpecError, NotImplementedError):
    """Nothing is registered for a kind of space. Minari raises `NotImplementedError`, so it is that error too."""


@singledispatch
def serialize_space(space: GymSpace, to_string: bool = True) -> dict[str, Any] | str:  # noqa: ARG001
    """Return a space as the standard's JSON text, or as a plain dict. `serialize_space.register(MySpace)`
    adds a space.
    """
    how = f"add one with @serialize_space.register({type(space).__name__})"
    raise UnknownSpaceError(f"No serialization method available for {space}; {how}")


@serialize_space.register(gymnasium.spaces.Box)
@serialize_space.register(gymnasium.spaces.Discrete)
@serialize_space.register(gymnasium.spaces.MultiDiscrete)
@serialize_space.register(gymnasium.spaces.MultiBinary)
@serialize_space.register(gymnasium.spaces.Text)
def _leaf(space: GymSpace, to_string: bool = True) -> dict[str, Any] | str:
    return _written(from_gymnasium(space).to_json(), to_string)


@serialize_space.register(gymnasium.spaces.Dict)
def _dict(space: gymnasium.spaces.Dict, to_string: bool = True) -> dict[str, Any] | str:
    inner = {key: serialize_space(value, to_string=False) for key, value in space.spaces.items()}
    return _written({"type": "Dict", "subspaces": inner}, to_string)


@serialize_space.register(gymnasium.spaces.Tuple)
def _tuple(space: gymnasium.spaces.Tuple[Any], to_string: bool = True) -> dict[str, Any] | str:
    inner = [serialize_space(value, to_string=False) for value in space.spaces]
    return _written({"type": "Tuple", "subspaces": inner}, to_string)


def _written(data: dict[str, Any], to_string: bool) -> dict[str, Any] | str:
    return json.dumps(data) if to_string else data


class _SpaceReader:
    """`deserialize_space`: looks up the reader that is registered for a "type"."""

    def __init__(self) -> None:
        self.registry: dict[str, Reader] = {}

    def register(self, type: str) -> Callable[[Reader], Reader]:
        """Decorate the function that reads spaces whose JSON has this `"type"`."""

        def keep(reader: Reader) -> Reader:
            self.registry[type] = reader
            return reader

        return keep

    def __call__(self, space_dict: Mapping[str, Any] | str) -> GymSpace:
        """Return the Gymnasium space of the standard's JSON, a dict or its text."""
        data = json.loads(space_dict) if isinstance(space_dict, str) else dict(space_dict)
        reader = self.registry.get(str(data.get("type")))
        if reader is None:
            kind = data.get("type")
            how = f"add one with @deserialize_space.register({kind!r})"
            raise UnknownSpaceError(f"No deserialization method available for {kind}; {how}")
        return reader(data)


deserialize_space = _SpaceReader()


@deserialize_space.register("Box")
@deserialize_space.register("Discrete")
@deserialize_space.register("MultiDiscrete")
@deserialize_space.register("MultiBinary")
@deserialize_space.register("Text")
def _read_leaf(data: dict[str, Any]) -> GymSpace:
    return to_gymnasium(Space.from_json(data))


@deserialize_space.register("Dict")
def _read_dict(data: dict[str, Any]) -> GymSpace:
    return gymnasium.spaces.Dict([(str(key), deserialize_space(inner)) for key, inner in data["subspaces"].items()])


@deserialize_space.register("Tuple")
def _read_tuple(data: dict[str, Any]) -> GymSpace:
    return gymnasium.spaces.Tuple([deserialize_space(inner) for inner in data["subspaces"]])
