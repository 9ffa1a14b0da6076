"""Stores that were written in parts become one store: each part is a segment.

Positions in the table count from the start of a segment, so only its number in the entries changes. The table is
written last: a store that a kill leaves has no episodes, and a second call continues.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import FormatError, StateError
from penstock.files import locked, move, sync, write_atomic
from penstock.files.descriptors import opened
from penstock.files.sparse import link_file
from penstock.formats.columns import table
from penstock.formats.columns.layout import METADATA, SEGMENTS, StoreLayout, read_json, write_at, write_json


def join_stores(parts: Sequence[Path], out: Path) -> None:
    """Move the segments of stores into one store. A second call continues after a kill."""
    layouts = [StoreLayout.read(part) for part in parts]
    first = layouts[0]
    joined = StoreLayout(out, first.spec, first.packing)
    (out / SEGMENTS).mkdir(parents=True, exist_ok=True)
    joined.write()
    write_json(out / METADATA, read_json(first.root / METADATA))
    entries: list[bytes] = []
    for number, layout in enumerate(layouts):
        entries.append(_renumbered(layout, number))
        if not joined.segment(number).exists():
            move(layout.segment(0), joined.segment(number))
    sync(out / SEGMENTS)
    write_atomic(joined.table, *entries, durable="folder")


def publish_segment(part: Path, store: Path, number: int) -> None:
    """Give the files of a part a second name in a store, append its episodes to the table, and remove the
    first names.

    A second call does nothing, also at the same time. After a kill, it does what is missing. The part keeps its files
    until the table has all episodes, because a segment without episodes may be removed by a replay.
    """
    source, target = StoreLayout.read(part), StoreLayout.read(store)
    added = _renumbered(source, number)
    with opened(target.table, os.O_RDWR) as fd, locked(fd, wait=True):
        entries = table.read(target.table)
        published = entries[entries["segment"] == number].tobytes()
        if not added.startswith(published):
            raise StateError(f"expected no other segment {number} in {store}; nothing else may write to this store")
        if len(published) < len(added):
            _link_segment(source.segment(0), target.segment(number))
            os.ftruncate(fd, entries.nbytes)  # bytes of a killed writer
            write_at(fd, added[len(published) :], entries.nbytes)
            os.fsync(fd)
        shutil.rmtree(source.segment(0), ignore_errors=True)  # or later, with the part


def _link_segment(source: Path, target: Path) -> None:
    """Give all files of a segment a second name."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir()):
        link_file(path, target / path.name)
    sync(target, target.parent)


def segments_of(store: Path) -> set[int]:
    """Return the numbers of the segments that have episodes in the table, also of removed ones."""
    return set(table.read(StoreLayout.read(store).table)["segment"].tolist())


def _renumbered(layout: StoreLayout, number: int) -> bytes:
    """The table of a store of one segment, with another number of the segment."""
    entries = table.read(layout.table)
    if entries["segment"].any():
        raise FormatError("expected a store of one segment, got several", path=layout.root)
    raw = entries.tobytes()
    return b"".join(table.pack(number, *table.unpack(raw, e)[1:]) for e in range(len(entries)))
