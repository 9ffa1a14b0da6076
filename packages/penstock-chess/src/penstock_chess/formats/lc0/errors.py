"""What can be wrong with a chunk, in one word each."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from penstock.errors import FormatError


class Reason(StrEnum):
    """Why a chunk, or a file of chunks, is bad. A closed list, to count by."""

    NOT_GZIP = "not_gzip"  # neither gzip nor records
    CRC = "crc"  # bytes differ from the checksum or length behind them
    TRUNCATED = "truncated"  # the end of the gzip member, or of the file, is missing
    DAMAGED = "damaged"  # no deflate stream
    TOO_LARGE = "too_large"  # more bytes than the limit of a chunk
    EMPTY = "empty"  # no bytes, or no records
    VERSION = "version"  # the first record is of no version that is known
    SIZE = "size"  # not a whole number of records
    MIXED = "mixed"  # records of several versions
    ARCHIVE = "archive"  # a file called .tar that is none
    IO = "io"  # the file cannot be read, is gone, or was replaced


class ChunkError(FormatError):
    """A chunk that cannot be used. `reason` is the word to count it by; the message says what was
    expected and found.
    """

    def __init__(self, message: str, reason: Reason, *, path: object = None, where: str | None = None) -> None:
        super().__init__(message, path=path, where=where)
        self.reason = reason

    def __reduce__(self) -> tuple[Callable[..., ChunkError], tuple[object, ...]]:
        return _again, (str(self), self.reason, self.path, self.where)


def _again(message: str, reason: Reason, path: object, where: str | None) -> ChunkError:
    """The same error in another process; its message has its place already."""
    error = ChunkError(message, reason)
    error.path, error.where = path, where
    return error
