"""Files opened, mapped and written without surprises: no links, no pipes, no short writes."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import FormatError, UnsafeDataError

Bytes = npt.NDArray[np.uint8]
_LARGEST_JSON = 1 << 28


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A file descriptor of a regular file.

    Raises `FormatError` if it is missing, and `UnsafeDataError` for a link, device, folder or pipe, which might lead
    elsewhere or never answer.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FormatError("expected a file, found none", path=path) from error
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise UnsafeDataError("expected a regular file, got a link or folder", path=path) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnsafeDataError("expected a regular file, got a device or pipe", path=path)
    return fd


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Generator[int]:
    """`open_regular`, closed at the end of the block."""
    fd = open_regular(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def mapped(path: Path, size: int) -> Bytes:
    """`[size]` the first bytes of a file, read-only. Raises `FormatError` if the file is shorter."""
    if size == 0:
        return np.zeros(0, np.uint8)
    with opened(path) as fd:
        if (found := os.fstat(fd).st_size) < size:
            raise FormatError(f"expected at least {size} bytes, got {found}", path=path)
        return np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), np.uint8)


def write_at(fd: int, data: Any, position: int) -> None:
    """Write all of a contiguous buffer at a byte position. Raises `OSError` if the disk is full."""
    size = len(data)
    done = os.pwrite(fd, data, position)
    if done < size:
        left = memoryview(data)
        while done < size:
            done += os.pwrite(fd, left[done:], position + done)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `FormatError` for anything else."""
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        if (size := os.fstat(fd).st_size) > _LARGEST_JSON:
            raise UnsafeDataError(f"expected at most {_LARGEST_JSON} bytes of JSON, got {size}", path=path)
        text = file.read(size)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"expected JSON, got {error}", path=path) from error
    if not isinstance(data, dict):
        raise FormatError(f"expected a JSON object, got {type(data).__name__}", path=path)
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically: a reader, or the disk after a power loss, has the old one or the new one."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fchmod(fd, 0o644)
            os.fsync(fd)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
