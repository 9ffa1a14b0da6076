"""The episode table: one entry of 48 bytes an episode, each with a checksum. An episode exists once its entry does.

Stores that were written in parts become one store by their tables: each part is a segment. Positions count from the
start of a segment, so only its number in the entries changes. The table is written last: a store that a kill leaves has
no episodes, and a second call continues.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import BoolArray, StructArray
from penstock.core.spec import Align
from penstock.errors import ChecksumError, FormatError, StateError
from penstock.files import locked, move, sync, write_atomic
from penstock.files.descriptors import opened
from penstock.files.sparse import link_file
from penstock.formats.columns.layout import (
    METADATA,
    SEGMENTS,
    Packing,
    StoreLayout,
    read_at,
    read_json,
    write_at,
    write_json,
)

ENTRY = np.dtype(
    [
        ("segment", "<u4"),  # the episode's segment
        ("index", "<u4"),  # its number in that segment
        ("start", "<u8"),  # its first step row in that segment
        ("steps", "<u8"),
        ("metadata", "<u8"),  # its first byte in the segment's metadata.jsonl
        ("metadata_bytes", "<u4"),
        ("blocks", "<u4"),  # compressed blocks of the segment up to its last row
        ("payload", "<u4"),  # CRC-32 of its rows and metadata
        ("check", "<u4"),  # CRC-32 of the bytes before
    ]
)
SIZE = ENTRY.itemsize
_BODY = struct.Struct("<IIQQQIII")
_CHECK = struct.Struct("<I")
_LIMIT = 1 << 60  # positions beyond it would overflow when they are added


def pack(*fields: int) -> bytes:
    """One entry of its fields in order, without `check`, which is added."""
    body = _BODY.pack(*fields)
    return body + _CHECK.pack(zlib.crc32(body))


def unpack(entries: bytes, e: int) -> tuple[int, ...]:
    """The fields of entry `e`, in order, without `check`."""
    return _BODY.unpack_from(entries, e * SIZE)


def places(index: int, start: int, steps: int) -> dict[Align, tuple[int, int]]:
    """First row and number of rows of an episode in its segment, for each alignment."""
    return {"step": (start, steps), "boundary": (start + index, steps + 1), "episode": (index, 1)}


def read(path: Path, known: int = 0) -> StructArray:
    """The complete entries from number `known` on; a torn tail is left out."""
    raw = read_bytes(path, known * SIZE)
    entries = np.frombuffer(raw, ENTRY, len(raw) // SIZE)
    sound = sound_entries(entries)
    n = len(sound) if sound.all() else int(np.argmin(sound))
    if sound[n:].any():
        raise ChecksumError(
            "expected the checksum of the entry to be right; `compact` with damaged='skip' saves the others",
            path=path,
            where=f"entry {known + n}",
        )
    return entries[:n]


def read_bytes(path: Path, start: int = 0) -> bytes:
    """The bytes of the table from `start` on."""
    with opened(path) as fd:
        return read_at(fd, start, os.fstat(fd).st_size)


def sound_entries(entries: StructArray) -> BoolArray:
    """`[E]` bool: which entries have the right checksum. Cost: 0.2 µs an entry."""
    bodies = struct.iter_unpack(f"{_BODY.size}s{SIZE - _BODY.size}x", entries.tobytes())
    checksums = np.fromiter(map(zlib.crc32, map(itemgetter(0), bodies)), np.uint32, len(entries))
    return checksums == entries["check"]


def check_order(entries: StructArray, path: Path, packing: Packing | None = None, *, whole: bool = True) -> None:
    """Raise `FormatError` unless the episodes of every segment follow one another without a gap."""
    check_limits(entries, path)
    order = np.argsort(entries["segment"], kind="stable")
    ordered = entries[order]
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered["segment"][1:] != ordered["segment"][:-1]
    expected = {
        "index": ordered["index"].astype(np.int64) + 1,
        "start": ordered["start"] + ordered["steps"],
        "metadata": ordered["metadata"] + ordered["metadata_bytes"],
    }
    wrong = np.zeros(len(ordered), np.bool_)
    for name, after in expected.items():
        follows = np.zeros(len(ordered), after.dtype)
        follows[1:] = after[:-1]
        wrong |= ordered[name] != np.where(first, 0 if whole else ordered[name], follows)
    steps, before = ordered["steps"].astype(np.int64), np.zeros(len(ordered), np.int64)
    before[1:] = np.where(first[1:], 0, ordered["blocks"][:-1])
    wrong |= (ordered["blocks"] != (before + packing.counts(steps) if packing else 0)) & (whole | ~first)
    if wrong.any():
        bad = int(order[wrong].min())
        raise FormatError("expected the episode to follow the one before it", path=path, where=f"entry {bad}")


def check_limits(entries: StructArray, path: Path) -> None:
    """Raise `FormatError` for numbers so large that adding them could overflow."""
    wrong = np.zeros(len(entries), np.bool_)
    for name in ("start", "steps", "metadata"):
        wrong |= entries[name] >= _LIMIT
    if wrong.any() or int(entries["steps"].astype(np.float64).sum()) >= _LIMIT:
        where = f"entry {int(np.argmax(wrong))}"
        raise FormatError(f"expected numbers below {_LIMIT}, got larger ones", path=path, where=where)


def ends(entries: StructArray, segment: int) -> tuple[int, int, int, int]:
    """How many episodes, step rows, metadata bytes and blocks a segment holds."""
    mine = entries[entries["segment"] == segment]
    if len(mine) == 0:
        return 0, 0, 0, 0
    last: dict[str, Any] = {name: int(mine[-1][name]) for name in ENTRY.names or ()}
    return (
        last["index"] + 1,
        last["start"] + last["steps"],
        last["metadata"] + last["metadata_bytes"],
        last["blocks"],
    )


def join_stores(parts: Sequence[Path], out: Path) -> None:
    """Move the segments of stores into one store. A second call continues after a kill."""
    layouts = [StoreLayout.read(part) for part in parts]
    first = layouts[0]
    joined = replace(first, root=out)
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
        entries = read(target.table)
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
    return set(read(StoreLayout.read(store).table)["segment"].tolist())


def _renumbered(layout: StoreLayout, number: int) -> bytes:
    """The table of a store of one segment, with another number of the segment."""
    entries = read(layout.table)
    if entries["segment"].any():
        raise FormatError("expected a store of one segment, got several", path=layout.root)
    raw = entries.tobytes()
    return b"".join(pack(number, *unpack(raw, e)[1:]) for e in range(len(entries)))
