"""Writing episodes: the rows of all arrays first, `episode_ends` last.

A buffer counts as many episodes as `episode_ends` has, and its length changes with one replaced file. So a kill leaves
the last complete state, and rows behind it that the next writer overwrites.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.codecs import JPEGXL, is_jpegxl_image
from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.writing import (
    ArrayWriter,
    close_arrays,
    compressor_of,
    create_group,
    new_array,
    write_attributes,
)
from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, DataError, FormatError, SpecError
from penstock.files import atomic_path, open_locked, write_atomic
from penstock.formats.base.metadata import json_line, plain_metadata
from penstock.formats.base.writer import LockedWriter, PartStart, check_columns
from penstock.formats.zarr.layout import DATA, ENDS, EPISODES, KEYS, MARK, META, PART, BufferLayout
from penstock.formats.zarr.source import ZarrSource

_CHUNK_BYTES = 256 << 10  # of a new array, unless `chunk_rows` says otherwise
_CHUNK_ROWS = 4096
_JPEGXL = {"id": JPEGXL, "effort": 3, "lossless": True}  # as UMI has it, but without loss
_COMMIT_BYTES = 64 << 20  # of rows that `write_all` appends before they are committed
_MOMENT = (1980, 1, 1, 0, 0, 0)  # equal folders make equal files


class ZarrWriter(LockedWriter):
    """Appends episodes to the replay buffer in a folder. One writer at a time.

    An episode is saved when `write` returns. `write_all` commits every 64 MB, which saves compressing the last chunk of
    each array again for every episode. Buffers of other libraries are continued in their own chunks and compression.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not (self.path / META).is_dir():
            raise FormatError("expected a folder to append to; unpack a ZIP archive first", path=self.path)
        self._arrays: dict[str, ArrayWriter] = {}
        super().__init__(open_locked(self.path / META, os.O_RDONLY, name=self.path))

    def _resume(self) -> None:
        """A writer for each array, behind the rows of complete episodes. Longer arrays are cut to these."""
        with ZarrSource(self.path, cache_bytes=0) as source:
            self._layout = source.layout
            _check_all_extended(source)
            self._steps = steps = source.steps
            episodes = len(source)
            self._attributes = dict(source.group.attributes)
            lengths = source.layout.rows_of(steps, episodes)
            for path, stored in source.layout.columns.items():
                if stored.ends is not None:
                    lengths[stored.rows] = int(source.value_offsets(path)[-1])
            entries = source.entry_bytes
            if entries is None:  # of another library: its episodes have none
                _create(self.path, f"{EPISODES}.values", np.dtype(np.uint8), (), source.group.zarr_format)
                _create(self.path, f"{EPISODES}.ends", np.dtype(np.int64), (), source.group.zarr_format)
            lengths |= {f"{EPISODES}.values": entries or 0, f"{EPISODES}.ends": episodes if entries is not None else 0}
            group = ZarrGroup(self.path)
            for name, length in lengths.items():
                self._arrays[name] = ArrayWriter(self.path / name, group.array(name).metadata, length, "fill")
        if entries is None:
            self._arrays[f"{EPISODES}.values"].append(np.frombuffer(b"{}\n" * episodes, np.uint8))
            self._arrays[f"{EPISODES}.ends"].append(3 * np.arange(1, episodes + 1))
        write_attributes(self.path, self._attributes)  # without consolidated metadata, which would say what was
        self._commit()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        spec: Spec,
        metadata: Mapping[str, Any] | None = None,
        *,
        compressor: str | Mapping[str, Any] | None = "zstd",
        chunk_rows: int | Mapping[str, int] | None = None,
        zarr_format: int = 2,
    ) -> ZarrWriter:
        """Create an empty buffer, which appears at `path` when it is complete, and open it for writing."""
        if zarr_format not in (2, 3):
            raise ArgumentError(f"expected zarr_format 2 or 3, got {zarr_format!r}")
        if compressor == "jpegxl" and zarr_format != 2:
            raise ArgumentError(
                "expected zarr_format=2 with compressor='jpegxl', got 3, whose codecs JPEG-XL is not among"
            )
        images = compressor == "jpegxl"
        layout, config = BufferLayout.new(spec), compressor_of("zstd" if images else compressor)
        chunks = _chunk_rows(chunk_rows, spec)
        attributes = _attributes(metadata or {}, layout)
        with atomic_path(path) as folder:
            for place in (folder, folder / DATA, folder / META):
                place.mkdir()
                create_group(place, attributes if place == folder else None, zarr_format)
            make = partial(_create, folder, zarr_format=zarr_format)
            for column, stored in layout.columns.items():
                shape = () if stored.field.ragged else stored.field.shape
                how: dict[str, Any] = {"compressor": config, "chunk_rows": chunks.get(column)}
                if images and is_jpegxl_image(stored.field.dtype, shape):
                    how = {"compressor": _JPEGXL, "chunk_rows": 1}
                for name in stored.names():
                    if name == stored.ends:
                        make(name, np.dtype(np.int64), ())
                    else:
                        make(name, stored.field.dtype, shape, **how)
            make(f"{EPISODES}.values", np.dtype(np.uint8), (), compressor=config)
            make(f"{EPISODES}.ends", np.dtype(np.int64), ())
            make(ENDS, np.dtype(np.int64), ())
        return cls(path)

    @override
    def begin_at(self, start: PartStart) -> None:
        """Write the rows of the next episodes where they are in the whole buffer, of which a new one is a part.

        Rows before them are missing. The ends before the first row say that earlier episodes have no rows, and the
        last of these episodes all. Values of ragged columns begin at 0 where their number is not known.
        """
        episode, step, values = start
        ragged = {str(stored.ends): (path, stored.rows) for path, stored in self._layout.columns.items() if stored.ends}
        lengths = self._layout.rows_of(step, episode) | {f"{EPISODES}.ends": episode}
        lasts = {ENDS: step, f"{EPISODES}.ends": 0}
        for ends, (path, rows) in ragged.items():
            lengths[rows] = lasts[ends] = values.get(path, 0)
        for name, length in lengths.items():
            array = self._arrays[name]
            ending = name in lasts and length > 0
            self._arrays[name] = array = ArrayWriter.begin_at(array.folder, array.metadata, length - ending)
            if ending:
                array.append(np.array([lasts[name]]))
        self._steps = step
        write_atomic(self.path / PART, json.dumps({"first_rows": lengths}).encode())

    @property
    def spec(self) -> Spec:
        return self._layout.spec

    def __len__(self) -> int:
        """How many episodes there are."""
        return len(self._arrays[ENDS])

    def write(self, episode: Episode) -> int:
        return self.write_all([episode])[0]

    def write_all(self, episodes: Iterable[Episode]) -> list[int]:
        """Save several, with a commit every 64 MB; one that is refused takes those since the last commit with it."""
        self._check_open()
        before = {name: len(array) for name, array in self._arrays.items()}
        steps = self._steps
        numbers: list[int] = []
        appended = 0
        try:
            for episode in episodes:
                appended += self._append(episode)
                numbers.append(len(self) - 1)
                if appended >= _COMMIT_BYTES:
                    before = self._commit()
                    steps = self._steps
                    appended = 0
            if numbers:
                self._commit()
        except BaseException:
            for name, array in self._arrays.items():
                array.rollback(before[name])
            self._steps = steps
            raise
        return numbers

    def _append(self, episode: Episode) -> int:
        """Append the rows of an episode; return how many bytes they have."""
        check_columns(episode, self.spec)
        text = json_line(episode.metadata)
        size = 0
        for path, stored in self._layout.columns.items():
            column = episode.columns[path]
            size += column.nbytes
            if isinstance(column, Ragged):
                self._put_ragged(stored.rows, str(stored.ends), column)
            elif not stored.rows:
                continue
            elif stored.final is None:
                self._put(stored.rows, column)
            else:
                self._put(stored.rows, column[:-1])
                self._put(stored.final, column[-1:])
        self._put_ragged(f"{EPISODES}.values", f"{EPISODES}.ends", Ragged.from_bytes([text]))
        self._steps += len(episode)
        self._put(ENDS, np.array([self._steps]))
        return size

    def _put(self, name: str, rows: AnyArray) -> None:
        array = self._arrays[name]
        array.append(np.asarray(rows, array.metadata.dtype))

    def _put_ragged(self, values: str, ends: str, rows: Ragged) -> None:
        first = len(self._arrays[values])
        self._put(values, rows.values)
        self._put(ends, first + rows.offsets[1:])

    def _commit(self) -> dict[str, int]:
        """Make all rows last, the ends of episodes at the end; return the number of rows of each array."""
        for name, array in self._arrays.items():
            if name != ENDS:
                array.commit()
        self._arrays[ENDS].commit()
        return {name: len(array) for name, array in self._arrays.items()}

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        if MARK in metadata:
            raise DataError(f"expected another name than {MARK!r}, which says how columns are stored")
        attributes = {**self._attributes, **plain_metadata(metadata)}
        write_attributes(self.path, attributes)
        self._attributes = attributes

    @override
    def _finish(self) -> None:
        close_arrays(self._arrays.values(), self.path)


