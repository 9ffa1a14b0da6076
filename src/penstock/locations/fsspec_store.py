"""Objects of any scheme that fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from penstock.errors import DataError, MissingExtraError, PenstockError, RemoteError, require
from penstock.locations.objects import ObjectInfo, ObjectStore, TransientError, joined, scheme_of, shown

_VERSIONS = ("ETag", "etag", "md5Hash", "md5", "sha256", "sha", "blob_id", "generation", "version_id", "VersionId")
_TIMES = ("LastModified", "last_modified", "last_commit", "mtime", "updated", "created")
_EXTRAS = {"hf": "hf", "gs": "gcp", "gcs": "gcp", "s3": "s3", "s3a": "s3"}


_SELECTING = frozenset(("s3", "gs"))  # file systems whose `find` takes the beginning of names


class FsspecStore(ObjectStore):
    """A store of any scheme that fsspec knows."""

    advice = "give credentials by the environment or as options"
    """What a refused caller can do."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(shown(url))
        self._url = url
        self._options = dict(options or {})
        self._opened: tuple[int, Any, str] | None = None
        self._system()

    def __reduce__(self) -> tuple[Any, ...]:
        return FsspecStore, (self._url, self._options)

    def _system(self) -> tuple[Any, str]:
        """The file system and the path in it. File systems with an event loop do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            fsspec: Any = require("fsspec", "remote")
            schemes = [scheme_of(part) for part in self._url.split("::")]
            with self.translated(""):  # an archive is opened at once
                try:
                    system, root = fsspec.core.url_to_fs(self._url, **self._given())
                except ImportError as error:
                    extra = next((_EXTRAS[scheme] for scheme in schemes if scheme in _EXTRAS), None)
                    install = f"; install it with: pip install 'penstock[{extra}]'" if extra else ""
                    raise MissingExtraError(f"{self.url} needs a library: {self._plain(error)}{install}") from None
                except ValueError as error:
                    message = f"expected a URL that fsspec knows, got {self.url}: {self._plain(error)}"
                    raise DataError(message) from None
            self._prepare(system)
            self._opened = os.getpid(), system, str(root).rstrip("/")
        return self._opened[1], self._opened[2]

    def _given(self) -> dict[str, Any]:
        return self._options

    def _prepare(self, system: Any) -> None:
        """Set what a file system has no option for."""

    def _may_pass(self, error: Exception) -> bool:
        """Whether an error may be gone at another try."""
        return True

    @contextmanager
    def translated(self, name: str) -> Generator[None]:
        """Turn errors of fsspec and the libraries below it into ours; they may name URLs with credentials."""
        place = joined(self.url, name)
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(f"nothing at {place}") from None
        except Exception as error:
            if isinstance(error, PenstockError | ImportError | MemoryError):
                raise
            text = f"{type(error).__name__}: {self._plain(error)}"
            if isinstance(error, PermissionError) or not self._may_pass(error):
                raise RemoteError(f"{place} refuses access ({text}); {self.advice}") from None
            raise TransientError(f"{place} could not be read or written ({text})") from None

    def _plain(self, error: Exception) -> str:
        """The first line of an error, without the values of the caller's options and the credentials of the URL."""
        text = str(error).split("\n", 1)[0][:300]
        secrets = [str(value) for value in _leaves(self._options)]
        for part in self._url.split("::"):
            split = urlsplit(part)
            secrets += [split.netloc.rpartition("@")[0], split.query, split.password or ""]
        for secret in sorted((s for s in secrets if len(s) > 3), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _place(self, name: str) -> tuple[Any, str]:
        system, root = self._system()
        return system, f"{root}/{name}" if name and root else name or root

    def _name_of(self, path: str) -> str:
        """The name of an object by its path in the file system."""
        return _below(path, self._system()[1])

    def _forget(self, system: Any) -> None:
        """Drop what the file system keeps of earlier listings."""
        system.invalidate_cache()

    @override
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        system, place = self._place(prefix)
        selects = beginning and not _SELECTING.isdisjoint(_protocols(system))
        with self.translated(prefix):
            self._forget(system)
            entries: Any = system.find(place, detail=True, **({"prefix": beginning} if selects else {}))
            if not entries:
                entries = {place: system.info(place)}
            infos = [_info_of(self._name_of(path), entry) for path, entry in entries.items() if entry["type"] == "file"]
        if not infos:
            raise FileNotFoundError(f"nothing at {self.url}")
        return sorted(infos, key=lambda info: info.name)

    @override
    def stat(self, name: str) -> ObjectInfo:
        system, place = self._place(name)
        with self.translated(name):
            self._forget(system)
            entry = system.info(place)
        if entry["type"] != "file":
            raise FileNotFoundError(f"no object at {joined(self.url, name)}")
        return _info_of(name, entry)

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        system, place = self._place(name)
        with self.translated(name):
            return [bytes(system.cat_file(place, start=begin, end=end)) for begin, end in ranges]

    @override
    def put(self, name: str, path: Path) -> None:
        system, place = self._place(name)
        with self.translated(name):
            try:
                self._upload(system, os.fspath(path), place)
            except FileNotFoundError:  # of stores with real folders; no bucket is made
                if not system.exists("/".join(place.split("/", 2)[: 2 if place.startswith("/") else 1])):
                    raise
                system.makedirs(place.rpartition("/")[0], exist_ok=True)
                self._upload(system, os.fspath(path), place)

    def _upload(self, system: Any, path: str, place: str) -> None:
        system.put_file(path, place)

    @override
    def delete(self, name: str) -> None:
        system, place = self._place(name)
        with self.translated(name):
            system.rm_file(place)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]  # pyright: ignore[reportUnknownVariableType]
    return [value]


def _info_of(name: str, entry: Mapping[str, Any]) -> ObjectInfo:
    if entry.get("size") is None:
        raise RemoteError(f"expected the size of {name or 'the object'}, the store does not tell it")
    versions = [str(entry[key]) for key in _VERSIONS if entry.get(key)]
    times = [_seconds(entry[key]) for key in _TIMES if entry.get(key)]
    return ObjectInfo(name, int(entry["size"]), (versions or times or [""])[0])


def _protocols(system: Any) -> tuple[str, ...]:
    protocol: str | tuple[str, ...] = system.protocol
    return (protocol,) if isinstance(protocol, str) else protocol


def _seconds(time: Any) -> str:
    """A time of change in one form: file systems tell it differently in listings and for one object."""
    return str(time.timestamp() if isinstance(time, datetime) else time)


def _below(path: str, root: str) -> str:
    return path.lstrip("/").removeprefix(root.lstrip("/")).lstrip("/")
