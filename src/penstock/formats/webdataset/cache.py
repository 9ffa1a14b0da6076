"""Compressed archives, unpacked once into a folder whose size is bounded."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from penstock.containers.tar.compress import compression_of, unpack

SUFFIX = ".penstock-unpacked"
BYTES = 64 << 30


def folder_of(cache: str | os.PathLike[str] | None) -> Path:
    """The folder that was asked for; or one below `PENSTOCK_CACHE`, by default `~/.cache/penstock`."""
    if cache is not None:
        return Path(cache)
    told = os.environ.get("PENSTOCK_CACHE")
    return (Path(told) if told else Path.home() / ".cache" / "penstock") / "shards"


def plain_path(path: Path, cache: str | os.PathLike[str] | None, limit: int = BYTES) -> Path:
    """The archive itself, or, where it is compressed, its unpacked copy, which is made if there is none of this state.

    Others are removed from the folder, those not used for the longest time first, so that all have at most `limit`
    bytes. Raises `FormatError` for damaged archives, `UnsafeDataError` for one that is larger, `OSError` if the folder
    cannot be written.
    """
    with open(path, "rb") as file:
        if compression_of(file.read(4)) is None:
            return path
    state = path.stat()
    named = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
    folder = folder_of(cache)
    kept = folder / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}{SUFFIX}"
    if kept.exists():
        os.utime(kept)
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=folder, prefix=".unpacking-")
    try:
        with open(fd, "wb") as file:
            size = unpack(path, file, limit)
        _make_room(folder, limit - size)
        os.replace(temporary, kept)
    except BaseException:
        os.unlink(temporary)
        raise
    return kept


def _make_room(folder: Path, limit: int) -> None:
    """Remove the oldest copies until the rest has `limit` bytes. Whoever has one mapped keeps what it reads."""
    kept = sorted(((p.stat(), p) for p in folder.glob(f"*{SUFFIX}")), key=lambda entry: -entry[0].st_mtime_ns)
    for state, path in kept:
        limit -= state.st_size
        if limit < 0:
            path.unlink(missing_ok=True)
