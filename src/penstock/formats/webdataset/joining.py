"""Folders of archives that were written in parts become one folder: archives are moved, and numbered again. Single
archives become one archive: their members are copied. Compressed ones are joined by `packed_parts`.

A folder takes two passes, so that a second call continues after a kill: first all archives move under hidden names that
sort by part, then they get their numbers in that order. A name that is final is never used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.containers.tar.writer import Piece, replace
from penstock.files import move, sync
from penstock.files.mapping import map_file
from penstock.formats.webdataset.packed_parts import cuts_of
from penstock.formats.webdataset.shards import SUFFIXES
from penstock.formats.webdataset.writer import shard_name

_FIRST = "shard-"
_HIDDEN = ".part-"


def join_shards(parts: Sequence[Path], out: Path) -> None:
    """Move the archives of several folders into one folder. A second call continues after a kill."""
    out.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        for archive in _archives(part, _FIRST):
            move(archive, out / f"{_HIDDEN}{number:08d}-{archive.name}")
    for archive in _archives(out, _HIDDEN):
        number = len(_archives(out, _FIRST))
        stem = shard_name(number).partition(".")[0]
        move(archive, out / (stem + archive.name[archive.name.index(".", len(_HIDDEN)) :]))
    sync(out)


def join_members(parts: Sequence[Path], out: Path) -> None:
    """Copy the members of archives into one archive, which appears when it is complete, after one description."""
    pieces: list[Piece] = []
    for number, part in enumerate(parts):
        data = map_file(part)
        episodes, end = cuts_of(data, part)
        pieces.append(data[episodes if number else 0 : end].data)
    replace(out, pieces)


def _archives(folder: Path, first: str) -> list[Path]:
    """The archives whose names begin so, in order."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(first) and path.name.endswith(SUFFIXES))
