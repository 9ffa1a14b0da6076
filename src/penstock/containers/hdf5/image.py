"""The bytes of one file, every access checked; its superblock; the checksum of the newer structures.

`Image` compares each range with the end of file that the superblock names, so no address from a damaged file leaves the
map. `located` turns errors of malformed bytes into a `FormatError` with the path and the place. A writer may switch the
superblock while it is read, so it is read until two readings agree.

Source: "HDF5 File Format Specification", version 3.0, The HDF Group, on the superblock.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from penstock.core.arrays import ByteArray
from penstock.errors import ChecksumError, DataError, FormatError
from penstock.files.mapping import is_lazy, map_descriptor, read_mapped
from penstock.files.remote import open_file, read_at
from penstock.kernels.checksum import lookup3

SIGNATURE = b"\x89HDF\r\n\x1a\n"
UNDEFINED = 0xFFFFFFFFFFFFFFFF
INFLATION = 1032  # deflate cannot make more than 1032 bytes out of one
SUPERBLOCK_BYTES = 128  # no version is longer
MALFORMED = (struct.error, IndexError, KeyError, ValueError, OverflowError, RecursionError, zlib.error)

P = ParamSpec("P")
R = TypeVar("R")


class Located(Protocol):
    """Whatever knows its file and its own place in it."""

    @property
    def path(self) -> str: ...

    @property
    def where(self) -> str: ...


L = TypeVar("L", bound=Located)


def located(method: Callable[Concatenate[L, P], R]) -> Callable[Concatenate[L, P], R]:
    """Turn any error that malformed bytes cause inside `method` into a `FormatError` that names the place."""

    @functools.wraps(method)
    def call(self: L, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except DataError:
            raise
        except FormatError as error:
            if error.path is not None:
                raise
            raise type(error)(str(error), path=self.path, where=error.where or self.where) from error
        except MALFORMED as error:
            raise FormatError(f"malformed structure ({error})", path=self.path, where=self.where) from error

    return call


@dataclass(frozen=True, slots=True)
class Superblock:
    """Contents of the first bytes of a file.  Addresses count from `base`, `eof` from the start of the file."""

    version: int
    base: int
    eof: int
    root: int
    leaf_k: int
    internal_k: int
    chunk_k: int
    extension: int
    flags: int

    @property
    def nbytes(self) -> int:
        return {0: 96, 1: 100}.get(self.version, 48)


def parse_superblock(raw: bytes) -> Superblock:
    """Superblock of version 0 to 3 from its first bytes."""
    if raw[:8] != SIGNATURE:
        raise FormatError(f"expected an HDF5 signature, got {raw[:8]!r}")
    version = raw[8]
    if version > 3:
        raise FormatError(f"superblock version {version} is unknown; expected 0 to 3")
    sizes = tuple(raw[13:15]) if version < 2 else tuple(raw[9:11])
    if sizes != (8, 8):
        raise FormatError(f"expected addresses and lengths of 8 bytes, got {sizes}")
    if version >= 2:
        flags, base, extension, eof, root, checksum = struct.unpack_from("<B4QI", raw, 11)
        if lookup3(raw[:44]) != checksum:
            raise ChecksumError("checksum of the superblock is wrong")
        return Superblock(version, base, eof, root, 4, 16, 32, extension, flags)
    leaf_k, internal_k, flags = struct.unpack_from("<HHI", raw, 16)
    chunk_k = struct.unpack_from("<H", raw, 24)[0] if version else 32
    offset = 28 if version else 24
    base, _, eof, _, _, root = struct.unpack_from("<6Q", raw, offset)
    return Superblock(version, base, eof, root, leaf_k, internal_k, chunk_k, UNDEFINED, flags)


def has_signature(path: str | os.PathLike[str]) -> bool:
    """Whether an HDF5 file begins at `path`, perhaps behind a user block."""
    with open_file(path) as file:
        return next(_signatures(file.fileno(), path), None) is not None


def _signatures(fd: int, path: str | os.PathLike[str]) -> Iterator[int]:
    """Where a signature is among the bytes 0, 512, 1024, 2048, ... of a file."""
    size, offset = os.fstat(fd).st_size, 0
    while offset == 0 or offset + 8 <= size:
        if read_at(path, fd, 8, offset) == SIGNATURE:
            yield offset
        offset = max(512, 2 * offset)


def read_superblock(fd: int, path: str | os.PathLike[str]) -> Superblock:
    """Superblock of an open file: read until two readings agree, since a writer may be switching it."""
    for offset in _signatures(fd, path):
        raw = read_at(path, fd, SUPERBLOCK_BYTES, offset)
        while (again := read_at(path, fd, SUPERBLOCK_BYTES, offset)) != raw:
            raw = again
        return _check_superblock(parse_superblock(raw), offset, os.fstat(fd).st_size)
    raise FormatError("expected an HDF5 file, found no HDF5 signature")


def _check_superblock(block: Superblock, address: int, size: int) -> Superblock:
    if block.base != address:
        raise FormatError(f"superblock is at byte {address} but names base address {block.base}")
    if not address + 48 <= block.eof <= size:
        raise FormatError(f"expected {block.eof} bytes as the superblock says, got {size}; the file is cut short")
    return block


class Image:
    """Read-only bytes of a file as its superblock delimits them; all addresses count from `base`."""

    __slots__ = ("_lazy", "base", "buffer", "data", "path", "size", "superblock")

    def __init__(self, path: str, eof: int | None = None) -> None:
        self.path = path
        with open_file(path) as file:
            self.superblock = read_superblock(file.fileno(), path)  # before the map, which then covers what it names
            whole = map_descriptor(file.fileno(), Path(path), lazy=True)
        self.base = self.superblock.base
        # A writer may be adding behind the end, and cut that off again.
        self.buffer: ByteArray = whole[: self.superblock.eof if eof is None else eof]
        self.data = self.buffer.data[self.base :]
        self.size = len(self.data)
        self._lazy = is_lazy(self.buffer)

    def view(self, address: int, count: int, what: str) -> memoryview:
        """`count` bytes at address `address`."""
        if address < 0 or count < 0 or address + count > self.size:
            if not self.size:
                raise DataError(f"{self.path} is closed; read it before that")
            raise FormatError(f"{what} of {count} bytes at byte {address} is outside the file of {self.size} bytes")
        if self._lazy:
            return read_mapped(self.buffer[self.base + address : self.base + address + count]).data
        return self.data[address : address + count]

    def take(self, address: int, count: int, what: str) -> bytes:
        """A copy of what `view` gives."""
        return bytes(self.view(address, count, what))

    def signed(self, address: int, count: int, signature: bytes, what: str) -> bytes:
        """Like `take`, and the bytes must begin with `signature`."""
        raw = self.take(address, count, what)
        if not raw.startswith(signature):
            raise FormatError(f"expected {signature!r} for {what} at byte {address}, got {raw[: len(signature)]!r}")
        return raw

    def checked(self, address: int, count: int, signature: bytes, what: str) -> bytes:
        """Like `signed`, and the last 4 of the `count` bytes must be the checksum of the others."""
        raw = self.signed(address, count, signature, what)
        verify(raw, what, address)
        return raw


def verify(raw: bytes, what: str, address: int) -> None:
    """Raise `ChecksumError` unless the last 4 bytes are the checksum of what precedes them."""
    if len(raw) < 4 or lookup3(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise ChecksumError(f"checksum of {what} at byte {address} is wrong")
