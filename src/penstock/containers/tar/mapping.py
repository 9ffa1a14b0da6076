"""Archives as memory maps."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.errors import FormatError


def mapped(path: Path, size: int | None = None) -> npt.NDArray[np.uint8]:
    """`[size]` the bytes of a regular file, read-only; all that it has where no size is given.

    Raises `FormatError` for what is no file, or has fewer bytes.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise FormatError("expected an archive, found none", path=path) from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise FormatError("expected a regular file, got a folder, device or pipe", path=path)
        if size is not None and found.st_size < size:
            raise FormatError(f"expected at least {size} bytes, got {found.st_size}", path=path)
        wanted = found.st_size if size is None else size
        if wanted == 0:
            return np.zeros(0, np.uint8)
        return np.frombuffer(mmap.mmap(fd, wanted, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(fd)
