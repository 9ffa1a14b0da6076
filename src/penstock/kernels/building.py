"""Build libraries of kernels, and the extension that calls them, with the C compiler or linker of the machine."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from penstock.errors import PenstockError
from penstock.files import atomic_path

BINDING = Path(__file__).with_name("binding.c")


@cache
def c_compiler() -> tuple[str, ...]:
    """Return the command of a C compiler, which also links: `cc`, or the one of PyPI's ziglang. Empty without both."""
    if (path := shutil.which("cc")) is not None:
        return (path,)
    return (sys.executable, "-m", "ziglang", "cc") if find_spec("ziglang") is not None else ()


def build_library(objects: Iterable[bytes], path: Path, command: Sequence[str]) -> None:
    """Link objects to a library, which appears whole at `path`."""
    with atomic_path(path, overwrite=True) as new:
        files: list[str] = []
        for number, content in enumerate(objects):
            file = new.with_name(f"{number}.o")
            file.write_bytes(content)
            files.append(str(file))
        _run([*command, "-shared", *_flags(command, "", "-Wl,--no-undefined"), "-o", str(new), *files, "-lm"])


def build_binding(path: Path, command: Sequence[str]) -> None:
    """Compile the extension, which appears whole at `path`."""
    includes = sysconfig.get_paths()["include"], np.get_include()
    flags = ("-O2", "-shared", "-fPIC", *_flags(command, "-Wl,-undefined,dynamic_lookup", ""))
    with atomic_path(path, overwrite=True) as new:
        _run([*command, *flags, *(f"-I{include}" for include in includes), "-o", str(new), str(BINDING)])


def _flags(command: Sequence[str], apple: str, other: str) -> list[str]:
    """The flag for names that are nowhere: of Python's functions, and of none else."""
    for_apple = any("macos" in word for word in command) or (sys.platform == "darwin" and "-target" not in command)
    return [flag for flag in (apple if for_apple else other,) if flag]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PenstockError(
            f"expected {command[0]} to build kernels, got status {done.returncode}: {done.stderr[-2000:]}"
        )


def binding_key() -> str:
    """Return what the extension depends on: its source, the interpreter's kind and version, and NumPy's headers."""
    parts = BINDING.read_bytes(), repr((sys.implementation.cache_tag, sys.abiflags, np.__version__)).encode()
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]
