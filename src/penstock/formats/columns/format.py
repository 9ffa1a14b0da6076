"""The format of column stores: how they are recognised, opened, checked and written."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.core.spec import Spec
from penstock.errors import FormatError, LockedError
from penstock.files import locked, try_lock
from penstock.files.descriptors import open_regular
from penstock.formats.base.findings import Finding, Repair, cut_repair
from penstock.formats.base.format import QUICK_BYTES, Format
from penstock.formats.base.writer import Target
from penstock.formats.columns import table
from penstock.formats.columns.layout import MARKER, METADATA, SPEC, StoreLayout, has_table, read_json
from penstock.formats.columns.snapshot import Snapshot
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.table import join_stores
from penstock.formats.columns.writer import ColumnsWriter

EPISODES_TOGETHER, STEPS_TOGETHER = 1024, 1 << 16
TARGET = Target(
    "columns",
    flat=True,
    options=("sync", "compression", "block_steps"),
    kept=("sync",),
    files=("spec.json", "metadata.json", "episodes", "segments"),
)


class ColumnsFormat(Format):
    """A folder with one append-only file a column, and a table of episodes. See docs/formats/columns.md."""

    name: ClassVar[str] = "columns"
    description: ClassVar[str] = "a file of raw values a column; safe to append to by several, and to read meanwhile"

    def recognises(self, path: Path) -> bool:
        """Whether `spec.json` in the folder says so, and names no format that opens the store, or is missing or damaged
        next to a table and segments."""
        try:
            head = read_json(path / SPEC)
            return head.get("format") == MARKER and head.get("content") is None
        except (OSError, FormatError):
            return has_table(path)

    def open(self, path: Path, **options: Any) -> ColumnsSource:
        return ColumnsSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(
        self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> ColumnsWriter:
        """Create an empty store and open it for writing."""
        return ColumnsWriter.create(path, spec, metadata, **options)

    def append(self, path: Path, **options: Any) -> ColumnsWriter:
        """Open an existing store for writing more episodes."""
        return ColumnsWriter(path, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Compare table and sizes, and with `deep`, or for up to 256 MiB, every byte with its checksum."""
        try:
            read_json(path / METADATA)
            snapshot = Snapshot.open(path)
        except FormatError as error:
            yield Finding("unreadable", str(path), str(error))
            return
        if deep or sum(size for _, size in snapshot.files()) <= QUICK_BYTES:
            yield from _episodes(snapshot)
        yield from _table(snapshot)
        for file, left, _ in orphans(snapshot):
            message = f"the last {left} bytes belong to no episode; the next writer removes them"
            yield Finding("torn-tail", str(file.relative_to(path)), message)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Each part becomes a segment."""
        join_stores(parts, out)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name == "torn-tail" for finding in findings):
            yield from torn_tails(path)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return without_writers(path)


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
    known = snapshot.table_end
    left = len(table.read_bytes(snapshot.layout.table, known))
    if left >= table.SIZE:
        got = f"{left} bytes that are no entry: torn by a power loss, or damaged"
        yield Finding("unreadable", f"entry {known // table.SIZE}", f"expected the table to end here, got {got}")
    elif left:
        yield Finding("torn-tail", "episodes", f"the last {left} bytes are a torn entry; the next writer removes them")


def torn_tails(path: Path) -> Iterator[Repair]:
    """Yield a repair for each file that ends in bytes of no episode. Damaged entries stay."""
    try:
        snapshot = Snapshot.open(path)
    except FormatError:
        return
    layout = snapshot.layout
    size = os.stat(layout.table).st_size
    known = snapshot.table_end
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
