"""`ChunkedDataset`: the four arrays of a dataset on disk, or of one scene in memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.metadata import ArrayMetadata
from penstock.containers.zarr.rows import ZarrRows
from penstock.containers.zarr.stores import DirectoryStore
from penstock.containers.zarr.writing import ArrayWriter, create_group
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.cache import Cache
from penstock.errors import DataError, FormatError
from penstock.files import write_atomic
from penstock.locations.location import Location
from penstock_driving.formats.l5kit import (
    AGENT_DTYPE,
    CHUNK_ROWS,
    DTYPES,
    FORMAT_VERSION,
    FRAME_DTYPE,
    LABELS,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    L5KitSource,
)
from penstock_driving.formats.l5kit.tables import FACES, stored_rows
from penstock_driving.l5kit.data.table import printed
from penstock_driving.logs import Logs, scene_logs

__all__ = [
    "AGENT_ARRAY_KEY",
    "AGENT_CHUNK_SIZE",
    "AGENT_DTYPE",
    "FORMAT_VERSION",
    "FRAME_ARRAY_KEY",
    "FRAME_CHUNK_SIZE",
    "FRAME_DTYPE",
    "SCENE_ARRAY_KEY",
    "SCENE_CHUNK_SIZE",
    "SCENE_DTYPE",
    "TL_FACE_ARRAY_KEY",
    "TL_FACE_CHUNK_SIZE",
    "TL_FACE_DTYPE",
    "ChunkedDataset",
]

SCENE_ARRAY_KEY = "scenes"
FRAME_ARRAY_KEY = "frames"
AGENT_ARRAY_KEY = "agents"
TL_FACE_ARRAY_KEY = FACES
SCENE_CHUNK_SIZE, FRAME_CHUNK_SIZE = (CHUNK_ROWS[SCENE_ARRAY_KEY],), (CHUNK_ROWS[FRAME_ARRAY_KEY],)
AGENT_CHUNK_SIZE, TL_FACE_CHUNK_SIZE = (CHUNK_ROWS[AGENT_ARRAY_KEY],), (CHUNK_ROWS[FACES],)

Mode = Literal["r", "r+", "a", "w", "w-", "x"]
FIELDS = {"scenes": "scenes", "frames": "frames", "agents": "agents", "tl_faces": FACES}


class ChunkedDataset:
    """A dataset at `path`; its arrays are empty until `open` or `initialize`.

    `scenes`, `frames`, `agents` and `tl_faces` have a length, and return copies when indexed with numbers, slices,
    arrays of numbers, masks or field names. Threads may share the dataset; another process reopens it.
    """

    def __init__(self, path: str | os.PathLike[str], key: str = "") -> None:
        if key:
            raise DataError(f"expected no key, which the format has no place for, got {key!r}")
        self.path = os.fspath(path)
        self.source: L5KitSource | None = None
        self.scenes: Any = np.empty(0, SCENE_DTYPE)
        self.frames: Any = np.empty(0, FRAME_DTYPE)
        self.agents: Any = np.empty(0, AGENT_DTYPE)
        self.tl_faces: Any = np.empty(0, TL_FACE_DTYPE)

    def initialize(
        self, mode: Mode = "w", num_scenes: int = 0, num_frames: int = 0, num_agents: int = 0, num_tl_faces: int = 0
    ) -> ChunkedDataset:
        """Create the dataset with zeros in arrays of these lengths, ready for `frames[a:b] = rows` and
        `frames.append(rows)`. Mode `"w"` removes an existing dataset.
        """
        if mode not in ("w", "w-", "x"):
            raise DataError(f"expected mode 'w', 'w-' or 'x', got {mode!r}; to write into a dataset use open('r+')")
        place = Path(self.path)
        if mode == "w" and (place / ".zgroup").is_file():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        lengths = {"scenes": num_scenes, "frames": num_frames, "agents": num_agents, FACES: num_tl_faces}
        arrays = {
            name: WritableRows.create(place / name, ArrayMetadata.of(dtype, (lengths[name],), CHUNK_ROWS[name]))
            for name, dtype in DTYPES.items()
        }
        create_group(place, {"format_version": FORMAT_VERSION, "labels": list(LABELS)})
        for own, name in FIELDS.items():
            setattr(self, own, arrays[name])
        return self

    def open(self, mode: Mode = "r", cached: bool = True, cache_size_bytes: int = int(1e9)) -> ChunkedDataset:
        """Open an existing dataset: a folder, or for reading also a zip archive, `.npy` files, or a URL.

        `cache_size_bytes` bound what is kept of decoded rows, by all threads together; nothing is kept unless `cached`.
        Modes `"r+"` and `"a"` let rows be assigned and appended.
        """
        if mode not in ("r", "r+", "a"):
            raise DataError(f"expected mode 'r', 'r+' or 'a', got {mode!r}; to create a dataset use initialize()")
        missing = "refuse" if mode == "r" else "fill"
        paths = Location.of(self.path).paths()
        if len(paths) != 1:
            raise DataError(f"expected one dataset, got {len(paths)} at {self.path}")
        source = L5KitSource(paths[0], cache_bytes=cache_size_bytes if cached else 0, missing=missing)
        rows = {own: getattr(source, own) for own in FIELDS}
        if mode == "r":
            self.source = source
        else:
            rows = {own: self._writable(own, rows[own]) for own in FIELDS}
            source.close()
        for own in FIELDS:
            setattr(self, own, rows[own])
        return self

    def _writable(self, own: str, rows: Any) -> WritableRows:
        stored = stored_rows(rows)
        if not isinstance(stored, ZarrArray) or stored is not rows or not Path(self.path).is_dir():
            message = "expected a zarr folder of the current version to write into; convert the dataset first"
            raise FormatError(message, path=self.path, where=FIELDS[own])
        return WritableRows(Path(self.path) / FIELDS[own], stored.metadata)

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the data; None unless the dataset was opened for reading."""
        return None if self.source is None else self.source.fingerprint

    def get_scene_dataset(self, scene_index: int) -> ChunkedDataset:
        """Return one scene as a dataset in memory, with intervals counted from 0; -1 is the last scene."""
        return in_memory(self, scene_index)

    def __str__(self) -> str:
        return printed(self)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.source is not None:
            for own in FIELDS:
                del state[own]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.source is not None:
            for own in FIELDS:
                setattr(self, own, getattr(self.source, own))


