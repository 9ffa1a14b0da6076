"""JSON of spaces that is short or fast to write, for spaces of pictures.

`Space.to_json` has a number for every channel of every pixel. `compact` writes one number for equal bounds, and
`json_text` writes the same text as `json.dumps` of the standard's JSON, but formats equal bounds once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.arrays import AnyArray
from penstock.core.spaces import CELLS, Box, Dict, Space, Tuple


def compact(space: Space, *, arrays: bool = False) -> dict[str, Any]:
    """Return short JSON of a space for `Space.from_json`.

    A bound is one number if it is the same in all cells, and otherwise lists. The JSON of the standard has a number for
    every channel of every pixel of an image space.
    """
    match space:
        case Box(low, high, dtype):
            bounds = {"low": _bound(low, arrays=arrays), "high": _bound(high, arrays=arrays)}
            return {"type": "Box", "dtype": str(dtype), "shape": list(low.shape), **bounds}
        case Tuple(spaces):
            return {"type": "Tuple", "subspaces": [compact(inner, arrays=arrays) for inner in spaces]}
        case Dict(spaces):
            return {
                "type": "Dict",
                "subspaces": {name: compact(inner, arrays=arrays) for name, inner in spaces.items()},
            }
        case _:
            return space.to_json()


def json_text(space: Space) -> str:
    """Return `json.dumps(space.to_json(), sort_keys=True)`, in milliseconds instead of seconds for image spaces."""
    match space:
        case Box(low, high, dtype):
            entries = {"dtype": json.dumps(str(dtype)), "shape": json.dumps(list(low.shape)), "type": '"Box"'}
            return json_object({**entries, "low": _cells(low), "high": _cells(high)})
        case Tuple(spaces):
            return json_object({"type": '"Tuple"', "subspaces": f"[{', '.join(map(json_text, spaces))}]"})
        case Dict(spaces):
            inner = json_object({name: json_text(each) for name, each in spaces.items()})
            return json_object({"type": '"Dict"', "subspaces": inner})
        case _:
            return json.dumps(space.to_json(), sort_keys=True)


def json_object(parts: Mapping[str, str]) -> str:
    """Return the JSON of an object with sorted keys, from the JSON of its values."""
    return "{" + ", ".join(f"{json.dumps(name)}: {parts[name]}" for name in sorted(parts)) + "}"


def _bound(bound: AnyArray, *, arrays: bool) -> Any:
    """The common number of all cells, or the cells."""
    if _is_uniform(bound) and bound.size <= CELLS:
        return bound.flat[0].item()
    return bound if arrays else bound.tolist()


def _is_uniform(bound: AnyArray) -> bool:
    """Whether all cells have equal bits."""
    return bound.size > 0 and bound.tobytes() == bound.reshape(-1)[:1].tobytes() * bound.size


def _cells(bound: AnyArray) -> str:
    """JSON of a bound. If all cells have equal bits, the number is formatted once."""
    if not _is_uniform(bound):
        return json.dumps(bound.tolist())
    text = json.dumps(bound.flat[0].item())
    for side in reversed(bound.shape):
        text = f"[{', '.join([text] * side)}]"
    return text
