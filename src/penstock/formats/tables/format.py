"""The format of tables with a row for each step, read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import PenstockError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock.formats.tables.files import SUFFIXES, has_table
from penstock.formats.tables.source import TableSource


class TablesFormat(Format):
    """Parquet, Arrow and JSON-lines tables with an episode column. See docs/formats/tables.md.

    >>> TablesFormat().recognises(Path("/"))
    False
    """

    name: ClassVar[str] = "tables"
    description: ClassVar[str] = "Parquet, Arrow and JSON-lines tables with an episode column, Hugging Face datasets"
    extras: ClassVar[tuple[str, ...]] = ("arrow",)

    def recognises(self, path: Path) -> bool:
        """Return whether a file begins like a table, or a folder has nothing but such files. Cost: one small read."""
        try:
            return has_table(path)
        except (PenstockError, OSError, ValueError):
            return False

    def open(self, path: Path, **options: Any) -> TableSource:
        """Open for reading. Raises `FormatError`, `ArgumentError`, `MissingExtraError`."""
        return TableSource(path, **options)

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Return whether all are named like tables."""
        return all(file.suffix in SUFFIXES for file in files)

    def open_files(self, files: Sequence[Path], **options: Any) -> TableSource:
        """Open files as the shards of one table. Raises as `open` does."""
        return TableSource(files, **options)

    def check(self, path: Path, **options: Any) -> Iterator[Finding]:
        """Read every value once. Raises `FormatError` if the table cannot be opened."""
        return _findings(path, options)

    def check_files(self, files: Sequence[Path], **options: Any) -> Iterator[Finding]:
        """Read every value of all files once. Raises as `check` does."""
        return _findings(files, options)


def _findings(path: Path | Sequence[Path], options: Mapping[str, Any]) -> Iterator[Finding]:
    with TableSource(path, **options) as source:
        for column, error in source.damage():
            yield Finding("unreadable", column, str(error))
