"""Files of Parquet and Arrow that were put one behind the other (`cat a.parquet b.parquet`), which no reader can read.

The footer at the end is of the last file, and its offsets count from the beginning of that file. So a reader decodes
bytes of the first file with the footer of the last: if the files are alike, without an error. Between the data that a
footer describes and the footer itself are only small indexes. So where the offsets leave more room, the last file may
begin behind another one, and the magic bytes of an end and of a beginning tell whether it does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray
from penstock.errors import FormatError
from penstock.files.remote import open_file

WINDOW = 1 << 16
"""Bytes of indexes between the data and the footer that are expected at most."""
PARQUET = b"PAR1PAR1"
ARROW = b"ARROW1ARROW1\0\0"
_END_OF_STREAM = 8
_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])


def check_one_file(path: Path, room: int, magic: bytes) -> None:
    """Raise `FormatError` if a file has several files in it."""
    if room <= _END_OF_STREAM:
        return
    first = max(room - WINDOW, 0)
    with open_file(path, buffer=1) as file:
        file.seek(first)
        place = file.read(room + len(magic) - first).rfind(magic)
    if place >= 0:
        begin = first + place + len(magic.rstrip(b"\0")) // 2
        message = f"expected one file, got several, one behind the other; the last begins at byte {begin}"
        raise FormatError(f"{message}; split them", path=path)


def parquet_room(footer: Any, size: int) -> int:
    """Return the bytes between the data of a Parquet file and its footer."""
    end = 4
    if footer.num_row_groups and footer.num_columns:
        last = footer.row_group(footer.num_row_groups - 1).column(footer.num_columns - 1)
        first = last.dictionary_page_offset if last.has_dictionary_page else last.data_page_offset
        end = min(first, last.data_page_offset) + last.total_compressed_size
    return size - 8 - footer.serialized_size - end


def arrow_footer(data: ByteArray) -> ByteArray:
    """Return the footer of an Arrow file."""
    return data[-10 - int.from_bytes(data[-10:-6].tobytes(), "little") : -10]


def arrow_room(footer: ByteArray, size: int) -> int:
    """Return the bytes between the last record batch of an Arrow file and its footer."""

    def number(place: int, dtype: str) -> int:
        return int(footer[place : place + np.dtype(dtype).itemsize].view(dtype)[0])

    table = number(0, "<u4")
    fields = table - number(table, "<i4")  # of a table of FlatBuffers
    end = 0
    for field in (2, 3):  # dictionaries, record batches
        offset = number(fields + 4 + 2 * field, "<u2") if number(fields, "<u2") > 4 + 2 * field else 0
        if not offset:
            continue
        vector = table + offset
        vector += number(vector, "<u4")
        count = number(vector, "<u4")
        blocks = footer[vector + 4 : vector + 4 + count * _BLOCK.itemsize].view(_BLOCK)
        end = max([end, *(blocks["offset"] + blocks["metadata"] + blocks["body"]).tolist()])
    return size - 10 - len(footer) - end
