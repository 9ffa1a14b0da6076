"""Objects in `.npz` archives; nothing that these say is believed or run."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

from penstock.containers import npy
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.remote import path_or_file

ZIP = b"PK\x03\x04"
_PIECE = 1 << 20
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip  what zipfile and its decompressors raise for bytes that are no archive


def names_of(path: Path) -> list[str]:
    """The names of the members of an `.npz` file, without `.npy`; none where it is no archive. Never raises."""
    try:
        with zipfile.ZipFile(path_or_file(path)) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except DAMAGED:
        return []


def member_head(path: Path, name: str, size: int) -> bytes:
    """The first bytes of a member; b"" where that fails. Never raises."""
    try:
        with zipfile.ZipFile(path_or_file(path)) as archive, archive.open(f"{name}.npy") as member:
            return member.read(size)
    except DAMAGED:
        return b""


def object_member(path: Path, name: str, max_bytes: int) -> AnyArray:
    """The object array in a member of an `.npz` file, its objects read as plain values.

    Raises `FormatError` for a damaged archive or another array, `UnsafeDataError` for more than `max_bytes` or objects
    that are not data. Memory: twice the unpacked member for a moment.
    """
    pieces: list[bytes] = []
    size = 0
    try:
        with zipfile.ZipFile(path_or_file(path)) as archive, archive.open(f"{name}.npy") as member:
            begin = member.read(8)
            begin += member.read(4 if begin[6:7] in npy.WIDE else 2)
            begin += member.read(min(int.from_bytes(begin[8:], "little"), npy.LONGEST))
            header = npy.header_of(begin, path=path, where=name)
            while piece := member.read(_PIECE):  # bounded pieces, because the size in the archive may be false
                size += len(piece)
                if size > max_bytes:
                    message = f"expected at most {max_bytes} bytes unpacked, got more; `max_bytes` allows them"
                    raise UnsafeDataError(message, path=path, where=name)
                pieces.append(piece)
    except FormatError:
        raise
    except DAMAGED as error:
        raise FormatError(f"expected an .npz file, got {error}", path=path, where=name) from error
    payload = b"".join(pieces)
    del pieces
    return npy.objects_of(payload, header, path=path, where=name)
