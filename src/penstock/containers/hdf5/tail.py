"""The growing end of a file: new bytes go here, and nothing refers to them before the commit.

Small pieces are collected in memory, up to `PENDING` bytes, and written together. Arrays of `DIRECT` bytes and more are
written without a copy. Addresses are multiples of 8, as libhdf5 aligns them. Variable-length values are collected in
global heap collections of at least `MIN_COLLECTION` bytes.

After a crash, leftovers are behind the end that the superblock names, and the next writer overwrites them.
"""

from __future__ import annotations

import os
import struct

ALIGNMENT = 8
PENDING = 8 << 20  # bytes kept before they are written
DIRECT = 1 << 16  # bytes from which a piece is written at once instead of copied
MIN_COLLECTION = 4096  # smallest global heap collection that libhdf5 accepts
COLLECTION = 1 << 16
MAX_OBJECTS = 0xFFFF
_REFERENCE = struct.Struct("<IQI")


def write_all(fd: int, raw: bytes | memoryview, offset: int) -> None:
    """Write all of `raw` at byte `offset`."""
    view = memoryview(raw).cast("B")
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


class Tail:
    """Appends pieces to an open file from byte `offset` on, small ones collected and written together."""

    def __init__(self, fd: int, offset: int) -> None:
        self._fd = fd
        self._flushed = offset
        self._parts: list[bytes | bytearray] = []
        self.offset = offset
        self._open: Collection | None = None

    def put(self, raw: bytes | bytearray | memoryview) -> int:
        """Address at which `raw` will be, a multiple of 8."""
        gap = -self.offset % ALIGNMENT
        if gap:
            self._add(bytes(gap))
        address = self.offset
        if len(raw) >= DIRECT:
            self.flush()
            write_all(self._fd, memoryview(raw), address)
            self.offset = self._flushed = address + len(raw)
            return address
        self._add(bytes(raw) if isinstance(raw, memoryview) else raw)
        if self.offset - self._flushed > PENDING:
            self.flush()
        return address

    def _add(self, raw: bytes | bytearray) -> None:
        self._parts.append(raw)
        self.offset += len(raw)

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._open = None  # written bytes do not change any more
        if self._parts:
            write_all(self._fd, b"".join(self._parts), self._flushed)
            self._parts = []
        self._flushed = self.offset

    def put_values(self, values: list[bytes]) -> bytes:
        """References, 16 bytes each, to `values` in the global heap."""
        room = sum(_footprint(value) for value in values)
        out: list[bytes] = []
        for value in values:
            need = _footprint(value)
            if not value:
                out.append(bytes(16))
                continue
            if self._open is None or not self._open.fits(need):
                self._open = self._new_collection(max(MIN_COLLECTION, min(room + 16, COLLECTION), need + 16))
            out.append(_REFERENCE.pack(len(value), *self._open.add(value)))
            room -= need
        return b"".join(out)

    def _new_collection(self, size: int) -> Collection:
        if size >= DIRECT or self.offset + size - self._flushed > PENDING:
            self.flush()
        block = Collection(size)
        gap = -self.offset % ALIGNMENT
        self._add(bytes(gap))
        block.address = self.offset
        self._add(block.raw)
        return block


class Collection:
    """A global heap collection that is being filled in memory."""

    def __init__(self, size: int) -> None:
        size += -size % 8
        self.raw = bytearray(size)
        self.address = 0
        self._at, self._count = 16, 0
        struct.pack_into("<4sB3xQ", self.raw, 0, b"GCOL", 1, size)
        self._mark_free()

    def fits(self, need: int) -> bool:
        """Whether an object that takes `need` bytes has room."""
        return self._at + need <= len(self.raw) and self._count < MAX_OBJECTS

    def add(self, value: bytes) -> tuple[int, int]:
        """Address of the collection and index of the new object."""
        self._count += 1
        struct.pack_into("<HH4xQ", self.raw, self._at, self._count, 1, len(value))
        self.raw[self._at + 16 : self._at + 16 + len(value)] = value
        self._at += _footprint(value)
        self._mark_free()
        return self.address, self._count

    def _mark_free(self) -> None:
        free = len(self.raw) - self._at
        if free >= 16:
            struct.pack_into("<HH4xQ", self.raw, self._at, 0, 0, free)


def _footprint(value: bytes) -> int:
    return 16 + len(value) + -len(value) % 8
