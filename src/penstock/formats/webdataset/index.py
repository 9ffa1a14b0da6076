"""The index of a dataset kept beside it: a file of plain arrays, checked when it is read, made anew when in doubt.

It is `MAGIC`, the length of a JSON header (8 bytes, little-endian), the header, the arrays one after the other as the
header lists them, and the SHA-256 of all that. The header names the archives with their sizes and times, and a file
that names others, or was damaged, counts as none.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.formats.webdataset.content import Content

MAGIC = b"penstock shards 1\n"
LIMIT = 1 << 32  # bytes of an index that are read at all
SUFFIX = ".penstock-index"


def place(path: Path) -> Path:
    """The index of the dataset at `path`: in its folder, or hidden beside the archive or the first of a pattern.

    >>> place(Path("data/a.tar")).as_posix()
    'data/.a.tar.penstock-index'
    """
    if path.is_dir():
        return path / SUFFIX
    name = path.name if "{" not in str(path) else hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return path.parent / f".{name}{SUFFIX}"


def save(path: Path, key: str, content: Content) -> bool:
    """Keep content under a key, atomically; False where the folder cannot be written, which costs only time later."""
    header, arrays = content.packed()
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    raw = json.dumps({"key": key, "content": header, "arrays": listed}, default=np.ndarray.tolist).encode()
    parts = [MAGIC, len(raw).to_bytes(8, "little"), raw, *(np.ascontiguousarray(a).tobytes() for a in arrays.values())]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    try:
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".penstock-")
    except OSError:
        return False
    try:
        with open(fd, "wb") as file:
            file.writelines((*parts, digest.digest()))
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        return False
    return True


def load(path: Path, key: str) -> Content | None:
    """The content kept under a key; None if there is none, it is stale, or anything is wrong with it."""
    try:
        if path.is_symlink() or path.stat().st_size > LIMIT:
            return None
        raw = path.read_bytes()
    except OSError:
        return None
    body, digest = memoryview(raw)[:-32], raw[-32:]
    if not raw.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        return None
    try:
        at = len(MAGIC) + 8
        end = at + int.from_bytes(body[len(MAGIC) : at], "little")
        found = json.loads(bytes(body[at:end]))
        return Content.unpacked(found["content"], _arrays(body, end, found["arrays"])) if found["key"] == key else None
    except (PenstockError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None  # by another version, or made up


def _arrays(body: memoryview, at: int, listed: Sequence[Any]) -> Mapping[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, dtype, shape in listed:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body, np.dtype(dtype), count, at).reshape(shape)
        at += arrays[name].nbytes
    return arrays
