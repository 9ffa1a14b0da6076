"""Metadata of arrays with fewer rows, for rows that belong to nothing.

Chunks stay: the rows behind the end of an array are not read.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.metadata import CONSOLIDATED, NODE
from penstock.containers.zarr.stores import ZarrStore, ZipStore
from penstock.core.narrowing import is_dict

_MOMENT = (1980, 1, 1, 0, 0, 0)  # equal repairs make equal files


@dataclass(frozen=True, eq=False)
class ChangedFile:
    """New bytes of a file, behind the first `keep` bytes (None: the whole file), for the arrays in `names`."""

    path: Path
    content: bytes
    keep: int | None
    names: tuple[str, ...]


def cut_rows(path: Path, arrays: Mapping[str, tuple[ZarrArray, int]]) -> Iterator[ChangedFile]:
    """Yield each file that has to change for arrays to have fewer rows."""
    store = next((array.store for array, _ in arrays.values()), None)
    if isinstance(store, ZipStore):
        content = _appended(store, _entries(store, arrays.values()))
        yield ChangedFile(path, content, path.stat().st_size, tuple(arrays))
    elif store is not None:
        for name, change in arrays.items():
            for key, content in _entries(store, [change]).items():
                yield ChangedFile(path / key, content, None, (name,))


def _entries(store: ZarrStore, arrays: Iterable[tuple[ZarrArray, int]]) -> dict[str, bytes]:
    """Return the new content of each entry of a store that says how many rows arrays have."""
    entries: dict[str, bytes] = {}
    for array, rows in arrays:
        file = array.metadata.file
        entries[f"{array.name}/{file}"] = array.metadata.resized(rows).to_json()
        place = NODE if file == NODE else CONSOLIDATED
        text = entries.get(place) or store.text(place)
        if text is None:
            continue
        document: Any = json.loads(text)
        nodes: Any = document.get("consolidated_metadata") if file == NODE else document
        nodes = nodes.get("metadata") if is_dict(nodes) else None
        key = array.name if file == NODE else f"{array.name}/{file}"
        if is_dict(nodes) and is_dict(nodes.get(key)):
            nodes[key]["shape"][0] = rows
            entries[place] = json.dumps(document, indent=4).encode()
    return entries


def _appended(store: ZipStore, entries: Mapping[str, bytes]) -> bytes:
    """Return bytes that replace entries of an archive when they are written behind its end.

    They are new members and a new table of all members. The old table stays in the file, so that an archive whose
    repair was killed is the old one again as soon as what was written is cut off.
    """
    names = {store.member_name(key): content for key, content in entries.items()}
    with zipfile.ZipFile(store.path) as old:
        members, comment = {member.filename: member for member in old.infolist()}, old.comment
    out = _BytesBehind(store.path.stat().st_size)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        new.comment = comment
        new.filelist.extend(member for name, member in members.items() if name not in names)
        for name, content in names.items():
            new.writestr(zipfile.ZipInfo(name, _MOMENT), content)
    return out.getvalue()


class _BytesBehind(io.BytesIO):
    """Bytes in memory at positions from `start` on, as behind the end of a file."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    @override
    def tell(self) -> int:
        return self._start + super().tell()

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._start + super().seek(offset - self._start if whence == io.SEEK_SET else offset, whence)
