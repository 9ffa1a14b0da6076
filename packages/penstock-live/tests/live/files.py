"""Small files of chunks that the tests of live data read: records of 16 bytes that name themselves."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import FormatError
from penstock.flow.metrics import StageMetrics
from penstock_live.account import ChunkAccount
from penstock_live.catalog import ChunkCatalog
from penstock_live.chunk_loader import ChunkLoader
from penstock_live.chunk_source import ChunkSource, Wanted, chosen
from penstock_live.chunk_sources import Inlet
from penstock_live.events import EventLog
from penstock_live.hooks import ChunkFunctions
from penstock_live.intake import Intake
from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource

MAGIC = b"CHNK"


class BadRecordError(FormatError):
    reason = "checksum"


def records(game: int, n: int) -> np.ndarray:
    """`[n, 16]` uint8: number of the game, place, length of the game, checksum of these."""
    words = np.zeros((n, 4), "<u4")
    words[:, 0], words[:, 1], words[:, 2] = game, np.arange(n), n
    words[:, 3] = [zlib.crc32(row[:3].tobytes()) for row in words]
    return words.view(np.uint8)


def length_of(game: int) -> int:
    return 1 + game * 7 % 9


def write(path: Path, games: Iterable[int], age: float | None = 1000.0) -> Path:
    """A file of whole games, as a writer leaves it: written beside, then moved in. `age`: its time, in seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = [records(game, length_of(game)) for game in games]
    lengths = np.array([len(held), *map(len, held)], "<u4")
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(MAGIC + lengths.tobytes() + b"".join(r.tobytes() for r in held))
    if age is not None:
        os.utime(partial, (age, age))
    partial.replace(path)
    return path


class Games(ChunkSource):
    """A file of `write`, indexed when it is opened."""

    def __init__(self, path: Path) -> None:
        self.key, self.path = path.name, path
        head = path.read_bytes()
        if head[:4] != MAGIC:
            raise FormatError("expected games, got something else", path=path)
        count = int(np.frombuffer(head, "<u4", 1, 4)[0])
        if len(head) < 8 + 4 * count:
            raise FormatError("expected an index, got a file that is cut", path=path)
        self.ends = 8 + 4 * count + 16 * np.cumsum([0, *np.frombuffer(head, "<u4", count, 8).tolist()])
        self.closed = False

    def __len__(self) -> int:
        return len(self.ends) - 1

    def load(self, i: int, wanted: Wanted | None = None) -> np.ndarray:
        assert not self.closed
        with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # it may have become a pipe
            file.seek(int(self.ends[i]))
            data = file.read(int(self.ends[i + 1] - self.ends[i]))
        if len(data) != self.ends[i + 1] - self.ends[i]:
            raise FormatError("expected a whole game, got a part", path=self.path)
        rows = np.frombuffer(data, np.uint8).reshape(-1, 16).copy()
        if any(zlib.crc32(row[:12].tobytes()) != int(row[12:].view("<u4")[0]) for row in rows):
            raise BadRecordError("expected the checksum, got another", path=self.path)
        return chosen(rows, wanted)

    def close(self) -> None:
        self.closed = True


class Opener:
    """Opens files of games, skips `.txt`, and remembers what was opened and what still is."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.sources: list[Games] = []

    def __call__(self, path: Path) -> Games | None:
        self.opened.append(path.name)
        if path.suffix == ".txt":
            return None
        source = Games(path)
        self.sources.append(source)
        return source


class Reopened(Inlet):
    """Opens sources by a function, for catalogs; nothing arrives."""

    def __init__(self, opened: Callable[[Arrival], ChunkSource]) -> None:
        self._opened = opened

    def newest(self) -> Generator[OpenSource]:
        yield from ()

    def poll(self) -> list[OpenSource]:
        return []

    def open(self, arrival: Arrival) -> OpenSource:
        return OpenSource(arrival, self._opened(arrival))


def catalog_of(opened: Callable[[Arrival], ChunkSource], **options: Any) -> ChunkCatalog:
    """A catalog of sources that a function opens."""
    return ChunkCatalog(Intake(Reopened(opened)), **options)


def loader_of(catalog: ChunkCatalog) -> ChunkLoader:
    """What loads the chunks of a catalog."""
    return ChunkLoader(catalog, ChunkFunctions(), StageMetrics("chunks"), ChunkAccount(), EventLog())


def frames_of(games: Iterable[int]) -> list[tuple[int, int]]:
    """Every frame of games, as game and place."""
    return [(game, place) for game in games for place in range(length_of(game))]


def named(rows: np.ndarray) -> list[tuple[int, int]]:
    """Game and place of each of some records."""
    return [tuple(row) for row in np.ascontiguousarray(rows).view("<u4")[:, :2].tolist()]


def names(directory: Path, files: Sequence[Sequence[int]], start: int = 0) -> list[str]:
    """Write files of games with names in the order of their age."""
    return [write(directory / f"g{start + i:04d}.chk", games).name for i, games in enumerate(files)]
