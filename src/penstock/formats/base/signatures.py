"""First bytes by which some formats are asked first, so that the packages of the others are not imported.

Most files are not listed: archives and text can have many formats, which look at them one after the other.
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import RemoteError
from penstock.files.remote import open_file

SIGNATURES = {
    b"PAR1\x15": frozenset({"tables"}),  # Parquet, and the header of its first page
    b"ARROW1\0\0": frozenset({"tables"}),
    b"\x89HDF\r\n\x1a\n": frozenset({"demos", "minari"}),
}
"""Folders of `penstock.formats` whose files begin with some bytes."""
POINTER = b"version https://git-lfs.github.com/spec/"
"""The first bytes of the text file that Git LFS has in the place of a large file."""
POINTED = "a pointer of Git LFS instead of the file; `git lfs pull` fetches it"


def likely_formats(path: Path) -> frozenset[str] | None:
    """Return the folders of the formats that a file has by its first bytes, or None for others. Cost: one
    small read.
    """
    if not path.is_file():
        return None
    try:
        with open_file(path) as file:
            head = file.read(max(map(len, SIGNATURES)))
    except RemoteError:
        raise
    except OSError:
        return None  # the formats say what is wrong
    return next((folders for signature, folders in SIGNATURES.items() if head.startswith(signature)), None)


def is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer of Git LFS. Cost: one small read."""
    try:
        if not path.is_file():
            return False
        with open_file(path) as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False
