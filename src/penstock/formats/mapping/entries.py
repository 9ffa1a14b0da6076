"""Tables of a mapping: their entries have known names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.errors import ArgumentError, suggestion


def check_names(entries: Mapping[str, Any], known: Collection[str], owner: str) -> None:
    """Raise `ArgumentError` for an entry of a table that has no such."""
    for name in entries:
        if name not in known:
            raise ArgumentError(f"{owner} has no entry {name!r}{suggestion(name, known)}; it has {list(known)}")
