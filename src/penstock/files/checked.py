"""Cache files: believed with their magic, their key and their checksum, and otherwise as good as none.

A file is the magic (which names kind and version), the SHA-256 of all that follows, the length of the key (8 bytes,
little-endian), the key and the content. The key says of what state of what data the content was made.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.files.descriptors import StrPath, open_descriptor
from penstock.files.mapping import map_descriptor
from penstock.files.remote import require_fetched
from penstock.files.replace import write_atomic

MAPPED = 1 << 20
"""Bytes from which on `read_checked` maps a file: smaller ones cost less to read than to map."""
_DIGEST = 32
_noted: list[set[str]] = []  # of the blocks of `noted_files` that this process is in


def write_checked(path: StrPath, magic: bytes, key: str, *parts: Any) -> None:
    """Write the content of a cache file (any buffers, in order), atomically. Folders are made."""
    require_fetched()
    head = _head(key)
    digest = hashlib.sha256(head)
    for part in parts:
        digest.update(part)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_atomic(path, magic, digest.digest(), head, *parts)
    _note(path)


def read_checked(
    path: StrPath, magic: bytes, key: str, *, limit: int = 1 << 32, mapped: bool = False
) -> memoryview | None:
    """Read the content of a cache file; None if there is none under this key that is as it was written: make it again.

    With `mapped`, a large file is mapped, so that all processes of a machine share its memory, and `limit` does not
    count. Files are replaced and never changed, so what is mapped stays as it is.
    """
    try:
        fd = open_descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if mapped and status.st_size >= MAPPED and stat.S_ISREG(status.st_mode):
                raw = map_descriptor(fd, Path(path)).data
            elif status.st_size > limit:
                return None
            else:
                raw = memoryview(file.read(status.st_size))
    except OSError:
        return None
    begin, head = len(magic) + _DIGEST, _head(key)
    content = begin + len(head)
    if bytes(raw[: len(magic)]) != magic or bytes(raw[begin:content]) != head:
        return None
    if hashlib.sha256(raw[begin:]).digest() != bytes(raw[len(magic) : begin]):
        return None
    _note(path)
    return raw[content:]


@contextmanager
def noted_files() -> Generator[set[str]]:
    """Give the set of absolute paths of the cache files that are written, or read and believed, in the block."""
    paths = set[str]()
    _noted.append(paths)
    try:
        yield paths
    finally:
        _noted[:] = [each for each in _noted if each is not paths]


def _note(path: StrPath) -> None:
    for paths in list(_noted):
        paths.add(os.path.abspath(path))


def head_bytes(magic: bytes, key: str) -> int:
    """Return the bytes of a cache file before its content."""
    return len(magic) + _DIGEST + len(_head(key))


def _head(key: str) -> bytes:
    raw = key.encode()
    return len(raw).to_bytes(8, "little") + raw
