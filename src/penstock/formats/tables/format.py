"""The format of tables with a row for each step, read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.errors import PenstockError
from penstock.formats.base.file_facts import FileSurvey
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock.formats.base.repairs import Repair
from penstock.formats.tables.check import findings, footer_repairs
from penstock.formats.tables.files import SUFFIXES, files_at, has_table
from penstock.formats.tables.source import TableSource
from penstock.formats.tables.survey import is_surveyed, survey_of


class TablesFormat(Format):
    """Parquet, Arrow and JSON-lines tables with an episode column. See docs/formats/tables.md."""

    name: ClassVar[str] = "tables"
    description: ClassVar[str] = "Parquet, Arrow and JSON-lines tables with an episode column, Hugging Face datasets"
    extras: ClassVar[tuple[str, ...]] = ("arrow",)
    file_suffixes: ClassVar[tuple[str, ...]] = (*SUFFIXES, ".json", ".csv")

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

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for Parquet files without a footer. Values are checked by `penstock.check`."""
        return findings(path)

    def check_files(self, files: Sequence[Path], **options: Any) -> Iterator[Finding]:
        """Look for damage as `check` does, in all files."""
        return findings(files)

    @override
    def survey(self, paths: Sequence[Path]) -> FileSurvey | None:
        files = files_at(paths[0] if len(paths) == 1 else paths)
        return survey_of(files) if is_surveyed(files) else None

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name == "missing-footer" for finding in findings):
            yield from footer_repairs(files_at(path))
