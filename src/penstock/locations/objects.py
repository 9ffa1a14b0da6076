"""`ObjectStore`: objects behind a URL; list them, read ranges of their bytes, upload files.

A transport, a store that makes requests, does not keep, repeat or prove anything: `proven.py` does, above it. Errors
that may pass are `TransientError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from penstock.errors import RemoteError

PIECE = 1 << 20
"""Bytes of a whole object that are read at a time."""


class TransientError(RemoteError):
    """A request failed in a way that may pass: it is worth another try."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a store."""

    name: str
    size: int
    version: str


class ObjectStore(ABC):
    """Objects below one URL."""

    verifies = False  # whether `read` checks the version of the object

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def pinned(self) -> str:
        """The URL, without credentials, from which another process reads the same bytes."""
        return self.url

    @abstractmethod
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        """Return all objects below a folder, sorted by name; one with an empty name if the URL is an object."""

    @abstractmethod
    def stat(self, name: str) -> ObjectInfo:
        """Return the size and version of one object."""

    @abstractmethod
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        """Return the bytes of ranges of one object."""

    def read_all(self, name: str, size: int, version: str, write: Callable[[int, bytes], None]) -> None:
        """Read a whole object in order, as from a server that sends no ranges."""
        for begin in range(0, size, PIECE):
            write(begin, self.read(name, [(begin, min(begin + PIECE, size))], version)[0])

    @abstractmethod
    def put(self, name: str, path: Path) -> None:
        """Upload a local file as an object, which replaces one of that name."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete one object."""


class NoRangesError(RemoteError):
    """The server sends whole objects only."""


def scheme_of(url: str) -> str:
    """Return the scheme of a URL; of a chain such as `zip::s3://b/a.zip`, the first one."""
    head = url.split("::", 1)[0]
    return head.split(":", 1)[0].lower()


def shown(url: str) -> str:
    """Return a URL for messages: without user, password and query, which may be a signature."""
    return "::".join(map(_shown_link, url.split("::")))


def _shown_link(link: str) -> str:
    """One URL of a chain."""
    try:
        split = urlsplit(link)
        _ = split.port  # raises an error for text that is no port
    except ValueError:  # a "/", "?", "#" or "[" in a password ends the host: all before the last "@" may be secret
        scheme, _, rest = link.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].split('?', 1)[0] if '@' in rest else ''}"
    if not split.netloc:
        return link.split("?", 1)[0]
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


def joined(url: str, name: str) -> str:
    """Return the URL of an object, for messages."""
    return f"{url.rstrip('/')}/{name}" if name else url
