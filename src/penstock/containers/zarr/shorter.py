"""Metadata of an array with fewer rows, for rows that belong to nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.metadata import CONSOLIDATED, NODE
from penstock.core.narrowing import is_dict
from penstock.files.remote import read_bytes


def shortened(root: Path, array: ZarrArray, rows: int) -> Iterator[tuple[Path, bytes]]:
    """Yield the files that say how many rows an array has, and their new content.

    Chunks stay: the rows behind the end of an array are not read.

    Args:
        root: Folder of the group.
        array: The array.
        rows: New number of rows.
    """
    file = array.metadata.file
    yield root / array.name / file, array.metadata.resized(rows).to_json()
    place = root / (NODE if file == NODE else CONSOLIDATED)
    if not place.is_file():
        return
    document: Any = json.loads(read_bytes(place))
    entries: Any = document.get("consolidated_metadata") if file == NODE else document
    entries = entries.get("metadata") if is_dict(entries) else None
    key = array.name if file == NODE else f"{array.name}/{file}"
    if is_dict(entries) and is_dict(entries.get(key)):
        entries[key]["shape"][0] = rows
        yield place, json.dumps(document, indent=4).encode()
