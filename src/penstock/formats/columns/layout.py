"""Paths of the parts of a column store, and the contents of its `spec.json`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from urllib.parse import quote

from penstock.core.spec import Field, Spec
from penstock.errors import FormatError, SpecError
from penstock.formats.columns.files import read_json, write_json
from penstock.formats.columns.packing import Packing

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


@dataclass(frozen=True, eq=False)
class StoreLayout:
    """The folder `root` of a store, its spec, and how its values are compressed (None: raw)."""

    root: Path
    spec: Spec
    packing: Packing | None = None

    @property
    def table(self) -> Path:
        """The episode table."""
        return self.root / TABLE

    @cached_property
    def _segments(self) -> str:
        return os.fspath(self.root / SEGMENTS)

    def segment(self, number: int) -> Path:
        """The folder of one segment."""
        return Path(f"{self._segments}/{number}")

    def values(self, number: int, column: str) -> Path:
        """The values of one column in one segment."""
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
        """Write `spec.json`. Raises `SpecError` for columns that it could not bring back."""
        for path, column in self.spec.fields.items():
            check_column(path, column)
            if Field.from_json(column.to_json()) != column:
                raise SpecError(f"expected a plain dtype that its name {column.dtype.str!r} describes - at {path}")
        compression = None if self.packing is None else self.packing.to_json()
        head = {"format": MARKER, "version": VERSION, "compression": compression}
        write_json(self.root / SPEC, {**head, "spec": self.spec.to_json()})

    @classmethod
    def read(cls, root: Path) -> StoreLayout:
        """Read `spec.json`. Raises `FormatError` for anything but the spec of a store of this version."""
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
        return cls(root, spec, packing)


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
