"""Compressed archives, unpacked once into a folder whose size is bounded."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.containers.tar.compress import compression_of, unpack
from penstock.errors import FormatError
from penstock.files.descriptors import opened
from penstock.files.mapping import map_descriptor, map_file

SUFFIX = ".penstock-unpacked"
BYTES = 64 << 30


def folder_of(cache: str | os.PathLike[str] | None) -> Path:
    """The folder that was asked for; or one below `PENSTOCK_CACHE`, by default `~/.cache/penstock`."""
    if cache is not None:
        return Path(cache)
    told = os.environ.get("PENSTOCK_CACHE")
    return (Path(told) if told else Path.home() / ".cache" / "penstock") / "shards"


def plain(
    path: Path,
    cache: str | os.PathLike[str] | None,
    limit: int = BYTES,
    *,
    torn: Literal["refuse", "drop"] = "refuse",
) -> npt.NDArray[np.uint8]:
    """The archive mapped, or, where it is compressed, its unpacked copy, which is made if there is none of this state.

    Others are removed from the folder, those not used for the longest time first, so that all have at most `limit`
    bytes. `torn="drop"` unpacks what is there of an archive that was cut off. Raises `FormatError` for damaged
    archives, `UnsafeDataError` for one that is larger, `OSError` if the folder cannot be written.
    """
    with open(path, "rb") as file:
        if compression_of(file.read(4)) is None:
            return map_file(path)
    state = path.stat()
    named = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}{' torn' if torn == 'drop' else ''}"
    folder = folder_of(cache)
    kept = folder / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}{SUFFIX}"
    with suppress(FileNotFoundError):
        os.utime(kept)
        return _kept(kept)
    folder.mkdir(parents=True, exist_ok=True)
    return _unpacked(path, kept, limit, torn)


def unpacked_beside(packed: Path, plain: Path) -> None:
    """Put the unpacked bytes at `plain`, whole or not at all. Raises `FormatError`, `UnsafeDataError`, `OSError`."""
    fd, temporary = tempfile.mkstemp(dir=plain.parent, prefix=f"{plain.name}.")
    try:
        with open(fd, "wb") as file:
            unpack(packed, file, BYTES)
            os.fchmod(fd, 0o644)
        os.replace(temporary, plain)
    except BaseException:
        os.unlink(temporary)
        raise


def _kept(path: Path) -> npt.NDArray[np.uint8]:
    """A copy that another process may be removing. Raises `FileNotFoundError` then."""
    try:
        return map_file(path)
    except FormatError:
        if path.exists():
            raise
        raise FileNotFoundError(path) from None


def _unpacked(path: Path, kept: Path, limit: int, torn: Literal["refuse", "drop"]) -> npt.NDArray[np.uint8]:
    fd, temporary = tempfile.mkstemp(dir=kept.parent, prefix=".unpacking-")
    try:
        with open(fd, "wb") as file:
            size = unpack(path, file, limit, torn=torn)
        with opened(Path(temporary)) as fd:
            data = map_descriptor(fd, kept)  # before it has a name by which others could remove it
        _make_room(kept.parent, limit - size)
        os.replace(temporary, kept)
    except BaseException:
        os.unlink(temporary)
        raise
    return data


def _make_room(folder: Path, limit: int) -> None:
    """Remove the oldest copies until the rest has `limit` bytes. Whoever has one mapped keeps what it reads."""
    found: list[tuple[int, int, Path]] = []
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(FileNotFoundError):  # another process makes room as well
            found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
    for _, size, path in sorted(found, reverse=True):
        limit -= size
        if limit < 0:
            path.unlink(missing_ok=True)
