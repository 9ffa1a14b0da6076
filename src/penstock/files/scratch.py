"""Hidden names for what is not finished, and the removal of what killed writers left under such names.

The name is `.<name>.<12 random hex digits>.penstock`, in the folder of the target. The writer holds an exclusive lock
on the scratch file or folder, which ends with its process. Between making the name and locking it, somebody may take it
for left over; hence a writer looks, once it has the lock, whether the name is still its own, and takes another if not.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from penstock.files.descriptors import StrPath, open_descriptor
from penstock.files.locks import is_at, try_lock
from penstock.files.rename import move

NEW, OLD = "new", "old"  # in a scratch folder: what will take the place of another, and what was replaced
_PATTERN = re.compile(r"\..+\.[0-9a-f]{12}\.penstock", re.DOTALL)
_NAME_BYTES = 200  # of the target's name that the scratch name repeats; file systems allow 255 in all
_OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_REMEMBERED = 4096
_swept: dict[str, None] = {}  # folders that this process has swept


def sweep(folder: StrPath) -> None:
    """Remove scratch files and folders in `folder` whose writers are gone, and end a replacement that one began."""
    try:
        names = [entry.name for entry in os.scandir(folder) if _PATTERN.fullmatch(entry.name)]
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # another process sweeps as well, or it is not ours to remove
            _remove_if_left(Path(folder, name))


def sweep_once(folder: StrPath) -> None:
    """`sweep`, unless this process did so before in this folder."""
    place = os.path.abspath(folder)
    if place not in _swept:
        if len(_swept) >= _REMEMBERED:
            _swept.clear()
        _swept[place] = None
        sweep(place)


def make_scratch(target: Path, make: Callable[[str], int]) -> tuple[Path, int]:
    """A scratch path for `target` and its locked descriptor."""
    base = os.fsdecode(os.fsencode(target.name)[:_NAME_BYTES])
    while True:
        path = target.with_name(f".{base}.{secrets.token_hex(6)}.penstock")
        try:
            fd = make(str(path))
        except FileExistsError:
            continue
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(target)) from error
        if _is_ours(fd, path):
            return path, fd
        os.close(fd)


def scratch_file(folder: Path, memory: int) -> IO[bytes]:
    """Return a file without a name for bytes that may be thrown away: in memory up to a size, then in a folder."""
    return cast("IO[bytes]", tempfile.SpooledTemporaryFile(memory, dir=os.fspath(folder)))


@contextmanager
def disk_errors_named(path: StrPath) -> Generator[None]:
    """Give an error of a full or failing disk that names no file the name of the file that is written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _OF_DISKS:
            error.filename = os.fspath(path)
        raise


def _is_ours(fd: int, path: Path) -> bool:
    try:
        if not try_lock(fd):
            return False
    except OSError:
        pass  # a file system without locks: no process can lock it to sweep it, either
    return is_at(fd, path)


def _remove_if_left(path: Path) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return
    flags = os.O_RDONLY if stat.S_ISDIR(mode) else os.O_RDWR
    fd = open_descriptor(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if try_lock(fd) and is_at(fd, path):
            if stat.S_ISDIR(mode):
                _finish(path)
                shutil.rmtree(path)
            else:
                os.unlink(path)
    finally:
        os.close(fd)


def _finish(path: Path) -> None:
    """End a replacement by two renames that stopped after the first: the target is missing, the new one is complete."""
    for name in os.listdir(path / OLD) if (path / OLD).is_dir() else ():
        target, new = path.with_name(name), path / NEW / name
        if not os.path.lexists(target):
            move(new if os.path.lexists(new) else path / OLD / name, target)
