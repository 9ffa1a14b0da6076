"""A hub of datasets on any file system that fsspec knows.

A hub is a directory of directories: `<namespace>/<name>-v<n>/data/...` and `<namespace>/namespace_metadata.json`.
On `hf` each first part is a separate repository, whose `namespace_metadata.json` lists `datasets` and `namespaces`.
Names that come from a hub are hostile until `ids.inside` has passed them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.compat.minari.storage.datasets_root_dir import get_dataset_path
from penstock.core.narrowing import is_dict
from penstock.errors import DataError, FormatError, PenstockError, UnsafeDataError, require
from penstock.files import atomic_path, move, scratch_folder
from penstock.formats.minari import ids, metadata, root

_DATA_FILE = f"/{root.DATA}/{metadata.FILE}"
_PACKAGES = {"hf": "huggingface_hub", "gcp": "gcsfs", "gs": "gcsfs"}
SINGLE_ROOT = ("hf", "gcp", "gs")  # schemes whose hub is the first part of a URL


class CloudStorage:
    """A hub at a URL or a local directory.

    Raises `MissingExtraError` if fsspec or the package of the scheme is missing, `DataError` for an unknown scheme.

    >>> hub = CloudStorage("memory://doctest-hub")
    >>> list(hub.list_datasets())
    []
    """

    def __init__(self, name: str, token: str | None = None) -> None:
        fsspec: Any = require("fsspec", "remote")
        self.scheme, separator, place = name.partition("://")
        if self.scheme in _PACKAGES:
            require(_PACKAGES[self.scheme], "hf" if self.scheme == "hf" else "gcp")
        options = {"token": token} if token is not None and self.scheme in _PACKAGES else {}
        url = name if separator and self.scheme not in SINGLE_ROOT else _native(self.scheme, place, name)
        try:
            self.fs, self.base = fsspec.core.url_to_fs(url, **options)
        except ImportError as error:
            raise DataError(f"expected the package that serves {name!r}, got none; install it: {error}") from error
        except ValueError as error:
            raise DataError(
                f"expected hf://, gcp://, another fsspec URL or a directory, got {name!r}: {error}"
            ) from error
        self.name = place
        self.base = str(self.base).rstrip("/")

    def list_datasets(self, prefix: str | None = None) -> Iterator[str]:
        """Return the ids of the hub's datasets that start with `prefix`, sorted. Other names are ignored."""
        names = self._registered("datasets") if self.scheme == "hf" else self._walked(_DATA_FILE, prefix)
        return (name for name in sorted(set(names)) if name.startswith(prefix or "") and _is_id(name))

    def list_namespaces(self) -> Iterator[str]:
        """Return the namespaces that have metadata on the hub, sorted."""
        if self.scheme == "hf":
            names: Iterable[str] = (*self._groups(), *self._registered("namespaces"))
        else:
            names = self._walked(f"/{root.NAMESPACE_FILE}", None)
        return (name for name in sorted(set(names)) if ids.NAMESPACE.fullmatch(name))

    def get_dataset_metadata(self, dataset_id: str) -> dict[str, Any]:
        """Return the raw metadata of a dataset ("" for a dataset at the hub's root).

        Raises `FileNotFoundError`, or `FormatError` if it is not JSON.
        """
        return self._json(f"{dataset_id}{_DATA_FILE}".lstrip("/"))

    def download_dataset(self, dataset_id: str, path: Path) -> None:
        """Copy a dataset below the root `path`, atomically. An existing dataset is replaced.

        Raises `UnsafeDataError` for a file name that would leave the dataset, `FileNotFoundError` if it does not exist.
        """
        target = ids.directory(dataset_id, path)
        path.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path / target.name) as scratch:
            staging = scratch / target.name
            staging.mkdir()
            self._copy(dataset_id, staging)
            target.parent.mkdir(parents=True, exist_ok=True)  # namespaces appear with their first dataset
            with atomic_path(target, overwrite=True) as new_folder:
                move(staging, new_folder)

    def _copy(self, dataset_id: str, staging: Path) -> None:
        prefix = f"{self._path(dataset_id)}/"
        files = [str(name) for name in self.fs.find(prefix)]
        if not files:
            raise FileNotFoundError(f"no dataset {dataset_id} at {prefix}")
        for name in files:
            if not name.startswith(prefix):
                raise UnsafeDataError(f"expected files below {prefix}, got {name!r}")
            place = ids.inside(name.removeprefix(prefix), staging)
            print(f" * {name.removeprefix(prefix)}")
            place.parent.mkdir(parents=True, exist_ok=True)
            self.fs.get_file(name, str(place))

    def upload_dataset(self, dataset_id: str) -> None:
        """Copy a local dataset to the hub, its metadata last, and register it where the hub keeps a register."""
        source = get_dataset_path(dataset_id)
        self._make_group(dataset_id)
        files = [file for file in sorted(source.rglob("*")) if file.is_file()]
        files = [f for f in files if not any(part.startswith(".") for part in f.relative_to(source).parts)]
        # The metadata makes a dataset visible to others, so it is copied last.
        for file in sorted(files, key=lambda file: file == source / root.DATA / metadata.FILE):
            self._put(file, f"{dataset_id}/{file.relative_to(source).as_posix()}")
        if self.scheme == "hf":
            self._register("datasets", dataset_id)

    def upload_namespace(self, namespace: str) -> None:
        """Copy the metadata of a local namespace to the hub."""
        self._make_group(namespace)
        self._put(get_dataset_path(namespace) / root.NAMESPACE_FILE, f"{namespace}/{root.NAMESPACE_FILE}")
        if self.scheme == "hf" and "/" in namespace:
            self._register("namespaces", namespace)

    def download_namespace_metadata(self, namespace: str, path: Path) -> None:
        """Replace the metadata of a namespace below the root `path` by the hub's.

        Parents that are not namespaces here yet stay plain directories.
        """
        entries = self._json(f"{namespace}/{root.NAMESPACE_FILE}")
        target = ids.inside(namespace, path)
        target.mkdir(parents=True, exist_ok=True)
        metadata.write_json(target / root.NAMESPACE_FILE, entries)

    def _path(self, name: str) -> str:
        return f"{self.base}/{name}"

    def _json(self, name: str) -> dict[str, Any]:
        with self.fs.open(self._path(name), "rb") as file:
            raw = file.read(metadata.LIMIT + 1)
        if len(raw) > metadata.LIMIT:
            raise FormatError(f"expected metadata of at most {metadata.LIMIT} bytes, got more", path=self._path(name))
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"expected one JSON object: {error}", path=self._path(name)) from error
        if not is_dict(value):
            raise FormatError(f"expected one JSON object, got a {type(value).__name__}", path=self._path(name))
        return value

    def _put(self, file: Path, name: str) -> None:
        path = self._path(name)
        self.fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self.fs.put_file(str(file), path)

    def _walked(self, ending: str, prefix: str | None) -> Iterator[str]:
        """Return the directories below the hub that have a file of this name."""
        start = f"{self.base}/{(prefix or '').rpartition('/')[0]}".rstrip("/")
        if not self.fs.exists(start):
            return
        for name in self.fs.find(start):
            if str(name).endswith(ending):
                yield str(name)[len(self.base) + 1 : -len(ending)]

    def _groups(self) -> list[str]:
        """Return the repositories of an organisation on `hf`."""
        hub: Any = require("huggingface_hub", "hf")
        return [str(entry.id).partition("/")[2] for entry in hub.HfApi().list_datasets(author=self.name)]

    def _registered(self, kind: str) -> Iterator[str]:
        for group in self._groups():
            try:
                yield from map(str, self._json(f"{group}/{root.NAMESPACE_FILE}").get(kind, []))
            except FileNotFoundError:
                if kind == "datasets":  # a repository that is one dataset
                    yield group

    def _register(self, kind: str, name: str) -> None:
        group = name.partition("/")[0]
        try:
            entries = self._json(f"{group}/{root.NAMESPACE_FILE}")
        except FileNotFoundError:
            return  # a repository that is one dataset needs no register
        entries[kind] = sorted({*entries.get(kind, []), name})
        with self.fs.open(self._path(f"{group}/{root.NAMESPACE_FILE}"), "wb") as file:
            file.write(metadata.strict_dumps(entries).encode())

    def _make_group(self, name: str) -> None:
        if self.scheme == "hf":
            hub: Any = require("huggingface_hub", "hf")
            repository = f"{self.name}/{name.partition('/')[0]}"
            hub.HfApi(token=self.fs.token).create_repo(repository, repo_type="dataset", exist_ok=True)


def _native(scheme: str, place: str, name: str) -> str:
    """Return the fsspec URL of a hub."""
    if scheme == "hf":
        return f"hf://datasets/{place}"
    return f"gs://{place}" if scheme in ("gcp", "gs") else name


def _is_id(name: str) -> bool:
    try:
        return ids.parse(name).version is not None
    except PenstockError:
        return False
