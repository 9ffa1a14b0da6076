"""A group: arrays by name, and the attributes of the whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from penstock.containers.zarr.array import Missing, ZarrArray
from penstock.containers.zarr.metadata import ARRAY, ATTRIBUTES, CONSOLIDATED, GROUP, LARGEST_JSON, NODE, array_metadata
from penstock.containers.zarr.stores import ZarrStore, open_store
from penstock.containers.zarr.version3 import array_of_version3
from penstock.core.boundary import json_object
from penstock.core.cache import Cache
from penstock.core.narrowing import is_dict
from penstock.errors import FormatError

CACHE_BYTES = 256 << 20
_DEPTH = 16  # of folders in folders


class ZarrGroup:
    """A group of Zarr 2 or 3 at a path or in a zip archive; read-only.

    `cache`, of decoded rows, is shared by its arrays; an eighth as much holds the places of chunks.

    Metadata that were consolidated (`.zmetadata`, or in `zarr.json`) are taken from there where a key has no file.
    """

    def __init__(self, location: str | os.PathLike[str] | ZarrStore, cache: Cache | None = None) -> None:
        self.store = location if isinstance(location, ZarrStore) else open_store(Path(location))
        self.cache = Cache(CACHE_BYTES) if cache is None else cache
        self.tables = Cache(self.cache.limit // 8)
        self._consolidated: Mapping[str, Any] = {}
        self._consolidated = self._entries()
        node, group = self._json(NODE), self._json(GROUP)
        self.zarr_format = 3 if node is not None else 2
        """The version of the group: 2 or 3."""
        if node is not None and (node.get("zarr_format"), node.get("node_type")) != (3, "group"):
            message = f"expected a group of zarr_format 3, got {node.get('node_type')!r} of {node.get('zarr_format')!r}"
            raise FormatError(message, path=self.store.name, where=NODE)
        if node is None and (group is None or group.get("zarr_format") != 2):
            message = f"expected zarr_format 2, got {'no group' if group is None else group.get('zarr_format')!r}"
            raise FormatError(message, path=self.store.name, where=GROUP)
        self.attributes: Mapping[str, Any] = self.attributes_of("")

    def _entries(self) -> Mapping[str, Any]:
        raw = self.store.text(CONSOLIDATED)
        if raw is not None:
            entries: Any = json_object(raw, self.store.name, CONSOLIDATED).get("metadata", {})
        else:
            node = self._json(NODE) or {}
            consolidated: Any = node.get("consolidated_metadata") or {}
            listed: Any = consolidated.get("metadata") if is_dict(consolidated) else None
            entries = {f"{name}/{NODE}": entry for name, entry in listed.items()} if is_dict(listed) else {}
        if not isinstance(entries, dict):
            raise FormatError("expected metadata by key", path=self.store.name, where=CONSOLIDATED)
        return cast("dict[str, Any]", entries)

    def _json(self, key: str) -> dict[str, Any] | None:
        raw = self.store.value(key, LARGEST_JSON)
        if raw is not None:
            return json_object(raw.tobytes(), self.store.name, key)
        entry: Any = self._consolidated.get(key)
        if entry is not None and not isinstance(entry, dict):
            raise FormatError("expected a JSON object", path=self.store.name, where=f"{CONSOLIDATED}: {key}")
        return cast("dict[str, Any] | None", entry)

    def __contains__(self, name: str) -> bool:
        """Whether there is an array of that name."""
        if self.zarr_format == 3:
            return (self._json(f"{name}/{NODE}") or {}).get("node_type") == "array"
        key = f"{name}/{ARRAY}"
        return self.store.has(key) or key in self._consolidated

    def arrays(self, folder: str) -> list[str]:
        """The names of all arrays in a folder of the group (`""` for all), and in folders below it, in order."""
        paths: list[str] = []
        root = f"{folder}/" if folder else ""
        below = {key[len(root) :].split("/")[0] for key in self._consolidated if key.startswith(root)}
        for name in sorted(
            {*self.store.folders(folder), *(each for each in below if each[:1] != "." and each != NODE)}
        ):
            place = root + name
            if place in self:
                paths.append(place)
            elif place.count("/") < _DEPTH:
                paths += self.arrays(place)
        return paths

    def array(self, name: str, missing: Missing = "fill") -> ZarrArray:
        """The array of that name, such as `agents` or `agents_mask/0.5`."""
        metadata = self.description(name)
        read = array_metadata if self.zarr_format == 2 else array_of_version3
        described = read(metadata, self.store.name, self._key(name))
        return ZarrArray(self.store, name, described, self.cache, missing, self.tables)

    def description(self, name: str) -> Mapping[str, Any]:
        """The JSON that describes an array, unchecked."""
        key = self._key(name)
        metadata = self._json(key)
        if metadata is None:
            raise FormatError(f"expected an array {name!r}, got none", path=self.store.name, where=key)
        return metadata

    def _key(self, name: str) -> str:
        return f"{name}/{ARRAY if self.zarr_format == 2 else NODE}"

    def other_files(self, folders: Sequence[str]) -> list[str]:
        """The files in some folders of the group that are no descriptions of arrays and groups."""
        described = {ARRAY, GROUP, ATTRIBUTES, CONSOLIDATED, NODE}
        places = ((folder, name) for folder in folders for name in self.store.files(folder) if name not in described)
        return [f"{folder}/{name}" if folder else name for folder, name in places]

    def attributes_of(self, name: str) -> Mapping[str, Any]:
        """The attributes of an array or group below, or of the group itself (`""`)."""
        place = f"{name}/" if name else ""
        if self.zarr_format == 2:
            return self._json(place + ATTRIBUTES) or {}
        attributes: Any = (self._json(place + NODE) or {}).get("attributes") or {}
        if not is_dict(attributes):
            raise FormatError("expected attributes as an object", path=self.store.name, where=place + NODE)
        return attributes

    def close(self) -> None:
        """Let go of what is kept; arrays that were handed out stay valid."""
        self.cache.clear()
        self.tables.clear()
        self.store.close()