def in_memory(logs: Logs, scene_index: int) -> ChunkedDataset:
    one = scene_logs(logs, scene_index)
    dataset = ChunkedDataset("")
    for own in FIELDS:
        setattr(dataset, own, getattr(one, own))
    return dataset


class WritableRows(ZarrRows):
    """The array at `folder`; missing chunks are zeros. Assigned values are on disk when the call returns.

    One writer at a time. Cost: every chunk that an assignment touches is decoded and encoded, so assign many rows at
    once.
    """

    def __init__(self, folder: Path, metadata: ArrayMetadata) -> None:
        self.folder, self.metadata = folder, metadata
        self.dtype, self.shape = metadata.dtype, metadata.shape

    @classmethod
    def create(cls, folder: Path, metadata: ArrayMetadata) -> WritableRows:
        """An array of zeros of the length that `metadata` says."""
        ArrayWriter.create(folder, metadata).close()
        rows = cls(folder, metadata)
        rows.resize(metadata.shape[0])
        return rows

    def resize(self, length: int) -> None:
        """Another number of rows; new ones are zeros."""
        self.metadata = self.metadata.resized(length)
        self.shape = self.metadata.shape
        write_atomic(self.folder / self.metadata.file, self.metadata.to_json())

    def append(self, rows: npt.ArrayLike) -> None:
        """More rows behind the last."""
        values = np.asarray(rows, self.dtype)
        begin = len(self)
        self.resize(begin + len(values))
        self[begin:] = values

    def __setitem__(self, index: Any, rows: npt.ArrayLike) -> None:
        """Replace a row, or rows `a:b`."""
        if index is Ellipsis:
            index = slice(None)
        if not isinstance(index, slice):
            index = slice(self._number(int(index)), self._number(int(index)) + 1)
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise IndexError(f"expected rows a:b, got steps of {step}")
        stop = max(start, stop)
        values = np.empty(stop - start, self.dtype)
        values[...] = np.asarray(rows, self.dtype)
        size = self.metadata.chunk_rows
        for c in range(start // size, -(-stop // size) if stop > start else start // size):
            self._replace(c, values, start)

    def _replace(self, c: int, rows: AnyArray, start: int) -> None:
        """Chunk `c` with the part of `rows`, which begin at `start`, that it covers."""
        size = self.metadata.chunk_rows
        first, last = max(c * size, start), min((c + 1) * size, start + len(rows))
        whole = np.zeros(size, self.dtype)
        end = min((c + 1) * size, len(self))
        self._held().read_into(c * size, end, whole[: end - c * size])
        whole[first - c * size : last - c * size] = rows[first - start : last - start]
        ArrayWriter(self.folder, self.metadata, c * size).append(whole)  # which writes a chunk as soon as it is full

    def _held(self) -> ZarrArray:
        """The array as it is on disk now."""
        return ZarrArray(DirectoryStore(self.folder.parent), self.folder.name, self.metadata, Cache(0), "fill")

    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        """Decoded again each time, because rows may have changed."""
        self._held().read_into(start, stop, out)

    @override
    def row(self, i: int) -> Any:
        return self._held().row(i)

    @override
    def take(self, numbers: IntArray) -> AnyArray:
        return self._held().take(numbers)
