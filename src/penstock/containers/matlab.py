"""Files of MATLAB, versions 5 to 7.2, read without believing sizes or running anything.

A file is a header of 128 bytes and elements of `type, size, bytes`, each of them a variable, also deflated. Arrays are
in Fortran order. SciPy's compiled reader ends the process on some damaged files; this one checks each size first.

Source: MAT-File Format, level 5, of The MathWorks.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.remote import read_bytes

HEADER = 128
MATRIX = 14
COMPRESSED = 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {16: "utf-8", 17: "utf-16", 18: "utf-32"}
CELL = 1
STRUCT = 2
CHAR = 4
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
OTHERS = {3: "object", 5: "sparse matrix", 16: "function", 17: "object"}
COMPLEX = 0x0800
LOGICAL = 0x0200
DEEPEST = 32
INFLATED = 8 << 30  # bytes of one variable


class UnreadVariable(NamedTuple):
    """A variable of a kind that is no array, text, struct or cell."""

    kind: str


class _MatlabElement(NamedTuple):
    kind: int
    body: memoryview


def read_matlab(path: Path) -> dict[str, Any]:
    """Return the variables by name: arrays, text as `str`, structs as dicts or lists of dicts, cells as lists."""
    raw = memoryview(read_bytes(path))
    order = {b"IM": "<", b"MI": ">"}.get(raw[126:128].tobytes())
    if len(raw) < HEADER or order is None:
        message = "expected a file of MATLAB, version 5 to 7.3, got another; save it with `-v7`"
        raise FormatError(message, path=path)
    reader = _Reader(path, order)
    variables: dict[str, Any] = {}
    for element in reader.elements(raw[HEADER:]):
        whole = reader.inflated(element.body) if element.kind == COMPRESSED else [element]
        for each in whole:
            if each.kind == MATRIX and len(each.body):
                name, value = reader.variable(each.body, 0)
                variables[name] = value
    return variables


class _Reader:
    def __init__(self, path: Path, order: str) -> None:
        self._path, self._order = path, order

    def _damaged(self, expected: str, got: object) -> FormatError:
        return FormatError(f"expected {expected}, got {got}", path=self._path)

    def elements(self, raw: memoryview) -> Iterator[_MatlabElement]:
        """Yield the elements that follow one another. Small ones have their bytes in the tag."""
        place = 0
        while place + 8 <= len(raw):
            kind, size = np.frombuffer(raw[place : place + 8], f"{self._order}u4").tolist()
            if kind >> 16:
                size, kind = kind >> 16, kind & 0xFFFF
                begin, following = place + 4, place + 8
            else:
                begin = place + 8
                following = begin + size + (-size % 8 if kind != COMPRESSED else 0)
            if begin + size > len(raw) or (begin == place + 4 and size > 4):
                raise self._damaged(f"{size} bytes at byte {begin} of an element", f"{len(raw) - begin}")
            yield _MatlabElement(kind, raw[begin : begin + size])
            place = following

    def inflated(self, raw: memoryview) -> list[_MatlabElement]:
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(raw, INFLATED)
        except zlib.error as error:
            raise self._damaged("a deflated variable", error) from error
        if stream.unconsumed_tail:
            raise UnsafeDataError(f"expected a variable of at most {INFLATED} bytes", path=self._path)
        if not stream.eof:
            raise self._damaged("a whole deflated variable", "one that ends early")
        return list(self.elements(memoryview(content)))

    def variable(self, raw: memoryview, depth: int) -> tuple[str, Any]:
        """Return the name and value of a matrix."""
        if depth > DEEPEST:
            raise self._damaged(f"at most {DEEPEST} levels of structs and cells", "more")
        parts = self.elements(raw)
        flags = self._integers(next(parts, None), "flags")
        shape = self._integers(next(parts, None), "a shape")
        name = bytes(self._next(parts, "a name").body).decode("utf-8", "replace")
        if not flags or len(shape) < 2 or len(shape) > 32 or min(shape) < 0:
            raise self._damaged("flags and a shape of 2 to 32 sizes", f"{flags} and {shape}")
        kind = flags[0] & 0xFF
        if kind in OTHERS:
            return name, UnreadVariable(OTHERS[kind])
        if kind == CELL:
            return name, [self._inner(parts, depth) for _ in range(self._count(shape, raw))]
        if kind == STRUCT:
            return name, self._struct(parts, self._count(shape, raw), depth)
        if kind == CHAR:
            return name, self._text(parts, shape)
        if kind not in CLASSES:
            raise self._damaged("a class of arrays", f"number {kind}")
        return name, self._numbers(parts, shape, kind, flags[0])

    def _next(self, parts: Iterator[_MatlabElement], what: str) -> _MatlabElement:
        element = next(parts, None)
        if element is None:
            raise self._damaged(what, "the end of a variable")
        return element

    def _count(self, shape: list[int], raw: memoryview) -> int:
        """Number of elements, each of which takes at least 8 bytes."""
        count = math.prod(shape)
        if count * 8 > len(raw):
            raise self._damaged(f"{count} values in a variable of {len(raw)} bytes", "a false size")
        return count

    def _integers(self, element: _MatlabElement | None, what: str) -> list[int]:
        if element is None or element.kind not in (5, 6) or len(element.body) % 4:
            raise self._damaged(what, "another element")
        return np.frombuffer(element.body, f"{self._order}{'i4' if element.kind == 5 else 'u4'}").tolist()

    def _inner(self, parts: Iterator[_MatlabElement], depth: int) -> Any:
        element = self._next(parts, "a value of a struct or cell")
        if element.kind != MATRIX:
            raise self._damaged("a value of a struct or cell", f"an element of type {element.kind}")
        return self.variable(element.body, depth + 1)[1] if len(element.body) else np.zeros((0, 0))

    def _struct(self, parts: Iterator[_MatlabElement], count: int, depth: int) -> Any:
        lengths = self._integers(next(parts, None), "the length of names")
        names = bytes(self._next(parts, "names of fields").body)
        length = lengths[0] if lengths else 0
        if length < 1 or len(names) % length:
            raise self._damaged("names of fields of one length", f"{len(names)} bytes of {length}")
        fields = [
            names[i : i + length].split(b"\0")[0].decode("utf-8", "replace") for i in range(0, len(names), length)
        ]
        rows = [{name: self._inner(parts, depth) for name in fields} for _ in range(count)]
        return rows[0] if len(rows) == 1 else rows

    def _text(self, parts: Iterator[_MatlabElement], shape: list[int]) -> Any:
        """One text, or a list of the rows of a matrix of characters."""
        if not math.prod(shape):
            return ""
        element = self._next(parts, "characters")
        coding = "utf-16" if element.kind == 4 else TEXTS.get(element.kind, "utf-8" if element.kind in (1, 2) else None)
        if coding is None:
            raise self._damaged("characters", f"an element of type {element.kind}")
        ending = "" if coding == "utf-8" else "-le" if self._order == "<" else "-be"
        characters = bytes(element.body).decode(coding + ending, "replace")
        if len(shape) != 2 or len(characters) != math.prod(shape):
            return characters
        rows = [characters[i :: shape[0]].rstrip() for i in range(shape[0])]
        return rows[0] if len(rows) == 1 else rows

    def _numbers(self, parts: Iterator[_MatlabElement], shape: list[int], kind: int, flags: int) -> AnyArray:
        """Numbers, which may be stored in a smaller type than their class has."""
        array = self._part(parts, shape).astype(CLASSES[kind])
        if flags & COMPLEX:
            array = array + 1j * self._part(parts, shape)
        if flags & LOGICAL:
            array = array != 0
        return array.reshape(shape, order="F")

    def _part(self, parts: Iterator[_MatlabElement], shape: list[int]) -> AnyArray:
        element = self._next(parts, "numbers")
        if element.kind not in NUMBERS:
            raise self._damaged("numbers", f"an element of type {element.kind}")
        dtype = np.dtype(f"{self._order}{NUMBERS[element.kind]}")
        if len(element.body) != math.prod(shape) * dtype.itemsize:
            raise self._damaged(f"{math.prod(shape)} numbers of {dtype}", f"{len(element.body)} bytes")
        return np.frombuffer(element.body, dtype)
