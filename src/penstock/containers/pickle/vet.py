"""The last look: what leaves is made of allowed types only, is not circular, and has a bounded size.

A pickle of some hundred bytes can share an object so often that walking through it never ends, or put a container into
itself. Objects are therefore counted as often as they are reachable, in one pass that looks at each once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from penstock.containers.pickle.known import ColorSpace, Trajectory
from penstock.containers.pickle.library import TIMES
from penstock.containers.pickle.machine import Machine, Pending, Symbol
from penstock.core.spaces import Dict, Space, Tuple

_SMALL = frozenset({type(None), bool, int, float, complex, ColorSpace, *TIMES})
_SIZED = frozenset({str, bytes, bytearray})
_Size = tuple[int, int, int]  # values, bytes, depth


class _Visit:
    """A container, how far its children were looked at, and the sum of their sizes."""

    __slots__ = ("depth", "nbytes", "node", "rest", "values")

    def __init__(self, node: Any) -> None:
        self.node, self.rest = node, iter(_children(node))
        self.values, self.depth = 1, 0
        self.nbytes = node.nbytes if type(node) is np.ndarray and not node.dtype.hasobject else 0

    def add(self, size: _Size) -> None:
        """Count a container among the children."""
        self.values += size[0]
        self.nbytes += size[1]
        self.depth = max(self.depth, size[2])

    def advance(self, m: Machine, sizes: dict[int, _Size]) -> Any:
        """The next child that is a container of unknown size, or None at the end."""
        for child in self.rest:
            kind = child.__class__
            if kind in _SMALL:
                self.values += 1
            elif kind in _SIZED:
                self.values += 1
                self.nbytes += len(child)
            elif id(child) in sizes:
                self.add(sizes[id(child)])
            elif _is_container(m, child):
                return child
            else:
                self.values += 1
        return None


def vet(m: Machine, value: Any) -> Any:
    """`value`, if it is data.  Raises `FormatError` if it is not, is circular or too large."""
    sizes: dict[int, _Size] = {}
    opened: set[int] = set()
    path = [_Visit([value])]
    while path:
        visit = path[-1]
        inner = visit.advance(m, sizes)
        if inner is None:
            path.pop()
            opened.discard(id(visit.node))
            _check(m, visit.values, visit.nbytes, visit.depth)
            size = sizes[id(visit.node)] = visit.values, visit.nbytes, visit.depth + 1
            if path:
                path[-1].add(size)
        elif id(inner) in opened:
            raise m.error(f"a {type(inner).__name__} contains itself")
        else:
            _check(m, 0, 0, len(path))
            opened.add(id(inner))
            path.append(_Visit(inner))
    return value


def _is_container(m: Machine, value: Any) -> bool:
    kind = value.__class__
    if kind in _SMALL or kind in _SIZED or isinstance(value, np.generic | np.dtype):
        return False
    if kind in (list, tuple, dict, set, frozenset, np.ndarray, Trajectory) or isinstance(value, Space):
        return True
    if kind is Symbol or kind is Pending:
        name = value if kind is Symbol else value.symbol
        raise m.unsafe(f"expected data, got {name} itself" if kind is Symbol else f"a {name} never got its state")
    raise m.unsafe(f"expected data, got {kind.__name__}")


def _children(value: Any) -> Iterable[Any]:
    kind = value.__class__
    if kind is dict:
        return chain(value, value.values())
    if kind is np.ndarray:
        return value.reshape(-1) if value.dtype.hasobject else ()
    if kind is Trajectory:
        return (value.acts, value.obs, value.rews, value.infos)
    if isinstance(value, Tuple):
        return value.spaces
    if isinstance(value, Dict):
        return value.spaces.values()
    return () if isinstance(value, Space) else value


def _check(m: Machine, values: int, nbytes: int, depth: int) -> None:
    limits = m.limits
    if depth > limits.depth:
        raise m.unsafe(f"containers are nested more than {limits.depth} deep")
    if values > limits.values:
        raise m.unsafe(f"shared objects make more than {limits.values} values")
    if nbytes > max(limits.nbytes, 4 * m.size):
        raise m.unsafe(f"shared objects make more than {max(limits.nbytes, 4 * m.size)} bytes")
