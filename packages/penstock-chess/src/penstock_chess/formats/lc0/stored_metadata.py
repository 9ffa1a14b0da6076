"""Metadata of a folder of games: one hidden file of JSON, which other readers of games ignore. A tar has none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.errors import DataError
from penstock.files import write_atomic
from penstock.files.remote import read_bytes

METADATA = ".penstock-lc0.json"


def read_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata of a folder of games; empty if it has none."""
    path = folder / METADATA
    return json_object(read_bytes(path), path) if path.is_file() else {}


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write the metadata of a folder of games, atomically. No file is made for no metadata."""
    if not metadata and not (folder / METADATA).exists():
        return
    try:
        text = json.dumps(dict(metadata), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"expected metadata that JSON can hold: {error}") from error
    write_atomic(folder / METADATA, text.encode())
