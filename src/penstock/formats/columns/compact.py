"""Rewriting a store as one segment, in the order of its episodes, and without what was damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.core.episode import Episode
from penstock.errors import ChecksumError, DataError, FormatError
from penstock.files import atomic_path
from penstock.formats.base.account import CONVERSION
from penstock.formats.base.findings import Finding
from penstock.formats.columns import table
from penstock.formats.columns.layout import METADATA, Compression, Packing, StoreLayout, read_json
from penstock.formats.columns.retention import first_kept
from penstock.formats.columns.snapshot import Maps, Snapshot
from penstock.formats.columns.writer import ColumnsWriter, write_store


def compact(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    damaged: Literal["raise", "skip"] = "raise",
    compression: Compression | Literal["keep"] = "keep",
) -> list[Finding]:
    """Write episodes into a new store of one segment, checksums compared; "skip" leaves out damaged ones."""
    if damaged not in ("raise", "skip"):
        raise DataError(f"expected damaged to be 'raise' or 'skip', got {damaged!r}")
    layout, lost = StoreLayout.read(Path(path)), list[Finding]()
    with atomic_path(target, durable="folder") as folder:
        folder.mkdir()
        packing = layout.packing if compression == "keep" else Packing.of(layout.spec, compression)
        write_store(replace(layout, root=folder, packing=packing), _metadata(layout, lost, damaged == "skip"))
        with ColumnsWriter(folder) as writer:
            writer.write_all(_whole(layout) if damaged == "raise" else _saved(layout, lost))
    return lost


def _metadata(layout: StoreLayout, lost: list[Finding], skip: bool) -> dict[str, Any]:
    try:
        metadata = read_json(layout.root / METADATA)
    except FormatError as error:
        if not skip:
            raise
        lost.append(Finding("unreadable", METADATA, str(error)))
        return {}
    metadata.pop(CONVERSION, None)  # the new store is the target of none
    return metadata


def _whole(layout: StoreLayout) -> Iterator[Episode]:
    snapshot = Snapshot.open(layout.root)
    for e in range(len(snapshot.entries)):
        yield _checked(snapshot, e)


def _saved(layout: StoreLayout, lost: list[Finding]) -> Iterator[Episode]:
    """Every episode that is whole, each judged by its own entry alone."""
    base, maps = first_kept(layout.root), Maps()
    raw = table.read_bytes(layout.table, base * table.SIZE)
    entries = np.frombuffer(raw, table.ENTRY, len(raw) // table.SIZE)
    for e, sound in enumerate(table.sound_entries(entries).tolist()):
        try:
            if not sound:
                raise ChecksumError("expected the checksum of the entry to be right", path=layout.table)
            table.check_limits(entries[e : e + 1], layout.table)
            yield _checked(Snapshot.of(layout, entries[e : e + 1], maps), 0)
        except FormatError as error:
            lost.append(Finding("unreadable", f"episode {base + e}", str(error)))


def _checked(snapshot: Snapshot, e: int) -> Episode:
    computed, expected = snapshot.payload_check(e), int(snapshot.entries[e]["payload"])
    if computed != expected:
        message = f"expected the checksum {expected:08x}, got {computed:08x}; damaged='skip' saves the other episodes"
        raise ChecksumError(message, path=snapshot.layout.root, where=f"episode {e}")
    return snapshot.episode(e)
