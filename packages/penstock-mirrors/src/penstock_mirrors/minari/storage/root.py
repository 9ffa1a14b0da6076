"""The datasets root: the datasets and namespaces in it, and the metadata of namespaces."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import DataError
from penstock.formats.minari import ids, metadata
from penstock.formats.minari.ids import DATA, NAMESPACE_FILE, ensure_namespace, namespace_file

DEPTH = 32  # of namespaces in namespaces; also what ends a loop of links


def datasets(base: Path | None = None, prefix: str | None = None) -> list[str]:
    """The ids of all datasets below a root, sorted by namespace, name and version. Nothing is opened.

    A directory with a `data` directory in it is a dataset; hidden directories are passed over, and so are names
    that are not ids. `prefix` is a directory below the root. Cost: one listing a directory.
    """
    top = ids.root() if base is None else base
    start = top if not prefix else ids.inside(prefix, top)
    names = [path.relative_to(top).as_posix() for path in _dataset_directories(start, DEPTH)]
    return sorted((name for name in names if ids.DATASET_ID.fullmatch(name)), key=sort_key)


def sort_key(dataset_id: str) -> tuple[str, str, int]:
    """Order of ids: namespace, name, version as a number."""
    namespace, name, version = ids.parse(dataset_id)
    return namespace or "", name, -1 if version is None else version


def _dataset_directories(path: Path, depth: int) -> Iterator[Path]:
    if (path / DATA).is_dir():
        yield path
    elif depth:
        for child in _directories(path):
            yield from _dataset_directories(child, depth - 1)


def _directories(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def delete_dataset(dataset_id: str, base: Path | None = None) -> None:
    """Remove a dataset and all its files."""
    path = ids.directory(dataset_id, base)
    if not (path / DATA).is_dir():
        raise FileNotFoundError(f"no dataset {dataset_id} at {path}")
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def namespaces(base: Path | None = None) -> list[str]:
    """Every directory below a root that has namespace metadata, as a namespace, sorted."""
    top = ids.root() if base is None else base
    return sorted(path.relative_to(top).as_posix() for path in _namespace_directories(top, DEPTH) if path != top)


def _namespace_directories(path: Path, depth: int) -> Iterator[Path]:
    if (path / NAMESPACE_FILE).is_file():
        yield path
    if depth and not (path / DATA).is_dir():
        for child in _directories(path):
            yield from _namespace_directories(child, depth - 1)


def namespace_metadata(namespace: str, base: Path | None = None) -> dict[str, Any]:
    path = namespace_file(namespace, base)
    if not path.is_file():
        raise DataError(f"expected a namespace that exists, got {namespace!r}, which {path.parent} is not")
    return metadata.read_json(path) or {}


def write_namespace(namespace: str, entries: Mapping[str, Any], base: Path | None = None) -> None:
    """Create a namespace, or replace its metadata, atomically; parents that are not namespaces become empty ones."""
    path = namespace_file(namespace, base)
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata.write_json(path, entries)
    ensure_namespace(namespace, base)


def delete_namespace(namespace: str, base: Path | None = None) -> None:
    """Remove an empty namespace."""
    path = namespace_file(namespace, base)
    if not path.is_file():
        raise DataError(f"expected a namespace that exists, got {namespace!r}")
    rest = sorted(set(os.listdir(path.parent)) - {NAMESPACE_FILE})
    if rest:
        raise DataError(f"Namespace {namespace!r} is not empty: it has {rest}; delete these first")
    path.unlink()
    path.parent.rmdir()
