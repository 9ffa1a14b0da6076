"""`object_store`: the store at a URL.

`http` and `https` have their own client (`http.py`), which sees the headers of every answer. `s3` uses it for ranges,
and s3fs for all else. All other schemes go through fsspec (`gs`, `hf`, `memory`, `zip::`, and what else is installed).
All are safe to use from any number of threads and after a fork.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import ArgumentError, DataError
from penstock.locations.fsspec_store import FsspecStore
from penstock.locations.http import HttpStore
from penstock.locations.objects import ObjectStore, scheme_of, shown
from penstock.locations.s3 import S3Store

_REFUSED = {
    "pipe": "its command would be run; run it yourself and give the path of its output",
    "file": "it is a local path; give the path",
}


def object_store(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Return the store at a URL.

    Args:
        url: URL such as `https://host/folder`, `s3://bucket/folder`, `memory://folder` or `zip::s3://bucket/a.zip`.
        options: Options of the client: of fsspec for its schemes (`anon`, `token`, `endpoint_url`, ...), `headers`
            and `timeout` (seconds) for `http`. The default is none: credentials of the environment.

    Raises:
        DataError: The scheme is refused or unknown.
        MissingExtraError: The library of the scheme is not installed.
        ArgumentError: An option is unknown.

    Example:
        >>> object_store("pipe:cat a.tar")
        Traceback (most recent call last):
            ...
        penstock.errors.DataError: expected a URL to read from, got 'pipe:': its command would be run; ...
    """
    scheme = scheme_of(url)
    if scheme in _REFUSED:
        raise DataError(f"expected a URL to read from, got {scheme + ':'!r}: {_REFUSED[scheme]}")
    if scheme in ("http", "https"):
        given = dict(options or {})
        if unknown := sorted(given.keys() - {"headers", "timeout"}):
            raise ArgumentError(f"expected the options headers and timeout for {shown(url)}, got {unknown}")
        return HttpStore(url, **given)
    return S3Store(url, options) if scheme in ("s3", "s3a") else FsspecStore(url, options)
