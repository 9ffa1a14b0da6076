"""Cache files, believed with their magic, their key and their checksum; and cache files of a header and named arrays.

A file is the magic (which names kind and version), the SHA-256 of all that follows, the length of the key (8 bytes,
little-endian), the key and the content. The key says of what state of what data the content was made.

The content is the length of a JSON text (8 bytes, little-endian), the text, and the arrays in the order that the
text lists. Spaces behind the text and zeros behind each array let every array begin at a multiple of `ALIGNED` bytes
of the file, because a large file is read by a memory map, and compiled loops want aligned arrays.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
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
    """The content of a cache file as written under this key, else None. A large file is `mapped` beyond `limit`."""
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


Arrays = Mapping[str, AnyArray]


ALIGNED = 64
SPILLED = 64 << 20
"""Bytes from which on `scratch_zeros` uses a file."""


def write_arrays(path: StrPath, magic: bytes, key: str, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a header that JSON can hold (arrays in it become lists) and arrays. Raises as `write_checked` does."""
    listed = [[name, array.dtype.str, list(array.shape), ALIGNED] for name, array in arrays.items()]
    raw = json.dumps({"header": header, "arrays": listed}, default=np.ndarray.tolist).encode()
    raw += b" " * _gap(head_bytes(magic, key) + 8 + len(raw))
    parts: list[Any] = []
    for array in arrays.values():
        data = np.ascontiguousarray(array)
        parts += [data.reshape(-1).view(np.uint8).data if data.size else b"", bytes(_gap(data.nbytes))]
    write_checked(path, magic, key, len(raw).to_bytes(8, "little"), raw, *parts)


def read_arrays(path: StrPath, magic: bytes, key: str) -> tuple[dict[str, Any], dict[str, AnyArray]] | None:
    """Read what `write_arrays` wrote under this key, arrays read-only; None where `read_checked` says so."""
    content = read_checked(path, magic, key, mapped=True)
    if content is None:
        return None
    try:
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(bytes(content[8:begin]))
        return dict(header["header"]), _arrays(content, begin, header["arrays"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None  # something else of the same magic


def _arrays(content: memoryview, begin: int, listed: list[Any]) -> dict[str, AnyArray]:
    arrays: dict[str, AnyArray] = {}
    for name, code, shape, aligned in listed:
        dtype, count = np.dtype(code), int(np.prod(shape, dtype=np.int64))
        if dtype.hasobject or count < 0 or aligned != ALIGNED:
            raise ValueError(f"array {name} of {dtype} {shape}, aligned to {aligned}")
        end = begin + count * dtype.itemsize
        arrays[name] = (
            np.frombuffer(content[begin:end], dtype, count).reshape(shape) if count else np.empty(shape, dtype)
        )
        begin = end + _gap(end - begin)
    return arrays


def scratch_zeros(shape: tuple[int, ...], dtype: Any) -> AnyArray:
    """Return zeros to write to; large ones in a file without a name (`TMPDIR`), which can be paged out."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size >= SPILLED:
        with suppress(OSError), tempfile.TemporaryFile() as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is an error here, and would end the process later
            return np.frombuffer(mmap.mmap(file.fileno(), size), kind).reshape(shape)
    return np.zeros(shape, kind)


def _gap(size: int) -> int:
    """Bytes from `size` to the next multiple of `ALIGNED`."""
    return -size % ALIGNED
