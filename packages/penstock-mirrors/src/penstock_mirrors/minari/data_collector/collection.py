"""Recorded episodes that are not a dataset yet, in a hidden directory of the datasets root that outlives a crash."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from penstock.errors import DataError
from penstock.files import open_locked, scratch_folder
from penstock.formats.minari import ids
from penstock.recording.hooks import EpisodeMetadata
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import Sink
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.dataset.staging import install
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path

_PREFIX = ".collecting-"
_LOCK = ".lock"  # locked by the collecting process

PATIENCE = 1.0  # seconds that closed episodes may wait in memory for others, to be saved with one commit
BATCH = 8 << 20  # bytes that may wait

Begin = Callable[[Path], MinariStorage]


class Collection(Sink):
    """Episodes that will be a dataset. `begin` makes the storage in a data directory, when the first are saved.

    Episodes are saved in batches, when the first of them has waited for a second, and by `flush`.
    """

    def __init__(self, begin: Begin, schema: RecordingSchema, describe: EpisodeMetadata | None) -> None:
        super().__init__(schema, describe, nan="keep", outside="warn")
        with scratch_folder(get_dataset_path() / _PREFIX):  # noticed now, and not when the first episode is over
            pass
        self._begin = begin
        self._bytes = 0
        self._since = 0.0
        self._storage: MinariStorage | None = None
        self._lock = -1

    @property
    def path(self) -> Path | None:
        """The hidden directory; None before anything is saved."""
        return None if self._storage is None else self._storage.data_path.parent

    def write_due(self) -> None:
        """Save the pending episodes if the first has waited long, or if they are large."""
        if len(self.pending) == 1:
            self._since = time.monotonic()
        self._bytes += sum(array.nbytes for array in self.pending[-1].columns.values())
        if self._bytes > BATCH or time.monotonic() - self._since > PATIENCE:
            self.flush()

    @override
    def flush(self) -> None:
        if self.pending:
            self.storage().append(list(self.pending))
            self.episodes += len(self.pending)
            self._forget()

    def close(self) -> None:
        """Save the pending episodes. The directory stays."""
        self.flush()

    def _forget(self) -> None:
        self.pending.clear()
        self._bytes = 0

    def storage(self) -> MinariStorage:
        """Return the storage of the saved episodes, and create it if needed."""
        if self._storage is None:
            path = get_dataset_path() / f"{_PREFIX}{secrets.token_hex(8)}"
            path.mkdir()
            self._lock = open_locked(path / _LOCK, os.O_RDWR | os.O_CREAT, wait=True)
            self._storage = self._begin(path / ids.DATA)
        return self._storage

    def become(self, path: Path) -> None:
        """Move everything to the place of a dataset."""
        self.flush()
        storage = self.storage()
        storage.close()
        _install(storage.data_path.parent, path)
        self.release()

    def discard(self) -> None:
        """Delete everything."""
        path = self.path
        self.release()
        if path is not None:
            shutil.rmtree(path)

    def release(self) -> None:
        """Let go of the directory, and forget what waits."""
        if self._lock >= 0:
            os.close(self._lock)
        self._forget()
        self._lock = -1
        self._storage = None
        self.episodes = 0


def unfinished() -> list[Path]:
    """Return directories of recordings that did not become a dataset and whose process has ended."""
    return [path for path in sorted(ids.root().glob(f"{_PREFIX}*")) if _is_left(path)]


def _is_left(path: Path) -> bool:
    try:
        os.close(open_locked(path / _LOCK))
    except OSError:  # there is no lock, or its process lives
        return False
    return (path / ids.DATA).is_dir()


def finish(path: Path, place: Path) -> None:
    """Make an unfinished recording the dataset at `place`."""
    if path not in unfinished():
        raise DataError(f"expected one of the unfinished recordings {[str(p) for p in unfinished()]}, got {path}")
    _install(path, place)


def _install(path: Path, place: Path) -> None:
    (path / _LOCK).unlink()
    install(path, place)
