"""`Retention`: a store that keeps its last episodes, and removes the files of older ones by whole segments.

A removal has three steps, and a process that is killed after any of them leaves a sound store: replace
`retention.json`, after which older episodes do not exist for readers; rename each segment without a later episode and
without a writer to a hidden name; delete what was renamed. The first two hold the lock of the table, as writers do
while they choose a segment, so no writer continues a segment that is about to be renamed. Entries, rows and segments
keep their numbers. A reader of such a store maps all files when it opens, and maps of deleted files stay valid.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from penstock.core.narrowing import is_integer
from penstock.errors import DataError, FormatError
from penstock.files import locked, scratch_folder, try_lock
from penstock.files.descriptors import opened
from penstock.files.replace import move
from penstock.formats.columns import table
from penstock.formats.columns.layout import SEGMENTS, StoreLayout, read_json, write_json

RETENTION = "retention.json"
PARTS = 16  # segments of the steps that are kept: so much of them is removed at a time
_LIMIT = 1 << 60


@dataclass(frozen=True)
class RetentionState:
    """Contents of `retention.json`."""

    keep_steps: int
    segment_steps: int
    first: int = 0


def read_retention(root: Path) -> RetentionState | None:
    """Return the retention of a store, or None if it keeps everything."""
    path = root / RETENTION
    if not os.path.lexists(path):
        return None
    data = read_json(path)
    names = ("keep_steps", "segment_steps", "first")
    values = [data.get(name) for name in names]
    if not all(is_integer(value) and 0 <= value < _LIMIT for value in values) or 0 in values[:2]:
        raise FormatError(f"expected {', '.join(names)} as whole numbers, got {str(data)[:200]}", path=path)
    return RetentionState(*(int(value) for value in values if is_integer(value)))


def first_kept(root: Path) -> int:
    """Return the number of the first episode that a store keeps."""
    retention = read_retention(root)
    return 0 if retention is None else retention.first


class Retention:
    """Removes the files of old episodes of a store."""

    def __init__(self, root: Path, segment_steps: int) -> None:
        self._layout = StoreLayout.read(root)
        self.segment_steps = segment_steps

    @classmethod
    def begin(cls, root: str | os.PathLike[str], keep_steps: int) -> Retention:
        """Let a store keep at least so many steps from now on. Writers that are open notice it."""
        if not 1 <= keep_steps < _LIMIT:
            raise DataError(f"expected keep_steps of at least 1, got {keep_steps}")
        path = Path(root)
        segment_steps = -(-keep_steps // PARTS)
        retention = cls(path, segment_steps)
        with retention._locked():
            before = read_retention(path)
            now = RetentionState(keep_steps, segment_steps, 0 if before is None else before.first)
            if now != before:
                _write(path, now)
        return retention

    def trim(self) -> int:
        """Remove the files of segments that have left."""
        root = self._layout.root
        removed = 0
        with scratch_folder(root / SEGMENTS / "removed") as scratch, self._locked():
            retention = read_retention(root)
            if retention is None:
                return 0
            entries = table.read(self._layout.table, retention.first)
            steps = entries["steps"].astype(np.int64)
            after = np.cumsum(steps[::-1])[::-1]  # steps from each episode on
            gone = max(int((after >= retention.keep_steps).sum()) - 1, 0)
            if gone:
                _write(root, replace(retention, first=retention.first + gone))
            used = set(np.unique(entries["segment"][gone:]).tolist())
            for number in self._layout.numbers():
                if number not in used and self._move(number, scratch / str(number)):
                    removed += 1
        return removed

    def _move(self, number: int, target: Path) -> bool:
        """Rename a segment unless it has a writer. Return whether it was renamed."""
        metadata = self._layout.metadata(number)
        if not metadata.exists():  # a writer was killed before it made any file
            move(self._layout.segment(number), target)
            return True
        with opened(metadata, os.O_RDWR) as fd:
            if not try_lock(fd):
                return False
            move(self._layout.segment(number), target)
        return True

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self._layout.table, os.O_RDWR, wait=True)


def _write(root: Path, retention: RetentionState) -> None:
    values = {"keep_steps": retention.keep_steps, "segment_steps": retention.segment_steps, "first": retention.first}
    write_json(root / RETENTION, values)
