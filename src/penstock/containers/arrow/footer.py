"""The footer of a Parquet file whose writer was killed, computed again from its pages.

The schema is only in the footer, so it is taken from another file of the same dataset, the model. Pages are walked from
the start of the file. They are divided into row groups: columns follow the order of the schema, and columns without
repetition have equal numbers of values. If several divisions are possible, the file is not mended, because a guess
could exchange the values of two columns. PyArrow decodes every column with the new footer before it is returned.

Footers and page headers are structs of Thrift's compact protocol. They are read without a schema, as dicts from field
number to `(type, value)`, so fields that this version does not know are written again as they were.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.boundary import parsing
from penstock.errors import FormatError, require
from penstock.files.mapping import map_file

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
DEPTH = 32  # structs and lists within one another
MAGIC = b"PAR1"
HEADER = 1 << 20  # bytes that a page header has at most
DATA = 0  # kinds of pages
DICTIONARY = 2
DATA_2 = 3
_SEARCHED = 1 << 20  # bytes that are searched together
_WAYS = 2  # divisions are counted up to this number
_PLAIN = 0

Fields = dict[int, tuple[int, Any]]
Items = tuple[int, list[Any]]


class ThriftReader:
    """Reads structs from bytes."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self.position = position
        self._data = data

    def struct(self, depth: int = 0) -> Fields:
        if depth > DEPTH:
            raise FormatError(f"expected at most {DEPTH} nested structs, got more")
        return {number: (kind, self.value(kind, depth)) for number, kind in self.heads()}

    def heads(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct. The caller reads its value before the next one."""
        number = 0
        while (head := self._byte()) != 0:
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            if not 0 < number < 1 << 15:
                raise FormatError(f"expected a field number above 0, got {number}")
            yield number, kind

    def value(self, kind: int, depth: int = 0) -> Any:
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
        item, count = self.list_head()
        return item, [self._item(item, depth) for _ in range(count)]

    def list_head(self) -> tuple[int, int]:
        """Read type and number of the items of a list, which follow."""
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        item = head & 15
        if count > len(self._data) - self.position:  # an item has at least a byte
            raise FormatError(f"expected a list within the bytes, got {count} items")
        return item, count

    def _item(self, kind: int, depth: int) -> Any:
        return self._byte() == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth + 1)

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


@dataclass(frozen=True)
class ParquetPage:
    """A page: where its header and its data begin, where it ends, its kind, and its number of values."""

    begin: int
    data: int
    end: int
    kind: int
    values: int
    unpacked: int
    encoding: int


@dataclass(frozen=True)
class RebuiltFooter:
    """The footer of a file without one."""

    keep: int
    content: bytes
    rows: int


def lacks_footer(path: Path) -> bool:
    """Return whether a file begins as Parquet, and does not end so. Cost: two small reads."""
    data = map_file(path)
    return bytes(data[:4]) == MAGIC and (len(data) < 12 or bytes(data[-4:]) != MAGIC)


def footer_end(path: Path) -> int | None:
    """Return the byte behind the last footer in a file that does not end with one, because other bytes follow."""
    data = map_file(path)
    end = len(data)
    while end > 0:
        begin = max(end - _SEARCHED, 0)
        place = bytes(data[begin : end + len(MAGIC) - 1]).rfind(MAGIC)
        if place < 0:
            end = begin
            continue
        end = begin + place
        if end >= 12 and 0 < int.from_bytes(bytes(data[end - 4 : end]), "little") <= end - 8:
            return end + len(MAGIC)
    return None


def footer_like(path: Path, models: Sequence[Path]) -> RebuiltFooter | None:
    """Return the footer of a file without one, from the first model that fits, or None."""
    for model in models:
        with suppress(FormatError):
            return rebuilt_footer(path, model)
    return None


def rebuilt_footer(path: Path, model: Path) -> RebuiltFooter:
    data = map_file(model)
    size = int.from_bytes(bytes(data[-8:-4]), "little")
    with parsing(model, "footer"):
        footer = ThriftReader(bytes(data[len(data) - 8 - size : len(data) - 8])).struct()
        groups: list[Fields] = footer[4][1][1]
        if not groups:
            raise FormatError("expected a row group in the file that tells the columns, got none")
        columns: list[Fields] = [column[3][1] for column in groups[0][1][1][1]]
        repeated = _repeated(footer[2][1][1])
    pages = _pages(path)
    divided = _divided(pages, [11 in column for column in columns], repeated)
    if not divided:
        raise FormatError("expected a whole row group, found none", path=path)
    row_groups = [_group(number, part, rows, columns) for number, (part, rows) in enumerate(divided)]
    total = sum(rows for _, rows in divided)
    new: Fields = {**footer, 3: (I64, total), 4: (LIST, (STRUCT, row_groups))}
    written = struct_bytes(new)
    content = written + len(written).to_bytes(4, "little") + MAGIC
    _decode(path, content, total)
    return RebuiltFooter(divided[-1][0][-1][-1].end, content, total)


def _repeated(schema: list[Fields]) -> list[bool]:
    """Whether each leaf of the schema, in order, is within a list."""
    repeated: list[bool] = []
    position = 0

    def walk(inside: bool) -> None:
        nonlocal position
        element = schema[position]
        position += 1
        inside = inside or element.get(3, (I32, 0))[1] == 2
        children = int(element.get(5, (I32, 0))[1])
        if not children:
            repeated.append(inside)
        for _ in range(children):
            walk(inside)

    walk(False)
    return repeated


def page_at(raw: bytes | memoryview, begin: int) -> ParquetPage:
    """Return the page whose header `raw` begins with, at byte `begin` of the file."""
    reader = ThriftReader(raw)
    try:
        head = reader.struct()
        kind, unpacked, packed = (int(head[number][1]) for number in (1, 2, 3))
        described: Fields = head[{DATA: 5, DICTIONARY: 7, DATA_2: 8}[kind]][1]
        values = int(described[1][1])
        encoding = int(described[4 if kind == DATA_2 else 2][1])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"expected the header of a page at byte {begin}") from error
    if packed < 0 or unpacked < 0 or values < 0:
        raise FormatError(f"expected a page of 0 or more bytes and values at byte {begin}")
    data = begin + reader.position
    return ParquetPage(begin, data, data + packed, kind, values, unpacked, encoding)


def offset_indexes(footer: bytes, leaf: int) -> list[tuple[int, int]]:
    """Return where the offset index of a leaf begins and ends, for each row group. Row groups are read one by one."""
    reader = ThriftReader(footer)
    places: list[tuple[int, int]] = []
    try:
        for number, kind in reader.heads():
            if number != 4:
                reader.value(kind)
                continue
            for _ in range(reader.list_head()[1]):
                chunk: Fields = reader.struct()[1][1][1][leaf]
                begin, size = int(chunk[4][1]), int(chunk[5][1])
                places.append((begin, begin + size))
            return places
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FormatError("expected the offset index of each column chunk in the footer") from error
    raise FormatError("expected row groups in the footer, got none")


def page_locations(raw: bytes) -> list[tuple[int, int, int]]:
    """Return byte, size with its header, and first row of each page in an offset index."""
    try:
        pages: list[Fields] = ThriftReader(raw).struct()[1][1][1]
        return [(int(page[1][1]), int(page[2][1]), int(page[3][1])) for page in pages]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError("expected an offset index of pages") from error


def _pages(path: Path) -> list[ParquetPage]:
    """The whole pages from the start of the file on."""
    data = map_file(path)
    pages: list[ParquetPage] = []
    position = 4
    while position < len(data):
        try:
            page = page_at(data[position : position + HEADER].data, position)
        except FormatError:
            break  # no page: the end of the data, or a cut
        if page.end > len(data):
            break
        pages.append(page)
        position = page.end
    return pages


Chunks = tuple[tuple[ParquetPage, ...], ...]


def _divided(pages: list[ParquetPage], dictionary: list[bool], repeated: list[bool]) -> list[tuple[Chunks, int]]:
    """Divide pages into row groups: the pages of each column, and the number of rows."""
    ways = [0] * (len(pages) + 1)
    back: list[tuple[int, Chunks, int] | None] = [None] * (len(pages) + 1)
    ways[0] = 1
    for begin in range(len(pages)):
        if ways[begin]:
            for end, chunks, rows in _groups_at(pages, begin, dictionary, repeated):
                ways[end] = min(ways[end] + ways[begin], _WAYS)
                back[end] = (begin, chunks, rows)
    last = max(i for i, count in enumerate(ways) if count)
    if ways[last] > 1:
        raise FormatError("expected pages that belong to columns in one way, got several ways; restore a copy")
    groups: list[tuple[Chunks, int]] = []
    while (step := back[last]) is not None:
        last, chunks, rows = step
        groups.append((chunks, rows))
    return groups[::-1]


def _groups_at(
    pages: list[ParquetPage], begin: int, dictionary: list[bool], repeated: list[bool]
) -> list[tuple[int, Chunks, int]]:
    """Every row group that can begin at a page: the page behind it, the pages of each column, and the rows."""
    open_: list[tuple[int, Chunks, int | None]] = [(begin, (), None)]
    for has_dictionary, is_repeated in zip(dictionary, repeated, strict=True):
        grown: list[tuple[int, Chunks, int | None]] = []
        for start, chunks, rows in open_:
            first = start + has_dictionary
            if has_dictionary and (start >= len(pages) or pages[start].kind != DICTIONARY):
                continue
            total = 0
            for end in range(first, len(pages)):
                if pages[end].kind == DICTIONARY:
                    break
                total += pages[end].values
                if not is_repeated and rows is not None and total > rows:
                    break
                if is_repeated or rows is None or total == rows:
                    grown.append((end + 1, (*chunks, tuple(pages[start : end + 1])), rows if is_repeated else total))
        open_ = grown[: 1 << 12]
    return [(end, chunks, rows) for end, chunks, rows in open_ if rows is not None and rows > 0]


def _group(number: int, chunks: Chunks, rows: int, columns: list[Fields]) -> Fields:
    column_chunks: list[Fields] = []
    for part, model in zip(chunks, columns, strict=True):
        data = [page for page in part if page.kind != DICTIONARY]
        begin, end = part[0].begin, part[-1].end
        # A header is counted among the unpacked bytes too; what is stored says how long it is only together.
        unpacked = sum(page.unpacked for page in part)
        encodings = sorted({page.encoding for page in part} | {_PLAIN, 3})
        column: Fields = {key: model[key] for key in (1, 3, 4)}
        column |= {2: (LIST, (I32, encodings)), 5: (I64, sum(page.values for page in data)), 6: (I64, unpacked)}
        column |= {7: (I64, end - begin), 9: (I64, data[0].begin)}
        if part[0].kind == DICTIONARY:
            column[11] = (I64, begin)
        column_chunks.append({2: (I64, 0), 3: (STRUCT, column)})
    first, last = chunks[0][0].begin, chunks[-1][-1].end
    total = sum(page.unpacked for part in chunks for page in part)
    group: Fields = {1: (LIST, (STRUCT, column_chunks)), 2: (I64, total), 3: (I64, rows), 5: (I64, first)}
    return group | {6: (I64, last - first), 7: (I16, number)}


def _decode(path: Path, content: bytes, rows: int) -> None:
    parquet = require("pyarrow.parquet", "arrow")
    with parsing(path, "pages, with a footer that was computed again"):
        metadata = parquet.read_metadata(io.BytesIO(MAGIC + content))
        with parquet.ParquetFile(path, metadata=metadata) as file:
            decoded_rows = 0
            for group in range(metadata.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                table.validate(full=True)
                decoded_rows += table.num_rows
        if decoded_rows != rows:
            raise FormatError(f"expected {rows} rows, got {decoded_rows}")
