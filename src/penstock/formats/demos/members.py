"""Members of `.npz` archives: objects, of which nothing is believed or run, and what is not read."""

from __future__ import annotations

import zipfile
from pathlib import Path, PurePath

from penstock.containers import npy
from penstock.containers.npz import DAMAGED, NpzArchive
from penstock.core.arrays import AnyArray
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.remote import path_or_file
from penstock.formats.base.account import LeftOut, unused_files

_PIECE = 1 << 20


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


def unread_member(name: str, error: FormatError) -> LeftOut:
    """The entry of a member that is no array of numbers, text or objects: of another file, or of an array."""
    entry = unused_files([name], "arrays .npy")[0]
    return entry if PurePath(name).suffix or entry.reason == "hidden" else LeftOut.of_error("member", name, error)


def outside_entries(archive: NpzArchive) -> list[LeftOut]:
    """Entries of the bytes before the first member and behind the end of the archive: another one may be there."""
    message = "expected one archive in the file, got {} bytes {} it, which are not read; copy them to another file"
    return [
        LeftOut("bytes", f"byte {begin}", "behind-the-end", message.format(stop - begin, side))
        for side, begin, stop in archive.outside()
    ]
