"""Archives and live runs: games that are read for the first time are added to one, and `ArchiveInlet` reads one."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from typing_extensions import override

from penstock.core.arrays import ByteArray, IntArray
from penstock.core.ragged import Array
from penstock.errors import StateError
from penstock.files import locked
from penstock_chess.compact import encode
from penstock_chess.formats.archive import ArchiveSource, ArchiveWriter
from penstock_chess.formats.lc0 import SPEC, ChunkFile, Missing
from penstock_live.chunk_source import ChunkSource, Opener, Wanted, WantedOfEach, chosen
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.hooks import ChunkFunctions
from penstock_live.open_source import OpenSource
from penstock_live.source_chunks import EpisodeInlet


class GameArchive:
    """An archive that knows which games it has, by file, size, time and number in the file. Thread-safe.

    An error of writing is kept in `error`: games go on to be read, and the run is told. A folder has one at a time,
    because two would write the same games: another one raises `LockedError`.
    """

    def __init__(self, path: Path, missing_st: Missing) -> None:
        self.path = path
        self.error: OSError | None = None
        self._missing: Missing = missing_st
        self._lock = threading.Lock()
        if not path.exists():
            with suppress(FileExistsError):  # another run was quicker
                ArchiveWriter.create(path, SPEC).close()
        self._alone = ExitStack()
        self._alone.enter_context(locked(path, holder="another live run"))
        with ArchiveSource(path) as source:
            stored = source.episode_metadata(range(len(source)))
        self._known = {str(each.get("stored")) for each in stored}
        self._writer: ArchiveWriter | None = ArchiveWriter(path)

    def __contains__(self, stored: str) -> bool:
        return stored in self._known

    def add(self, frames: ByteArray, stored: str, file: str, member: str | None) -> None:
        """Write a game that is not there yet; nothing where the archive was closed or cannot be written."""
        with self._lock:
            if self._writer is None or self.error is not None or stored in self._known:
                return
            metadata = {"file": file, "member": member, "stored": stored}
            try:
                self._writer.write_frames(frames, metadata, missing_st=self._missing)
            except OSError as error:
                self.error = error
            else:
                self._known.add(stored)

    def close(self) -> None:
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            self._alone.close()


class ArchivedChunks(ChunkSource):
    """The chunks of a file, each of which is read whole and archived when it is read for the first time."""

    def __init__(self, chunks: ChunkFile, archive: GameArchive, state: os.stat_result) -> None:
        self.key, self.torn = chunks.key, chunks.torn
        self._chunks, self._archive = chunks, archive
        self._stored = f"{chunks.key}:{state.st_size}:{state.st_mtime_ns}"

    def __len__(self) -> int:
        return len(self._chunks)

    @property
    @override
    def expected(self) -> int:
        return self._chunks.expected

    @override
    def load(self, i: int, wanted: Wanted | None = None) -> ByteArray:
        stored = f"{self._stored}:{i}"
        if stored in self._archive:
            return self._chunks.load(i, wanted)
        frames = self._chunks.load(i)
        self._archive.add(frames, stored, self.key, self._chunks.name(i))
        return chosen(frames, wanted)

    @override
    def load_some(self, chunks: Sequence[int], wanted: WantedOfEach) -> list[ByteArray | None]:
        """As `ChunkSource.load_some`; chunks that are not archived are left to `load`."""
        known = [number for number, i in enumerate(chunks) if f"{self._stored}:{i}" in self._archive]
        some = self._chunks.load_some([chunks[number] for number in known], lambda k, n: wanted(known[k], n))
        frames: list[ByteArray | None] = [None] * len(chunks)
        for number, each in zip(known, some, strict=True):
            frames[number] = each
        return frames

    @override
    def close(self) -> None:
        self._chunks.close()


class ArchivingLoader(ChunkSourceLoader):
    """A `ChunkSourceLoader` whose games are archived behind it. A run whose archive cannot be written ends."""

    def __init__(self, provider: FilePathProvider, opener: Opener, threads: int, archive: GameArchive) -> None:
        def opened(path: Path) -> ChunkSource | None:
            state = path.stat()
            chunks = opener(path)
            return ArchivedChunks(chunks, archive, state) if isinstance(chunks, ChunkFile) else chunks

        super().__init__(provider, opened, threads)
        self._archive = archive

    @override
    def poll(self) -> list[OpenSource]:
        if (error := self._archive.error) is not None:
            raise StateError(f"expected to archive games in {self._archive.path}, got: {error}") from error
        return super().poll()

    @override
    def close(self) -> None:
        super().close()
        self._archive.close()


class ArchiveInlet(EpisodeInlet):
    """Reads the games of an archive as chunks, and appended games when they are there. Rows are frames."""

    def __init__(self, source: ArchiveSource) -> None:
        super().__init__(source, list(source.spec))
        self._archive = source

    @override
    def rows(self, steps: IntArray) -> ByteArray:
        return self._archive.frame_rows(steps)

    @override
    def gather(self, chunks: IntArray, places: IntArray, hooks: ChunkFunctions) -> Array:
        """As `EpisodeInlet.gather`: where compact rows are wanted, as they are stored."""
        if getattr(hooks.encode, "func", hooks.encode) is not encode:
            return super().gather(chunks, places, hooks)
        return self._archive.compact_rows(self.source.offsets[chunks] + places)
