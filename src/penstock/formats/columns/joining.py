"""Stores that were written in parts become one store: each part is a segment.

Positions in the table count from the start of a segment, so the files of a part do not change. Only its number in the
entries does. The table is written last: a store that a kill leaves has no episodes, and a second call continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import FormatError
from penstock.files import move, sync, write_atomic
from penstock.formats.columns import table
from penstock.formats.columns.files import read_json, write_json
from penstock.formats.columns.layout import METADATA, SEGMENTS, StoreLayout


def join_stores(parts: Sequence[Path], out: Path) -> None:
    """Move the segments of stores into one store. A second call continues after a kill.

    Args:
        parts: Stores that one writer wrote each, in the order of their episodes.
        out: The new store. Its folder may exist from an earlier call.

    Raises:
        FormatError: A part is damaged, or more than one writer wrote it.
    """
    layouts = [StoreLayout.read(part) for part in parts]
    first = layouts[0]
    joined = StoreLayout(out, first.spec, first.packing)
    (out / SEGMENTS).mkdir(parents=True, exist_ok=True)
    joined.write()
    write_json(out / METADATA, read_json(first.root / METADATA))
    entries: list[bytes] = []
    for number, layout in enumerate(layouts):
        read = table.read(layout.table)
        if read["segment"].any():
            raise FormatError("expected a store of one segment, got several", path=layout.root)
        if not joined.segment(number).exists():
            move(layout.segment(0), joined.segment(number))
        raw = read.tobytes()
        entries += [table.pack(number, *table.unpack(raw, e)[1:]) for e in range(len(read))]
    sync(out / SEGMENTS)
    write_atomic(joined.table, *entries, durable="folder")
