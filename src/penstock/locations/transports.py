"""`transport`: the client for a URL.

`http` and `https` have their own client (`http.py`), which sees the headers of every answer. `s3` and datasets of `hf`
use it for ranges, and s3fs and the Hub's client for all else. All other schemes go through fsspec (`gs`, `memory`,
`zip::`, and what else is installed).
All are safe to use from any number of threads and after a fork. `ProvenStore` is above each of them.

A request of s3fs takes 2.5 ms of one CPU, so ranges of 64 KiB come at 15 MB/s however many threads ask. A signed URL
takes 0.8 ms for each object and half hour, and the client for HTTP reads its ranges as fast as from any web server.
That client also sends `If-Match`, so an object that changed is noticed by the request that reads it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from penstock.errors import ArgumentError, ChangedObjectError, RemoteError
from penstock.locations.fsspec_store import FsspecStore
from penstock.locations.http import HttpStore
from penstock.locations.hub import DATASETS
from penstock.locations.hub_store import HubStore
from penstock.locations.objects import ObjectStore, TransientError, joined, shown
from penstock.locations.retry import RETRY, number_option

VALID = 3600
"""Seconds for which a URL is signed. It is used for half of them."""

_SIGNED = 4096  # objects whose signed URLs are kept
_PARTS = 2  # parts of one file, of 50 MiB and more, that are uploaded at a time
_HEADERS = ("requester_pays", "s3_additional_kwargs")  # options that are sent as headers, which a URL cannot have
_WITHOUT_RETRIES = {"total_max_attempts": 1}


class S3Store(FsspecStore):
    """Objects below a URL of S3."""

    verifies = True
    advice = (
        "give credentials by the environment or as options, or the option anon=True for public data, and check "
        "endpoint_url and the names of bucket and profile"
    )

    def __init__(self, url: str, options: Mapping[str, Any] | None = None, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._signed: dict[str, tuple[float, HttpStore]] = {}
        self._by_url = not any((options or {}).get(name) for name in _HEADERS)
        super().__init__(url, options)

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Store, (self._url, self._options, self._timeout)

    @override
    def _given(self) -> dict[str, Any]:
        own = {"retries": _WITHOUT_RETRIES, "read_timeout": self._timeout, "connect_timeout": self._timeout}
        config = {"signature_version": "s3v4", **own, **self._options.get("config_kwargs", {})}
        if self._options.get("anon"):
            del config["signature_version"]
        return {**self._options, "config_kwargs": config}

    @override
    def _prepare(self, system: Any) -> None:
        system.retries = 1  # `Retry` repeats requests

    @override
    def _may_pass(self, error: Exception) -> bool:
        from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
            BotoCoreError,
            ConnectionError,
            HTTPClientError,
        )

        return not isinstance(error, (BotoCoreError, ValueError)) or isinstance(
            error, (ConnectionError, HTTPClientError)
        )

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        if self._by_url:
            try:
                return self._object(name).read("", ranges, version)
            except (TransientError, ChangedObjectError):
                raise
            except RemoteError:  # credentials expired before the URL, or the store takes no signed URLs: s3fs knows
                self._signed.pop(name, None)
        contents = super().read(name, ranges)
        if version and self.stat(name).version != version:
            raise ChangedObjectError(joined(self.url, name))
        return contents

    def _object(self, name: str) -> HttpStore:
        """One object at its signed URL."""
        until, store = self._signed.get(name, (0.0, None))
        if store is None or until < time.monotonic():
            system, place = self._place(name)
            with self.translated(name):
                signed = str(system.sign(place, expiration=VALID))
            store = HttpStore(signed, timeout=self._timeout)
            store.url = joined(self.url, name)
            if len(self._signed) >= _SIGNED:
                self._signed.clear()
            self._signed[name] = time.monotonic() + VALID / 2, store
        return store

    @override
    def _upload(self, system: Any, path: str, place: str) -> None:
        system.put_file(path, place, max_concurrency=_PARTS)


_TIMEOUT = 30.0  # seconds without a byte after which a request failed


def transport(url: str, scheme: str, options: dict[str, Any], commits: dict[str, str] | None) -> ObjectStore:
    """Return the store at a URL, without what repeats requests."""
    of_hub = url.startswith(DATASETS)
    if scheme not in ("http", "https", "s3", "s3a") and not of_hub:
        return FsspecStore(url, options)
    timeout = number_option("timeout", options, _TIMEOUT) or _TIMEOUT
    options.pop("timeout", None)
    if of_hub:
        return HubStore(url, options, timeout, commits)
    if scheme in ("s3", "s3a"):
        return S3Store(url, options, timeout)
    if unknown := sorted(options.keys() - {"headers"}):
        known = ["headers", "timeout", *RETRY]
        raise ArgumentError(f"expected options among {known} for {shown(url)}, got {unknown}")
    return HttpStore(url, timeout=timeout, **options)
