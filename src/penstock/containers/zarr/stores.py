"""Storage of the keys of a zarr group: a folder or a zip archive."""

from __future__ import annotations

import errno
import os
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.metadata import GROUP, LARGEST_JSON, NODE
from penstock.core.arrays import ByteArray
from penstock.errors import FormatError, RemoteError, UnsafeDataError
from penstock.files.mapping import check_mapped, map_file, read_mapped
from penstock.files.remote import Wanted, file_state, is_mirrored, path_or_file, range_of, remote_file

_HEADER = 512  # bytes before the data of a member of a ZIP archive, at most as a rule


class ZarrStore(ABC):
    """Byte strings by key, such as `agents/.zarray` or `agents/0`. Thread-safe, and travels to other processes."""

    name: str
    remote = False  # whether it is behind a URL

    @abstractmethod
    def value(self, key: str, limit: int) -> ByteArray | None:
        """The bytes of a key, at most `limit`, perhaps a memory map; None if there is no such key."""

    def remote_ranges(self, key: str) -> list[Wanted]:
        """The bytes behind a URL that `value` fetches; none where the store is on this machine."""
        return []

    @abstractmethod
    def has(self, key: str) -> bool:
        """Whether there is such a key."""

    @abstractmethod
    def states(self, key: str) -> Iterator[tuple[object, ...]]:
        """Of every key below a folder its name and what changes when its bytes do, in order."""

    @abstractmethod
    def folders(self, key: str) -> list[str]:
        """The names of the folders in a folder, as far as they can be listed."""

    @abstractmethod
    def files(self, key: str) -> list[str]:
        """The names of the keys in a folder, without those in folders below it, as far as they can be listed."""

    def text(self, key: str) -> bytes | None:
        """The bytes of a small key, copied."""
        raw = self.value(key, LARGEST_JSON)
        return None if raw is None else raw.tobytes()

    def close(self) -> None:
        """Release files and memory. Arrays that were returned stay valid."""


