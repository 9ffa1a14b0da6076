"""Bounds for the tables of MP4 and QuickTime files, checked before a demuxer gets the file.

The demuxer of FFmpeg allocates an entry for each packet that a table claims, before it knows whether the file has them:
a file of 3 KB could make it allocate 2 GiB. So the claims of all tables together may be at most `CLAIMS` for each byte
of the file, and a packet has at most `PACKET_BYTES`. A table of packet sizes counts once for each entry of the edit
list of its track, because the demuxer lists the packets of every edit.

Source: ISO/IEC 14496-12, sections 4.2, 8.6 to 8.8.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.errors import UnsafeDataError
from penstock.files.remote import read_at

CLAIMS = 8
PACKET_BYTES = 1 << 28
_PART = 1 << 20  # bytes of a table that are read at a time
_OF_BOXES = frozenset(b"moov trak mdia minf stbl edts udta dinf mvex moof traf".split())
_COUNTED = frozenset(b"stts ctts stsc stco co64 stss stps sbgp trun".split())  # tables with a number of entries
_FIELDS = (0x100, 0x200, 0x400, 0x800)  # of each packet of a fragment: duration, size, flags, composition time
_SIZE = 0x200


class _FileBox(NamedTuple):
    name: bytes
    begin: int  # of the content
    end: int  # at most the end of the file


class _Reader:
    """Numbers of a file."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def number(self, offset: int) -> int:
        return int.from_bytes(read_at(self.path, self._fd, 4, offset))

    def check_table(self, begin: int, end: int, step: int = 1, first: int = 0) -> None:
        """Check a table of 32-bit numbers, of which each `step`-th from `first` on is the size of a packet."""
        for start in range(begin, end, _PART * step):
            raw = read_at(self.path, self._fd, min(end - start, _PART * step), start)
            sizes = np.frombuffer(raw, ">u4", len(raw) // 4)[first::step]
            self.check_size(int(sizes.max(initial=0)))

    def check_size(self, size: int) -> None:
        if size > PACKET_BYTES:
            raise UnsafeDataError(
                f"expected packets of at most {PACKET_BYTES} bytes, got one of {size}", path=self.path
            )

    def boxes(self, begin: int, end: int) -> Generator[_FileBox]:
        """Boxes from the outside to the inside. A box of the size 0 goes to the end of the one around it."""
        stack = [(begin, end)]
        while stack:
            begin, end = stack.pop()
            if end - begin < 8:
                continue
            header = read_at(self.path, self._fd, 16, begin)
            name = header[4:8]
            size = int.from_bytes(header[:4])
            content = begin + 8
            if size == 1:
                size = int.from_bytes(header[8:])
                content = begin + 16
            last = begin + size if 0 < size < end - begin else end
            if size and last < content:
                continue  # no box: the demuxer stops here too
            stack.append((last, end))
            yield _FileBox(name, content, last)
            if name in _OF_BOXES:
                stack.append((content, last))


def check_boxes(path: Path, fd: int, size: int) -> None:
    """Check that the file can hold what the tables of an MP4 or QuickTime file claim."""
    reader = _Reader(path, fd)
    others = packets = edits = 0  # claims of other tables; packets and edits of the track in work
    for name, begin, end in reader.boxes(0, size):
        match name:
            case b"cmov":
                raise UnsafeDataError("expected tables that are not compressed, got compressed ones", path=path)
            case b"trak":
                others += packets * max(edits, 1)
                packets = edits = 0
            case b"elst":
                edits += reader.number(begin + 4)
            case b"stsz" | b"stz2":
                packets += reader.number(begin + 8)
            case _:
                others += reader.number(begin + 4) if name in _COUNTED else 0
        _check_sizes(reader, name, begin, end)
        claims = others + edits + packets * max(edits, 1)
        if claims > CLAIMS * size:
            raise UnsafeDataError(
                f"expected tables of at most {CLAIMS * size} entries in a file of {size} bytes, got {claims}",
                path=path,
                where=f"box {name.decode('latin-1')} at byte {begin - 8}",
            )


def _check_sizes(reader: _Reader, name: bytes, begin: int, end: int) -> None:
    """Check the sizes of packets in a box, if it has any: of each packet, or one for all."""
    flags = reader.number(begin)
    match name:
        case b"stsz":
            reader.check_size(reader.number(begin + 4))
            if not reader.number(begin + 4):
                reader.check_table(begin + 12, min(end, begin + 12 + 4 * reader.number(begin + 8)))
        case b"trun" if flags & _SIZE:
            fields = [field for field in _FIELDS if flags & field]
            first = begin + 8 + 4 * (flags & 1) + 4 * bool(flags & 4)  # behind optional fields
            end = min(end, first + 4 * len(fields) * reader.number(begin + 4))
            reader.check_table(first, end, len(fields), fields.index(_SIZE))
        case b"trex":
            reader.check_size(reader.number(begin + 16))
        case b"tfhd" if flags & 0x10:
            before = 8 * (flags & 1) + 4 * bool(flags & 2) + 4 * bool(flags & 8)
            reader.check_size(reader.number(begin + 8 + before))
        case _:
            pass
