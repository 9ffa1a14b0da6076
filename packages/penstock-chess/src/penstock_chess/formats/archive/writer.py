"""Writing archives: frames become compact rows, which the writer of the store appends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from penstock.core.arrays import ByteArray
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.formats.columns.writer import ColumnsWriter, create_store
from penstock_chess.compact import encode
from penstock_chess.formats.archive.source import CONTENT, ROW, ROWS
from penstock_chess.formats.lc0.records import SPEC, check_spec, frames_of
from penstock_chess.formats.lc0.upgrade import Missing


class ArchiveWriter(ColumnsWriter):
    """Appends games to the archive at `path`, at the same time as other writers and readers, in any process.

    Killing the process loses no game that `write` returned from, and leaves no half of another.
    """

    @classmethod
    @override
    def create(  # pyright: ignore[reportIncompatibleMethodOverride]  a store has more options
        cls, path: str | os.PathLike[str], spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> ArchiveWriter:
        """Create an empty archive, and open it for writing."""
        check_spec(spec)
        create_store(path, ROWS, metadata, content=CONTENT)
        return cls(path, **options)

    @property
    @override
    def spec(self) -> Spec:
        return SPEC

    @override
    def write(self, episode: Episode) -> int:
        """Save one game; returns its number in the archive."""
        return self.write_frames(frames_of(episode), episode.metadata)

    def write_frames(
        self, frames: ByteArray, metadata: Mapping[str, Any] | None = None, *, missing_st: Missing = "zero"
    ) -> int:
        """Save a game, `[n, 8396]` frames or `[n, 8356]` records of version 6, as `encode` takes them: every bit of it;
        returns its number in the archive."""
        return super().write(Episode(ROWS, {ROW: encode(frames, missing_st=missing_st)}, 0, dict(metadata or {})))
