"""Write a dataset to a repository of Hugging Face, in one commit.

The client uploads the contents of files first, and names them in a commit at the end, which makes all of them visible
at once. After a kill, the next call uploads the contents that are missing. Only a dataset of more files than one commit
takes needs several commits: the first has `MARKER`, with which `open` refuses the folder, and the last one removes it.
A commit is made on the head that was looked at, so that nothing of others is overwritten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.errors import DataError, RemoteError, StateError
from penstock.locations.hub import COMMIT, DATASETS, LOGIN, MAIN, parsed
from penstock.locations.hub_store import HubStore
from penstock.locations.location import MARKER, Url
from penstock.locations.stores import object_store

FILES = 5000
"""Files of one commit at most."""

SMALL_BYTES = 256 << 20
"""Bytes of one commit at most, of files that may be a part of its request."""

_SMALL = 10 << 20  # bytes of a file from which on the Hub takes it apart from the request of the commit
_LEFTOVER = (".lock", ".penstock")  # ends of the names of hidden files that writers lock or leave
_OWN = (".gitattributes", "README.md", "LICENSE")  # files of a repository that may be there before its dataset


class HubUpload:
    """One upload to a dataset repository, or to a folder or file in it."""

    def __init__(self, url: Url, options: Mapping[str, Any] | None) -> None:
        self._private: object = (options or {}).get("private")
        if self._private not in (None, True, False):
            raise DataError(f"expected the storage option private to be true or false, got {self._private!r}")
        store = object_store(url.full, options)
        if not isinstance(store.transport, HubStore) or (parts := parsed(store.transport.path)) is None:
            raise DataError(f"expected hf://datasets/OWNER/NAME to write to, got {url}")
        self.url = url
        self._options = options
        self._retry = store.retry
        self._hub = store.transport
        self._repository, self._revision, self._inside = parts
        if COMMIT.fullmatch(self._revision):
            raise DataError(f"expected a branch to write to, got the commit {self._revision} of {url}")
        self._marker = self._in_repository(MARKER)
        self._besides: dict[str, Path] = {}
        self._own = frozenset(() if self._inside else _OWN)

    def _in_repository(self, name: str) -> str:
        return f"{self._inside}/{name}".strip("/")

    def check(self, path: Path) -> None:
        """Raise `FileExistsError` if there is anything but an unfinished upload. If an earlier upload left `path`, its
        last commit may have been made, so `run` compares."""
        there = self._retry(lambda: self._there(None))
        if there and self._marker not in there and not path.exists():
            raise self._taken(there)

    def _taken(self, there: Mapping[str, Any]) -> FileExistsError:
        first = min(there)
        return FileExistsError(
            f"expected nothing at {self.url}, got {len(there)} files, first {first}; write to another place, or "
            "delete them"
        )

    def put_beside(self, path: Path, ending: str) -> None:
        """Commit a file next to the dataset, such as the certificate of a conversion, with the dataset.

        In a repository that is a dataset, it is a hidden file.
        """
        self._besides[f"{self._inside}{ending}"] = path

    def run(self, path: Path, *, overwrite: bool) -> str:
        """Upload a file or folder; return the commit."""
        names = {"": path} if path.is_file() else files_below(path)
        files = {self._in_repository(name): place for name, place in names.items()}
        self._own -= files.keys()
        return self._retry(lambda: self._attempt(files, overwrite=overwrite))

    def _attempt(self, files: Mapping[str, Path], *, overwrite: bool) -> str:
        with self._hub.translated(""):
            self._make_repository()
            head = str(self._info().sha)
        there = self._there(head)
        if there and self._marker not in there:
            if there.keys() == files.keys() and all(_is_equal(there[name], files[name]) for name in files):
                return head  # the answer to the last commit was lost
            raise self._taken(there)
        manifest = {name: place.stat().st_size for name, place in files.items()}
        removed = self._to_remove(there, manifest, head, overwrite=overwrite)
        batches = list(_batches({**files, **self._besides}))
        for number, batch in enumerate(batches):
            first, last = number == 0, number == len(batches) - 1
            operations = [*map(self._removal, removed if first else ()), *starmap(self._addition, batch)]
            if first and not last:
                operations.insert(0, self._addition(self._marker, json.dumps(manifest).encode()))
            if last and (self._marker in there or not first):
                operations.append(self._removal(self._marker))
            head = self._commit(operations, head, f"{number + 1} of {len(batches)}" if len(batches) > 1 else "")
        self._compare(head, manifest)
        return head

    def _make_repository(self) -> None:
        if not self._hub.token():
            raise RemoteError(f"expected a token to write to {self.url}; {LOGIN}")
        api = self._hub.api()
        private = self._private is not False
        api.create_repo(self._repository, repo_type="dataset", private=private, exist_ok=True)
        if self._revision != MAIN:
            api.create_branch(self._repository, branch=self._revision, repo_type="dataset", exist_ok=True)
        if self._private is not None and bool(self._info().private) != self._private:
            wanted, got = ("private", "public") if self._private else ("public", "private")
            raise DataError(f"expected a {wanted} repository, {self._repository} is {got}; change that in its settings")

    def _info(self) -> Any:
        return self._hub.api().repo_info(self._repository, repo_type="dataset", revision=self._revision)

    def _there(self, head: str | None) -> dict[str, Any]:
        """The files of the dataset at a commit, and what the Hub tells of each; none where there is no repository."""
        try:
            with self._hub.translated(""):
                commit = {"repo_type": "dataset", "revision": head or self._info().sha}
        except FileNotFoundError:
            return {}
        api, inside = self._hub.api(), self._inside
        try:
            with self._hub.translated(""):
                entries = list(api.list_repo_tree(self._repository, inside or None, recursive=True, **commit))
        except FileNotFoundError:  # no folder, but it may be a file
            with self._hub.translated(""):
                entries = api.get_paths_info(self._repository, [inside], **commit)
        others = self._own.union(self._besides)
        return {entry.path: entry for entry in entries if hasattr(entry, "blob_id") and entry.path not in others}

    def _to_remove(
        self, there: Mapping[str, Any], manifest: Mapping[str, int], head: str, *, overwrite: bool
    ) -> Sequence[str]:
        """The files of an unfinished upload of other data."""
        if self._marker not in there:
            return ()
        size = there[self._marker].size
        (raw,) = HubStore(f"{DATASETS}{self._repository}@{head}", self._options).read(self._marker, [(0, size)])
        if json_object(raw, str(self.url)) == manifest:
            return ()
        if not overwrite:
            raise StateError(
                f"expected at {self.url} nothing, or an unfinished upload of these files, got one of other files; "
                "delete its objects, or start again with overwrite=True (--overwrite)"
            )
        return [name for name in there if name not in manifest and name != self._marker]

    def _addition(self, name: str, content: Path | bytes) -> Any:
        return self._hub.client.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)

    def _removal(self, name: str) -> Any:
        return self._hub.client.CommitOperationDelete(path_in_repo=name)

    def _commit(self, operations: list[Any], head: str, part: str) -> str:
        """Upload the contents of files, and commit them on a head; return the new commit."""
        message = f"Upload {self._inside or 'the dataset'} with penstock{f' ({part})' if part else ''}"
        with self._hub.translated(""):
            commit = self._hub.api().create_commit(
                self._repository,
                operations,
                commit_message=message,
                repo_type="dataset",
                revision=self._revision,
                parent_commit=head,
            )
        return str(commit.oid)

    def _compare(self, commit: str, manifest: Mapping[str, int]) -> None:
        """Raise an error unless the commit has all files: a repository can have rules that leave files out."""
        there = {name: int(entry.size) for name, entry in self._there(commit).items()}
        lacking = sorted(name for name, size in manifest.items() if there.get(name) != size)
        if lacking:
            raise RemoteError(
                f"expected {len(manifest)} files at {self.url}, the repository left out {len(lacking)}, first "
                f"{lacking[0]}; look at its file .gitignore"
            )


def _batches(files: Mapping[str, Path]) -> Iterator[list[tuple[str, Path]]]:
    """The files of each commit, in order."""
    batch: list[tuple[str, Path]] = []
    small = 0
    for name, place in files.items():
        size = place.stat().st_size
        nbytes = size if size < _SMALL else 0
        if batch and (len(batch) == FILES or small + nbytes > SMALL_BYTES):
            yield batch
            batch, small = [], 0
        batch.append((name, place))
        small += nbytes
    yield batch


def _is_equal(entry: Any, path: Path) -> bool:
    """Whether a file of a repository has the bytes of a local one."""
    size = path.stat().st_size
    if int(entry.size) != size:
        return False
    with path.open("rb") as file:
        if entry.lfs is not None:
            return hashlib.file_digest(file, "sha256").hexdigest() == entry.lfs.sha256
        blob = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        while piece := file.read(1 << 20):
            blob.update(piece)
        return blob.hexdigest() == entry.blob_id


def files_below(folder: Path) -> dict[str, Path]:
    """All files of a dataset, by name; locks and other hidden leftovers of penstock's writers are none."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in files if not (path.name.startswith(".") and path.name.endswith(_LEFTOVER))]
    return {path.relative_to(folder).as_posix(): path for path in kept}
