"""The kind of a file by its name and first bytes: which `FileTree` reads it; pictures, video and sound."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.hdf5 import has_signature
from penstock.containers.images import decode, decode_into
from penstock.containers.video import VideoFiles
from penstock.core.arrays import AnyArray
from penstock.core.boundary import parsing
from penstock.core.ragged import Array
from penstock.core.spec import Field
from penstock.errors import FormatError, MissingExtraError, require
from penstock.files.remote import open_file, read_bytes
from penstock.formats.mapping.clocks import TimesRule
from penstock.formats.mapping.held import (
    CsvOptions,
    CsvTree,
    JsonTree,
    MatlabTree,
    PickleTree,
    SavedTree,
    TableTree,
    TextTree,
)
from penstock.formats.mapping.stored import Hdf5Tree, NpyTree, NpzTree, PackedNpyTree, SafetensorsTree, ZarrTree
from penstock.formats.mapping.tree import FileTree, StackedTree, TreeContent, TreeLeaf

VIDEOS = (".mp4", ".mov", ".mkv", ".webm", ".avi")
SOUNDS = (".wav", ".flac", ".ogg")
SAMPLES = "samples"
TIMES = "times"
FRAMES_AT_ONCE = 8  # of a video, which are decoded together
SAMPLES_AT_ONCE = 1 << 16
SOUND_DTYPES = {
    **dict.fromkeys(("PCM_S8", "PCM_U8", "PCM_16"), np.dtype(np.int16)),
    **dict.fromkeys(("PCM_24", "PCM_32"), np.dtype(np.int32)),
    "DOUBLE": np.dtype(np.float64),
}
"""Types of samples by the encoding in the file, other ones are float32. Whole numbers have the full scale of their
type, so samples of 24 bits are those of 32 bits whose lowest byte is 0."""


class TimedTree(FileTree):
    """A file with one array, and the seconds of its rows from its start, which are the array `times`."""

    @override
    def times_of(self, name: str, stated: TimesRule | None) -> TimesRule | None:
        """The file's own times, where nothing else is stated that it has."""
        return stated if stated is not None and stated.array in self.leaves else TimesRule(TIMES)


class VideoTree(TimedTree):
    """Frames in RGB, exact by number. Cost of one: the frames from its key frame to the next ones. Needs `video`."""

    @cached_property
    def _files(self) -> VideoFiles:
        return VideoFiles([self.path])

    def find(self) -> TreeContent:
        rows = self._files.frame_count(0)
        frames = TreeLeaf(rows, Field(self._files.dtype, self._files.shape), block=FRAMES_AT_ONCE)
        return TreeContent({FRAMES: frames, TIMES: TreeLeaf(rows, Field(np.dtype(np.float64)), is_time=True)})

    def read(self, name: str, start: int, stop: int) -> Array:
        if name == TIMES:
            return self._files.timestamps(0)[start:stop]
        out: AnyArray = np.empty((stop - start, *self._files.shape), self._files.dtype)
        self._files.read(np.zeros(stop - start, np.int64), np.arange(start, stop), np.arange(stop - start), out)
        return out


class SoundTree(TimedTree):
    """Samples of all channels, read by number. Needs the extra `audio`."""

    @cached_property
    def _head(self) -> tuple[int, int, int, np.dtype[Any]]:
        with self._opened() as sound:
            dtype = SOUND_DTYPES.get(str(sound.subtype), np.dtype(np.float32))
            return int(sound.frames), int(sound.channels), int(sound.samplerate), dtype

    @contextmanager
    def _opened(self) -> Generator[Any]:
        library = require("soundfile", "audio")
        with parsing(self.path), open_file(self.path) as file, library.SoundFile(file) as sound:
            yield sound

    def find(self) -> TreeContent:
        rows, channels, rate, dtype = self._head
        samples = TreeLeaf(rows, Field(dtype, (channels,)), block=SAMPLES_AT_ONCE)
        leaves = {SAMPLES: samples, TIMES: TreeLeaf(rows, Field(np.dtype(np.float64)), is_time=True)}
        return TreeContent(leaves, {"samplerate": rate})

    def read(self, name: str, start: int, stop: int) -> Array:
        _, channels, rate, dtype = self._head
        if name == TIMES:
            return np.arange(start, stop) / rate
        with self._opened() as sound:
            sound.seek(start)
            read: AnyArray = sound.read(stop - start, dtype=dtype.name, always_2d=True)
        return read.reshape(-1, channels)


IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FRAMES = "frames"
NUMBERS = "numbers"


