"""`EpisodeInlet`: episodes of a growing source as chunks; `RowLayout`: their columns as rows of bytes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.core.ragged import Array, Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Spec
from penstock.errors import SpecError
from penstock.flow.metrics import StageMetrics
from penstock.formats.base.source import Source
from penstock_live.account import SourceGone
from penstock_live.block import join_rows
from penstock_live.chunk_source import TOGETHER, ChunkSource, Wanted
from penstock_live.chunk_sources import Inlet
from penstock_live.hooks import ChunkFunctions
from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource


class RowLayout:
    """Columns of one step side by side in a row of `width` bytes, in the order of `columns`."""

    def __init__(self, spec: Spec, columns: Sequence[str]) -> None:
        self.fields = {column: spec[column] for column in columns}
        wrong = [c for c, field in self.fields.items() if field.align != "step" or field.ragged]
        if wrong or not self.fields:
            raise SpecError(f"expected columns that are arrays with a row a step, got {wrong or 'none'}")
        self.width = sum(self._bytes(column) for column in self.fields)

    def _bytes(self, column: str) -> int:
        field = self.fields[column]
        return int(np.prod(field.shape, dtype=np.int64)) * np.dtype(field.dtype).itemsize

    def pack(self, columns: dict[str, Any]) -> npt.NDArray[np.uint8]:
        """`[n, width]` rows of columns of `n` rows each."""
        parts = [np.ascontiguousarray(columns[c]).view(np.uint8).reshape(-1, self._bytes(c)) for c in self.fields]
        return np.concatenate(parts, axis=1)

    def decode(self, rows: Array, out: dict[str, Any] | None = None) -> dict[str, Any]:
        """The columns of rows, into the arrays of `out` if they are given; serves as `Decode`."""
        if isinstance(rows, Ragged):
            raise SpecError(f"expected rows of {self.width} bytes, got ragged ones")
        columns = out or {c: np.empty((len(rows), *f.shape), f.dtype) for c, f in self.fields.items()}
        column_start = 0
        for column, array in columns.items():
            size = self._bytes(column)
            array.reshape(-1).view(np.uint8).reshape(len(rows), size)[:] = rows[:, column_start : column_start + size]
            column_start += size
        return columns


class EpisodeInlet(Inlet):
    """Reads the episodes of a source as chunks, and appended episodes after `refresh`.

    The steps of chosen columns are rows of bytes: `layout` packs them, and `layout.decode` gives columns again.
    Episodes that come together are one source of chunks, named by their numbers.

    Args:
        source: The opened dataset.
        columns: Step columns whose values are the rows.
        metrics: Counts and times to update. The default None makes new ones.

    Example:
        >>> import penstock
        >>> source = penstock.from_arrays({"rewards": np.arange(3.0)}, lengths=[2, 1]).source
        >>> inlet = EpisodeInlet(source, ["rewards"])
        >>> [(opened.arrival.name, opened.load(0).shape) for opened in inlet.begin(wanted=9)]
        [('episodes 0:2', (2, 8))]
    """

    reads_frames_alone = True

    def __init__(self, source: Source, columns: Sequence[str], metrics: StageMetrics | None = None) -> None:
        self.source, self.layout = source, RowLayout(source.spec, columns)
        self.metrics = metrics or StageMetrics("chunk_source_loader")
        self._seen = 0
        self._resumed = False

    def newest(self) -> Generator[OpenSource]:
        """As `Inlet.newest`: all episodes are one source."""
        self.source.refresh()
        yield from self._news()

    @override
    def begin(self, wanted: int) -> list[OpenSource]:
        self.source.refresh()
        if not self._resumed:
            self._seen = max(0, len(self.source) - wanted)
        return self._news()

    @override
    def poll(self) -> list[OpenSource]:
        return self._news() if self.source.refresh() else []

    @override
    def open(self, arrival: Arrival) -> OpenSource:
        first, last = _range(arrival)
        if last > len(self.source):
            raise SourceGone(f"expected {arrival.name}, got a source of {len(self.source)} episodes")
        return OpenSource(arrival, _EpisodeChunks(self, first, last - first))

    @override
    def resume(self, known: Sequence[Arrival], newest: str) -> None:
        self._seen = max((_range(arrival)[1] for arrival in known), default=int(newest or 0))
        self._resumed = True

    def read(self, episode: int) -> npt.NDArray[np.uint8]:
        """`[steps, width]` rows of one episode.

        Args:
            episode: Number of the episode.
        """
        return self.rows(np.arange(*self.source.episode_rows("step", episode)))

    def rows(self, steps: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """`[n, width]` rows of single steps, of any episodes.

        Args:
            steps: `[n]` numbers of the steps, counted over all episodes.
        """
        columns = self.source.read(list(self.layout.fields), Selection.of_rows(steps))
        return self.layout.pack({name: np.asarray(values)[0] for name, values in columns.items()})

    def lengths(self, chunks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """`[m]` steps of episodes.

        Args:
            chunks: `[m]` numbers of the episodes.
        """
        offsets = self.source.offsets
        return offsets[chunks + 1] - offsets[chunks]

    def gather(self, chunks: npt.NDArray[np.int64], places: npt.NDArray[np.int64], hooks: ChunkFunctions) -> Array:
        """Rows that `hooks` makes of single steps, read together.

        Args:
            chunks: `[n]` episode of each step.
            places: `[n]` place of each step in its episode.
            hooks: Functions of the domain.
        """
        steps = self.source.offsets[chunks] + places
        if hooks.encode is None:
            return self.rows(steps)
        most = max(1, TOGETHER // self.layout.width)
        pieces = (self.rows(steps[i : i + most]) for i in range(0, len(steps), most))
        encoded = [hooks.rows(rows, np.arange(len(rows))) for rows in pieces]
        return join_rows([(rows, 0, len(rows)) for rows in encoded]) if encoded else self.rows(steps)

    def _news(self) -> list[OpenSource]:
        first, last = self._seen, len(self.source)
        if first == last:
            return []
        self._seen = last
        self.metrics.add(sources=1, chunks=last - first)
        arrival = Arrival(f"episodes {first}:{last}", f"{first:012d}", last - first)
        return [OpenSource(arrival, _EpisodeChunks(self, first, last - first))]


def _range(arrival: Arrival) -> tuple[int, int]:
    """Return the episodes of a source. Of a part of it, `count` is smaller than their number."""
    last = arrival.name.rpartition(":")[2]
    return int(arrival.key), int(last) if last.isdecimal() else int(arrival.key) + arrival.count


class _EpisodeChunks(ChunkSource):
    def __init__(self, inlet: EpisodeInlet, first: int, count: int) -> None:
        self.key = f"{first:012d}"
        self._inlet = inlet
        self._first = first
        self._count = count
        self.split_by = ("episodes", first)  # however they came together
        self.table = (inlet, first)

    def __len__(self) -> int:
        return self._count

    def load(self, i: int, wanted: Wanted | None = None) -> npt.NDArray[np.uint8]:
        if wanted is None:
            return self._inlet.read(self._first + i)
        first, last = self._inlet.source.episode_rows("step", self._first + i)
        return self._inlet.rows(first + wanted(last - first))
