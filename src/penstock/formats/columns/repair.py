"""Repairs of column stores: bytes behind the last complete entry, and behind the last row of a complete episode."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from penstock.errors import FormatError, LockedError
from penstock.files import locked, try_lock
from penstock.files.descriptors import open_regular
from penstock.formats.base.repairs import Repair, cut_repair
from penstock.formats.columns import table
from penstock.formats.columns.layout import StoreLayout
from penstock.formats.columns.snapshot import Snapshot


def torn_tails(path: Path) -> Iterator[Repair]:
    """Yield a repair for each file of the store that ends in bytes of no episode.

    Entries of the table that are damaged as a whole stay: their episodes may be complete.
    """
    try:
        snapshot = Snapshot.open(path)
    except FormatError:
        return
    layout = snapshot.layout
    size = os.stat(layout.table).st_size
    known = snapshot.base * table.SIZE + snapshot.entries.nbytes
    if 0 < size - known < table.SIZE:
        yield cut_repair(layout.table, known, size, where="episodes")
    elif size > known:
        return
    for file, left, size in orphans(snapshot):
        yield cut_repair(file, size - left, size, where=str(file.relative_to(layout.root)))


def orphans(snapshot: Snapshot) -> Iterator[tuple[Path, int, int]]:
    """Yield the files with bytes that belong to no episode: how many these are, and the size of the file."""
    used = dict(snapshot.files())
    left_behind = set(table.read(snapshot.layout.table)["segment"][: snapshot.base].tolist())
    left_behind -= set(snapshot.entries["segment"].tolist())
    for number in snapshot.layout.numbers():
        if number in left_behind:  # its episodes have left; its writer is still open, or a removal was killed
            continue
        with os.scandir(snapshot.layout.segment(number)) as entries:
            sizes = {Path(entry.path): entry.stat(follow_symlinks=False).st_size for entry in entries}
        for path, size in sorted(sizes.items()):
            if (left := size - used.get(path, 0)) > 0:
                yield path, left, size


@contextmanager
def without_writers(path: Path) -> Generator[None]:
    """Lock every segment, so that no writer is open, and the table, for which new writers wait."""
    layout = StoreLayout.read(path)
    with ExitStack() as stack:
        stack.enter_context(locked(layout.table, os.O_RDWR, wait=True))
        for number in layout.numbers():
            fd = open_regular(layout.metadata(number), os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, fd)
            if not try_lock(fd):
                raise LockedError(f"{path} is in use by another writer; try again when it has finished")
        yield
