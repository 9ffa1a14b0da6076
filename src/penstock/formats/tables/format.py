"""The format of tables with a row for each step, read-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import PenstockError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock.formats.tables.files import has_table
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

    def check(self, path: Path, **options: Any) -> Iterator[Finding]:
        """Read every value once. Raises `FormatError` if the table cannot be opened."""
        with TableSource(path, **options) as source:
            for column, error in source.damage():
                yield Finding("unreadable", column, str(error))
