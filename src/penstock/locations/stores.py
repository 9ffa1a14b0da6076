"""`object_store`: the store at a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import DataError
from penstock.locations.objects import scheme_of
from penstock.locations.proven import ProvenStore
from penstock.locations.retry import RETRY, retry_of

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
    from penstock.locations.transports import transport  # heavy: clients, which local data do without

    retry = retry_of(options or {})
    own = {name: value for name, value in (options or {}).items() if name not in RETRY}
    return ProvenStore(transport(url, scheme, own, commits), retry)
