"""The kind of a file by its name and first bytes: which `FileTree` reads it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from penstock.containers.hdf5 import has_signature
from penstock.core.boundary import parsing
from penstock.errors import FormatError, MissingExtraError
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
from penstock.formats.mapping.images import IMAGES, ImagesTree
from penstock.formats.mapping.media import SOUNDS, VIDEOS, SoundTree, VideoTree
from penstock.formats.mapping.stored import Hdf5Tree, NpyTree, NpzTree, PackedNpyTree, SafetensorsTree, ZarrTree
from penstock.formats.mapping.tree import FileTree, StackedTree

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
