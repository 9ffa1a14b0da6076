"""Files on their way to bytes: which belong to a path, their first bytes, and all of them, unpacked within a bound."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from penstock.containers.gunzip import MAGIC, GzipError, begins, gunzip
from penstock.core.order import natural
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.remote import open_file
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.demos.imitation import HEAD

MAX_BYTES = 8 << 30  # of one file, unpacked
LOOKS = 8  # files of a folder that are looked at to recognise it


def files_of(path: Path | Sequence[Path], suffix: str) -> list[Path]:
    """The file at `path`; or the files of the folder whose names end with `suffix`, in natural order; or the given
    files.
    """
    if not isinstance(path, Path):
        return list(path)
    if not path.is_dir():
        return [path] if path.is_file() else []
    files = [p for p in path.iterdir() if p.name.endswith(suffix) and not p.name.startswith(".")]
    return sorted((p for p in files if p.is_file()), key=lambda p: natural(p.name))


def some_files(path: Path | Sequence[Path], suffix: str) -> list[Path]:
    files = files_of(path, suffix)
    if not files:
        raise FormatError(f"expected a file, or a folder with files *{suffix}, found none", path=path)
    return files


def other_files(path: Path | Sequence[Path], suffix: str) -> list[LeftOut]:
    """The entries of files of a folder whose names do not end with `suffix`; none where `path` is no folder."""
    if not isinstance(path, Path) or not path.is_dir():
        return []
    read = {file.name for file in files_of(path, suffix)}
    return unused_files((entry.name for entry in path.iterdir() if entry.name not in read), f"files *{suffix}")


def head_of(path: Path, suffix: str, size: int = HEAD, *, gzipped: bool = False) -> bytes:
    """The first bytes of the first file at `path` that has some, unpacked if it is a gzip, which it has to be for
    `gzipped`; b"" where that fails, because a test of a file's content never raises."""
    try:
        files = files_of(path, suffix)
    except OSError:
        return b""
    heads = (_head(file, size, gzipped=gzipped) for file in files[:LOOKS])
    return next((head for head in heads if head), b"")


def _head(path: Path, size: int, *, gzipped: bool) -> bytes:
    try:
        with open_file(path) as file:
            raw = file.read(max(size, HEAD))
        if not raw.startswith(MAGIC):
            return b"" if gzipped else raw[:size]
        return begins(raw, size)
    except (OSError, ValueError):
        return b""


def unpacked(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """All bytes of a file, unpacked if it is a gzip.

    Memory: the file and, for a moment, twice what comes out of it. Bytes after the gzip are ignored.
    """
    with open_file(path) as file:
        if file.read(2) != MAGIC and os.fstat(file.fileno()).st_size > max_bytes:
            raise _too_much(path, max_bytes)
        file.seek(0)
        data = file.read()
    if not data.startswith(MAGIC):
        return data
    try:
        return gunzip(data, max_bytes)
    except GzipError as error:
        if error.reason == "too_large":
            raise _too_much(path, max_bytes) from error
        raise FormatError(str(error), path=path) from error


def _too_much(path: Path, max_bytes: int) -> UnsafeDataError:
    message = f"expected at most {max_bytes} bytes unpacked, got more; `max_bytes` allows them"
    return UnsafeDataError(message, path=path)
