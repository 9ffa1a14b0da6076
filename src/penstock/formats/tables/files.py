"""Which files a table is: one file, the shards of a folder, or a saved Hugging Face dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from penstock.core.boundary import json_object
from penstock.core.narrowing import is_dict, is_list
from penstock.core.order import in_natural_order, natural
from penstock.errors import FormatError
from penstock.files.listing import list_files, spread
from penstock.files.remote import open_file, read_bytes
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.signatures import is_narrower_table

Kind = Literal["parquet", "arrow", "arrow stream", "json lines"]

SUFFIXES = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson")
JSON_SUFFIXES = (".jsonl", ".ndjson")
MARK = b"\xef\xbb\xbf"  # by which some editors say that a file is UTF-8
STATE = "state.json"  # lists the shards of a saved Hugging Face dataset
INFO = "dataset_info.json"
SPLITS = "dataset_dict.json"  # lists the splits of a saved Hugging Face dataset
_BESIDE = (".json", ".md", ".txt", ".lock", ".crc")  # files of a folder of shards that describe the shards
_HIDDEN = (".", "_", "cache-", "tmp")  # of Spark, and caches of Hugging Face
_HEAD = 64 << 10  # bytes of a file that are inspected


def kind_of(path: Path) -> Kind | None:
    """Return the kind of table in a file, by its first bytes, or None for another file."""
    with open_file(path) as file:
        return kind_by(file.read(_HEAD), path.suffix)


def kind_by(head: bytes, suffix: str) -> Kind | None:
    """Return the kind of table in a file, or None for another file.

    An Arrow stream and JSON lines have no magic number: the suffix of the file must agree with the content.
    """
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1":
        return "arrow"
    if suffix == ".arrow" and begins_stream(head):
        return "arrow stream"
    return "json lines" if suffix in JSON_SUFFIXES and head.removeprefix(MARK).lstrip()[:1] == b"{" else None


def begins_stream(head: bytes) -> bool:
    """Return whether an Arrow stream begins with these bytes: a marker, and the size of its schema."""
    return head[:4] == b"\xff\xff\xff\xff" and int.from_bytes(head[4:8], "little", signed=True) > 0


def instead_of_table(path: Path) -> str:
    """Return what was expected of a file that is no table, and what it is."""
    with open_file(path) as file:
        begins = file.read(16)
    other = f"a file that begins {begins!r}" if begins else "no bytes"
    return f"expected a file of a Parquet, Arrow or JSON-lines table, got {other}"


def unused_beside(path: Path | Sequence[Path], files: Sequence[Path]) -> list[LeftOut]:
    """Return everything in a folder that is not a file of its table, nor describes the table."""
    if not isinstance(path, Path) or not path.is_dir():
        return []
    used = {*(file.name for file in files), STATE, INFO}
    with os.scandir(path) as entries:
        names = [f"{entry.name}{'/' * entry.is_dir()}" for entry in entries if entry.name not in used]
    return unused_files(names, f"files of the table, which end with {', '.join(SUFFIXES)}", hidden=_HIDDEN)


def files_at(path: Path | Sequence[Path]) -> Sequence[Path]:
    """Return the file itself, the given files, or the shards of a folder in natural order of their names.

    A saved Hugging Face dataset lists its shards, and may have other Arrow files as caches.
    """
    if not isinstance(path, Path):
        return list(path)
    if not path.is_dir():
        return [path]
    if (path / SPLITS).is_file():
        splits = read_object(path / SPLITS).get("splits")
        raise FormatError(
            f"expected one split, got a folder of the splits {splits}; open one of its folders", path=path
        )
    if (path / STATE).is_file():
        entries: Any = read_object(path / STATE).get("_data_files")
        names: list[Any] = [e.get("filename") for e in entries if is_dict(e)] if is_list(entries) else []
        if not names or not all(isinstance(name, str) and name == Path(name).name for name in names):
            raise FormatError(f"expected names of shards under _data_files, got {entries}", path=path / STATE)
        return [path / name for name in names]
    return list_files(path, _is_shard)


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small file."""
    return json_object(read_bytes(path), path)


def has_table(path: Path) -> bool:
    """Return whether there is a table: a file of one of the kinds, or a folder with nothing but shards."""
    if is_narrower_table(path):
        return False
    if not path.is_dir():
        return path.is_file() and kind_of(path) is not None
    if (path / SPLITS).is_file():
        return True
    if (path / STATE).is_file():
        return "_data_files" in read_object(path / STATE)
    with os.scandir(path) as entries:
        shards = [entry for entry in entries if _suffix(entry.name) not in _BESIDE and entry.name[0] not in "._"]
        if not shards or not all(_is_shard(entry.name) and entry.is_file() for entry in shards):
            return False
    names = [entry.name for entry in shards]
    first = [min(names, key=natural)]  # without sorting all, if it tells
    return any(kind_of(path / name) is not None for name in chain(first, spread(in_natural_order(names))))


def _is_shard(name: str) -> bool:
    return name.endswith(SUFFIXES) and name[0] not in "._"


def _suffix(name: str) -> str:
    """The suffix of a name, as `Path` has it."""
    return os.path.splitext(name)[1]
