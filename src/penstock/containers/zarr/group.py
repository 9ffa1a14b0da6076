"""A group: arrays by name, and the attributes of the whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from penstock.containers.cache import Cache
from penstock.containers.zarr.array import Missing, ZarrArray
from penstock.containers.zarr.metadata import (
    ARRAY,
    ATTRIBUTES,
    CONSOLIDATED,
    GROUP,
    LARGEST_JSON,
    array_metadata,
    loaded,
)
from penstock.containers.zarr.stores import ZarrStore, open_store
from penstock.errors import FormatError

CACHE_BYTES = 256 << 20


class ZarrGroup:
    """A group of zarr v2 at a path, in a zip archive, or at a URL; read-only.

    `cache`, of decoded rows, is shared by its arrays; an eighth as much holds the places of chunks.

    Metadata that were consolidated (`.zmetadata`) are taken from there where a key has no metadata file.

    Raises `FormatError` where there is no `.zgroup` of format 2, `FileNotFoundError` where there is nothing.
    """

    def __init__(
        self, location: str | os.PathLike[str] | ZarrStore, cache: Cache | None = None, **options: Any
    ) -> None:
        self.store = location if isinstance(location, ZarrStore) else open_store(location, **options)
        self.cache = Cache(CACHE_BYTES) if cache is None else cache
        self.tables = Cache(self.cache.limit // 8)
        self._consolidated = self._entries()
        found = self._json(GROUP)
        if found is None or found.get("zarr_format") != 2:
            message = f"expected zarr_format 2, got {'no group' if found is None else found.get('zarr_format')!r}"
            raise FormatError(message, path=self.store.name, where=GROUP)
        self.attributes: Mapping[str, Any] = self._json(ATTRIBUTES) or {}

    def _entries(self) -> Mapping[str, Any]:
        raw = self.store.text(CONSOLIDATED)
        entries: Any = {} if raw is None else loaded(raw, self.store.name, CONSOLIDATED).get("metadata", {})
        if not isinstance(entries, dict):
            raise FormatError("expected metadata by key", path=self.store.name, where=CONSOLIDATED)
        return cast("dict[str, Any]", entries)

    def _json(self, key: str) -> dict[str, Any] | None:
        found = self.store.value(key, LARGEST_JSON)
        if found is not None:
            return loaded(found.tobytes(), self.store.name, key)
        entry: Any = self._consolidated.get(key)
        if entry is not None and not isinstance(entry, dict):
            raise FormatError("expected a JSON object", path=self.store.name, where=f"{CONSOLIDATED}: {key}")
        return cast("dict[str, Any] | None", entry)

    def __contains__(self, name: str) -> bool:
        """Whether there is an array of that name."""
        key = f"{name}/{ARRAY}"
        return self.store.has(key) or key in self._consolidated

    def array(self, name: str, missing: Missing = "fill") -> ZarrArray:
        """The array of that name, such as `agents` or `agents_mask/0.5`. Raises `FormatError`, `UnsafeDataError`."""
        key = f"{name}/{ARRAY}"
        told = self._json(key)
        if told is None:
            raise FormatError(f"expected an array {name!r}, got none", path=self.store.name, where=key)
        metadata = array_metadata(told, self.store.name, key)
        return ZarrArray(self.store, name, metadata, self.cache, missing, self.tables)

    def attributes_of(self, name: str) -> Mapping[str, Any]:
        """The attributes of an array or group below. Raises `FormatError`."""
        return self._json(f"{name}/{ATTRIBUTES}") or {}

    def close(self) -> None:
        """Let go of what is kept; arrays that were handed out stay valid."""
        self.cache.clear()
        self.tables.clear()
        self.store.close()
