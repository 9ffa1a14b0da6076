"""`ReadMap`: which blocks of storage samples read, and the requests that fetch them.

If the dataset was opened by URL, its format says which bytes of which object a read fetches (`Source.remote_ranges`).
Otherwise each column is taken to be stored row after row, as a column store has it, and as much smaller or larger than
its values as the local files of the dataset are. So compressed samples have about the right size, but begin anywhere:
open a dataset by its URL to have the ranges of its files. Blocks, regions and merged requests follow the client that
reads remote data (`locations.fetching`).

Files that have the same column of a source form a *kind*: samples read them alike, so that counts of few samples are
kept by kind, also where there are more files than counted samples.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from penstock.core.arrays import BoolArray, FloatArray, IntArray
from penstock.core.spec import Align
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.files.remote import is_mirrored
from penstock.formats.base.source import Source
from penstock.formats.joined import JoinedSource
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import GAPS, REGION, SOON, MirroredFile, blocks_of, requests_of, with_regions

FIRST_SAMPLES = 8192  # that show which objects of a remote dataset are read
COUNTED_SAMPLES = 1 << 17  # of an epoch whose samples are all looked at to find the units that it reads
STRETCHES, STRETCH_SAMPLES = 16, 1 << 14  # of a longer epoch that are looked at, and the samples of half of one
NEARLY_ALL = 0.9  # from this part of the units on, an epoch is taken to read all


class ReadMap:
    """Blocks of storage, numbered through all files, and the samples that read them."""

    def __init__(self, dataset: MapDataset, cache_bytes: int) -> None:
        self.dataset = dataset
        self._files: dict[object, int] = {}  # number of each file
        self._bases = np.zeros(1, np.int64)  # first block of each file, and the end
        self._counts = np.zeros(0, np.int64)  # blocks of each file
        self._rows = _row_bytes(dataset)
        self._kinds = {column: kind for kind, column in enumerate(self._rows)}
        self._kind_of = np.zeros(0, np.int64)  # kind of each file, by the column that is read from it first
        n = len(dataset)
        some = np.unique(np.linspace(0, n - 1, FIRST_SAMPLES).astype(np.int64))
        samples = planned_samples(dataset)
        self.remote = bool(samples.remote_ranges(samples.resolve(some[:1])))
        if self.remote:
            for first in range(0, len(some), 64):
                self.blocks(some[first : first + 64])
        else:
            self._add_columns()
        steps = sum(int(source.offsets[-1] - source.offsets[0]) for source in dataset.sources)
        dense = 2 * n >= steps and int(self._counts.max(initial=0)) * BLOCK <= cache_bytes // 2
        self.unit = SOON if dense else 1
        """Blocks that are fetched where one of them is needed."""
        self.epoch_units = self._epoch_units()
        """`[kinds]` units that an epoch reads: not all, if a mix ends before a dataset does, or episodes are chosen."""

    @property
    def total(self) -> int:
        """Blocks of all files."""
        return int(self._counts.sum())

    @property
    def epoch_bytes(self) -> int:
        """Bytes of the units that an epoch reads, each once."""
        return min(int(self.epoch_units.sum()) * self.unit, self.total) * BLOCK

    def file_of(self, blocks: IntArray) -> IntArray:
        """Return the number of the file of each block, `[n]`."""
        return np.searchsorted(self._bases, blocks, side="right") - 1

    def unit_counts(self, blocks: IntArray) -> FloatArray:
        """Return how many units of each kind of file blocks are in, `[kinds]` float64."""
        units = np.unique(blocks // self.unit)  # files begin at whole units
        kinds = self._kind_of[self.file_of(units * self.unit)]
        return np.bincount(kinds, minlength=len(self._kinds)).astype(np.float64)

    def blocks(self, positions: IntArray) -> IntArray:
        """Return the blocks that samples read, each once, ascending."""
        return self.blocks_of(self.dataset, positions)

    def blocks_of(self, dataset: MapDataset, positions: IntArray) -> IntArray:
        """Return the blocks that samples of the same data in another order read, each once, ascending."""
        samples = planned_samples(dataset)
        selections = samples.resolve(positions)
        parts: list[IntArray] = []
        if self.remote:
            for source, column, ranges in samples.ranges_by_column(selections):
                for file, begin, end in ranges:
                    if isinstance(file, MirroredFile):
                        number = self._number(file, file.cached.blocks, (source, column))
                        parts.append(self._bases[number] + blocks_of(begin, end, file.cached.blocks))
            return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        for read in dataset.plan.reads:
            for source, spans in selections[read.view].by_source():
                column = read.of(source)
                if column is not None:
                    nbytes = self._rows[source, column]
                    number = self._files[source, column]
                    begin = (spans.start * nbytes).astype(np.int64)
                    end = np.ceil((spans.start + spans.length) * nbytes).astype(np.int64)
                    parts.append(self._bases[number] + blocks_of(begin, end, int(self._counts[number])))
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def requests(
        self, blocks: IntArray, need: IntArray, fetched: BoolArray | None = None
    ) -> tuple[FloatArray, IntArray]:
        """Return the requests that fetch blocks, in the order in which they are needed."""
        nbytes: list[IntArray] = []
        needed: list[IntArray] = []
        if fetched is not None:
            blocks, need = blocks[~fetched[blocks]], need[~fetched[blocks]]
        file = self.file_of(blocks)
        for number in np.unique(file).tolist():
            mine, base = file == number, int(self._bases[number])
            own, need_of = blocks[mine] - base, need[mine]
            size, part = (SOON, SOON) if self.unit == SOON else (REGION, 3)
            missing = None if fetched is None else functools.partial(_is_absent, fetched[base:])
            wanted = with_regions(own, int(self._counts[number]), size, part, missing)
            ranges = np.array(requests_of(wanted, GAPS * len(wanted), missing))
            first, last = np.searchsorted(own, ranges.T)
            least = np.minimum.reduceat(np.append(need_of, need_of.max()), first)
            nbytes.append((ranges[:, 1] - ranges[:, 0]) * BLOCK)
            needed.append(np.where(first < last, least, need_of.max()))  # some have blocks of a region alone
            if fetched is not None:
                for begin, end in (base + ranges).tolist():
                    fetched[begin:end] = True
        every = np.concatenate(needed) if needed else np.zeros(0, np.int64)
        order = np.argsort(every, kind="stable")
        sizes = np.concatenate(nbytes) if nbytes else np.zeros(0, np.int64)
        return sizes[order].astype(np.float64), every[order]

    def nothing_fetched(self) -> BoolArray:
        """Return the argument `fetched` of a host that begins with an empty cache."""
        return np.zeros(int(self._bases[-1]), np.bool_)

    def touches(self, samples: int, seed: int) -> FloatArray:
        """Return how many units of each kind of file a sample reads, the mean of some samples, `[kinds]` float64."""
        positions = np.random.default_rng(seed).integers(0, len(self.dataset), samples)
        counts = [self.unit_counts(self.blocks(positions[i : i + 1])) for i in range(samples)]
        return np.mean(counts, axis=0)

    def _epoch_units(self) -> FloatArray:
        """Units of each kind that an epoch reads: counted, or estimated from stretches of an epoch.

        The second half of a stretch adds `u` units for `STRETCH_SAMPLES` samples, so an epoch of `n` samples reads
        `n u / STRETCH_SAMPLES`, if neighbouring samples read neighbouring rows. Otherwise this is more than there are.
        """
        n, half = len(self.dataset), STRETCH_SAMPLES
        every = np.bincount(self._kind_of, np.ceil(self._counts / self.unit), minlength=len(self._kinds))
        if n <= max(COUNTED_SAMPLES, 2 * half):
            return self.unit_counts(self.blocks(np.arange(n)))
        estimates: list[FloatArray] = []
        for start in np.random.default_rng(0).integers(0, n - 2 * half, STRETCHES).tolist():
            before, later = (self.blocks(np.arange(half) + first) for first in (start, start + half))
            estimates.append(self.unit_counts(np.setdiff1d(later, before)) * n / half)
            if (estimates[0] > 2 * every).all():
                break  # samples are not in the order of rows
        read = np.mean(estimates, axis=0)
        return np.where(read < NEARLY_ALL * every, read, every)

    def _add_columns(self) -> None:
        for (source, column), nbytes in self._rows.items():
            field = self.dataset.sources[source].spec[column]
            rows = _rows_of(self.dataset, source, column, field.align)
            self._number((source, column), max(-(-int(rows * nbytes) // BLOCK), 1), (source, column))

    def _number(self, file: object, blocks: int, kind: tuple[int, str]) -> int:
        if file not in self._files:
            self._files[file] = len(self._counts)
            self._counts = np.append(self._counts, blocks)
            self._kind_of = np.append(self._kind_of, self._kinds[kind])
            end = self._bases[-1] + -(-blocks // REGION) * REGION
            self._bases = np.append(self._bases, end)
        return self._files[file]


def _is_absent(fetched: BoolArray, blocks: IntArray) -> BoolArray:
    return ~fetched[blocks]


def _row_bytes(dataset: MapDataset) -> dict[tuple[int, str], float]:
    """Stored bytes of a row of each column that is read: of a value for views of values, the mean for ragged rows."""
    sizes: dict[tuple[int, str], float] = {}
    stored = [_stored_part(source) for source in dataset.sources]
    for read in dataset.plan.reads:
        for number, source in enumerate(dataset.sources):
            column = read.of(number)
            if column is None:
                continue
            field = source.spec[column]
            nbytes = float(field.row_bytes)
            if field.ragged and dataset.plan.views[read.view].align != "values":
                rows = int(source.rows(field.align)[-1])
                nbytes *= int(source.value_offsets(column)[-1]) / max(rows, 1)
            sizes[number, column] = nbytes * stored[number]
    return sizes


def _stored_part(source: Source) -> float:
    """Bytes of the files of a source for each byte of its values; 1 if it has no local files."""
    places: list[Path] = []
    for part in source.parts if isinstance(source, JoinedSource) else (source,):
        if not isinstance(part.location, Path) or is_mirrored(part.location) or not part.location.exists():
            return 1.0
        places.append(part.location)
    files = [file for place in places for file in (place.rglob("*") if place.is_dir() else [place]) if file.is_file()]
    values = 0
    for column, field in source.spec.items():
        rows = (
            int(source.value_offsets(column)[-1]) if field.ragged else source.episode_rows(field.align, len(source))[0]
        )
        values += rows * field.row_bytes
    return sum(file.stat().st_size for file in files) / max(values, 1)


def _rows_of(dataset: MapDataset, source: int, column: str, align: Align) -> int:
    """Rows of a column, or its values where it is read by values."""
    opened = dataset.sources[source]
    for read in dataset.plan.reads:
        if read.of(source) == column and dataset.plan.views[read.view].align == "values":
            return int(opened.value_offsets(column)[-1])
    return opened.episode_rows(align, len(opened))[0]
