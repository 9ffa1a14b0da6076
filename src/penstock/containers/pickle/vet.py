"""The last look: what leaves is made of allowed types only, is not circular, and has a bounded size.

A pickle of some hundred bytes can share an object so often that walking through it never ends, or put a container into
itself. Objects are therefore counted as often as they are reachable, in one pass that looks at each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from penstock.containers.pickle.known import ColorSpace, Trajectory
from penstock.containers.pickle.machine import Machine, Pending, Symbol
from penstock.core.spaces import Dict, Space, Tuple

_SMALL = frozenset({type(None), bool, int, float, complex, ColorSpace})
_SIZED = frozenset({str, bytes, bytearray})
_Size = tuple[int, int, int]  # values, bytes, depth


def vet(m: Machine, value: Any) -> Any:
    """`value`, if it is data.  Raises `FormatError` if it is not, is circular or too large."""
    root = [value]
    sizes: dict[int, _Size] = {}
    opened = {id(root)}
    path: list[tuple[Any, Iterator[Any]]] = [(root, iter(root))]
    while path:
        node, rest = path[-1]
        inner = next((child for child in rest if _is_container(m, child) and id(child) not in sizes), None)
        if inner is None:
            path.pop()
            opened.discard(id(node))
            sizes[id(node)] = _measure(m, node, sizes)
        elif id(inner) in opened:
            raise m.error(f"a {type(inner).__name__} contains itself")
        else:
            _check(m, 0, 0, len(path) - 1)
            opened.add(id(inner))
            path.append((inner, iter(_children(inner))))
    return value


def _is_container(m: Machine, value: Any) -> bool:
    kind = type(value)
    if kind in _SMALL or kind in _SIZED or isinstance(value, np.generic | np.dtype):
        return False
    if kind in (list, tuple, dict, set, frozenset, np.ndarray, Trajectory) or isinstance(value, Space):
        return True
    if kind is Symbol or kind is Pending:
        name = value if kind is Symbol else value.symbol
        raise m.unsafe(f"expected data, got {name} itself" if kind is Symbol else f"a {name} never got its state")
    raise m.unsafe(f"expected data, got {kind.__name__}")


def _children(value: Any) -> Iterable[Any]:
    kind = type(value)
    if kind is dict:
        return [*value, *value.values()]
    if kind is np.ndarray:
        return value.reshape(-1) if value.dtype.hasobject else ()
    if kind is Trajectory:
        return (value.acts, value.obs, value.rews, value.infos)
    if isinstance(value, Tuple):
        return value.spaces
    if isinstance(value, Dict):
        return value.spaces.values()
    return () if isinstance(value, Space) else value


def _measure(m: Machine, value: Any, sizes: dict[int, _Size]) -> _Size:
    """Size of a container whose containers are measured."""
    values, nbytes, depth = 1, 0, 0
    if type(value) is np.ndarray and not value.dtype.hasobject:
        nbytes = value.nbytes
    for child in _children(value):
        kind = type(child)
        if kind in _SMALL:
            values += 1
        elif kind in _SIZED:
            values, nbytes = values + 1, nbytes + len(child)
        elif id(child) in sizes:
            inner = sizes[id(child)]
            values, nbytes, depth = values + inner[0], nbytes + inner[1], max(depth, inner[2])
        else:
            values += 1
    _check(m, values, nbytes, depth)
    return values, nbytes, depth + 1


def _check(m: Machine, values: int, nbytes: int, depth: int) -> None:
    limits = m.limits
    if depth > limits.depth:
        raise m.unsafe(f"containers are nested more than {limits.depth} deep")
    if values > limits.values:
        raise m.unsafe(f"shared objects make more than {limits.values} values")
    if nbytes > max(limits.nbytes, 4 * m.size):
        raise m.unsafe(f"shared objects make more than {max(limits.nbytes, 4 * m.size)} bytes")
