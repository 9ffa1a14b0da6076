"""The first names of an archive: enough to tell what it holds, and cheap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.containers.tar.compress import opened
from penstock.containers.tar.walk import Forward, after_end, entry
from penstock.errors import FormatError
from penstock.files.remote import open_file

MEMBERS = 64
NBYTES = 1 << 22  # that are unpacked at most


def glance(path: Path) -> Iterator[bytes]:
    """The names of the first members, compressed or not: at most `MEMBERS`, and of the first `NBYTES` bytes.

    Raises `FormatError` for what is no archive, `MissingExtraError` where zstd has no library.
    """
    try:
        with open_file(path) as file:
            read, position = Forward(opened(file, path)).read, 0
            for _ in range(MEMBERS):
                if position > NBYTES:
                    break
                if (header := entry(read, position, path)) is None:
                    begin, _ = after_end(read, position, path)
                    if begin is None:
                        break
                    position = begin
                    continue
                member, position = header
                if member is not None:
                    yield member.name
    except OSError as error:
        raise FormatError(f"expected an archive, got {error}", path=path) from error
