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
    """A request failed in a way that may pass: it is worth another try.

    Args:
        message: What failed.
        after: Seconds after which the server wants to be asked again. The default is 0: it did not say.
    """

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a store.

    Args:
        name: Name below the store's URL, with `/`; the empty name is the object at the URL itself.
        size: Bytes.
        version: What changes when the bytes do: an ETag, a checksum or a time of change. Empty if there is none.
    """

    name: str
    size: int
    version: str


class ObjectStore(ABC):
    """Objects below one URL.

    Args:
        url: The URL without credentials, for messages.
    """

    verifies = False  # whether `read` checks the version of the object

    def __init__(self, url: str) -> None:
        self.url = url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        """Return all objects below a folder, sorted by name; one with an empty name if the URL is an object.

        Args:
            prefix: Name of the folder. The default is the URL itself.
            beginning: Text that the wanted names below the folder begin with. A store that cannot select returns
                others too. The default is any.

        Raises:
            FileNotFoundError: The URL leads to nothing.
            RemoteError: The store does not answer or cannot list.
        """

    @abstractmethod
    def stat(self, name: str) -> ObjectInfo:
        """Return the size and version of one object.

        Raises:
            FileNotFoundError: There is no such object.
            RemoteError: The store does not answer.
        """

    @abstractmethod
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        """Return the bytes of ranges of one object.

        Args:
            name: The object.
            ranges: `(begin, end)` of each range.
            version: The version that the object should have. It is checked where `verifies` is True.

        Raises:
            FileNotFoundError: There is no such object.
            ChangedObjectError: The object has another version.
            TransientError: The store does not answer, or the answer is cut short.
        """

    def read_all(self, name: str, size: int, version: str, write: Callable[[int, bytes], None]) -> None:
        """Read a whole object in order, as from a server that sends no ranges.

        Args:
            name: The object.
            size: Its bytes.
            version: As of `read`.
            write: Called with the first byte and the bytes of each piece, in order. A repetition begins at byte 0.

        Raises:
            RemoteError: As of `read`.
        """
        for begin in range(0, size, PIECE):
            write(begin, self.read(name, [(begin, min(begin + PIECE, size))], version)[0])

    @abstractmethod
    def put(self, name: str, path: Path) -> None:
        """Upload a local file as an object, which replaces one of that name.

        Raises:
            RemoteError: The store does not take it.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete one object.

        Raises:
            FileNotFoundError: There is no such object. S3 does not tell.
            RemoteError: The store does not delete it.
        """


class NoRangesError(RemoteError):
    """The server sends whole objects only."""


def scheme_of(url: str) -> str:
    """Return the scheme of a URL; of a chain such as `zip::s3://b/a.zip`, the first one.

    >>> scheme_of("s3://bucket/a"), scheme_of("zip::s3://bucket/a.zip"), scheme_of("pipe:cat a")
    ('s3', 'zip', 'pipe')
    """
    head = url.split("::", 1)[0]
    return head.split(":", 1)[0].lower()


def shown(url: str) -> str:
    """Return a URL for messages: without user, password and query, which may be a signature.

    >>> shown("https://me:secret@host:8080/a.tar?X-Amz-Signature=abc"), shown("zip::s3://b/a.zip")
    ('https://host:8080/a.tar', 'zip::s3://b/a.zip')
    """
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
    """Return the URL of an object, for messages.

    >>> joined("s3://bucket/folder", "a.tar")
    's3://bucket/folder/a.tar'
    """
    return f"{url.rstrip('/')}/{name}" if name else url
