"""A hub of datasets behind any URL that `penstock.locations` reads and writes, or in a local directory.

A hub is a directory of directories: `<namespace>/<name>-v<n>/data/...` and `<namespace>/namespace_metadata.json`.
On `hf` each first part is a separate repository, whose `namespace_metadata.json` lists `datasets` and `namespaces`.
Names that come from a hub are hostile until `ids.inside` has passed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.errors import FormatError, PenstockError, UnsafeDataError, require
from penstock.files import atomic_path, move, scratch_folder
from penstock.formats.minari import ids, metadata
from penstock.locations.fsspec_store import FsspecStore
from penstock.locations.objects import ObjectInfo, ObjectStore, joined
from penstock.locations.proven import ProvenStore
from penstock.locations.retry import Retry
from penstock.locations.stores import object_store
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path

_DATA_FILE = f"/{ids.DATA}/{metadata.FILE}"
_PIECE = 32 << 20  # bytes of one request of a download
SINGLE_ROOT = ("hf", "gcp", "gs")  # schemes whose hub is the first part of a URL


class CloudStorage:
    """A hub at a URL or a local directory."""

    def __init__(self, name: str, token: str | None = None) -> None:
        self.scheme, separator, self.name = name.partition("://")
        self.token = token
        self.store = self._store(name if separator else Path(name).absolute().as_uri())

    def _store(self, url: str) -> ObjectStore:
        if url.startswith("file://"):
            return ProvenStore(FsspecStore(url), Retry())
        if self.scheme not in SINGLE_ROOT:
            return object_store(url)
        options = {} if self.token is None else {"token": self.token}
        return object_store(f"hf://datasets/{self.name}" if self.scheme == "hf" else f"gs://{self.name}", options)

    def list_datasets(self, prefix: str | None = None) -> Iterator[str]:
        """Return the ids of the hub's datasets that start with `prefix`, sorted. Other names are ignored."""
        names = self._registered("datasets") if self.scheme == "hf" else self._listed(_DATA_FILE, prefix or "")
        return (name for name in sorted(set(names)) if name.startswith(prefix or "") and _is_id(name))

    def list_namespaces(self) -> Iterator[str]:
        """Return the namespaces that have metadata on the hub, sorted."""
        if self.scheme == "hf":
            names: Iterable[str] = (*self._groups(), *self._registered("namespaces"))
        else:
            names = self._listed(f"/{ids.NAMESPACE_FILE}", "")
        return (name for name in sorted(set(names)) if ids.NAMESPACE.fullmatch(name))

    def get_dataset_metadata(self, dataset_id: str) -> dict[str, Any]:
        """Return the raw metadata of a dataset ("" for a dataset at the hub's root)."""
        return self._json(f"{dataset_id}{_DATA_FILE}".lstrip("/"))

    def download_dataset(self, dataset_id: str, path: Path) -> None:
        """Copy a dataset below the root `path`, atomically. An existing dataset is replaced."""
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
        for info in self.store.list(dataset_id):
            if not info.name.startswith(f"{dataset_id}/"):
                raise UnsafeDataError(f"expected files of {dataset_id}, got {info.name!r}")
            name = info.name.removeprefix(f"{dataset_id}/")
            place = ids.inside(name, staging)
            print(f" * {name}")
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                for begin in range(0, info.size, _PIECE):
                    file.write(self._read(info, begin, min(begin + _PIECE, info.size)))

    def _read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        (raw,) = self.store.read(info.name, [(begin, end)], info.version)
        return raw

    def upload_dataset(self, dataset_id: str) -> None:
        """Copy a local dataset to the hub, its metadata last, and register it where the hub keeps a register."""
        source = get_dataset_path(dataset_id)
        self._make_group(dataset_id)
        files = [file for file in sorted(source.rglob("*")) if file.is_file()]
        files = [f for f in files if not any(part.startswith(".") for part in f.relative_to(source).parts)]
        # The metadata makes a dataset visible to others, so it is copied last.
        for file in sorted(files, key=lambda file: file == source / ids.DATA / metadata.FILE):
            self._put(file, f"{dataset_id}/{file.relative_to(source).as_posix()}")
        if self.scheme == "hf":
            self._register("datasets", dataset_id)

    def upload_namespace(self, namespace: str) -> None:
        """Copy the metadata of a local namespace to the hub."""
        self._make_group(namespace)
        self._put(get_dataset_path(namespace) / ids.NAMESPACE_FILE, f"{namespace}/{ids.NAMESPACE_FILE}")
        if self.scheme == "hf" and "/" in namespace:
            self._register("namespaces", namespace)

    def download_namespace_metadata(self, namespace: str, path: Path) -> None:
        """Replace the metadata of a namespace below the root `path` by the hub's.

        Parents that are not namespaces here yet stay plain directories.
        """
        entries = self._json(f"{namespace}/{ids.NAMESPACE_FILE}")
        target = ids.inside(namespace, path)
        target.mkdir(parents=True, exist_ok=True)
        metadata.write_json(target / ids.NAMESPACE_FILE, entries)

    def _json(self, name: str) -> dict[str, Any]:
        info = self.store.stat(name)
        place = joined(self.store.url, name)
        if info.size > metadata.LIMIT:
            raise FormatError(f"expected metadata of at most {metadata.LIMIT} bytes, got {info.size}", path=place)
        return json_object(self._read(info, 0, info.size), place)

    def _put(self, file: Path, name: str) -> None:
        self.store.put(name, file)

    def _listed(self, ending: str, prefix: str) -> list[str]:
        """Return the directories of the hub that have a file of this name."""
        try:
            infos = self.store.list(prefix.rpartition("/")[0])
        except FileNotFoundError:
            return []
        return [info.name.removesuffix(ending) for info in infos if info.name.endswith(ending)]

    def _groups(self) -> list[str]:
        """Return the repositories of an organisation on `hf`."""
        hub: Any = require("huggingface_hub", "hf")
        return [str(entry.id).partition("/")[2] for entry in hub.HfApi().list_datasets(author=self.name)]

    def _registered(self, kind: str) -> Iterator[str]:
        for group in self._groups():
            try:
                yield from map(str, self._json(f"{group}/{ids.NAMESPACE_FILE}").get(kind, []))
            except FileNotFoundError:
                if kind == "datasets":  # a repository that is one dataset
                    yield group

    def _register(self, kind: str, name: str) -> None:
        group = name.partition("/")[0]
        try:
            entries = self._json(f"{group}/{ids.NAMESPACE_FILE}")
        except FileNotFoundError:
            return  # a repository that is one dataset needs no register
        entries[kind] = sorted({*entries.get(kind, []), name})
        with scratch_folder(get_dataset_path() / ids.NAMESPACE_FILE) as folder:
            register = folder / ids.NAMESPACE_FILE
            metadata.write_json(register, entries)
            self._put(register, f"{group}/{ids.NAMESPACE_FILE}")

    def _make_group(self, name: str) -> None:
        if self.scheme == "hf":
            hub: Any = require("huggingface_hub", "hf")
            repository = f"{self.name}/{name.partition('/')[0]}"
            hub.HfApi(token=self.token).create_repo(repository, repo_type="dataset", exist_ok=True)


def _is_id(name: str) -> bool:
    try:
        return ids.parse(name).version is not None
    except PenstockError:
        return False
