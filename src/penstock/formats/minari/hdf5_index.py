"""One pass over a Minari HDF5 file: the positions of the bytes of every column of every episode, as arrays.

A *run* is the dataset of one episode: its rows, file, header, and the offset, stored bytes and filter mask of each of
its tiles. Reading a batch then needs no object of HDF5. Values of compact datasets are copied to `inline`, which counts
as one more file. The arrays are kept in the user's cache.

The work is bounded by the bytes of the file, also for hostile files: no dataset may claim more values than its stored
bytes can hold (a factor of 1032 for deflate), nor more missing tiles than `MISSING_TILES`, and groups that share
datasets are refused. External links lead only to `additional_data_<number>.hdf5` in the same folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.hdf5 import Dataset, File, Group, Link
from penstock.containers.hdf5.filters import undecodable
from penstock.containers.hdf5.messages import Filter
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.ragged import offsets_of
from penstock.core.spaces import Space
from penstock.errors import FormatError, UnsafeDataError
from penstock.formats.base.account import LeftOut
from penstock.formats.minari.columns import FLAGS, ROOTS, column_path, required

MAIN = "main_data.hdf5"
ADDITIONAL = re.compile(r"additional_data_\d+\.hdf5")
EPISODE = re.compile(r"episode_(\d+)")

INFLATION = 1032  # deflate cannot make more than 1032 bytes out of one
SMALL = 1 << 20  # bytes of values that may be claimed without stored bytes to show for
MISSING_TILES = 1 << 16  # chunks of one dataset that may never have been written
ITEMS = 256  # strings of a list that is a row, each of which is a column
DATASET_BYTES = 32  # no dataset needs fewer bytes of a file; more of them means that groups are shared


@dataclass(frozen=True, eq=False)
class ColumnRuns:
    """The runs of one column that are stored alike; a column is one part, or several where episodes differ.

    Run `r` holds the `rows[r]` rows of episode `episode[r]`, in `file[r]`, under the object header at `header[r]`.
    Its tiles are those `tile_first[r] : tile_first[r + 1]`, in C order of the run's grid of tiles of
    `tile_shape[r]` `[1 + len(shape)]`; a tile at offset -1 was never written. `kind` is the kind of the HDF5 dataset:
    array, string, vlen_string or vlen; `scalar` says that the dataset has no row axis (one row). Of rows that are lists
    of strings, stored in `shape`, the column is the one number `item`, in C order; -1 elsewhere.
    """

    column: str
    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    scalar: bool
    filters: tuple[Filter, ...]
    item: int
    episode: IntArray
    rows: IntArray
    file: IntArray
    header: IntArray
    tile_shape: IntArray
    tile_first: IntArray
    tile_offset: IntArray
    tile_nbytes: IntArray
    tile_mask: IntArray


@dataclass(frozen=True, eq=False)
class HDF5Index:
    """Everything that reading needs: E episodes by number, their groups, the parts of all columns.

    `files` are names in the data folder, the main one first; `inline` holds the values of compact datasets and
    counts as one more file, the last. `unreadable` are optional columns of a kind that is not read, each with what is
    wrong with it. `left_out` are groups without any dataset, which count as no episodes, and what else the files hold.
    """

    files: tuple[str, ...]
    number: IntArray
    group: IntArray
    group_file: IntArray
    inline: ByteArray
    parts: tuple[ColumnRuns, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def runs(self) -> int:
        return sum(len(part.rows) for part in self.parts)


def build(
    files: dict[str, File], folder: Path, main: str, spaces: dict[str, Space | None], last: int | None = None
) -> HDF5Index:
    """Index the main file, which `files` has, and those that its links lead to; only the `last` episodes if given."""
    builder = _Builder(spaces, sum(len(file.buffer) for file in files.values()))
    root = files[main].root
    groups = sorted((int(m[1]), name) for name in root.links if (m := EPISODE.fullmatch(name)))
    numbers: list[int] = []
    expected = "expected groups called episode_<number>"
    others = [name for name in root.links if EPISODE.fullmatch(name) is None]
    left_out = [LeftOut("array", name, "unused-array", f"{expected}, got {name}") for name in others]
    for number, name in groups if last is None else groups[-last:]:
        file, group = _follow(files, folder, main, name, root.links[name])
        builder.size = sum(len(f.buffer) for f in files.values())
        if builder.episode(list(files).index(file), group):
            numbers.append(number)
        else:
            message = "expected datasets, got a group without any, as a killed writer leaves it"
            left_out.append(LeftOut("episode", name, "no-steps", message))
    return builder.finish(tuple(files), numbers, tuple(left_out))


def _follow(files: dict[str, File], folder: Path, main: str, name: str, link: Link) -> tuple[str, Group]:
    file, target = main, name
    if link.kind == "external":
        file, target = link.file, link.path
        if file not in files:
            files[file] = _additional(folder, main, name, file)
    try:
        entry = files[file][target]
    except KeyError as error:
        raise FormatError(f"expected the group {target}, got {error}", path=folder / file, where=name) from error
    if not isinstance(entry, Group):
        raise FormatError("expected a group, got a dataset", path=folder / file, where=target)
    return file, entry


def _additional(folder: Path, main: str, name: str, file: str) -> File:
    path = folder / file
    if ADDITIONAL.fullmatch(file) is None or path.is_symlink():
        message = (
            f"expected a link to additional_data_<number>.hdf5 in the same folder, got {file!r}; it is not followed"
        )
        raise UnsafeDataError(message, path=folder / main, where=name)
    if not path.is_file():
        raise FormatError(f"expected the file {file} in the same folder, got none", path=folder / main, where=name)
    return File(path)


@dataclass
class _GrowingColumnRuns:
    """A part while it grows."""

    episode: list[int] = field(default_factory=list[int])
    rows: list[int] = field(default_factory=list[int])
    file: list[int] = field(default_factory=list[int])
    header: list[int] = field(default_factory=list[int])
    tile_shape: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    tiles: list[int] = field(default_factory=list[int])
    table: list[IntArray | tuple[tuple[int], tuple[int], tuple[int]]] = field(default_factory=list[Any])


Key = tuple[str, str, np.dtype[Any], tuple[int, ...], bool, tuple[Filter, ...], int]


class _Builder:
    def __init__(self, spaces: dict[str, Space | None], size: int) -> None:
        self.size = size
        self._spaces = spaces
        self._paths: dict[str, str] = {}
        self._parts: dict[Key, _GrowingColumnRuns] = {}
        self._groups: list[int] = []
        self._files: list[int] = []
        self._inline = bytearray()
        self._inline_runs: list[tuple[_GrowingColumnRuns, int]] = []
        self._seen = 0
        self._unreadable: dict[str, str] = {}

    def episode(self, file: int, group: Group) -> bool:
        """Take an episode in; False for a group that holds no dataset."""
        prefix = len(group.name) + 1
        before = self._seen

        def unreadable(name: str, error: FormatError) -> None:
            self._seen += 1
            self._leave_out(name[prefix:], error)

        for dataset in group.walk(unreadable):
            self._seen += 1
            if self._seen * DATASET_BYTES > self.size:
                raise FormatError("expected separate datasets in every episode, got shared ones", path=group.path)
            try:
                self._dataset(file, dataset, dataset.name[prefix:])
            except FormatError as error:
                self._leave_out(dataset.name[prefix:], error)
        if self._seen == before:
            return False
        self._groups.append(group.address)
        self._files.append(file)
        return True

    def _leave_out(self, stored: str, error: FormatError) -> None:
        """Remember what is wrong with an optional column; errors of standard columns are raised."""
        column = self._path(stored)
        if required(column):
            raise error
        self._unreadable.setdefault(column, str(error))

    def _path(self, stored: str) -> str:
        path = self._paths.get(stored)
        if path is None:
            root = stored.split("/", 1)[0]
            path = column_path(stored, self._spaces.get(root)) if root in ROOTS else stored
            self._paths[stored] = path
        return path

    def _dataset(self, file: int, dataset: Dataset, stored: str) -> None:
        path, datatype = self._path(stored), dataset.datatype
        what = "a compound type" if datatype.dtype.names is not None else undecodable(dataset.filters)
        if what is not None:
            raise FormatError(f"expected plain numbers or text, got {what}", path=dataset.path, where=dataset.name)
        rows, shape = (1, ()) if not dataset.shape else (dataset.shape[0], dataset.shape[1:])
        column = path in FLAGS and shape == (1,)
        shape = () if column else shape + datatype.inner
        if dataset.kind in ("string", "vlen_string") and shape and not required(path):
            columns = _items(path, shape, dataset)
        else:
            columns = {path: -1}
        for name, item in columns.items():
            key: Key = (name, dataset.kind, datatype.dtype, shape, not dataset.shape, dataset.filters, item)
            runs = self._parts.get(key, _GrowingColumnRuns())
            if dataset.kind in ("array", "string"):
                self._tiles(runs, dataset, rows, shape, column, file)
            else:
                runs.tile_shape.append((max(rows, 1), *shape))
                runs.tiles.append(0)
                runs.file.append(file)
            runs.episode.append(len(self._groups))
            runs.rows.append(rows)
            runs.header.append(dataset.address)
            self._parts[key] = runs

    def _tiles(
        self, runs: _GrowingColumnRuns, dataset: Dataset, rows: int, shape: tuple[int, ...], column: bool, file: int
    ) -> None:
        """Add the places of the values. Nothing is added to `runs` if that raises."""
        nbytes = rows * _product(shape) * dataset.dtype.itemsize
        address = dataset.flat() if nbytes else None
        if dataset.layout == "compact" and nbytes:
            address = len(self._inline)
            self._inline += np.ascontiguousarray(dataset.read()).tobytes()
            self._inline_runs.append((runs, len(runs.file)))
        if address is not None or not nbytes:
            runs.tile_shape.append((max(rows, 1), *shape))
            runs.tiles.append(int(address is not None))
            if address is not None:
                runs.table.append(((address,), (nbytes,), (0,)))
        else:
            chunk = (1,) if not dataset.shape else dataset.chunk_shape or dataset.shape
            chunk = chunk[:1] if column else chunk + dataset.datatype.inner
            grid = _grid(dataset, (rows, *shape), chunk, nbytes)
            runs.tile_shape.append(chunk)
            runs.tiles.append(grid.shape[1])
            runs.table.append(grid)
        runs.file.append(file)

    def finish(self, files: tuple[str, ...], numbers: list[int], left_out: tuple[LeftOut, ...]) -> HDF5Index:
        for runs, run in self._inline_runs:
            runs.file[run] = len(files)
        return HDF5Index(
            files,
            np.array(numbers, np.int64),
            np.array(self._groups, np.int64),
            np.array(self._files, np.int64),
            np.frombuffer(bytes(self._inline), np.uint8),
            tuple(_part(key, runs) for key, runs in self._parts.items()),
            tuple(self._unreadable.items()),
            left_out,
        )


def _items(path: str, shape: tuple[int, ...], dataset: Dataset) -> dict[str, int]:
    """The columns of rows that are lists of strings, one an item as of a tuple, and their numbers."""
    count = _product(shape)
    if count > ITEMS:
        message = f"expected lists of at most {ITEMS} strings, got {count}"
        raise FormatError(message, path=dataset.path, where=dataset.name)
    return {f"{path}/{'/'.join(map(str, index))}": i for i, index in enumerate(np.ndindex(*shape))}


def _part(key: Key, runs: _GrowingColumnRuns) -> ColumnRuns:
    tables = [np.asarray(table, np.int64) for table in runs.table]
    offset, nbytes, mask = np.concatenate(tables, axis=1) if tables else np.zeros((3, 0), np.int64)
    return ColumnRuns(
        *key,
        episode=np.array(runs.episode, np.int64),
        rows=np.array(runs.rows, np.int64),
        file=np.array(runs.file, np.int64),
        header=np.array(runs.header, np.int64),
        tile_shape=np.array(runs.tile_shape, np.int64).reshape(len(runs.rows), -1),
        tile_first=offsets_of(runs.tiles),
        tile_offset=offset,
        tile_nbytes=nbytes,
        tile_mask=mask,
    )


def _grid(dataset: Dataset, shape: tuple[int, ...], chunk: tuple[int, ...], nbytes: int) -> IntArray:
    """`[3, T]` offset, stored bytes and filter mask of every tile in C order of the grid, -1 where missing."""
    tiles = dataset.tiles()
    counts = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    total, stored = _product(tuple(counts)), int(tiles.nbytes.sum())
    if nbytes > INFLATION * stored + SMALL or total > len(tiles) + MISSING_TILES:
        message = f"expected values for shape {dataset.shape}, got {stored} bytes in {len(tiles)} chunks"
        raise FormatError(message, path=dataset.path, where=dataset.name)
    grid = np.zeros((3, total), np.int64)
    grid[0] = -1
    rank = tiles.origin.shape[1]
    cell = tiles.origin // np.array(chunk[:rank], np.int64)
    inside = ((cell >= 0) & (cell < np.array(counts[:rank], np.int64))).all(axis=1)
    number = np.ravel_multi_index(tuple(cell[inside].T), tuple(counts[:rank])) if rank else np.zeros(len(tiles), int)
    for row, values in zip(grid, (tiles.offset, tiles.nbytes, tiles.filter_mask), strict=True):
        row[number] = values[inside]
    plain = _product(chunk) * dataset.dtype.itemsize
    if not dataset.filters and np.any(grid[1][grid[0] >= 0] != plain):
        raise FormatError(f"expected chunks of {plain} bytes, got others", path=dataset.path, where=dataset.name)
    if np.any(grid[0] < 0) and any(np.asarray(dataset.fill).tobytes()):
        message = "expected every chunk to be stored where the fill value is not zero; rewrite the dataset"
        raise FormatError(message, path=dataset.path, where=dataset.name)
    return grid


def _product(numbers: tuple[int, ...]) -> int:
    out = 1
    for number in numbers:
        out *= number
    return out


def by_column(index: HDF5Index) -> dict[str, list[ColumnRuns]]:
    columns: dict[str, list[ColumnRuns]] = {}
    for part in index.parts:
        columns.setdefault(part.column, []).append(part)
    return columns