class ImagesTree(FileTree):
    """Images of one size: a row each. Cost of a row: one image is decoded. Needs the extra `images`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths[0])
        self._paths = paths

    def find(self) -> TreeContent:
        with parsing(self.path):
            first = decode(read_bytes(self.path))
        numbers = TreeLeaf(len(self._paths), Field(np.dtype(np.int64)), is_time=True)
        frames = TreeLeaf(len(self._paths), Field(first.dtype, first.shape), block=1)
        return TreeContent({FRAMES: frames, NUMBERS: numbers})

    def read(self, name: str, start: int, stop: int) -> Array:
        if name == NUMBERS:
            return np.array([_number(path) for path in self._paths[start:stop]], np.int64)
        field = self.leaves[name].field
        out: AnyArray = np.empty((stop - start, *field.shape), field.dtype)
        for row, path in zip(out, self._paths[start:stop], strict=True):
            with parsing(path):
                try:
                    decode_into(read_bytes(path), row)
                except FormatError as error:
                    message = f"expected an image like the first, {field.dtype}{list(field.shape)}: {error}"
                    raise FormatError(message, path=path) from error
        return out


def _number(path: Path) -> int:
    """The last number in the name of a file."""
    numbers = re.findall(r"\d+", path.stem)
    if not numbers:
        raise FormatError(f"expected a number in the name of an image, got {path.name}", path=path)
    return int(numbers[-1])


SUFFIXES: Mapping[str, Callable[[Path], FileTree]] = {
    ".npy": NpyTree,
    ".npz": NpzTree,
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JsonTree),
    **dict.fromkeys((".parquet", ".arrow", ".feather"), TableTree),
    **dict.fromkeys((".h5", ".hdf5", ".hdf", ".he5"), Hdf5Tree),
    ".mat": MatlabTree,
    **dict.fromkeys((".pkl", ".pickle", ".pkl.gz"), PickleTree),
    **dict.fromkeys((".pt", ".pth"), SavedTree),
    ".safetensors": SafetensorsTree,
    **dict.fromkeys(VIDEOS, VideoTree),
    **dict.fromkeys(SOUNDS, SoundTree),
    **dict.fromkeys((".zarr", ".zarr.zip"), ZarrTree),
}
OTHERS: Mapping[str, Callable[[Path], FileTree]] = {
    **dict.fromkeys((".npy.gz", ".gz"), PackedNpyTree),
    ".txt": TextTree,
}
"""Kinds that are read where a mapping names them, and are no data by their names alone."""
TABLES = (".csv", ".tsv", ".tab", ".csv.gz", ".tsv.gz")
ELSEWHERE: Mapping[str, str] = dict.fromkeys((".mcap", ".bag", ".db3"), "penstock-logs")
"""Kinds that another distribution reads: what to install where one is missing."""
REFUSED: Mapping[str, str] = dict.fromkeys(
    (".xlsx", ".xls", ".xlsm", ".ods"), "spreadsheets are not read: save each sheet as CSV, and open that"
)
"""Kinds that are not read, and what to do instead."""
READABLE = (*SUFFIXES, *TABLES, *IMAGES, *ELSEWHERE)


@cache
def kinds_of_packages() -> Mapping[str, importlib.metadata.EntryPoint]:
    """Return the kinds of files that other distributions read, by the ending of a name. Nothing of them is imported."""
    return {f".{point.name}": point for point in importlib.metadata.entry_points(group="penstock.files")}


def is_of_package(suffix: str | None) -> bool:
    """Whether a kind of file is read by another distribution, which may be missing."""
    return suffix is not None and (suffix in ELSEWHERE or suffix in kinds_of_packages())


def suffix_of(name: str) -> str | None:
    """Return the ending of a name by which a file is read, or None if none is known."""
    low = name.lower()
    return next((suffix for suffix in (*READABLE, *kinds_of_packages()) if low.endswith(suffix)), None)


def _tree_of_package(path: Path, suffix: str) -> FileTree:
    if (point := kinds_of_packages().get(suffix)) is None:
        message = f"expected the distribution that reads {suffix} files, for {path}; install it with"
        raise MissingExtraError(f"{message}: pip install {ELSEWHERE[suffix]}")
    kind: Callable[[Path], FileTree] = point.load()
    with parsing(path):
        return kind(path)


def refusal(names: Iterable[str]) -> str | None:
    """Return what to do instead for the first file of a kind that is not read; None without one."""
    endings = (Path(name).suffix.lower() for name in names)
    return next((REFUSED[ending] for ending in endings if ending in REFUSED), None)


def tree_of(paths: Sequence[Path], csv: CsvOptions | None = None, *, are_rows: bool = False) -> FileTree:
    """Return the arrays of a file; of several files, which are images or have a row each, arrays with these rows."""
    path, suffix = paths[0], suffix_of(paths[0].name)
    if suffix in IMAGES:
        return ImagesTree(paths)
    if are_rows:
        return StackedTree(paths, lambda path: tree_of([path], csv))
    if len(paths) > 1:
        message = f"expected one file, or images, got {len(paths)} files {path.name}, ...; name more of the path"
        raise FormatError(message, path=path.parent)
    if suffix in TABLES:
        return CsvTree(path, csv or CsvOptions())
    if suffix is not None and is_of_package(suffix):
        return _tree_of_package(path, suffix)
    low = path.name.lower()
    other = next((kind for ending, kind in OTHERS.items() if low.endswith(ending)), None)
    read = other if suffix is None else SUFFIXES.get(suffix)
    if read is None and path.is_file() and has_signature(path):
        read = Hdf5Tree
    if read is None and (hint := refusal([path.name])) is not None:
        raise FormatError(hint, path=path)
    if read is None:
        raise FormatError(f"expected a file that ends in one of {list(READABLE)}, got {path.name}", path=path)
    with parsing(path):
        return read(path)
