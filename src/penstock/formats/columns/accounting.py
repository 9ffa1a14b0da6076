"""What of the folder of a store is not read, as entries of its account.

Bytes behind the last row of a file are none: writers that are open have such bytes at any time, and `check` names what
killed ones left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.files.remote import file_state
from penstock.formats.base.account import MARK, LeftOut, unused_files
from penstock.formats.columns import table
from penstock.formats.columns.layout import METADATA, SEGMENTS, SPEC, TABLE, is_segment
from penstock.formats.columns.retention import RETENTION
from penstock.formats.columns.snapshot import Snapshot

OURS = frozenset((SPEC, METADATA, SEGMENTS, TABLE, RETENTION, MARK))


def unused_parts(root: Path, snapshot: Snapshot) -> Iterator[LeftOut]:
    """Yield an entry for each file that is not part of the store, and for a damaged entry of the table."""
    layout, place = snapshot.layout, os.fspath(root)
    names = [name for name in _names(place) if name not in OURS]
    for segment in _names(f"{place}/{SEGMENTS}"):
        if not is_segment(segment):
            names.append(f"{SEGMENTS}/{segment}")
            continue
        inside = _names(f"{place}/{SEGMENTS}/{segment}")
        names += [f"{SEGMENTS}/{segment}/{name}" for name in inside if name not in layout.file_names]
    if names:
        others = [name for name in names if not name.endswith(".penstock")]
        yield from unused_files(others, "the files of a column store")
    end = snapshot.base * table.SIZE + snapshot.entries.nbytes
    if file_state(layout.table).size >= end + table.SIZE:
        yield from _damaged_entry(layout.table, end)


def _damaged_entry(path: Path, end: int) -> Iterator[LeftOut]:
    """Yield an entry if the next one of the table is damaged, and was not added meanwhile."""
    behind = table.read_bytes(path, end)
    entries = np.frombuffer(behind, table.ENTRY, len(behind) // table.SIZE)
    if len(entries) and not table.sound_entries(entries[:1])[0]:
        message = f"expected the table to end here, got {len(behind)} bytes that are no entry: torn, or damaged"
        yield LeftOut("bytes", f"entry {end // table.SIZE}", "unreadable", message, len(behind))


def _names(folder: str) -> list[str]:
    """Names in a folder, none if it was removed meanwhile."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
