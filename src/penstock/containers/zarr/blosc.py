"""Blosc 1 buffers, block by block: a slice of a chunk costs the blocks that it touches, not the chunk.

A buffer is a header of 16 bytes, the first byte of each block, and the blocks. A block and a header that speaks of it
alone are a buffer again, which the library decodes: so every inner codec works, and every length that the library
gets was checked here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray
from penstock.errors import FormatError, require

_HEADER = struct.Struct("<BBBBIII")
HEADER_BYTES = _HEADER.size
MOST_BYTES = (1 << 31) - 17  # of a buffer, as the library has it
_COPIED, _WHOLE = 0x02, 0x10  # flags: no compression; blocks are not split by the bytes of an element
_SPLITS, _LEAST = 16, 128  # a block is split for elements of at most so many bytes, at least so many of them


@dataclass(frozen=True, eq=False)
class BloscBuffer:
    """A buffer whose header and table were checked. `first[b]` and `end[b]` bound block `b` in `raw`."""

    raw: ByteArray
    head: tuple[int, int, int, int]
    nbytes: int
    block_bytes: int
    first: list[int]
    end: list[int]

    @classmethod
    def of(cls, raw: ByteArray, expected: int) -> BloscBuffer:
        """Check a buffer that is to hold `expected` bytes."""
        if len(raw) < HEADER_BYTES:
            raise FormatError(f"expected a Blosc header of {HEADER_BYTES} bytes, got {len(raw)} bytes")
        version, inner, flags, element, nbytes, block, size = _HEADER.unpack(raw[:HEADER_BYTES].tobytes())
        if version != 2 or size != len(raw) or nbytes != expected:
            raise FormatError(
                f"expected a Blosc 1 buffer of {len(raw)} bytes that holds {expected}, got version {version}, "
                f"{size} bytes that hold {nbytes}"
            )
        head = (version, inner, flags, element)
        if flags & _COPIED:
            if size != HEADER_BYTES + nbytes:
                raise FormatError(f"expected {nbytes} bytes copied, got {size - HEADER_BYTES}")
            return cls(raw, head, nbytes, nbytes, [HEADER_BYTES], [size])
        blocks = -(-nbytes // block) if block else 0
        begin = HEADER_BYTES + 4 * blocks
        if element == 0 or not 0 < block <= nbytes or begin > size:
            raise FormatError(
                f"expected blocks within {nbytes} bytes and room for their table, got blocks of {block} bytes and "
                f"elements of {element}"
            )
        first = list(struct.unpack(f"<{blocks}i", raw[HEADER_BYTES:begin].tobytes()))
        order = sorted(first)  # threads write blocks in the order in which they are done
        if order[0] < begin or order[-1] >= size or len(set(first)) != blocks:
            raise FormatError(f"expected blocks without gaps from {begin} to {size}, got {first[:5]}")
        ends = dict(zip(order, [*order[1:], size], strict=True))
        return cls(raw, head, nbytes, block, first, [ends[offset] for offset in first])

    @property
    def copied(self) -> ByteArray | None:
        """The decoded bytes in place, if nothing was compressed."""
        return self.raw[HEADER_BYTES:] if self.head[2] & _COPIED else None

    def block(self, b: int) -> ByteArray:
        """`[block_bytes]` block `b` decoded (the last may be shorter)."""
        if (copied := self.copied) is not None:
            return copied
        size = min(self.block_bytes, self.nbytes - b * self.block_bytes)
        offset, end = self.first[b], self.end[b]
        data = self.raw[offset:end].tobytes()
        self._check(data, size)
        version, inner, flags, element = self.head
        if size < self.block_bytes:  # the last, which is never split; alone it would look like a full one
            flags |= _WHOLE
        head = _HEADER.pack(version, inner, flags, element, size, size, HEADER_BYTES + 4 + len(data))
        out = np.empty(size, np.uint8)
        _decode(b"".join((head, b"\x14\0\0\0", data)), out)
        return out

    def whole(self, out: ByteArray) -> None:
        """All `nbytes` decoded into `out`."""
        if (copied := self.copied) is not None:
            out[:] = copied
            return
        for b, offset in enumerate(self.first):
            size = min(self.block_bytes, self.nbytes - b * self.block_bytes)
            self._check(self.raw[offset : self.end[b]], size)
        _decode(self.raw, out)

    def _check(self, data: Any, size: int) -> None:
        """Raise `FormatError` unless the streams of a block of `size` decoded bytes are within its bytes."""
        _, _, flags, element = self.head
        split = not flags & _WHOLE and element <= _SPLITS and self.block_bytes // element >= _LEAST
        offset, room = 0, len(data)
        for _ in range(element if split and size == self.block_bytes else 1):
            length = int.from_bytes(bytes(data[offset : offset + 4]), "little") if offset + 4 <= room else room
            offset += 4 + length
            if offset > room:
                raise FormatError(f"expected a stream within a block of {room} bytes, got one that ends at {offset}")


def _decode(data: Any, out: ByteArray) -> None:
    blosc: Any = require("numcodecs.blosc", "zarr")
    try:
        blosc.decompress(data, out)
    except (RuntimeError, ValueError) as error:
        raise FormatError(f"expected Blosc data: {error}") from error
