"""What of a dataset of games is left out, as entries of its account. `check` has findings of the same names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from penstock.formats.base.account import MARK, LeftOut, unused_files
from penstock_chess.formats.lc0.chunks import ChunkFile
from penstock_chess.formats.lc0.errors import ChunkError
from penstock_chess.formats.lc0.files import METADATA

GAMES = "files of games (.gz, .tar)"
OURS = (METADATA, ".lock", MARK)


def place_of(path: Path, member: str | None) -> str:
    """The place of a chunk in its dataset, for people."""
    return path.name if member is None else f"{member} in {path.name}"


def bad_chunk(path: Path, member: str | None, error: ChunkError) -> LeftOut:
    """The entry of a file, or of a member of an archive, that is no chunk."""
    thing, reason = ("file", "bad-file") if member is None else ("member", "damaged-part")
    return LeftOut(thing, place_of(path, member), reason, f"{error.reason}: {error}")


def unused_in(file: ChunkFile) -> list[LeftOut]:
    """The entries of members of an archive that are no chunks or cannot be read, and of bytes behind ends."""
    path = file.path
    entries = [
        LeftOut("member", f"{each.where} in {path.name}", each.reason, each.message)
        for each in unused_files(file.passed, "games")
    ]
    for i, count in file.unread.items():
        message = f"expected the end of the gzip, got {count} bytes behind it, which are no other member"
        entries.append(LeftOut("bytes", place_of(path, file.name(i)), "behind-the-end", message, count))
    if file.behind is not None:
        message = "expected zeros, or another archive, behind the end of the archive, got other bytes"
        entries.append(LeftOut("bytes", f"{path.name}: byte {file.behind}", "behind-the-end", message))
    if file.torn is not None:
        lost = file.expected - len(file)
        entries.append(LeftOut("member", path.name, "truncated", f"truncated: {file.torn}", lost))
    return entries


def unused_beside(folder: Path) -> list[LeftOut]:
    """The entries of hidden files of a folder of games, and of the folders in it, which are not read."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [f"{e.name}{'/' * e.is_dir()}" for e in entries if e.name.startswith(".") or e.is_dir()]
    return unused_files((name for name in names if name not in OURS and not name.endswith(".penstock")), GAMES)


def with_counts(entries: Sequence[LeftOut]) -> tuple[LeftOut, ...]:
    """The entries, with one for all notes of a kind: many archives have the same license in them."""
    notes: dict[tuple[str, str], LeftOut] = {}
    for entry in entries:
        if entry.level == "note":
            first = notes.get((entry.thing, entry.reason))
            new = entry if first is None else replace(first, count=first.count + entry.count)
            notes[entry.thing, entry.reason] = new
    return (*(entry for entry in entries if entry.level != "note"), *notes.values())
