"""The end of an archive behind its last whole member, which a killed writer or a cut copy may have left."""

from __future__ import annotations

from pathlib import Path

from penstock.containers.tar.walk import Members, walk
from penstock.files.mapping import map_file


def torn_end(path: Path) -> tuple[Members, int, bool]:
    """Return the whole members of an archive, its size in bytes, and whether a torn end is behind them.

    Bytes that may be data are no torn end: those behind the end-of-archive marker, unless a killed writer left them.
    """
    data = map_file(path)
    members = walk(data, path, torn="drop")
    return members, len(data), members.torn is not None or members.tail.unfinished
