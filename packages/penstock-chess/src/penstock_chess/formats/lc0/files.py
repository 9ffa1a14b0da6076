"""Which files a dataset is (one file of chunks, or the files of a folder), and the hidden file of its metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.boundary import json_object
from penstock.core.order import in_natural_order, natural
from penstock.errors import DataError
from penstock.files import write_atomic
from penstock.files.listing import spread
from penstock.files.remote import read_bytes
from penstock_chess.formats.lc0.chunks import ChunkFile, open_chunks
from penstock_chess.formats.lc0.errors import ChunkError
from penstock_chess.formats.lc0.index import begins_with_record, glance
from penstock_chess.formats.lc0.upgrade import Missing

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


SUFFIXES = (".gz", ".tar", ".tgz", ".bz2", ".xz")  # also of archives that are refused, by name
LOOKED_AT = 16  # files of a folder that tell its format
OTHERS = 2  # files that begin with something else, after which a folder is no folder of games


def files_at(path: Path | Sequence[Path], order: str = "natural") -> list[Path]:
    """The file itself, or the files of the folder that are not hidden, oldest first: by the numbers in their names, or
    with `order="key"` by their names as text, as live data sort them; or the given files, in their order with
    `"natural"`.
    """
    if order not in ("natural", "key"):
        raise DataError(f"expected order to be 'natural' or 'key', got {order!r}")
    if not isinstance(path, Path):
        return sorted(path, key=lambda p: p.name) if order == "key" else list(path)
    if not path.is_dir():
        return [path]
    files = [p for p in path.iterdir() if not p.name.startswith(".") and p.is_file()]
    if order == "natural":
        return sorted(files, key=lambda p: natural(p.name))
    return sorted(files, key=lambda p: p.name)


def opened(path: Path, missing: Missing, limit: int) -> ChunkFile | ChunkError | None:
    """The chunks of a file, or what is wrong with it, or None if it is no file of chunks."""
    try:
        return open_chunks(path, missing_st=missing, limit=limit)
    except ChunkError as error:
        return error


def has_games(path: Path) -> bool:
    """Whether a file begins with a game, or one of the files of the folder that are named like one, of which some are
    looked at; or whether the folder has the metadata of games, and none yet. Never raises."""
    try:
        if not path.is_dir():
            return begins_with_record(path)
        names = _names(path)
        if not names:
            return (path / METADATA).is_file()
    except OSError:
        return False
    if glance(path / min(names, key=natural)):  # without sorting all, if it tells
        return True
    others = 0
    for name in spread(in_natural_order(names), LOOKED_AT):
        is_game = glance(path / name)
        others += is_game is False
        if is_game or others == OTHERS:
            return bool(is_game)
    return False


def _names(folder: Path) -> list[str]:
    """Names of the files of a folder that are named like games."""
    return [name for name in os.listdir(folder) if name.endswith(SUFFIXES) and not name.startswith(".")]
