"""Looking for damage: every checksum, every size, and what belongs to no episode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.errors import FormatError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import QUICK_BYTES
from penstock.formats.columns import table
from penstock.formats.columns.files import read_json
from penstock.formats.columns.layout import METADATA
from penstock.formats.columns.repair import orphans
from penstock.formats.columns.snapshot import Snapshot

EPISODES_TOGETHER, STEPS_TOGETHER = 1024, 1 << 16


def findings(path: Path, *, deep: bool) -> Iterator[Finding]:
    """Damage of the store at `path`, with `deep` (or if it is small) also wrong checksums: an `error` where an episode
    is not what was written, a `warning` where bytes or files belong to no episode, as a killed writer leaves them until
    the next one comes."""
    try:
        read_json(path / METADATA)
        snapshot = Snapshot.open(path)
    except FormatError as error:
        yield Finding("unreadable", str(path), str(error))
        return
    if deep or sum(size for _, size in snapshot.files()) <= QUICK_BYTES:
        yield from _episodes(snapshot)
    yield from _table(snapshot)
    yield from _orphans(snapshot)


def _episodes(snapshot: Snapshot) -> Iterator[Finding]:
    """Check some episodes together, and where one of them cannot be read, each alone."""
    first = 0
    while first < len(snapshot.entries):
        bound = int(np.searchsorted(snapshot.offsets, int(snapshot.offsets[first]) + STEPS_TOGETHER, "right")) - 1
        last = min(max(bound, first + 1), first + EPISODES_TOGETHER, len(snapshot.entries))
        try:
            computed = snapshot.payload_checks(first, last)
            snapshot.episode_metadata(range(first, last))
        except FormatError:
            for e in range(first, last):
                yield from _episode(snapshot, e)
        else:
            expected = snapshot.entries["payload"][first:last].tolist()
            for e, checks in enumerate(zip(computed, expected, strict=True), first):
                yield from _checksum(e, *checks)
        first = last


def _episode(snapshot: Snapshot, e: int) -> Iterator[Finding]:
    try:
        yield from _checksum(e, snapshot.payload_check(e), int(snapshot.entries[e]["payload"]))
        snapshot.episode_metadata([e])
    except FormatError as error:
        yield Finding("unreadable", f"episode {e}", str(error))


def _checksum(e: int, computed: int, expected: int) -> Iterator[Finding]:
    if computed != expected:
        yield Finding("checksum", f"episode {e}", f"expected the checksum {expected:08x}, got {computed:08x}")


def _table(snapshot: Snapshot) -> Iterator[Finding]:
    known = snapshot.base * table.SIZE + snapshot.entries.nbytes
    left = len(table.read_bytes(snapshot.layout.table, known))
    if left >= table.SIZE:
        message = (
            f"expected the table to end here, got {left} bytes that are no entry: torn by a power loss, or damaged"
        )
        yield Finding("unreadable", f"entry {known // table.SIZE}", message)
    elif left:
        yield Finding("torn-tail", "episodes", f"the last {left} bytes are a torn entry; the next writer removes them")


def _orphans(snapshot: Snapshot) -> Iterator[Finding]:
    for path, left, _ in orphans(snapshot):
        message = f"the last {left} bytes belong to no episode; the next writer removes them"
        yield Finding("torn-tail", str(path.relative_to(snapshot.layout.root)), message)
