"""Dataset repositories of Hugging Face: its client names the commit, lists, and uploads; ranges come over HTTP.

A branch is resolved to its commit once, when it is first asked for, and all later requests name that commit. So nothing
changes between two reads, and versions of objects (their Git blobs) need no comparison. The client answers for each
object with the URL that has its bytes, which is signed and valid for an hour; ranges are read there, as from any web
server. The client's own file object would read 5 MiB for each range.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import override

from penstock.errors import PenstockError, RemoteError, require
from penstock.locations.fsspec_store import FsspecStore
from penstock.locations.http import PASSING, HttpStore, seconds_of
from penstock.locations.hub import COMMIT, LOGIN, NotAskedError, parsed
from penstock.locations.objects import NoRangesError, ObjectInfo, TransientError, joined

WRITING = frozenset(("private",))  # storage options that are for uploads alone

_LOCATED = 600.0  # seconds for which the URL of an object is used; it is valid for an hour
_OBJECTS = 4096  # objects whose URLs are kept
_UNREACHED = {"ConnectError", "ConnectTimeout", "ConnectionError"}  # of all HTTP clients that the Hub's client has used
_MOVED = (409, 412)  # statuses of a commit whose parent is not the head any more
_MISREAD = (ValueError, LookupError, TypeError, AttributeError)  # what the client raises for answers of another form
_OFFLINE = "HF_HUB_OFFLINE is set, so the Hub is not asked"


class HubStore(FsspecStore):
    """Objects below `hf://datasets/...`. `commits` has what revisions were resolved to, by `NAME@REVISION`.

    Stores that share `commits` read the same commit of each repository.
    """

    verifies = True
    advice = LOGIN

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
        commits: dict[str, str] | None = None,
    ) -> None:
        self._timeout = timeout
        self.commits: dict[str, str] = {} if commits is None else commits
        self._located: dict[str, tuple[float, HttpStore]] = {}
        self.client: Any = require("huggingface_hub", "hf")
        self._errors: Any = require("huggingface_hub.errors", "hf")
        self._constants: Any = require("huggingface_hub.constants", "hf")
        super().__init__(url, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return HubStore, (self._url, self._options, self._timeout, self.commits)

    @override
    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self._options.items() if name not in WRITING}

    @property
    def path(self) -> str:
        """`datasets/OWNER/NAME[@REVISION][/PATH]`, as it was given."""
        return self._system()[1]

    def token(self) -> str | None:
        """The token of the user, of the options or of the environment."""
        return self._system()[0].token or self.client.get_token()

    @property
    @override
    def pinned(self) -> str:
        _, place = self._place("")
        return f"hf://{place}"

    @property
    def _endpoint(self) -> str:
        return str(self._options.get("endpoint") or self._constants.ENDPOINT)

    def api(self) -> Any:
        """The client of the Hub, with the endpoint and the token of this store."""
        system, _ = self._system()
        return self.client.HfApi(endpoint=system.endpoint, token=system.token)

    def commit(self, repository: str, revision: str) -> str:
        """The commit of a revision, which is asked for once. Without a network this fails at once."""
        key = f"{repository}@{revision}"
        if key not in self.commits:
            with self.translated("", at_once=True):
                info = self.api().repo_info(repository, repo_type="dataset", revision=revision, timeout=self._timeout)
            if not COMMIT.fullmatch(str(info.sha)):
                raise RemoteError(f"expected a commit of {self.url}, got {str(info.sha)[:60]!r}")
            self.commits.setdefault(key, str(info.sha))
        return self.commits[key]

    @override
    def _place(self, name: str) -> tuple[Any, str]:
        """The file system, and the path with the commit in place of a revision."""
        system, place = super()._place(name)
        if (parts := parsed(place)) is None:
            return system, place  # an organisation, whose repositories are in the names
        repository, revision, inside = parts
        commit = revision if COMMIT.fullmatch(revision) else self.commit(repository, revision)
        return system, f"datasets/{repository}@{commit}/{inside}".rstrip("/")

    @override
    def _name_of(self, path: str) -> str:
        _, root = self._system()
        above, below = parsed(root), parsed(path)
        if below is None:
            raise RemoteError(f"expected names of files below {self.url}, got {path!r}")
        if above is None:
            return f"{below[0].partition('/')[2]}/{below[2]}"
        return below[2].removeprefix(above[2]).lstrip("/")

    @override
    def _forget(self, system: Any) -> None:
        """Nothing: a commit does not change."""

    @override
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        if (parts := parsed(super()._place(prefix)[1])) is not None:
            self.commit(*parts[:2])  # also of a commit, so that a missing network is found at once
        return super().list(prefix, beginning)

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        return self._from_object(name, lambda store: store.read("", ranges))

    @override
    def read_all(self, name: str, size: int, version: str, write: Callable[[int, bytes], None]) -> None:
        self._from_object(name, lambda store: store.read_all("", size, "", write))

    def _from_object(self, name: str, read: Callable[[HttpStore], Any]) -> Any:
        try:
            return read(self._object(name))
        except (TransientError, NoRangesError):
            raise
        except (RemoteError, FileNotFoundError):
            if self._located.pop(name, None) is None:
                raise
            return read(self._object(name))  # the signed URL ended before its time

    def _object(self, name: str) -> HttpStore:
        """One object, at the URL that has its bytes."""
        until, store = self._located.get(name, (0.0, None))
        if store is None or until < time.monotonic():
            if self._constants.HF_HUB_OFFLINE:
                raise NotAskedError(f"{joined(self.url, name)} is not on this machine, and {_OFFLINE}")
            system, place = self._place(name)
            repository, commit, inside = parsed(place) or ("", "", "")
            url: str = self.client.hf_hub_url(
                repository, inside, repo_type="dataset", revision=commit, endpoint=system.endpoint
            )
            with self.translated(name):
                metadata = self.client.get_hf_file_metadata(url, token=system.token, timeout=self._timeout)
            store = self._http(str(metadata.location), system)
            store.url = joined(self.url, name)
            store.advice = LOGIN
            if len(self._located) >= _OBJECTS:
                self._located.clear()
            self._located[name] = time.monotonic() + _LOCATED, store
        return store

    def _http(self, url: str, system: Any) -> HttpStore:
        """A web server's object. The token goes to the Hub alone, and not to the hosts that it names."""
        target, hub = urlsplit(url), urlsplit(str(system.endpoint))
        if target.scheme not in ("http", "https"):
            raise RemoteError(f"expected a URL of http or https for an object of {self.url}, got {target.scheme!r}")
        own = (target.scheme, target.netloc) == (hub.scheme, hub.netloc)
        headers: dict[str, str] = (
            require("huggingface_hub.utils", "hf").build_hf_headers(token=system.token) if own else {}
        )
        authorization = next((value for key, value in headers.items() if key.lower() == "authorization"), None)
        return HttpStore(url, {"Authorization": authorization} if authorization else None, self._timeout)

    @contextmanager
    @override
    def translated(self, name: str, *, at_once: bool = False) -> Generator[None]:
        """Turn errors of the client into ours. With `at_once`, a host that cannot be reached is no reason to wait."""
        try:
            yield
        except Exception as error:
            if isinstance(error, PenstockError | ImportError | MemoryError | Warning):
                raise
            place = joined(self.url, name)
            raise self._known(error, place) or self._failure(error, place, at_once=at_once) from None

    def _known(self, error: Exception, place: str) -> Exception | None:
        """The error to raise for one that the client has a class for."""
        errors = self._errors
        page = f"{self._endpoint}/{'/'.join(self._url.removeprefix('hf://').split('/')[:3]).partition('@')[0]}"
        known: list[tuple[Any, Exception]] = [
            (errors.OfflineModeIsEnabled, NotAskedError(f"{place} is not on this machine, and {_OFFLINE}")),
            (errors.GatedRepoError, RemoteError(f"{place} is gated: ask for access at {page}, then {LOGIN}")),
            (errors.RevisionNotFoundError, FileNotFoundError(f"nothing at {place}: no such revision")),
            (errors.RepositoryNotFoundError, FileNotFoundError(f"nothing at {place}; if it is private, {LOGIN}")),
            (errors.EntryNotFoundError, FileNotFoundError(f"nothing at {place}")),
            ((FileNotFoundError, IsADirectoryError, NotADirectoryError), FileNotFoundError(f"nothing at {place}")),
        ]
        return next((ours for kinds, ours in known if isinstance(error, kinds)), None)

    def _failure(self, error: Exception, place: str, *, at_once: bool) -> RemoteError:
        """The error to raise for another one, by the status of the answer if there is one."""
        response: Any = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
        headers: Mapping[str, str] = {} if response is None else response.headers
        status = 0 if response is None else int(response.status_code)
        text = f"{type(error).__name__}: {self._plain(error)}"
        if status in (*PASSING, *_MOVED):
            after = seconds_of(headers.get("retry-after", ""))
            return TransientError(f"{place} answers with status {status}", after)
        if status in (401, 403):
            return RemoteError(f"{place} refuses access ({text}); {LOGIN}")
        if at_once and not _UNREACHED.isdisjoint(kind.__name__ for kind in type(error).__mro__):
            return NotAskedError(f"{place} is not asked: no connection to {self._endpoint} ({text})")
        if status or isinstance(error, _MISREAD):
            return RemoteError(f"{place} could not be read or written ({text})")
        return TransientError(f"{place} could not be read or written ({text})")

    @override
    def put(self, name: str, path: Path) -> None:
        system, place = super()._place(name)
        with self.translated(name):
            system.put_file(os.fspath(path), place)
        self.commits.clear()

    @override
    def delete(self, name: str) -> None:
        system, place = super()._place(name)
        with self.translated(name):
            system.rm_file(place)
        self.commits.clear()
