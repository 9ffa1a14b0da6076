"""Paths of the parts of a column store, and the contents of its `spec.json`: columns, and how they are compressed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.boundary import json_object
from penstock.core.columns import under
from penstock.core.narrowing import is_dict
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError, SpecError, UnsafeDataError
from penstock.files import write_atomic
from penstock.files.descriptors import opened

MARKER = "penstock-columns"
VERSION = 1
SPEC = "spec.json"
METADATA = "metadata.json"
TABLE = "episodes"
SEGMENTS = "segments"
EPISODE_METADATA, BLOCKS = "metadata.jsonl", "blocks"

_LARGEST_ROW = 1 << 40
_LONGEST_NAME = 240  # file systems end at 255 bytes; the ending of a column file needs 8
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
NAME = "zlib"
STEPS = 64
_MOST_STEPS = 1 << 20
Compression = int | Mapping[str, int] | None
_LARGEST_JSON = 1 << 28


@dataclass(frozen=True, eq=False)
class StoreLayout:
    """The folder `root` of a store, its spec, and how its values are compressed (None: raw).

    `content` names the format that gives the columns their meaning, and opens the store; None: they are what they are.
    """

    root: Path
    spec: Spec
    packing: Packing | None = None
    content: str | None = None

    @cached_property
    def table(self) -> Path:
        return self.root / TABLE

    @cached_property
    def _segments(self) -> str:
        return os.fspath(self.root / SEGMENTS)

    def segment(self, number: int) -> Path:
        return Path(f"{self._segments}/{number}")

    def values(self, number: int, column: str) -> Path:
        return Path(f"{self._segments}/{number}/{_file_name(column)}.values")

    def offsets(self, number: int, column: str) -> Path:
        """Where the rows of a ragged column begin among its values, in one segment."""
        return Path(f"{self._segments}/{number}/{_file_name(column)}.offsets")

    def metadata(self, number: int) -> Path:
        """The metadata of the episodes of one segment, a line of JSON each."""
        return Path(f"{self._segments}/{number}/{EPISODE_METADATA}")

    def blocks(self, number: int) -> Path:
        """Where the compressed blocks of one segment end."""
        return Path(f"{self._segments}/{number}/{BLOCKS}")

    @cached_property
    def file_names(self) -> frozenset[str]:
        """Names of the files that a segment may have."""
        columns = [_file_name(column) for column in self.spec]
        files = [f"{column}.{ending}" for column in columns for ending in ("values", "offsets")]
        return frozenset((*files, EPISODE_METADATA, BLOCKS))

    def numbers(self) -> list[int]:
        """The segments there are, in order."""
        names = (entry.name for entry in os.scandir(self._segments))
        return sorted(int(name) for name in names if is_segment(name))

    def write(self) -> None:
        for path, column in self.spec.fields.items():
            check_column(path, column)
            if Field.from_json(column.to_json()) != column:
                raise SpecError(f"expected a plain dtype that its name {column.dtype.str!r} describes - at {path}")
        compression = None if self.packing is None else self.packing.to_json()
        head = {"format": MARKER, "version": VERSION, "compression": compression}
        content = {} if self.content is None else {"content": self.content}
        write_json(self.root / SPEC, {**head, **content, "spec": self.spec.to_json()})

    @classmethod
    def read(cls, root: Path) -> StoreLayout:
        path = root / SPEC
        if not path.exists() and has_table(root):
            message = "expected the dtype and shape of each column, got no file; without it values cannot be read"
            remedy = (
                "restore it, copy that of a store with the same columns, or write it as the page of the format says"
            )
            raise FormatError(f"{message}: {remedy}", path=path)
        data = read_json(path)
        if data.get("format") != MARKER or data.get("version") != VERSION:
            stated = f"{data.get('format')!r} version {data.get('version')!r}"
            raise FormatError(f"expected {MARKER!r} version {VERSION}, got {stated[:200]}", path=path)
        try:
            spec = Spec.from_json(data.get("spec") or {})
            for column, field in spec.fields.items():
                check_column(column, field)
            packing = Packing.from_json(data.get("compression"), spec)
        except (SpecError, TypeError, AttributeError, OverflowError) as error:
            raise FormatError(f"expected the columns of a store, got {error}", path=path, where="spec") from error
        return cls(root, spec, packing, data.get("content"))


@lru_cache(4096)
def _file_name(column: str) -> str:
    return quote(column, safe="")


def is_segment(name: str) -> bool:
    """Whether a name in the folder of segments is the number of one."""
    return _NUMBER.fullmatch(name) is not None


def has_table(root: Path) -> bool:
    """Whether a folder has the table of a store and at least one segment. Never raises."""
    try:
        return (root / TABLE).is_file() and any((root / SEGMENTS).glob(f"*/{EPISODE_METADATA}"))
    except OSError:
        return False


def check_column(column: str, field: Field) -> None:
    """Raise `SpecError` for a column whose rows or file name no file system could hold."""
    size = field.dtype.itemsize
    for extent in field.shape:
        if extent < 0:
            raise SpecError(f"expected a shape without negative numbers, got {field.shape} - at {column}")
        size *= max(extent, 1)
    if size > _LARGEST_ROW:
        raise SpecError(f"expected rows of at most {_LARGEST_ROW} bytes, got {field.dtype}{field.shape} - at {column}")
    if field.ragged and (field.shape or not field.dtype.itemsize):
        raise SpecError(f"expected ragged rows of one dimension, got {field.dtype}{field.shape} - at {column}")
    try:
        name = quote(column, safe="")
    except UnicodeEncodeError as error:
        raise SpecError(f"expected a column name of valid Unicode, got {column!r}") from error
    if len(name) > _LONGEST_NAME:
        raise SpecError(f"expected a column name of at most {_LONGEST_NAME} bytes once quoted, got {name[:80]}...")


@dataclass(frozen=True)
class Packing:
    """Blocks of `steps` steps of one episode are deflated together, with a zlib level for each column of `levels`."""

    steps: int
    levels: Mapping[str, int]

    @classmethod
    def of(cls, spec: Spec, compression: Compression, steps: int = STEPS) -> Packing | None:
        """`compression` is a level for every column that can be packed, or levels by path, or None for raw values."""
        if compression is None:
            return None
        if isinstance(compression, Mapping):
            levels = {p: level for name, level in compression.items() for p in spec if under(name, p)}
            missing = [name for name in compression if not any(under(name, p) for p in spec)]
            if missing:
                raise SpecError(f"expected columns among {list(spec)} to compress, got {missing}")
        else:
            levels = {path: compression for path, field in spec.fields.items() if packable(field)}
        return cls(steps, {path: levels[path] for path in spec if path in levels}).checked(spec)

    def checked(self, spec: Spec) -> Packing:
        """Itself."""
        if type(self.steps) is not int or not 1 <= self.steps <= _MOST_STEPS:
            raise SpecError(f"expected blocks of 1..{_MOST_STEPS} steps, got {self.steps!r}")
        if not self.levels:
            raise SpecError(f"expected columns of equal rows that follow the steps to compress, got {list(spec)}")
        for path, level in self.levels.items():
            if type(level) is not int or not 0 <= level <= 9:
                raise SpecError(f"expected a zlib level of 0..9, got {level!r} - at {path}")
            if path not in spec or not packable(spec[path]):
                raise SpecError(f"expected a column of equal rows that follow the steps, got {path}: it stays raw")
        return self

    def counts(self, steps: IntArray) -> IntArray:
        """How many blocks episodes of so many steps have: at least one, for the last boundary row."""
        return np.maximum(-(-steps // self.steps), 1)

    def to_json(self) -> dict[str, Any]:
        """A plain dict that `from_json` reads back."""
        return {"name": NAME, "steps": self.steps, "levels": dict(self.levels)}

    @classmethod
    def from_json(cls, data: Any, spec: Spec) -> Packing | None:
        """Read what `to_json` wrote, or None."""
        if data is None:
            return None
        if not is_dict(data) or data.get("name") != NAME or not isinstance(data.get("levels"), dict):
            raise SpecError(f"expected compression by {NAME} with levels by column, got {str(data)[:200]}")
        levels = data["levels"]
        return cls(data.get("steps", 0), {path: levels[path] for path in (*spec, *levels) if path in levels}).checked(
            spec
        )


def packable(field: Field) -> bool:
    """Whether rows of the column can be compressed: of equal size, not empty, one a step or boundary."""
    return not field.ragged and field.align != "episode" and field.row_bytes > 0


def write_at(fd: int, data: Any, position: int) -> None:
    """Write all of a contiguous buffer at a byte position."""
    size = len(data)
    done = os.pwrite(fd, data, position)
    if done < size:
        left = memoryview(data)
        while done < size:
            done += os.pwrite(fd, left[done:], position + done)


def read_at(fd: int, start: int, stop: int) -> bytes:
    """Return the bytes from `start` to `stop`, fewer if the file is shorter."""
    parts: list[bytes] = []
    while start < stop and (part := os.pread(fd, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def read_json(path: Path) -> dict[str, Any]:
    with opened(path) as fd:
        if (size := os.fstat(fd).st_size) > _LARGEST_JSON:
            raise UnsafeDataError(f"expected at most {_LARGEST_JSON} bytes of JSON, got {size}", path=path)
        text = read_at(fd, 0, size)
    return json_object(text, path)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace a JSON file atomically: a reader, or the disk after a power loss, has the old one or the new one."""
    write_atomic(path, json.dumps(data, indent=1).encode(), durable="folder")
