"""Thrift's compact protocol, as Parquet stores its footer and page headers, read and written without a schema.

A struct is a dict from field number to `(type, value)`. So what is read can be changed and written again, also fields
that this version does not know. Source: the compact protocol specification of Apache Thrift. Everything is bounded by
the bytes that are there, and by `DEPTH`.
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.errors import FormatError

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DEPTH = 32  # structs and lists within one another

Fields = dict[int, tuple[int, Any]]
Items = tuple[int, list[Any]]


class ThriftReader:
    """Reads structs from bytes."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.position = position
        self._data = data

    def struct(self, depth: int = 0) -> Fields:
        """Read a struct. Raises `FormatError` for bytes that are none."""
        if depth > DEPTH:
            raise FormatError(f"expected at most {DEPTH} nested structs, got more")
        fields: Fields = {}
        number = 0
        while (head := self._byte()) != 0:
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            if not 0 < number < 1 << 15:
                raise FormatError(f"expected a field number above 0, got {number}")
            fields[number] = (kind, self._value(kind, depth))
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                value: Any = kind == TRUE
            case 3:
                value = self._byte()
            case 4 | 5 | 6:
                value = self._signed()
            case 7:
                value = struct.unpack("<d", self._take(8))[0]
            case 8:
                value = self._take(self._unsigned())
            case 9 | 10:
                value = self._list(depth)
            case 12:
                value = self.struct(depth + 1)
            case _:
                raise FormatError(f"expected a type of a field among 1 to 10 and 12, got {kind}")
        return value

    def _list(self, depth: int) -> Items:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        item = head & 15
        if count > len(self._data) - self.position:  # an item has at least a byte
            raise FormatError(f"expected a list within the bytes, got {count} items")
        return item, [self._item(item, depth) for _ in range(count)]

    def _item(self, kind: int, depth: int) -> Any:
        return self._byte() == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth + 1)

    def _take(self, size: int) -> bytes:
        begin, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise FormatError(f"expected {size} bytes, got {len(self._data) - begin}")
        return bytes(self._data[begin : self.position])

    def _byte(self) -> int:
        return self._take(1)[0]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise FormatError("expected a number of at most 64 bits, got a longer one")

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)


def struct_bytes(fields: Fields) -> bytes:
    """Return the bytes of a struct, the inverse of `ThriftReader.struct`."""
    parts: list[bytes] = []
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = number - last
        parts.append(bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + _varint(_zigzag(number)))
        if kind not in (TRUE, FALSE):
            parts.append(_value_bytes(kind, value))
        last = number
    return b"".join(parts) + b"\0"


def _value_bytes(kind: int, value: Any) -> bytes:
    match kind:
        case 1 | 2:
            written = bytes([TRUE if value else FALSE])
        case 3:
            written = bytes([value])
        case 4 | 5 | 6:
            written = _varint(_zigzag(value))
        case 7:
            written = struct.pack("<d", value)
        case 8:
            written = _varint(len(value)) + value
        case 12:
            written = struct_bytes(value)
        case _:
            item, values = value
            count = len(values)
            head = bytes([count << 4 | item]) if count < 15 else bytes([0xF0 | item]) + _varint(count)
            written = head + b"".join(_value_bytes(item, each) for each in values)
    return written


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])