class DirectoryStore(ZarrStore):
    """A folder; a value is a memory map of a file."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, str(root)
        self.remote = is_mirrored(root)

    def value(self, key: str, limit: int) -> ByteArray | None:
        """One memory map, of a remote file a copy: a map would keep its bytes in the cache of remote data, also above
        its limit. A file may be replaced meanwhile, but must not be cut."""
        path = self.root / checked(key, self.name)
        try:
            if not path.exists():
                return None
            check_size(file_state(path).size, limit, self.name, key)
            return read_mapped(map_file(path, lazy=True))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENOMEM) or isinstance(error, RemoteError):
                raise
            raise FormatError(f"expected a readable file: {error}", path=self.name, where=key) from error

    @override
    def remote_ranges(self, key: str) -> list[Wanted]:
        remote = remote_file(self.root / checked(key, self.name))
        return [] if remote is None else [range_of(remote, 0, remote.state.size)]

    @override
    def has(self, key: str) -> bool:
        return (self.root / checked(key, self.name)).is_file()

    def states(self, key: str) -> Iterator[tuple[object, ...]]:
        """Name, size and time of every file, also in folders below."""
        place = self.root / checked(key, self.name)
        for folder, folders, files in os.walk(place):
            folders.sort()
            for name in sorted(files):
                state = file_state(os.path.join(folder, name))
                yield os.path.relpath(os.path.join(folder, name), place), state.size, state.mtime_ns

    @override
    def folders(self, key: str) -> list[str]:
        return [entry.name for entry in self._entries(key) if entry.is_dir() and entry.name[0] != "."]

    @override
    def files(self, key: str) -> list[str]:
        return [entry.name for entry in self._entries(key) if entry.is_file()]

    def _entries(self, key: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / checked(key, self.name)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []


class ZipStore(ZarrStore):
    """A zip archive, or a folder in it, with members stored or deflated; stored members are read in place."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self.remote = is_mirrored(path)
        try:
            with zipfile.ZipFile(path_or_file(path)) as archive:
                self._members = {m.filename: m for m in archive.infolist()}  # of one name, the last counts
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise FormatError(f"expected a zip archive: {error}", path=path) from error
        marks = [name for name in self._members if name.rpartition("/")[2] in (GROUP, NODE)]
        self._prefix = min(marks, key=lambda name: (name.count("/"), name), default="").rpartition("/")[0]
        self._prefix += "/" if self._prefix else ""
        self._mapped: ByteArray | None = None
        self._map()

    def _map(self) -> ByteArray:
        if self._mapped is None:
            self._mapped = map_file(self.path, lazy=True)
        check_mapped(self._mapped)
        return self._mapped

    def __reduce__(self) -> tuple[type[ZipStore], tuple[Path]]:
        return ZipStore, (self.path,)

    def member_name(self, key: str) -> str:
        return self._prefix + checked(key, self.name)

    def value(self, key: str, limit: int) -> ByteArray | None:
        """A view of the archive, a copy where the archive is remote, or the member inflated."""
        member = self._members.get(self.member_name(key))
        if member is None:
            return None
        place: Any = {"path": self.name, "where": key}
        check_size(member.file_size, limit, self.name, key)
        whole, offset = self._map(), member.header_offset
        head = read_mapped(whole[offset : offset + 30]).tobytes() if 0 <= offset < len(whole) else b""
        if len(head) < 30 or head[:4] != b"PK\3\4":
            raise FormatError("expected the member where the archive's table says", **place)
        begin = offset + 30 + sum(struct.unpack("<HH", head[26:30]))
        raw = read_mapped(whole[begin : begin + member.compress_size])
        if member.flag_bits & 1 or len(raw) != member.compress_size:
            raise FormatError(f"expected {member.compress_size} plain bytes, got {len(raw)}", **place)
        if member.compress_type == zipfile.ZIP_STORED:
            if member.compress_size != member.file_size:
                raise FormatError(f"expected {member.file_size} bytes, got {member.compress_size}", **place)
            return raw
        if member.compress_type != zipfile.ZIP_DEFLATED:
            raise FormatError(f"expected a stored or deflated member, got method {member.compress_type}", **place)
        try:
            data = zlib.decompressobj(-15).decompress(raw.tobytes(), member.file_size + 1)
        except zlib.error as error:
            raise FormatError(f"expected deflated bytes: {error}", **place) from error
        if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
            message = f"expected {member.file_size} bytes of the checksum written with them"
            raise FormatError(f"{message}, got {len(data)}", **place)
        return np.frombuffer(data, np.uint8)

    @override
    def remote_ranges(self, key: str) -> list[Wanted]:
        member = self._members.get(self.member_name(key))
        remote = remote_file(self.path)
        if member is None or remote is None:
            return []
        begin = member.header_offset  # the length of the name and of other entries before the data is known there alone
        return [range_of(remote, begin, min(begin + _HEADER + member.compress_size, remote.state.size))]

    @override
    def has(self, key: str) -> bool:
        return self.member_name(key) in self._members

    def states(self, key: str) -> Iterator[tuple[object, ...]]:
        """Name, size and checksum of every member."""
        for name, member in self._inside(key):
            yield name, member.file_size, member.CRC

    @override
    def folders(self, key: str) -> list[str]:
        return sorted({name.partition("/")[0] for name, _ in self._inside(key) if "/" in name})

    @override
    def files(self, key: str) -> list[str]:
        return [name for name, _ in self._inside(key) if name and "/" not in name]

    def _inside(self, key: str) -> list[tuple[str, zipfile.ZipInfo]]:
        """The members below a folder, by their names in it, in order."""
        folder = f"{self.member_name(key)}/" if key else self._prefix
        names = sorted(name for name in self._members if name.startswith(folder))
        return [(name[len(folder) :], self._members[name]) for name in names]

    @override
    def close(self) -> None:
        self._mapped = None


def open_store(path: Path) -> ZarrStore:
    if path.is_dir():
        return DirectoryStore(path)
    if not path.exists():
        raise FileNotFoundError(f"nothing at {path}")
    if not path.is_file():
        raise FormatError("expected a folder or a zip archive, got a device or pipe", path=path)
    return ZipStore(path)


def checked(key: str, path: object) -> str:
    """The key, which stays below the group."""
    if key and (any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key or "\\" in key):
        raise UnsafeDataError(f"expected a key below the group, got {key!r}", path=path)
    return key


def check_size(size: int, limit: int, path: object, key: str) -> None:
    """Raise `FormatError` for more bytes than there may be."""
    if size > limit:
        raise FormatError(f"expected at most {limit} bytes, got {size}", path=path, where=key)
