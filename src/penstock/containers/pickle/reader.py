"""The ways in: `loads`, which only ever makes data, `load`, which has an option to trust, and `load_saved` for PyTorch.

What leaves is looked at last (`vet`): it is made of allowed types only, is not circular, and has a bounded size. A
pickle of some hundred bytes can share an object so often that walking through it never ends, or put a container into
itself. Objects are therefore counted as often as they are reachable, in one pass that looks at each once.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterable
from itertools import chain
from typing import Any, Literal

import numpy as np

from penstock.containers.pickle.known import TIMES, ColorSpace, Trajectory
from penstock.containers.pickle.machine import LIMITS, Limits, Machine, Pending, Symbol
from penstock.containers.pickle.opcodes import run
from penstock.core.spaces import Dict, Space, Tuple
from penstock.errors import DataError, FormatError, UnsafeDataError

_SMALL = frozenset({type(None), bool, int, float, complex, ColorSpace, *TIMES})
_SIZED = frozenset({str, bytes, bytearray})
_Size = tuple[int, int, int]  # values, bytes, depth
Buffer = bytes | bytearray | memoryview
_MOST = 1 << 16  # members
_STORAGE = re.compile(r"data/(\d{1,12})")
_OTHERS = frozenset(
    ("data.pkl", "version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id")
)


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
    """`value`, if it is data."""
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


def loads(data: Buffer, *, where: str = "", path: object = None, limits: Limits = LIMITS) -> Any:
    """The value that a pickle of plain data stands for; nothing that it names is imported or run."""
    m = Machine(data if type(data) is bytes else bytes(data), where, path, limits)
    return vet(m, run(m))


def load(data: Buffer, *, path: object, where: str = "", trust: Literal["pickle", False] = False) -> Any:
    """`loads`, or Python's own `pickle.loads` where the caller trusts the file as a program: `trust="pickle"`."""
    if trust == "pickle":
        return pickle.loads(data)  # noqa: S301
    if trust is not False:
        raise DataError(f"expected trust to be False or 'pickle', got {trust!r}")
    return loads(data, where=where, path=path)


def load_saved(data: bytes, *, where: str = "", path: object = None, limits: Limits = LIMITS) -> Any:
    """Return what `torch.save` saved, with tensors as read-only arrays. Nothing is run, and PyTorch is not needed."""
    place: dict[str, Any] = {"path": path, "where": where or None}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > _MOST or sum(member.file_size for member in members) > 2 * len(data):
                raise UnsafeDataError("expected a file of stored values, got more than there are bytes", **place)
            root = next((m.filename.removesuffix("data.pkl") for m in members if m.filename.endswith("/data.pkl")), "")
            storages: dict[str, bytes] = {}
            for member in members:
                name = member.filename.removeprefix(root)
                if (storage := _STORAGE.fullmatch(name)) is not None:
                    storages[storage[1]] = archive.read(member)
                elif name not in _OTHERS or not root:
                    raise UnsafeDataError(f"expected values and tensors, got a member {member.filename!r}", **place)
            if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
                raise FormatError("expected values in little-endian order, got others", **place)
            pickled = archive.read(f"{root}data.pkl")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, KeyError) as error:
        raise FormatError(f"expected a file of torch.save, of PyTorch 1.6 or later: {error}", **place) from error
    m = Machine(pickled, where, path, limits)
    m.storages = storages
    m.budget += 16 * sum(map(len, storages.values()))
    return vet(m, run(m))
