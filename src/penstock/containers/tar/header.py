"""One header block of 512 bytes: its fields, its checksum, and the extended headers that come before it.

Shards repeat their members and their sizes, so headers that come at a fixed stride are checked many at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import BoolArray, ByteArray, IntArray
from penstock.errors import FormatError, UnsafeDataError

BLOCK = 512
_ASCII = bytes(range(128))
ZERO = bytes(BLOCK)
REGULAR = b"0\0007"
FOLDER = b"5"
LABEL = b"V"
PAX = b"x"
GLOBAL = b"g"
LONG_NAME = b"L"
LONG_LINK = b"K"
EXTENDED = (PAX, GLOBAL, LONG_NAME, LONG_LINK)
PERIOD = 16  # members that a repeating pattern may have
FIRST = 16  # repetitions that are looked at first
ROUND = 1 << 22  # bytes of headers that are looked at together, which is what stays in a cache
_OCTAL = 8 ** np.arange(11)[::-1]

KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a pipe",
    b"S": "a sparse file",
    b"M": "the rest of a file of another archive",
}


@dataclass(frozen=True, slots=True)
class TarHeader:
    """The fields of one block that matter here. `name` is as it stands, with the prefix in front."""

    name: bytes
    size: int
    kind: bytes
    ustar: bool


def padded(size: int) -> int:
    """`size` rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def parse(block: bytes, path: object, position: int) -> TarHeader:
    stored_checksum = octal(block[148:156], "checksum", path, position)
    total = sum(block) - sum(block[148:156]) + 8 * 32  # the checksum's own field counts as blanks
    # Some old writers sum signed bytes.
    if stored_checksum != total and stored_checksum != total - 256 * len(block.translate(None, _ASCII)):
        raise FormatError(
            f"expected a tar header with the checksum {total}, got {stored_checksum}: the archive is damaged here",
            path=path,
            where=f"byte {position}",
        )
    ustar = block[257:263] == b"ustar\0"
    name, prefix = cut(block[:100]), cut(block[345:500]) if ustar else b""
    size = number(block[124:136], "size", path, position)
    return TarHeader(prefix + b"/" + name if prefix else name, size, block[156:157], ustar)


def cut(field: bytes) -> bytes:
    """A text field up to its first NUL."""
    return field.partition(b"\0")[0]


def number(field: bytes, what: str, path: object, position: int) -> int:
    """An octal field, padded by blanks or NULs, or a base-256 one."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=True) if field[0] & 0x40 else int.from_bytes(field, "big")
        value = value if field[0] & 0x40 else value - (0x80 << 8 * (len(field) - 1))
        if value < 0 or value >> 62:
            raise UnsafeDataError(f"expected a {what} from 0 on, got {value}", path=path, where=f"byte {position}")
        return value
    return octal(field, what, path, position)


def octal(field: bytes, what: str, path: object, position: int) -> int:
    """An octal field, padded by blanks or NULs."""
    digits = cut(field).strip(b" ")
    if not all(48 <= digit < 56 for digit in digits):
        raise FormatError(
            f"expected a tar header, got a {what} that is no octal number: {bytes(field)!r}",
            path=path,
            where=f"byte {position}",
        )
    return int(digits or b"0", 8)


def records(body: bytes, path: object, position: int) -> dict[bytes, bytes]:
    """The records of a PAX header, `length key=value` and a line end each."""
    values: dict[bytes, bytes] = {}
    offset = 0
    while offset < len(body):
        blank = body.find(b" ", offset, offset + 20)
        digits = body[offset:blank] if blank > offset else b""
        end = offset + int(digits) if digits.isdigit() else -1
        key, sign, value = body[blank + 1 : end - 1].partition(b"=")
        if not blank < end <= len(body) or body[end - 1 : end] != b"\n" or not sign:
            raise FormatError(
                f"expected a record 'length key=value', got {body[offset : offset + 40]!r}",
                path=path,
                where=f"byte {position}",
            )
        values[key] = value
        offset = end
    return values


def safe_name(name: bytes, path: object, position: int) -> bytes:
    """A member's name without a leading `./`. It is never a place on the disk, so absolute ones are only names."""
    while name.startswith(b"./"):
        name = name[2:]
    if not name or b"\0" in name or (b".." in name and b".." in name.split(b"/")):
        raise UnsafeDataError(
            f"expected a member's name that stays in its folder, got {name[:200]!r}",
            path=path,
            where=f"byte {position}",
        )
    return name


@dataclass(frozen=True, slots=True)
class Place:
    """One member of the pattern, by distances from its beginning; perhaps a PAX header with a time comes before it."""

    header: int
    blocks: int
    timed: bool

    @property
    def payload(self) -> int:
        return self.header + BLOCK * (3 if self.timed else 1)

    @property
    def end(self) -> int:
        """Where the next member begins."""
        return self.payload + self.blocks * BLOCK


@dataclass(frozen=True, eq=False, slots=True)
class MemberTable:
    """`n` members: `names` bytes, and where header and payload of each begin, and its size."""

    names: npt.NDArray[np.bytes_]
    header: IntArray
    payload: IntArray
    size: IntArray


