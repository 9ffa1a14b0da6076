"""Files and folders that appear under their name only when they are complete.

Until then their name is `.<name>.<12 random hex digits>.penstock`, in the folder of the target. The writer holds an
exclusive lock on the scratch file or folder, which ends with its process. Between making the name and locking it,
somebody may take it for left over; hence a writer looks, once it has the lock, whether the name is still its own, and
takes another if not.

`rename(2)` replaces a file silently, and cannot replace a folder that is not empty. Linux has `renameat2`, which
refuses or exchanges, where the file system supports it (ext4, XFS, Btrfs, tmpfs and overlayfs do).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, cast

from penstock.files.descriptors import StrPath, open_descriptor
from penstock.files.locks import is_at, try_lock, unlock

_NOREPLACE, _EXCHANGE = 1, 2  # RENAME_NOREPLACE and RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100  # paths are relative to the working directory
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)


def move(source: StrPath, target: StrPath, *, overwrite: bool = False) -> None:
    """Rename a file or folder. Both names are on one file system."""
    if overwrite:
        os.replace(source, target)
        return
    if _renameat2(source, target, _NOREPLACE):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target))
    # Without the kernel's help, two processes may get here at once: of folders, `rename` replaces an empty one at most;
    # of files, the later one wins.
    os.rename(source, target)


def put_in_place(source: Path, target: Path, replaced: Path) -> None:
    """Rename a folder (or file) to `target`; an existing one goes to `source` or to `replaced`, a free name.

    Where the kernel exchanges names, there is no moment without something at `target`. Elsewhere there is one between
    two renames; a process killed in it leaves both, and `penstock.files.replace.sweep` ends the move.
    """
    if _renameat2(source, target, _EXCHANGE):
        return
    try:
        os.rename(target, replaced)
    except FileNotFoundError:
        move(source, target)
        return
    try:
        os.rename(source, target)
    except BaseException:
        os.rename(replaced, target)
        raise


def _renameat2(source: StrPath, target: StrPath, flag: int) -> bool:
    """Rename as `flag` says; False where the system cannot, or, to exchange, where `target` does not exist."""
    function = _function()
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED or (flag == _EXCHANGE and code == errno.ENOENT):
        return False
    raise OSError(code, os.strerror(code), os.fspath(source), None, os.fspath(target))


@cache
def _function() -> Any:
    """`renameat2` of the C library; None where it has none."""
    function: Any = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function


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


Durability = Literal["none", "file", "folder"]


@contextmanager
def atomic_file(path: StrPath, *, durable: Durability = "none", overwrite: bool = True) -> Generator[IO[bytes]]:
    """Write a new file that takes the place of `path` when the block ends; if it raises, nothing changes.

    Readers have the old file or the new one, at any moment and after a kill. A link is replaced, not followed.
    The permission bits are as for a new file (0666 without the umask).
    """
    target = Path(path)
    sweep_once(target.parent)
    scratch, fd = make_scratch(target, _make)
    try:
        with disk_errors_named(target):
            with open(fd, "wb", closefd=False) as file:
                yield file
            if durable != "none":
                os.fsync(fd)
        move(scratch, target, overwrite=overwrite)
        with suppress(OSError):  # a file system without locks
            unlock(fd)  # for who opens the new file next, even if a forked process has a copy of the descriptor
    except BaseException:
        with suppress(OSError):
            os.unlink(scratch)
        raise
    finally:
        os.close(fd)
    if durable == "folder":
        sync(target.parent)


def write_atomic(path: StrPath, *parts: Any, durable: Durability = "none", overwrite: bool = True) -> None:
    """Write bytes (any buffers, in order) as `atomic_file` does, with its arguments and errors."""
    with atomic_file(path, durable=durable, overwrite=overwrite) as file:
        file.writelines(parts)


def sync(*paths: StrPath) -> None:
    """Flush the bytes of files, or the names in folders, to the disk itself."""
    for path in paths:
        fd = open_descriptor(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _make(path: str) -> int:
    return open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)


@contextmanager
def scratch_folder(target: StrPath) -> Generator[Path]:
    """Make a hidden, private, empty folder next to `target`, and delete it with all in it when the block ends."""
    place = Path(target)
    sweep_once(place.parent)
    scratch, fd = make_scratch(place, _make_folder)
    try:
        with disk_errors_named(place):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # what cannot be removed now is left to a later sweep
        os.close(fd)


@contextmanager
def atomic_path(path: StrPath, *, durable: Durability = "none", overwrite: bool = False) -> Generator[Path]:
    """Give a path to make a folder or file at, which takes the place of `path` when the block ends.

    If the block raises, nothing changes. A folder that is replaced is not lost at any moment: the two exchange their
    names where the system can do that; elsewhere they are renamed in an order that the next `sweep` ends.
    """
    target = Path(path)
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(f"expected nothing at {target}; remove it, or choose another place")
    with scratch_folder(target) as scratch:
        (scratch / NEW).mkdir()
        new_path = scratch / NEW / target.name
        yield new_path
        if durable != "none":
            sync(new_path)
        _install(new_path, target, scratch, overwrite=overwrite)
    if durable == "folder":
        sync(target.parent)


@contextmanager
def replaced_path(path: StrPath) -> Generator[None]:
    """Free a path for the block, which makes another file or folder there. If it raises, the old one is back."""
    target = Path(path)
    with scratch_folder(target) as scratch:
        (scratch / OLD).mkdir()
        old = scratch / OLD / target.name
        move(target, old)
        try:
            yield
        except BaseException:
            move(old, target)
            raise


def remove_folder(path: StrPath) -> None:
    """Delete a folder with all in it, which disappears at once. After a kill, a second call deletes what is left."""
    target = Path(path)
    if os.path.lexists(target):
        with scratch_folder(target) as scratch, suppress(FileNotFoundError):  # another process was first
            move(target, scratch / "removed")
    sweep(target.parent)


def _install(new_path: Path, target: Path, scratch: Path, *, overwrite: bool) -> None:
    if overwrite:
        (scratch / OLD).mkdir()
        put_in_place(new_path, target, scratch / OLD / target.name)
        return
    try:
        move(new_path, target)
    except FileExistsError as error:
        raise FileExistsError(f"expected nothing at {target}; remove it, or choose another place") from error


def _make_folder(path: str) -> int:
    os.mkdir(path, 0o700)
    try:
        return open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise FileExistsError(path) from None  # swept before it was locked: another name is taken
