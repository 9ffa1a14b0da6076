"""B-trees of version 1 (old groups, chunks) and version 2 (dense links, attributes, chunks), read in key order.

An address that was visited before, a level that does not fall by one, or a node outside the file raises a
`FormatError`.

Source: "HDF5 File Format Specification", version 3.0, The HDF Group, on version 1 and version 2 B-trees.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from penstock.containers.hdf5.image import UNDEFINED, Image, verify
from penstock.errors import FormatError

_V1 = struct.Struct("<4sBBHQQ")
_V2 = struct.Struct("<4sBBIHHBBQHQI")
GROUP_NODES, CHUNK_NODES = 0, 1


def leaves(image: Image, address: int, kind: int, key_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Raw key, child pairs and count of every leaf of the version 1 B-tree at `address`, in key order.

    A leaf is `(raw, n)`: `n` times a key of `key_bytes` and an address.
    """
    return _descend(image, address, kind, key_bytes, None, set())


def _descend(
    image: Image, address: int, kind: int, key_bytes: int, expected: int | None, seen: set[int]
) -> Iterator[tuple[bytes, int]]:
    if address in seen:
        raise FormatError(f"B-tree runs in a circle through byte {address}")
    seen.add(address)
    head = image.take(address, 24, "B-tree node")
    signature, node_type, level, count, _, _ = _V1.unpack(head)
    if signature != b"TREE" or node_type != kind or (expected is not None and level != expected) or level > 64:
        raise FormatError(f"expected B-tree node of type {kind} and level {expected} at byte {address}")
    pair = key_bytes + 8
    raw = image.take(address + 24, count * pair, "B-tree entries")
    if level == 0:
        yield raw, count
        return
    for i in range(count):
        (child,) = struct.unpack_from("<Q", raw, i * pair + key_bytes)
        yield from _descend(image, child, kind, key_bytes, level - 1, seen)


def read_records(image: Image, address: int, kind: int) -> Iterator[bytes]:
    """Every record of the version 2 B-tree of type `kind` whose header is at `address`, in key order."""
    if address == UNDEFINED:
        return iter(())
    return _Tree(image, address, kind).records()


class _Tree:
    def __init__(self, image: Image, address: int, kind: int) -> None:
        raw = image.checked(address, _V2.size, b"BTHD", "B-tree header")
        fields = _V2.unpack(raw)
        _, version, record_type, self._node, self._record, self._depth, _, _, self._root, self._count, _, _ = fields
        if version or record_type != kind or not self._record or self._depth > 32:
            raise FormatError(f"expected a B-tree of type {kind} at byte {address}, got type {record_type}")
        self._image = image
        self._capacity = [max(self._node - 10, 0) // self._record]  # records a node, by height
        self._pointer = [0]  # bytes of a pointer to a node of that height
        self._total_bytes = [0]
        self._number_bytes = _width(self._capacity[0])
        total = self._capacity[0]
        for height in range(1, self._depth + 1):
            pointer = 8 + self._number_bytes + self._total_bytes[height - 1]
            capacity = max(self._node - 10 - pointer, 0) // (self._record + pointer)
            total = (capacity + 1) * total + capacity
            self._capacity.append(capacity)
            self._pointer.append(pointer)
            self._total_bytes.append(_width(total))
        self._seen: set[int] = set()

    def records(self) -> Iterator[bytes]:
        if self._root == UNDEFINED or self._count == 0:
            return iter(())
        return self._walk(self._root, self._count, self._depth)

    def _walk(self, address: int, count: int, height: int) -> Iterator[bytes]:
        if address in self._seen or count > self._capacity[height]:
            raise FormatError(f"B-tree node at byte {address} with {count} records is malformed")
        self._seen.add(address)
        size, pointer = self._record, self._pointer[height]
        used = 6 + count * size + ((count + 1) * pointer if height else 0)
        raw = self._image.signed(address, used + 4, b"BTIN" if height else b"BTLF", "B-tree node")
        verify(raw, "B-tree node", address)
        for i in range(count + 1):
            if height:
                offset = 6 + count * size + i * pointer
                child = int.from_bytes(raw[offset : offset + 8], "little")
                below = int.from_bytes(raw[offset + 8 : offset + 8 + self._number_bytes], "little")
                yield from self._walk(child, below, height - 1)
            if i < count:
                yield raw[6 + i * size : 6 + (i + 1) * size]


def _width(limit: int) -> int:
    return (max(limit, 1).bit_length() - 1) // 8 + 1
