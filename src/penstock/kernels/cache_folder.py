"""Choose the folder in which numba caches compiled kernels, also on read-only installations.

numba looks for a folder while it decorates a function with `cache=True`: `NUMBA_CACHE_DIR`, `__pycache__` next to the
source, the user's cache folder. If it can write to none of them, the decorator raises, and the kernels cannot be
imported. In this case the cache moves to a folder below the system's temporary folder. numba unpickles the files in its
cache, so the folder must belong to this user alone. If another user owns a folder of that name, the process makes a new
folder and removes it when it ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.files.user_cache import user_cache

_chosen: list[str] = []
"""The temporary folder of this process, once it needs one."""


@contextmanager
def cache_folder() -> Generator[None]:
    """Let functions be decorated with `cache=True` within the block.

    Warns once where kernels are cached in a temporary folder, which may not last.
    """
    if _works():
        yield
        return
    first = not _chosen
    if first:
        _chosen.append(_temporary())
    folder = _chosen[0]
    with cached_in(folder):
        if not _works():
            raise PenstockError(f"expected a folder to cache compiled kernels in, got {folder}; set NUMBA_CACHE_DIR")
        if first:
            warnings.warn(
                f"compiled kernels are cached in {folder}, for neither the installation nor the home folder can be "
                "written; set NUMBA_CACHE_DIR to a folder that lasts",
                stacklevel=4,
            )
        yield


@contextmanager
def cached_in(folder: str) -> Generator[None]:
    """Let functions that are decorated with `cache=True` within the block be cached in a folder."""
    from numba.core import config as numba_config  # heavy: loaded with the first kernel, not with the package

    config: Any = numba_config  # which makes its attributes when it is imported
    before = config.CACHE_DIR
    config.CACHE_DIR = folder
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _works() -> bool:
    import numba  # heavy: see `cached_in`

    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:  # "cannot cache function ...: no locator available"
        return False
    return True


def _probe() -> None:
    """Decorated to see whether it can be; never compiled."""


def _temporary() -> str:
    """A folder of this user alone."""
    try:
        folder = os.path.join(tempfile.gettempdir(), f"penstock-kernels-{os.getuid()}")
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        status = os.lstat(folder)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077:
            return folder
        folder = tempfile.mkdtemp(prefix="penstock-kernels-")
    except OSError as error:
        raise PenstockError(f"expected a folder to cache compiled kernels in: {error}; set NUMBA_CACHE_DIR") from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def cached_library(name: str) -> Path:
    """Return the path of a library of kernels in the cache, which need not exist.

    The cache is where numba's is: in `NUMBA_CACHE_DIR`, else next to the installed package, else in the user's folder.
    A library that another user compiled next to the package is taken from there.
    """
    known = (folder / name for folder in _folders())
    return next((path for path in known if path.exists()), _writable() / name)


@cache
def _folders() -> tuple[Path, ...]:
    setting = os.environ.get("NUMBA_CACHE_DIR")
    if setting:
        return (Path(setting, "penstock-kernels"),)
    here = Path(__file__).parent / "__pycache__" / "penstock-kernels"
    try:
        return here, user_cache("kernels")
    except FileNotFoundError:  # there is no home folder
        return (here,)


@cache
def _writable() -> Path:
    """The first folder that can be written, or a temporary one."""
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    chosen = _temporary()
    warnings.warn(
        f"compiled kernels are cached in {chosen}, for none of {', '.join(map(str, _folders()))} can be written; set "
        "NUMBA_CACHE_DIR to a folder that lasts",
        stacklevel=2,
    )
    return Path(chosen)
