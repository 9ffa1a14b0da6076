"""MessagePack's plain values, read as data: py123d has them in the metadata of its Arrow files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.errors import FormatError

_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"), strict=True))
_SIZES = dict(zip((*range(0xC4, 0xC7), *range(0xD9, 0xE0)), (*(">B", ">H", ">I") * 2, *(">H", ">I") * 2), strict=True))


def unpacked(raw: bytes) -> Any:
    """The value in a message. Extension types are refused."""
    value, end = _value(raw, 0)
    if end != len(raw):
        raise FormatError(f"expected one value, got {len(raw) - end} more bytes", where=f"byte {end}")
    return value


def _value(raw: bytes, place: int) -> tuple[Any, int]:
    kind, place = _number(raw, place, ">B")
    if kind <= 0x7F or kind >= 0xE0:
        return kind if kind <= 0x7F else kind - 256, place
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], place
    if kind in _NUMBERS:
        return _number(raw, place, _NUMBERS[kind])
    if kind <= 0xBF:
        size = kind & (0x1F if kind >= 0xA0 else 0x0F)
        family = "text" if kind >= 0xA0 else "list" if kind >= 0x90 else "map"
    elif kind in _SIZES:
        size, place = _number(raw, place, _SIZES[kind])
        family = "bytes" if kind <= 0xC6 else "text" if kind <= 0xDB else "list" if kind <= 0xDD else "map"
    else:
        raise FormatError(f"expected a plain value, got type {kind:#x}", where=f"byte {place - 1}")
    if family in ("text", "bytes"):
        part = raw[place : place + size]
        if len(part) != size:
            raise FormatError(f"expected {size} bytes, got {len(part)}", where=f"byte {place}")
        return part.decode() if family == "text" else part, place + size
    reader: Callable[[bytes, int], tuple[Any, int]] = _value if family == "list" else _pair
    entries: list[Any] = []
    for _ in range(size):
        entry, place = reader(raw, place)
        entries.append(entry)
    return entries if family == "list" else dict(entries), place


def _pair(raw: bytes, place: int) -> tuple[tuple[Any, Any], int]:
    key, place = _value(raw, place)
    value, place = _value(raw, place)
    return (key, value), place


def _number(raw: bytes, place: int, code: str) -> tuple[Any, int]:
    size = struct.calcsize(code)
    if place + size > len(raw):
        raise FormatError("expected a value, got the end", where=f"byte {place}")
    return struct.unpack_from(code, raw, place)[0], place + size
