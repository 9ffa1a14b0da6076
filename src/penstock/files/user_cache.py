"""The folder for caches of this user, its bounds, indexes of other files in it (`IndexFile`), and arrays in it that the
processes of a machine share.

The name of a file of shared arrays follows from what they are made of, so it is never out of date. The first process
makes the arrays under a lock, others wait for them. Without a folder for caches, on a full disk, or on a file system
without locks, a process makes the arrays for itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from penstock.core.arrays import AnyArray
from penstock.errors import LockedError
from penstock.files.arrays import Arrays, read_arrays, write_arrays
from penstock.files.locks import locked

_unlisted: dict[tuple[str, str], int] = {}
"""How many more files may be kept in a folder before `make_room` lists it."""


def user_cache(name: str) -> Path:
    """Return the folder `name` below `PENSTOCK_CACHE`, by default `~/.cache/penstock`. It need not exist."""
    setting = os.environ.get("PENSTOCK_CACHE")
    try:
        return (Path(setting) if setting else Path.home() / ".cache" / "penstock") / name
    except RuntimeError as error:
        raise FileNotFoundError(f"expected a folder for caches: {error}; set PENSTOCK_CACHE") from error


def make_room(folder: Path, pattern: str, limit: int) -> None:
    """Remove files that match `pattern`, the one that changed longest ago first, until the rest has `limit` bytes.

    A folder that was less than half full is listed again once this process has kept an eighth as many files more.
    """
    place = str(folder), pattern
    if _unlisted.get(place, 0) > 0:
        _unlisted[place] -= 1
        return
    files: list[tuple[int, int, str]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if fnmatchcase(entry.name, pattern):
                with suppress(FileNotFoundError):  # another process makes room as well
                    files.append(((state := entry.stat()).st_mtime_ns, state.st_size, entry.path))
    _unlisted[place] = len(files) // 8 if 2 * sum(size for _, size, _ in files) <= limit else 0
    for _, size, path in sorted(files, reverse=True):
        limit -= size
        if limit < 0:
            Path(path).unlink(missing_ok=True)


@dataclass(frozen=True)
class IndexFile:
    """A file of the user's cache with what was learned from other files, believed while those are as they were.

    `limit` is in bytes, of all files of its folder together.
    """

    path: Path
    magic: bytes
    limit: int

    @classmethod
    def of(cls, folder: str, name: str, magic: bytes, limit: int) -> IndexFile | None:
        """Return the file for what `name` names; None without a folder for caches."""
        with suppress(FileNotFoundError):
            digest = hashlib.sha256(os.fsencode(name)).hexdigest()
            return cls(user_cache(folder) / digest[:32], magic, limit)
        return None

    @property
    def inode(self) -> int:
        """Number of the file on its disk, another one after each `write`; 0 where there is none."""
        return self.path.stat().st_ino if self.path.exists() else 0

    def read(self, key: str) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
        """Return the header and arrays that are kept under a key, which names the state of the files, or None."""
        if (kept := read_arrays(self.path, self.magic, key)) is not None:
            _note_use(self.path)
        return kept

    def write(self, key: str, header: Mapping[str, Any], arrays: Arrays, *, settled: bool) -> bool:
        """Keep a header and arrays, and say whether they are kept; where not, that costs only time later.

        Of files that are not `settled` (see `FileState`), the next version may look like this one: nothing is kept.
        """
        if settled:
            with suppress(OSError):
                write_arrays(self.path, self.magic, key, header, arrays)
                make_room(self.path.parent, "[!.]*", self.limit)  # what others are writing has a hidden name
                return True
        return False


def touch(folder: Path) -> None:
    """Note that a folder was used now, for `remove_folders`."""
    os.utime(folder)


def remove_folders(parent: Path, limit: int, lock: str) -> None:
    """Remove folders in `parent`, the one that was used longest ago first, until the rest has `limit` bytes."""
    folders: list[tuple[int, int, Path]] = []
    for path in parent.iterdir():
        with suppress(FileNotFoundError, NotADirectoryError):  # another process makes room as well
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            folders.append((path.stat().st_mtime_ns, size, path))
    for _, size, path in sorted(folders, reverse=True):
        limit -= size
        if limit < 0:
            with suppress(LockedError, FileNotFoundError, NotADirectoryError), locked(path / lock, os.O_RDWR):
                shutil.rmtree(path, ignore_errors=True)


MAGIC = b"penstock table 1\n"
SHARED_BYTES = 16 << 20
"""Bytes from which on arrays are shared: smaller ones are made faster than they are found."""
BYTES = 16 << 30  # that all files together may have
_FOLDER = "plan-tables"
_SUFFIX = ".penstock-table"
_LOCKS = 16


def shared_arrays(key: str, make: Callable[[], Arrays]) -> Mapping[str, AnyArray]:
    """Return arrays from the user's cache, mapped and read-only; otherwise make them, and keep them there."""
    arrays: Arrays | None = None
    with suppress(OSError):  # costs only the memory of this process
        name = hashlib.sha256(key.encode()).hexdigest()
        folder = user_cache(_FOLDER)
        place = folder / f"{name[:32]}{_SUFFIX}"
        if (kept := read_arrays(place, MAGIC, key)) is not None:
            _note_use(place)
            return kept[1]
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / f"lock-{int(name[:8], 16) % _LOCKS}"
        with locked(lock, os.O_RDWR | os.O_CREAT, wait=True):
            if (kept := read_arrays(place, MAGIC, key)) is not None:
                return kept[1]
            arrays = make()
            write_arrays(place, MAGIC, key, {}, arrays)
            make_room(folder, f"*{_SUFFIX}", BYTES)
        if (kept := read_arrays(place, MAGIC, key)) is not None:
            return kept[1]
    return make() if arrays is None else arrays


def _note_use(place: Path) -> None:
    """Note that a file was used now: those not used for the longest time make room for others."""
    with suppress(OSError):  # of another user, or gone
        os.utime(place)
