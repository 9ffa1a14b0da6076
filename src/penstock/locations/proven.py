"""`ProvenStore`: the seam between transports and all who read. Nothing passes it that was not proven.

A transport (`http.py`, `s3.py`, `fsspec_store.py`) makes requests. This class repeats a request that failed for a
reason that may pass, compares the length of every answer with the expected length, checks sizes, and turns errors of
libraries, which a hostile answer can cause, into `RemoteError`. So every transport has the same promises.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from penstock.errors import PenstockError, RemoteError, RemoteWarning
from penstock.locations.objects import ObjectInfo, ObjectStore, TransientError, joined
from penstock.locations.retry import Retry

R = TypeVar("R")

NOTICE = 5.0
"""Seconds of failing requests after which a warning says so."""

_LARGEST = 1 << 62  # bytes of an object; the largest file of any file system is smaller


class ProvenStore(ObjectStore):
    """Objects of a transport, whose requests are repeated and whose answers are proven."""

    def __init__(self, transport: ObjectStore, retry: Retry) -> None:
        super().__init__(transport.url)
        self.transport = transport
        self.retry = retry
        self.verifies = transport.verifies
        self._warned: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return ProvenStore, (self.transport, self.retry)

    @property
    @override
    def pinned(self) -> str:
        return self._repeat("", lambda: self.transport.pinned)

    @override
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        listed = self._repeat(prefix, lambda: [self._sized(info) for info in self.transport.list(prefix, beginning)])
        return self._without_markers(listed)

    def _without_markers(self, infos: list[ObjectInfo]) -> list[ObjectInfo]:
        """Leave out empty objects that mark folders: consoles of stores make one for each folder."""
        folders = {"/".join(parts[:n]) for info in infos for parts in [info.name.split("/")] for n in range(len(parts))}
        if len(infos) == 1:
            folders.discard("")  # the object at the URL itself
        both = [info for info in infos if info.name in folders or info.name.endswith("/")]
        if marked := next((info for info in both if info.size), None):
            message = f"expected an object or a folder at {joined(self.url, marked.name)}, got both"
            raise RemoteError(f"{message}; give the URLs of the files")
        markers = set(both)
        return [info for info in infos if info not in markers]

    @override
    def stat(self, name: str) -> ObjectInfo:
        return self._repeat(name, lambda: self._sized(self.transport.stat(name)))

    def _sized(self, info: ObjectInfo) -> ObjectInfo:
        if not 0 <= info.size <= _LARGEST:
            raise RemoteError(f"expected the size of {joined(self.url, info.name)} in bytes, got {info.size}")
        return info

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        def proven() -> list[bytes]:
            contents = self.transport.read(name, ranges, version)
            for raw, (begin, end) in zip(contents, ranges, strict=True):
                if len(raw) != max(end - begin, 0):
                    self._refuse(name, f"{end - begin} bytes from byte {begin} on", len(raw))
            return contents

        return self._repeat(name, proven)

    @override
    def read_all(self, name: str, size: int, version: str, write: Callable[[int, bytes], None]) -> None:
        """Read a whole object in order. What `write` got is proven when this function returns, and not before."""
        own: list[Exception] = []  # of the caller's function: a full disk is no reason to ask the server again

        def proven() -> None:
            received = 0

            def piece(begin: int, raw: bytes) -> None:
                nonlocal received
                if begin != received or begin + len(raw) > size:
                    self._refuse(name, f"{size} bytes in order", f"bytes {begin} to {begin + len(raw)}")
                try:
                    write(begin, raw)
                except Exception as error:
                    own.append(error)
                    raise
                received += len(raw)

            try:
                self.transport.read_all(name, size, version, piece)
            except Exception:
                if own:
                    raise own[0] from None
                raise
            if received != size:
                self._refuse(name, f"{size} bytes", received)

        self._repeat(name, proven)

    def _refuse(self, name: str, expected: str, got: object) -> None:
        raise TransientError(f"expected {expected}, got {got} - at {joined(self.url, name)}")

    @override
    def put(self, name: str, path: Path) -> None:
        self._repeat(name, lambda: self.transport.put(name, path))

    @override
    def delete(self, name: str) -> None:
        self._repeat(name, lambda: self.transport.delete(name))

    def _repeat(self, name: str, request: Callable[[], R]) -> R:
        def guarded() -> R:
            with self._understood(name):
                return request()

        return self.retry(guarded, self._notice)

    @contextmanager
    def _understood(self, name: str) -> Generator[None]:
        """Turn errors that an answer causes in a library into `RemoteError`, without their text: it may have the URL
        with credentials."""
        try:
            yield
        except Exception as error:
            if isinstance(error, PenstockError | OSError | ImportError | MemoryError | Warning):
                raise
            place = joined(self.url, name)
            message = f"expected an answer that can be understood at {place}, got one that causes"
            raise RemoteError(f"{message} {type(error).__name__}; look at the log of the server") from None

    def _notice(self, waited: float, error: TransientError) -> None:
        if waited >= NOTICE:
            self.warn(f"requests fail, and are repeated for at most {self.retry.retry_timeout:g} s each", error)

    def warn(self, what: str, error: BaseException) -> None:
        """Warn of a store that fails for now, once of each failure."""
        if what not in self._warned:
            self._warned.add(what)
            warnings.warn(RemoteWarning(f"{self.url}: {what}: {error}"), stacklevel=2)
