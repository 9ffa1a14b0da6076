"""What of the folder of a store is not read, as entries of its account.

Bytes behind the last row of a file are none: writers that are open have such bytes at any time, and `check` names what
killed ones left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.unfinished import MARK
from penstock.formats.columns import table
from penstock.formats.columns.layout import BLOCKS, EPISODE_METADATA, METADATA, SEGMENTS, SPEC
from penstock.formats.columns.retention import RETENTION
from penstock.formats.columns.snapshot import Snapshot


def unused_parts(root: Path, snapshot: Snapshot) -> Iterator[LeftOut]:
    """Yield an entry for each file that is not part of the store, and for a damaged entry of the table."""
    layout = snapshot.layout
    ours = {SPEC, METADATA, SEGMENTS, RETENTION, MARK, layout.table.name}
    files = {EPISODE_METADATA, BLOCKS}
    files |= {path.name for column in layout.spec for path in (layout.values(0, column), layout.offsets(0, column))}
    segments = {str(number) for number in layout.numbers()}
    names = [name for name in _names(root) if name not in ours]
    names += [f"{SEGMENTS}/{name}" for name in _names(root / SEGMENTS) if name not in segments]
    for segment in segments:
        inside = _names(root / SEGMENTS / segment)
        names += [f"{SEGMENTS}/{segment}/{name}" for name in inside if name not in files]
    yield from unused_files((name for name in names if not name.endswith(".penstock")), "the files of a column store")
    end = snapshot.base * table.SIZE + snapshot.entries.nbytes
    behind = table.read_bytes(layout.table, end)
    entries = np.frombuffer(behind, table.ENTRY, len(behind) // table.SIZE)
    if len(entries) and not table.sound_entries(entries[:1])[0]:  # otherwise a writer added it meanwhile
        message = f"expected the table to end here, got {len(behind)} bytes that are no entry: torn, or damaged"
        yield LeftOut("bytes", f"entry {end // table.SIZE}", "unreadable", message, len(behind))


def _names(folder: Path) -> list[str]:
    """Names in a folder, none if it was removed meanwhile."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
