"""The folder for caches of this user, and how it stays bounded."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from penstock.errors import LockedError
from penstock.files.locks import locked


def user_cache(name: str) -> Path:
    """Return the folder `name` below `PENSTOCK_CACHE`, by default `~/.cache/penstock`. It need not exist."""
    setting = os.environ.get("PENSTOCK_CACHE")
    try:
        return (Path(setting) if setting else Path.home() / ".cache" / "penstock") / name
    except RuntimeError as error:
        raise FileNotFoundError(f"expected a folder for caches: {error}; set PENSTOCK_CACHE") from error


def make_room(folder: Path, pattern: str, limit: int) -> None:
    """Remove files that match `pattern`, the one that changed longest ago first, until the rest has `limit` bytes."""
    files: list[tuple[int, int, Path]] = []
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):  # another process makes room as well
            files.append(((state := path.stat()).st_mtime_ns, state.st_size, path))
    for _, size, path in sorted(files, reverse=True):
        limit -= size
        if limit < 0:
            path.unlink(missing_ok=True)


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