def _create(
    root: Path,
    name: str,
    dtype: np.dtype[Any],
    row_shape: tuple[int, ...],
    zarr_format: int,
    compressor: Mapping[str, Any] | None = None,
    chunk_rows: int | None = None,
) -> None:
    """Create an empty array below `root`."""
    row_bytes = max(dtype.itemsize * math.prod(row_shape), 1)
    size = chunk_rows or min(max(_CHUNK_BYTES // row_bytes, 1), _CHUNK_ROWS)
    try:
        metadata = new_array(dtype, row_shape, size, compressor, zarr_format)
    except DataError as error:
        raise SpecError(f"{error} - at {name}") from error
    ArrayWriter.create(root / name, metadata).close()


def _chunk_rows(given: int | Mapping[str, int] | None, spec: Spec) -> dict[str, int]:
    by_column = dict.fromkeys(spec, given) if isinstance(given, int) else dict(given or {})
    wrong = {name: n for name, n in by_column.items() if name not in spec or type(n) is not int or not 0 < n < 1 << 40}
    if wrong:
        raise ArgumentError(f"expected positive numbers of rows for columns among {list(spec)}, got {wrong}")
    return by_column


def _check_all_extended(source: ZarrSource) -> None:
    """Raise `FormatError` for arrays of steps that would not grow with the others."""
    for entry in source.account.left_out:
        if entry.thing == "array" and entry.where.startswith(f"{DATA}/"):
            message = f"{entry.message}; convert the buffer to append to it, or move the array out of {DATA}"
            raise FormatError(message, path=source.group.store.name, where=entry.where)


def _attributes(metadata: Mapping[str, Any], layout: BufferLayout) -> dict[str, Any]:
    """The attributes of a new group. Entries that describe another buffer are replaced."""
    return {**{k: v for k, v in plain_metadata(metadata).items() if k not in (KEYS, MARK)}, MARK: layout.mark()}


def pack_zip(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Pack a Zarr folder into one ZIP file, whose members are stored and so read in place."""
    root, place = Path(folder), Path(out)
    if not root.is_dir():
        raise FormatError("expected a folder to pack", path=root)
    with atomic_path(place, durable="file") as new_file, zipfile.ZipFile(new_file, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(path for path in root.rglob("*") if path.is_file() and ".penstock" not in path.name):
            member = zipfile.ZipInfo(file.relative_to(root).as_posix(), _MOMENT)
            with file.open("rb") as source, archive.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 1 << 20)
    return place
