"""`.npz` archives, mapped: stored members are read in place, deflated members are inflated once."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.containers.npy import NpyHeader, array_of, header_of
from penstock.core.arrays import AnyArray
from penstock.errors import ChecksumError, FormatError, UnsafeDataError
from penstock.files.mapping import check_mapped, map_descriptor
from penstock.files.remote import open_file, path_or_file

ZIP = b"PK\x03\x04"
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
MAX_BYTES = 8 << 30  # of all members of one archive, inflated
INFLATION = 1032  # deflate cannot make more than 1032 bytes out of one
HEAD = 30  # bytes of a local header before the name
HEADER_BYTES = 1 << 17  # bytes of a member that hold the header of its array
SLACK = 64
END, END_BYTES = b"PK\x05\x06", 22  # of the last record of an archive, without its comment
LONGEST_END = END_BYTES + (1 << 16)


@dataclass(frozen=True)
class NpzMember:
    """Position of the bytes of an array and of its local header, and the inflated size."""

    name: str
    start: int
    stored: int
    size: int
    deflated: bool
    crc: int
    header: int


class NpzArchive:
    """The arrays of an `.npz` file by name, read when asked for. `max_bytes` bounds all deflated members together."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        try:
            with open_file(path) as file, zipfile.ZipFile(file) as archive:
                listed = archive.infolist()
                self._ending = END_BYTES + len(archive.comment)
                self._data = map_descriptor(file.fileno(), path)
        except DAMAGED as error:
            raise FormatError(f"expected an .npz file, got {error}", path=path) from error
        members = [self._member(info) for info in listed]
        self.members = {member.name: member for member in members}
        if len(self.members) < len(members):
            raise FormatError("expected members with different names", path=path)
        self._check(members, max_bytes)

    def _member(self, info: zipfile.ZipInfo) -> NpzMember:
        where = info.filename[:200]
        offset = info.header_offset
        head = self._data[offset : offset + HEAD].tobytes() if 0 <= offset <= len(self._data) else b""
        if len(head) < HEAD or not head.startswith(ZIP):
            raise FormatError(f"expected a local header at byte {offset}", path=self.path, where=where)
        if info.flag_bits & 1 or head[6] & 1:
            raise FormatError("expected a member that is not encrypted", path=self.path, where=where)
        method = int.from_bytes(head[8:10], "little")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or method != info.compress_type:
            message = f"expected a member stored or deflated, got method {info.compress_type} and {method}"
            raise FormatError(message, path=self.path, where=where)
        start = offset + HEAD + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if start + info.compress_size > len(self._data) or (not deflated and info.file_size != info.compress_size):
            message = f"expected {info.compress_size} bytes from byte {start} on within {len(self._data)}"
            raise FormatError(message, path=self.path, where=where)
        if deflated and info.file_size > INFLATION * info.compress_size + SLACK:
            message = f"{info.file_size} bytes cannot come from {info.compress_size} deflated ones"
            raise UnsafeDataError(message, path=self.path, where=where)
        name = info.filename.removesuffix(".npy")
        return NpzMember(name, start, info.compress_size, info.file_size, deflated, info.CRC, offset)

    def _check(self, members: list[NpzMember], max_bytes: int) -> None:
        end = 0
        for member in sorted(members, key=lambda member: member.start):
            if member.start - HEAD < end:
                raise UnsafeDataError("expected members that do not overlap", path=self.path, where=member.name[:200])
            end = member.start + member.stored
        total = sum(member.size for member in members if member.deflated)
        if total > max_bytes:
            message = f"expected at most {max_bytes} bytes inflated, got {total}; `max_bytes` allows them"
            raise UnsafeDataError(message, path=self.path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def outside(self) -> list[tuple[str, int, int]]:
        """Bytes that no archive of this file has: "before" its first member or "behind" its end, first and last."""
        first = min((member.header for member in self.members.values()), default=0)
        tail = self._data[max(len(self._data) - LONGEST_END, 0) :].tobytes()
        end = len(self._data) - len(tail) + tail.rindex(END) + self._ending
        sides = [("before", 0, first), ("behind", end, len(self._data))]
        return [(side, begin, stop) for side, begin, stop in sides if stop > begin]

    def header(self, name: str) -> NpyHeader:
        """Dtype and shape of an array, at the price of its first bytes."""
        check_mapped(self._data)
        member = self.members[name]
        raw = self._data[member.start : member.start + min(member.stored, HEADER_BYTES)].tobytes()
        if member.deflated:
            raw = self._inflate(raw, member, HEADER_BYTES, whole=False)
        return header_of(raw, path=self.path, where=name)

    def checked_header(self, name: str) -> NpyHeader:
        """Dtype and shape of an array whose member has as many bytes. Raises `FormatError`."""
        member, header = self.members[name], self.header(name)
        got = member.size - header.offset
        if not header.dtype.hasobject and header.nbytes != got:
            message = f"expected {header.nbytes} bytes for {header.dtype}{list(header.shape)}, got {got}"
            if member.deflated:
                raise UnsafeDataError(f"{message} inflated", path=self.path, where=name)
            raise FormatError(message, path=self.path, where=name)
        if not header.nbytes and header.shape and max(header.shape) > INFLATION * len(self._data):
            message = f"expected a shape that a file of {len(self._data)} bytes can have, got {list(header.shape)}"
            raise FormatError(message, path=self.path, where=name)
        return header

    def array(self, name: str) -> AnyArray:
        """One array, C-contiguous, of the machine's byte order: a view of the map where possible, else a copy."""
        member = self.members[name]
        header = self.checked_header(name)
        payload = self._data[member.start : member.start + member.stored]
        if member.deflated:
            inflated = self._inflate(payload.data, member, member.size, whole=True)
            payload = np.frombuffer(inflated, np.uint8)
        if header.dtype.hasobject:
            return array_of(payload.tobytes(), path=self.path, where=name, objects=True)
        if not header.nbytes:
            return np.zeros(header.shape, header.dtype.newbyteorder("="))
        array = payload[header.offset :].view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")
        return np.asarray(array, header.dtype.newbyteorder("="), order="C")

    def _inflate(self, raw: bytes | memoryview, member: NpzMember, limit: int, *, whole: bool) -> bytes:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            out = stream.decompress(raw, limit + 1 if whole else limit)
        except zlib.error as error:
            raise FormatError(f"expected deflated bytes, got {error}", path=self.path, where=member.name) from error
        if whole and len(out) != member.size:
            message = f"expected {member.size} bytes inflated, got {'more' if len(out) > member.size else len(out)}"
            raise UnsafeDataError(message, path=self.path, where=member.name)
        if whole and zlib.crc32(out) != member.crc:
            raise ChecksumError("checksum of the member is wrong", path=self.path, where=member.name)
        return out

    def damaged(self) -> Iterator[str]:
        """Names of stored members whose bytes have another checksum; deflated ones are compared when they are read."""
        for name, member in self.members.items():
            stored = self._data.data[member.start : member.start + member.stored]
            if not member.deflated and zlib.crc32(stored) != member.crc:
                yield name


def npz_names(path: Path) -> set[str]:
    """The names of the arrays of an `.npz` file; none where it is no such file. Never raises."""
    try:
        if not path.is_file():  # asked first, for opening a pipe would wait
            return set()
        with open_file(path) as file:
            if file.read(len(ZIP)) != ZIP:
                return set()
    except OSError:
        return set()
    return set(names_of(path))


def names_of(path: Path) -> list[str]:
    """The names of the members of an `.npz` file, without `.npy`; none where it is no archive. Never raises."""
    try:
        with zipfile.ZipFile(path_or_file(path)) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except DAMAGED:
        return []
