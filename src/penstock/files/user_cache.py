"""The folder for caches of this user, and how it stays bounded."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return the folder `name` below `PENSTOCK_CACHE`, by default `~/.cache/penstock`. It need not exist.

    Raises:
        OSError: There is neither a home folder nor `PENSTOCK_CACHE`.
    """
    given = os.environ.get("PENSTOCK_CACHE")
    try:
        return (Path(given) if given else Path.home() / ".cache" / "penstock") / name
    except RuntimeError as error:
        raise FileNotFoundError(f"expected a folder for caches: {error}; set PENSTOCK_CACHE") from error


def make_room(folder: Path, pattern: str, limit: int) -> None:
    """Remove files that match `pattern`, the one that changed longest ago first, until the rest has `limit` bytes.

    Who has one of them mapped can go on reading it.
    """
    found: list[tuple[int, int, Path]] = []
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):  # another process makes room as well
            found.append(((state := path.stat()).st_mtime_ns, state.st_size, path))
    for _, size, path in sorted(found, reverse=True):
        limit -= size
        if limit < 0:
            path.unlink(missing_ok=True)
