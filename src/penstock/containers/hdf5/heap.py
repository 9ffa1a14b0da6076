"""The three heaps of HDF5: local (names), global (variable-length values), fractal (dense links and attributes).

A fractal heap is a tree of blocks that double in size, row by row; an id is an offset into the address space of all
blocks. Sizes and offsets are checked against the file and their block before use.

Source: "HDF5 File Format Specification", version 3.0, The HDF Group, on local, global and fractal heaps.
"""

from __future__ import annotations

import struct

from penstock.containers.hdf5.btree import read_records
from penstock.containers.hdf5.image import Image, verify
from penstock.errors import FormatError

_LOCAL = struct.Struct("<4sB3xQQQ")
_COLLECTION = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")
_FRACTAL = struct.Struct("<4sBHHBI12QHQQHHQH")
MAX_LEVELS = 16  # of indirect blocks


def read_local_heap(image: Image, address: int) -> bytes:
    """Data segment of the local heap at `address`."""
    raw = image.signed(address, 32, b"HEAP", "local heap")
    _, version, size, _, data_address = _LOCAL.unpack(raw)
    if version:
        raise FormatError(f"local heap of version {version} is unknown")
    return image.take(data_address, size, "data of the local heap")


def heap_name(segment: bytes, offset: int) -> str:
    """The name that begins at `offset` of a local heap."""
    if offset >= len(segment):
        raise FormatError(f"name at {offset} is outside its local heap of {len(segment)} bytes")
    return segment[offset : segment.index(b"\0", offset)].decode()


class GlobalHeap:
    """Objects of the global heap; every collection is parsed once."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._collections: dict[int, dict[int, tuple[int, int]]] = {}

    def get(self, address: int, index: int, nbytes: int) -> memoryview:
        """The first `nbytes` of object `index` of the collection at `address`."""
        objects = self._collections.get(address)
        if objects is None:
            objects = self._collections[address] = self._parse(address)
        value = objects.get(index)
        if value is None:
            raise FormatError(f"global heap collection at byte {address} has no object {index}")
        start, size = value
        if nbytes > size:
            raise FormatError(f"expected {nbytes} bytes in object {index} of the heap at {address}, got {size}")
        return self._image.view(start, nbytes, "object of the global heap")

    def _parse(self, address: int) -> dict[int, tuple[int, int]]:
        raw = self._image.signed(address, 16, b"GCOL", "global heap collection")
        _, version, size = _COLLECTION.unpack(raw)
        if version != 1 or size < 16 or address + size > self._image.size:
            raise FormatError(f"global heap collection at byte {address} claims {size} bytes, version {version}")
        objects: dict[int, tuple[int, int]] = {}
        headers = self._image.view(address, size, "global heap collection")
        position, end = address + 16, address + size
        while position + 16 <= end:
            index, _, length = _OBJECT.unpack_from(headers, position - address)
            if index == 0:
                break  # the free space, always last
            position += 16
            if length > end - position:
                raise FormatError(f"object {index} runs over the global heap collection at byte {address}")
            objects[index] = (position, length)
            position += (length + 7) // 8 * 8
        return objects


class FractalHeap:
    """Objects of a fractal heap, found by their heap id."""

    def __init__(self, image: Image, address: int) -> None:
        self._image, self._address = image, address
        raw = image.signed(address, _FRACTAL.size + 4, b"FRHP", "fractal heap")
        fields = _FRACTAL.unpack_from(raw)
        self._filter_bytes = fields[3]
        flags = fields[4]
        max_managed = fields[5]
        self._huge = fields[7]
        (self._width, self._start, self._max_direct, bits, _, self._root, self._rows) = fields[18:25]
        if self._filter_bytes:
            raise FormatError("fractal heaps with filters are not supported")
        verify(raw, "fractal heap", address)
        powers = all(n and n & (n - 1) == 0 for n in (self._width, self._start, self._max_direct))
        if fields[1] or not powers or self._max_direct < self._start or not 0 < bits <= 64:
            raise FormatError(f"fractal heap at byte {address} is malformed")
        self._offset_bytes = (bits + 7) // 8
        direct_bytes = (self._max_direct.bit_length() - 1 + 7) // 8
        self._length_bytes = min(direct_bytes, (max(max_managed, 1).bit_length() - 1) // 8 + 1)
        self._checksums = bool(flags & 2)
        self._direct: dict[int, bytes] = {}
        self._indirect: dict[int, tuple[int, ...]] = {}

    def get(self, heap_id: bytes) -> bytes:
        """The object that `heap_id` names."""
        kind = heap_id[0] >> 4 & 3
        if kind == 0:
            split = 1 + self._offset_bytes
            offset = int.from_bytes(heap_id[1:split], "little")
            length = int.from_bytes(heap_id[split : split + self._length_bytes], "little")
            return self._managed(offset, length)
        if kind == 2 and len(heap_id) <= 17:
            return heap_id[1 : 2 + (heap_id[0] & 15)]
        if kind == 1:
            return self._find_huge(int.from_bytes(heap_id[1:], "little"))
        raise FormatError(f"heap id {heap_id.hex()} is not supported")

    def _find_huge(self, number: int) -> bytes:
        for record in read_records(self._image, self._huge, 1):
            address, length, key = struct.unpack("<3Q", record)
            if key == number:
                return self._image.take(address, length, "huge object of a fractal heap")
        raise FormatError(f"fractal heap at byte {self._address} has no huge object {number}")

    def _managed(self, offset: int, length: int) -> bytes:
        block: int = int(self._root)
        size = self._start
        rows = self._rows
        base = 0
        for _ in range(MAX_LEVELS):
            if rows == 0:
                data = self._read_direct(block, size)
                begin = offset - base
                if begin + length > len(data):
                    raise FormatError(f"object at {offset} runs over its fractal heap block")
                return data[begin : begin + length]
            children = self._read_indirect(block, rows)
            row, column = self._place(offset - base)
            if row >= rows:
                raise FormatError(f"object at {offset} is outside its fractal heap")
            size = self._row_size(row)
            block = children[int(row * self._width + column)]
            base += self._row_start(row) + column * size
            # an indirect child has the rows that cover the size of its row
            rows = 0 if size <= self._max_direct else (size // (self._start * self._width)).bit_length()
        raise FormatError("blocks of a fractal heap are nested too deep")

    def _row_size(self, row: int) -> int:
        return self._start << max(row - 1, 0)

    def _row_start(self, row: int) -> int:
        return 0 if row == 0 else (self._start * self._width) << (row - 1)

    def _place(self, offset: int) -> tuple[int, int]:
        row = (offset // (self._start * self._width)).bit_length()
        return row, (offset - self._row_start(row)) // self._row_size(row)

    def _read_direct(self, address: int, size: int) -> bytes:
        data = self._direct.get(address)
        if data is None:
            data = self._image.signed(address, size, b"FHDB", "fractal heap block")
            if self._checksums:
                start = 13 + self._offset_bytes
                blank = data[:start] + bytes(4) + data[start + 4 :]
                verify(blank + data[start : start + 4], "fractal heap block", address)
            self._direct[address] = data
        return data

    def _read_indirect(self, address: int, rows: int) -> tuple[int, ...]:
        children = self._indirect.get(address)
        if children is None:
            count, head = rows * self._width, 13 + self._offset_bytes
            raw = self._image.checked(address, head + 8 * count + 4, b"FHIB", "fractal heap index")
            children = struct.unpack_from(f"<{count}Q", raw, head)
            self._indirect[address] = children
        return children
