"""Compressed archives, unpacked once into a folder whose size is bounded."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from penstock.containers.tar.compress import compression_of, unpack
from penstock.core.arrays import ByteArray
from penstock.errors import FormatError
from penstock.files import atomic_file
from penstock.files.mapping import map_descriptor, map_file
from penstock.files.remote import file_state, open_file
from penstock.files.user_cache import make_room, user_cache

SUFFIX = ".penstock-unpacked"
BYTES = 64 << 30


def folder_of(cache: str | os.PathLike[str] | None) -> Path:
    """The folder that was asked for; or one below `PENSTOCK_CACHE`, by default `~/.cache/penstock`."""
    return user_cache("shards") if cache is None else Path(cache)


def plain(
    path: Path,
    cache: str | os.PathLike[str] | None,
    limit: int = BYTES,
    *,
    torn: Literal["refuse", "drop"] = "refuse",
) -> ByteArray:
    """The archive mapped, or, where it is compressed, its unpacked copy, which is made if there is none of this state.

    A remote archive is mapped lazily. Other copies are removed from the folder, those not used for the longest time
    first, so that all have at most `limit` bytes. `torn="drop"` unpacks the whole members of an archive that was cut
    off. A copy that is cut, or of something else, is made again.

    Raises `FormatError` for damaged archives, `UnsafeDataError` for one that is larger, `OSError` if the folder cannot
    be written.
    """
    with open_file(path) as file:
        if compression_of(file.read(4)) is None:
            return map_file(path, lazy=True)
    state = file_state(path)
    named = f"{path.resolve()} {state.size} {state.mtime_ns}{' torn' if torn == 'drop' else ''}"
    digest = hashlib.sha256(named.encode())
    folder = folder_of(cache)
    copy = folder / f"{digest.hexdigest()[:32]}{SUFFIX}"
    if (data := _sound(copy, digest.digest())) is not None:
        with suppress(FileNotFoundError):
            os.utime(copy)
        return data
    folder.mkdir(parents=True, exist_ok=True)
    return _unpacked(path, copy, digest.digest(), limit, torn)


def unpacked_beside(packed: Path, plain: Path) -> None:
    """Put the unpacked bytes at `plain`, which appears only when whole. Raises `FormatError`, `UnsafeDataError`,
    `OSError`."""
    with atomic_file(plain) as file:
        unpack(packed, file, BYTES)


def _sound(path: Path, digest: bytes) -> ByteArray | None:
    """The bytes of a copy with the end that a finished one has; None for any other file, and for none."""
    try:
        data = map_file(path, follow=False)
    except (FormatError, OSError):
        return None
    size = len(data) - len(_end(0, digest))
    return data[:size] if size >= 0 and data[size:].tobytes() == _end(size, digest) else None


def _end(size: int, digest: bytes) -> bytes:
    """The bytes behind the unpacked ones, which show a cut or foreign file without reading all of it."""
    return b"penstock unpacked 1\n" + digest + size.to_bytes(8, "little")


def _unpacked(path: Path, copy: Path, digest: bytes, limit: int, torn: Literal["refuse", "drop"]) -> ByteArray:
    with atomic_file(copy, durable="file") as file:
        size = unpack(path, file, limit, torn=torn)
        file.write(_end(size, digest))
        file.flush()
        # Mapped before it has a name by which others could remove it.
        data = map_descriptor(file.fileno(), copy)
        make_room(copy.parent, f"*{SUFFIX}", limit - size)
    return data[:size]
