"""Where the machine code of kernels comes from.

1. A library that was compiled when the package was built is next to the modules of kernels, and the extension that
   calls it is next to this module. Wheels have both. It has code for several levels of processors; the highest that
   the machine has is taken.
2. Without them, as in a checkout, and where numba and a C compiler are installed: a kernel is compiled at its first
   use, for the types that it is called with, into the cache of this user. All processes load it from there.
3. Otherwise numba compiles in each process, and keeps what it can in its own cache.

`PENSTOCK_KERNELS` asks for one of them: `numba`, or a level such as `v2`. Results are equal, except for the last bits
of sums that a helper may take `any_order` in.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from penstock.errors import ArgumentError, MissingExtraError, PenstockError
from penstock.files import locked
from penstock.files.user_cache import make_room
from penstock.kernels import building, telling
from penstock.kernels.cache_folder import cached_library
from penstock.kernels.linking import Linker, Marked, file_digest, linked_files

SETTING = "PENSTOCK_KERNELS"
NUMBA = "numba"
LIBRARY, BINDING = "compiled.lib", "binding.abi3.so"
DIGEST = "penstock_sources"

_V2 = frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"])
_V4 = _V3 | frozenset(["avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"])

_MOST_BYTES = 256 << 20  # of the cache: libraries of sources that have changed since go first
_compiles = threading.RLock()
_MAKERS = ("building.py", "compiler.py", "linking.py", "objects.py", "reading.py")
"""The files of this package that make machine code of kernels."""


def load(kernel: Marked) -> Callable[..., Any]:
    """Return what runs the machine code of a kernel."""
    level = chosen_level()
    built = level != NUMBA and _has(_library_of(kernel), kernel, level)
    binding = _binding() if level != NUMBA and (built or _tools()) else None
    if binding is None:
        return _dispatcher(kernel)
    find = partial(_code, _library_of(kernel), kernel.name) if built else partial(_cached_code, kernel)
    return binding.bind(kernel.name, kernel.signatures, partial(find, level))


def is_compiled(kernel: Marked, signature: str) -> bool:
    """Whether no later process has to compile a kernel for a signature. Of what numba caches, this is not known."""
    level = chosen_level()
    if level == NUMBA:
        return False
    return _has(_library_of(kernel), kernel, level) or (
        bool(_tools()) and _cached_path(kernel, level, signature).exists()
    )


def compile_now(kernel: Marked, signature: str) -> None:
    """Compile a kernel for a signature, unless it is compiled already."""
    level = chosen_level()
    if level == NUMBA or not _tools():
        from penstock.kernels import compiler  # heavy: imports numba

        _dispatcher(kernel).compile(compiler.types_of(signature))
    elif not is_compiled(kernel, signature):
        _compile(kernel, level, signature, _cached_path(kernel, level, signature))


@cache
def chosen_level() -> str:
    """Return the level of this machine whose code runs, or `numba`, by `PENSTOCK_KERNELS` and the processor."""
    levels = machine_levels()
    setting = os.environ.get(SETTING, "")
    if setting and setting not in (NUMBA, *levels):
        raise ArgumentError(f"expected {SETTING} among {[NUMBA, *levels]} on this machine, got {setting!r}")
    return setting or (levels[-1] if levels else NUMBA)


@cache
def machine_levels() -> tuple[str, ...]:
    """Return the levels that this machine has, the highest last. None for a machine that kernels are not compiled for
    when the package is built."""
    machine = os.uname().machine
    if sys.platform == "darwin":
        return ("apple",) if machine == "arm64" else ()
    if sys.platform != "linux" or machine != "x86_64":
        return ("arm64",) if machine == "aarch64" else ()
    with Path("/proc/cpuinfo").open("rb") as file:
        text = file.read(8192).decode(errors="replace")  # one processor's lines; the file has them all
    lines = (line.partition(":") for line in text.splitlines())
    flags = next((set(value.split()) for name, _, value in lines if name.strip() == "flags"), set[str]())
    return tuple(level for level, needed in (("v2", _V2), ("v3", _V3), ("v4", _V4)) if needed <= flags)


def symbol_of(name: str, signature: str) -> str:
    """Return the name of a kernel for a signature in libraries, without the level."""
    return f"penstock_{hashlib.sha256(f'{name} {signature}'.encode()).hexdigest()[:20]}"


def sources_digest(kernels: Iterable[Marked]) -> str:
    """Return a digest of kernels, their signatures, and the files that are compiled into them."""
    lines = sorted(repr((kernel.name, kernel.signatures, linked_files(kernel.function))) for kernel in kernels)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_in(library: Path) -> str:
    """Return the digest of the sources that a library was built from."""
    return _text(_opened(str(library)), DIGEST)


def _text(opened: ctypes.CDLL, symbol: str) -> str:
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(opened, symbol))).decode()


def _library_of(kernel: Marked) -> Path:
    return Path(kernel.function.__code__.co_filename).with_name(LIBRARY)


def _has(library: Path, kernel: Marked, level: str) -> bool:
    opened = _opened(str(library)) if library.exists() else None
    return opened is not None and hasattr(opened, f"{symbol_of(kernel.name, kernel.signatures[0])}_{level}")


def _code(library: Path, name: str, level: str, signature: str) -> tuple[int, str]:
    """Return the address of the code of a kernel, and the types of what it returns."""
    opened = _opened(str(library))
    symbol = f"{symbol_of(name, signature)}_{level}"
    return ctypes.cast(opened[symbol], ctypes.c_void_p).value or 0, _text(opened, f"{symbol}_returns")


@cache
def _opened(library: str) -> ctypes.CDLL:
    return ctypes.CDLL(library)


def _cached_code(kernel: Marked, level: str, signature: str) -> tuple[int, str]:
    path = _cached_path(kernel, level, signature)
    if not path.exists():
        _compile(kernel, level, signature, path)
    return _code(path, kernel.name, level, signature)


def _cached_path(kernel: Marked, level: str, signature: str) -> Path:
    """The library of one kernel in the cache, named after all that it depends on."""
    parts = kernel.name, signature, level, _tools(), linked_files(kernel.function)
    return cached_library(f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.so")


@cache
def _tools() -> str:
    """The versions of what compiles kernels into the cache; empty where some of it is not installed."""
    if not building.c_compiler():
        return ""
    versions = [_version(name) for name in ("numba", "llvmlite")]
    if "" in versions:
        return ""
    makers = [file_digest(str(Path(__file__).with_name(name))) for name in _MAKERS]
    return " ".join((*map(str, sys.version_info[:2]), *versions, *makers))


def _version(name: str) -> str:
    """The version of a distribution by the folder that describes it, empty without one: `importlib.metadata` takes
    longer than all else that a process with compiled kernels does first."""
    for folder in sys.path:
        with suppress(OSError):
            described = (
                re.fullmatch(rf"{name}-([^-]+)(-.+)?\.(dist|egg)-info", entry) for entry in os.listdir(folder or ".")
            )
            if (match := next(filter(None, described), None)) is not None:
                return match[1]
    return ""


def _compile(kernel: Marked, level: str, signature: str, path: Path) -> None:
    """Compile a kernel into the cache, unless another thread or process has meanwhile."""
    shown = f"{kernel.function.__module__.rpartition('.')[2]}.{kernel.function.__name__}"
    with _compiles, _file_lock(path), telling.compiling(shown, str(path.parent)):
        if path.exists():
            return
        try:
            from penstock.kernels import objects, reading  # heavy: import numba and llvmlite
        except ImportError as error:
            raise _missing(kernel) from error
        code = reading.read(kernel, signature)
        machine_code = objects.emit(code, signature, symbol_of(kernel.name, signature), level)
        building.build_library([machine_code], path, building.c_compiler())
        make_room(path.parent, "*.so", _MOST_BYTES)


@contextmanager
def _file_lock(path: Path) -> Generator[None]:
    """Let one process make a file; where the file system has no locks, each makes it."""
    lock = path.with_suffix(".lock")
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(locked(lock, os.O_RDWR | os.O_CREAT, wait=True))
            stack.callback(lock.unlink, missing_ok=True)
        yield


@cache
def _binding() -> Any:
    """The extension, which a wheel has, or which is built once into the cache; None where it cannot be built."""
    path = Path(__file__).with_name(BINDING)
    if not path.exists() and _tools():
        path = cached_library(f"binding-{building.binding_key()}.so")
    if not path.exists():
        with _file_lock(path):
            try:
                if not path.exists():
                    building.build_binding(path, building.c_compiler())
            except PenstockError as error:
                warnings.warn(
                    f"kernels are compiled by numba in each process, for what calls them could not be built: {error}; "
                    f"install the headers of Python, or set {SETTING}={NUMBA}",
                    stacklevel=2,
                )
                return None
    return _extension(str(path))


@cache
def _extension(path: str) -> Any:
    loader = ExtensionFileLoader("binding", path)
    module = module_from_spec(ModuleSpec("binding", loader, origin=path))
    loader.exec_module(module)
    return module


def _dispatcher(kernel: Marked) -> Any:
    """What numba makes of a kernel."""
    try:
        from penstock.kernels import compiler  # heavy: imports numba
    except ImportError as error:
        raise _missing(kernel) from error
    return compiler.make_kernel(_linker().linked(kernel.function), kernel.signatures, linked_files(kernel.function))


@cache
def _linker() -> Linker:
    return Linker({})


def _missing(kernel: Marked) -> MissingExtraError:
    return MissingExtraError(
        f"expected compiled code of {kernel.name} for this machine, or numba to compile it, got neither; install a "
        "wheel of penstock for this machine, or numba with: pip install 'penstock[jit]'"
    )
