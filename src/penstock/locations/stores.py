"""`object_store`: the store at a URL.

`http` and `https` have their own client (`http.py`), which sees the headers of every answer. `s3` and datasets of `hf`
use it for ranges, and s3fs and the Hub's client for all else. All other schemes go through fsspec (`gs`, `memory`,
`zip::`, and what else is installed).
All are safe to use from any number of threads and after a fork. `ProvenStore` is above each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import ArgumentError, DataError
from penstock.locations.fsspec_store import FsspecStore
from penstock.locations.http import HttpStore
from penstock.locations.hub import DATASETS, HubStore
from penstock.locations.objects import ObjectStore, scheme_of, shown
from penstock.locations.proven import ProvenStore
from penstock.locations.retry import number_option, retry_of
from penstock.locations.s3 import S3Store

_RETRY = ("max_retries", "retry_timeout")
_TIMEOUT = 30.0  # seconds without a byte after which a request failed

_REFUSED = {
    "pipe": "its command would be run; run it yourself and give the path of its output",
    "file": "it is a local path; give the path",
}


def object_store(
    url: str, options: Mapping[str, Any] | None = None, commits: dict[str, str] | None = None
) -> ProvenStore:
    """Return the store at a URL. Stores of Hugging Face that share `commits` read the same commit of a repository."""
    scheme = scheme_of(url)
    if scheme in _REFUSED:
        raise DataError(f"expected a URL to read from, got {scheme + ':'!r}: {_REFUSED[scheme]}")
    retry = retry_of(options or {})
    own = {name: value for name, value in (options or {}).items() if name not in _RETRY}
    return ProvenStore(_transport(url, scheme, own, commits), retry)


def _transport(url: str, scheme: str, options: dict[str, Any], commits: dict[str, str] | None) -> ObjectStore:
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
        known = ["headers", "timeout", *_RETRY]
        raise ArgumentError(f"expected options among {known} for {shown(url)}, got {unknown}")
    return HttpStore(url, timeout=timeout, **options)