def repeats(data: ByteArray, position: int, pattern: list[Place]) -> tuple[MemberTable, int]:
    """How often the pattern repeats from `position` on: the members of all whole repetitions, and where they end.

    `data` is the archive. Accepted members have plain headers of regular files with right checksums; everything
    else is left to the careful walk. Cost: about 1 µs a member.
    """
    stride = pattern[-1].end
    left = (len(data) - position) // stride
    most = max(ROUND // (BLOCK * len(pattern)), 1)
    count = min(FIRST, most)  # more with every round that holds, so that little is done in vain where one does not
    parts: list[MemberTable] = []
    while left > 0:
        n = min(count, left)
        rows = data[position : position + n * stride].reshape(n, stride)
        rounds, good = _round(rows, pattern)
        wrong = np.flatnonzero(~good)
        whole = int(wrong[0]) if len(wrong) else n
        taken = _flat(rounds, pattern, position + np.arange(n) * stride, whole)
        parts.append(taken)
        position += whole * stride
        left = left - n if whole == n else 0
        count = min(4 * count, most)
    return joined(parts), position


def joined(parts: list[MemberTable]) -> MemberTable:
    """All of the parts, in order."""
    if not parts:
        none = np.zeros(0, np.int64)
        return MemberTable(np.zeros(0, "S1"), none, none, none)
    columns = ([getattr(part, name) for part in parts] for name in MemberTable.__slots__)
    return MemberTable(*(np.concatenate(column) for column in columns))


def _round(rows: ByteArray, pattern: list[Place]) -> tuple[list[tuple[ByteArray, IntArray]], BoolArray]:
    """Names and sizes of each place of the pattern, and which repetitions are good."""
    good = np.ones(len(rows), np.bool_)
    rounds: list[tuple[ByteArray, IntArray]] = []
    for place in pattern:
        header = place.payload - BLOCK
        block = np.ascontiguousarray(rows[:, header : header + BLOCK])
        size, fits = _regular(block)
        good &= fits & (-(-size // BLOCK) == place.blocks)
        if place.timed:
            good &= _time(rows[:, place.header : place.header + 2 * BLOCK])
        rounds.append((block[:, :100], size))
    return rounds, good


def _regular(block: ByteArray) -> tuple[IntArray, BoolArray]:
    """Size field, and whether this is a plain header of a regular file: `[n, 512]` to `[n]`."""
    size, good = _octal(block[:, 124:136])
    kind = block[:, 156]
    good &= _summed(block) & ((kind == ord("0")) | (kind == 0)) & (block[:, 0] != 0)
    good &= ~block[:, 345:500].any(axis=1)
    name = block[:, :100]
    good &= ~((name[:, 1:] != 0) & (name[:, :-1] == 0)).any(axis=1)
    dots = (name[:, 1:] == ord(".")) & (name[:, :-1] == ord("."))
    return size, good & ~dots.any(axis=1) & ~((name[:, 0] == ord(".")) & (name[:, 1] == ord("/")))


def _time(blocks: ByteArray) -> BoolArray:
    """Whether these are a PAX header and its body with one record, the time: `[n, 1024]` to `[n]`."""
    head, body = np.ascontiguousarray(blocks[:, :BLOCK]), blocks[:, BLOCK:]
    size, good = _octal(head[:, 124:136])
    good &= _summed(head) & (head[:, 156] == ord("x")) & (size >= 10) & (size < 100)
    digits = body[:, :2].astype(np.int64) - 48
    good &= ((digits >= 0) & (digits < 10)).all(axis=1) & (digits[:, 0] * 10 + digits[:, 1] == size)
    good &= (body[:, 2:9] == np.frombuffer(b" mtime=", np.uint8)).all(axis=1)
    ends = np.cumsum(body[:, :100] == ord("\n"), axis=1, dtype=np.uint8)
    last = np.take_along_axis(ends, np.clip(size, 1, 100)[:, None] - 1, axis=1)[:, 0]
    before = np.take_along_axis(ends, np.clip(size, 2, 100)[:, None] - 2, axis=1)[:, 0]
    return good & (last == 1) & (before == 0)


def _summed(block: ByteArray) -> BoolArray:
    stored_checksum, good = _octal(block[:, 148:155])
    total = block.sum(axis=1, dtype=np.uint32).astype(np.int64) - block[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * 32
    return good & (stored_checksum == total) & ((block[:, 155] == 32) | (block[:, 155] == 0))


def _octal(field: ByteArray) -> tuple[IntArray, BoolArray]:
    """`[n, w]` to values of the first `w - 1` digits; good where these are digits and a NUL or blank comes after."""
    digits = field[:, :-1].astype(np.int64) - 48
    good = ((digits >= 0) & (digits < 8)).all(axis=1) & ((field[:, -1] == 0) | (field[:, -1] == 32))
    return digits @ _OCTAL[-digits.shape[1] :], good


def _flat(rounds: list[tuple[ByteArray, IntArray]], pattern: list[Place], base: IntArray, whole: int) -> MemberTable:
    """The first `whole` repetitions in the order of the archive."""
    names = np.stack([name[:whole] for name, _ in rounds], axis=1).reshape(-1, 100)
    size = np.stack([size[:whole] for _, size in rounds], axis=1).ravel()
    header = base[:whole, None] + np.array([place.header for place in pattern])
    payload = base[:whole, None] + np.array([place.payload for place in pattern])
    return MemberTable(np.ascontiguousarray(names).view("S100").ravel(), header.ravel(), payload.ravel(), size)
