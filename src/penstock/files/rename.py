"""Renaming without losing an existing file at the new name: refuse it, or exchange the two in one step.

`rename(2)` replaces a file silently, and cannot replace a folder that is not empty. Linux has `renameat2` with
`RENAME_NOREPLACE` (fail if the new name is taken) and `RENAME_EXCHANGE` (both names are always there). Both need the
support of the file system (ext4, XFS, Btrfs, tmpfs and overlayfs have it); elsewhere other calls stand in.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

from penstock.files.descriptors import StrPath

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
    two renames; a process killed in it leaves both, and `penstock.files.scratch.sweep` ends the move.
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
