"""Digests of functions, so that a state is refused after a function has changed.

A digest is a hash tree. Its leaves are plain values and arrays. A function is its code (bytecode, constants, names of
arguments and attributes, nested code), its defaults, the values it closes over and the globals that it reads. An object
is its class and the state that `pickle` would save. The digest has nothing that differs between two runs of a program:
no file names, line numbers, addresses, order of sets, and not the name of the function.

Code is followed in the package of the mapped function, and in modules that are not installed (scripts, notebooks, files
next to them). Other code counts by its qualified name, so a new version of a library does not change a digest. Values
that cannot be covered are listed in one `FingerprintWarning`.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import logging
import random
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_dtype, is_scalar
from penstock.core.ragged import Ragged
from penstock.data.names import name_of
from penstock.errors import FingerprintWarning, PlanError

MOST_BYTES = 1 << 28  # of arrays that one function refers to; hashing them takes about 0.2 s
MOST_VALUES = 1 << 18  # values that one function refers to, counted one by one
DEEPEST = 200

_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, slice, type(...), type(NotImplemented))
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_NAMED = (types.ModuleType, logging.Logger, np.ufunc, types.GetSetDescriptorType, types.MemberDescriptorType)
_BUILTIN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
# Attributes of a class that say nothing of what its instances do, or say it again.
_BESIDE = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__abstractmethods__"),
        *("_abc_impl", "__orig_bases__", "__parameters__", "__dataclass_fields__", "__dataclass_params__"),
        *("__match_args__", "__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__"),
        "__annotations_cache__",
    )
)
_warned: set[tuple[str, tuple[str, ...]]] = set()


@dataclass(frozen=True)
class FunctionDigest:
    """Digest of one function at the time of the call, and the values that the digest does not cover."""

    name: str
    digest: str
    uncovered: tuple[str, ...] = ()

    @classmethod
    def of(cls, fn: Callable[..., Any], version: str | int | None = None) -> FunctionDigest:
        """Compute the digest of a function. Cost: some 0.1 ms, and 1 ns a byte of arrays."""
        if version is not None:
            if type(version) not in (str, int):
                raise PlanError(f"expected version to be text or a whole number, got {version!r}")
            return cls(name_of(fn), _hash("version", repr(version)).hex())
        digester = _Digester(str(getattr(fn, "__module__", None) or type(fn).__module__))
        digest = digester.of(fn, "").hex()
        return cls(name_of(fn), digest, tuple(dict.fromkeys(digester.uncovered)))

    @property
    def text(self) -> str:
        """Digest for a fingerprint. Warns once a process if there are values that it does not cover."""
        if self.uncovered and (self.name, self.uncovered) not in _warned:
            _warned.add((self.name, self.uncovered))
            warnings.warn(
                f"the fingerprint of {self.name} does not cover {', '.join(self.uncovered)}: a change there goes "
                "unnoticed when a run resumes; give version= and change it with the function",
                FingerprintWarning,
                stacklevel=2,
            )
        return self.digest


class _Digester:
    """Digester of one function and everything that it refers to. `home` is the module of the function."""

    def __init__(self, home: str) -> None:
        self._home = home.partition(".")[0]
        self.uncovered: list[str] = []
        self._open: dict[int, int] = {}  # objects that are being digested, with their depth: a reference back is that
        self._done: dict[int, tuple[object, bytes]] = {}  # the object too, so that its id stays its own
        self._values, self._bytes = MOST_VALUES, MOST_BYTES

    def of(self, value: Any, place: str) -> bytes:
        """Digest of a value. `place` names it in the warning if it cannot be covered."""
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        if id(value) in self._done:
            return self._done[id(value)][1]
        if id(value) in self._open:
            return _hash("again", str(self._open[id(value)]))
        self._values -= 1
        if self._values < 0 or len(self._open) > DEEPEST:
            return self._uncovered(value, place, "too many values")
        self._open[id(value)] = len(self._open)
        try:
            digest = self._digest(value, place)
        finally:
            del self._open[id(value)]
        self._done[id(value)] = value, digest
        return digest

    def _digest(self, value: Any, place: str) -> bytes:  # noqa: PLR0911 - one return a kind of value
        match value:
            case types.FunctionType():
                return self._function(value, place)
            case types.MethodType():
                return self._all("method", [value.__func__, value.__self__], place)
            case functools.partial():
                return self._all("partial", [value.func, value.args, value.keywords], place)
            case types.CodeType():
                return self._code(value, place)
            case type():
                return self._class(value, place)
            case staticmethod() | classmethod():
                wrapper = cast("Any", value)
                return self._all(wrapper.__class__.__name__, [wrapper.__func__], place)
            case property():
                return self._all("property", [value.fget, value.fset, value.fdel], place)
            case _ if isinstance(value, _NAMED):
                return _hash("named", _name(type(value)), _named(value))
            case _ if isinstance(value, _BUILTIN):
                owner = getattr(value, "__self__", None)
                inner = [] if owner is None or isinstance(owner, types.ModuleType) else [owner]
                return _hash(_name(value), self._all("of", inner, place))
            case _:
                return self._data(value, place)

    def _data(self, value: Any, place: str) -> bytes:  # noqa: PLR0911 - one return a kind of value
        if type(value) in (tuple, list):
            return self._all(type(value).__name__, value, place)
        if value.__class__ is dict:
            return self._all("dict", [part for pair in value.items() for part in pair], place)
        if type(value) in (set, frozenset):
            return _hash(type(value).__name__, *sorted(self.of(part, place) for part in value))
        if is_dtype(value):
            return _hash("dtype", repr(value))
        if isinstance(value, _GENERATORS):
            return self._uncovered(value, place, "use map(fn, seed=...) and its keys")
        if (array := _array_of(value)) is not None:
            return self._array(array, cast("type[Any]", type(value)), place)
        return self._object(value, place)

    def _all(self, kind: str, values: Iterable[Any], place: str) -> bytes:
        known = list(values)
        if len(known) > 64 and {type(v) for v in known} <= {int, float, str, bytes, bool, type(None)}:
            return _hash(kind, repr(known))  # vocabularies and the like, many times as fast
        return _hash(kind, *(self.of(value, place) for value in known))

    def _function(self, fn: types.FunctionType, place: str) -> bytes:
        parts: list[Any] = [fn.__defaults__, fn.__kwdefaults__]
        known = [self.of(part, f"the defaults of {fn.__qualname__}") for part in parts]
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                known.append(self.of(cell.cell_contents, repr(name)))
            except ValueError:  # a variable that has no value yet
                known.append(_hash("empty"))
        if not self._own(fn.__module__):
            return _hash("function", _name(fn), *known)
        documented = fn.__code__.co_consts[:1] == (fn.__doc__,)  # the text of a function changes nothing
        code = fn.__code__.replace(co_consts=(None, *fn.__code__.co_consts[1:])) if documented else fn.__code__
        known.append(self.of(code, place))
        known += [_hash(name, self.of(value, repr(name))) for name, value in self._globals(fn)]
        return _hash("code", *known)

    def _code(self, code: types.CodeType, place: str) -> bytes:
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        many = code.co_argcount + code.co_kwonlyargcount
        names = code.co_names, code.co_varnames[:many], code.co_freevars, code.co_cellvars
        consts = [self.of(const, place) for const in code.co_consts]
        return _hash("bytecode", code.co_code, code.co_exceptiontable, repr((counts, names)), *consts)

    def _globals(self, fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
        """Globals that a function reads. Modules that are followed count by the attributes that it reads."""
        values: dict[str, Any] = {}
        for name, attribute in _global_names(fn.__code__):
            value = fn.__globals__.get(name, _MISSING)
            if value is _MISSING:
                continue  # a builtin, whose name is part of the code, or an error to come
            if isinstance(value, types.ModuleType) and attribute and self._own(value.__name__):
                values[f"{name}.{attribute}"] = getattr(value, attribute, None)
            else:
                values[name] = value
        yield from sorted(values.items())

    def _class(self, cls: type, place: str) -> bytes:
        if not self._own(cls.__module__):
            return _hash("class", _name(cls))
        known = [self.of(base, place) for base in cls.__bases__]
        for name, value in sorted(vars(cls).items()):
            if name not in _BESIDE:
                known += [_hash(name), self.of(value, f"{cls.__qualname__}.{name}")]
        return _hash("class", *known)

    def _object(self, value: Any, place: str) -> bytes:
        """An instance: its class, and its own digest or the state that pickling would save."""
        cls = cast("Any", type(value))
        if callable(stated := getattr(cls, "__fingerprint__", None)):
            return _hash("stated", self.of(cls, place), self.of(stated(value), place))
        if cls.__module__.partition(".")[0] == "penstock" and isinstance(getattr(value, "fingerprint", None), str):
            return _hash("penstock", cls.__qualname__, value.fingerprint)
        for inner in ("__wrapped__", "py_func"):  # functools.lru_cache; numba
            if isinstance(function := getattr(value, inner, None), types.FunctionType):
                return _hash("wrapped", _name(cls), self.of(function, place))
        try:
            known: Any = copyreg.dispatch_table.get(cls)
            reduced: Any = value.__reduce_ex__(4) if known is None else known(value)
        except Exception:  # noqa: BLE001 - any class may refuse in its own way; it is told below
            return self._uncovered(value, place)
        if isinstance(reduced, str):
            return _hash("global", _name(cls), reduced)
        padded: tuple[Any, ...] = (*reduced, None, None, None)
        factory, args, state, items, pairs = padded[:5]
        if state.__class__ is dict and all(type(k) is str for k in state):
            state = dict(sorted(state.items()))
        parts: list[Any] = [
            cls,
            factory,
            args,
            state,
            list(items or ()),
            [part for pair in pairs or () for part in pair],
        ]
        return _hash("object", *(self.of(part, place or _name(cls)) for part in parts))

    def _array(self, array: AnyArray, cls: type, place: str) -> bytes:
        self._bytes -= array.nbytes
        if self._bytes < 0:
            return self._uncovered(array, place, f"more than {MOST_BYTES >> 20} MB")
        values = array.tolist() if array.dtype.hasobject else None
        content = self.of(values, place) if values is not None else np.ascontiguousarray(array).tobytes()
        return _hash("array", _name(cls), repr(array.dtype), str(array.shape), content)

    def _uncovered(self, value: Any, place: str, why: str = "") -> bytes:
        cls = cast("type[Any]", type(value))
        self.uncovered.append(f"{place or 'itself'} ({_name(cls)}{', ' if why else ''}{why})")
        return _hash("uncovered", _name(cls))

    def _own(self, module: str | None) -> bool:
        """Whether code of a module is followed."""
        top = (module or "").partition(".")[0]
        if top == "penstock" or top in sys.stdlib_module_names:
            return False
        return top == self._home or not _installed(top)


_MISSING = object()


def _hash(*parts: str | bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _named(value: Any) -> str:
    return str(value.name if isinstance(value, logging.Logger) else value.__name__)


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _global_names(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """Globals that code and its nested code read, each with the attribute that is read from it directly, if any."""
    before = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and before:
            yield before, str(instruction.argval)
        elif before:
            yield before, ""
        before = str(instruction.argval) if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") else ""
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _global_names(const)


@functools.cache
def _installed(top: str) -> bool:
    """Whether a top-level module belongs to an installed distribution."""
    module = sys.modules.get(top)
    files = [str(getattr(module, "__file__", None) or ""), *map(str, getattr(module, "__path__", ()))]
    folders = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")]
    return any(file and any(Path(file).resolve().is_relative_to(f) for f in folders) for file in files)


def _array_of(value: Any) -> AnyArray | None:
    """Values of an array of NumPy, PyTorch or JAX, or None for other objects and unavailable values."""
    if is_array(value) or is_scalar(value):
        return np.asarray(value)
    if isinstance(value, Ragged) or not (hasattr(value, "__array__") and hasattr(value, "dtype")):
        return None
    try:
        tensor = value.detach().cpu() if hasattr(value, "detach") else value
        return np.asarray(tensor)
    except (TypeError, ValueError, RuntimeError):
        return None
