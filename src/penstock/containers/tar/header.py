"""One header block of 512 bytes: its fields, its checksum, and the extended headers that come before it."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Read a block that is not zero. Raises `FormatError` for a wrong checksum or a field that is no number."""
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
    """An octal field, padded by blanks or NULs, or a base-256 one. Raises `FormatError`, `UnsafeDataError`
    if negative.
    """
    if field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=True) if field[0] & 0x40 else int.from_bytes(field, "big")
        value = value if field[0] & 0x40 else value - (0x80 << 8 * (len(field) - 1))
        if value < 0 or value >> 62:
            raise UnsafeDataError(f"expected a {what} from 0 on, got {value}", path=path, where=f"byte {position}")
        return value
    return octal(field, what, path, position)


def octal(field: bytes, what: str, path: object, position: int) -> int:
    """An octal field, padded by blanks or NULs. Raises `FormatError`."""
    digits = cut(field).strip(b" ")
    if not all(48 <= digit < 56 for digit in digits):
        raise FormatError(
            f"expected a tar header, got a {what} that is no octal number: {bytes(field)!r}",
            path=path,
            where=f"byte {position}",
        )
    return int(digits or b"0", 8)


def records(body: bytes, path: object, position: int) -> dict[bytes, bytes]:
    """The records of a PAX header, `length key=value` and a line end each. Raises `FormatError` for anything else."""
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
    """A member's name without a leading `./`. It is never a place on the disk, so absolute ones are only names.

    Raises `UnsafeDataError` for names that are empty, hold a NUL, or step out of a folder with `..`.
    """
    while name.startswith(b"./"):
        name = name[2:]
    if not name or b"\0" in name or (b".." in name and b".." in name.split(b"/")):
        raise UnsafeDataError(
            f"expected a member's name that stays in its folder, got {name[:200]!r}",
            path=path,
            where=f"byte {position}",
        )
    return name
