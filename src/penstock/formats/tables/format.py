"""The format of tables with a row for each step, read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.containers.arrow.footer import footer_end, footer_like, lacks_footer
from penstock.errors import PenstockError
from penstock.formats.base.file_facts import FileSurvey
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.base.format import Format
from penstock.formats.tables.shards import SUFFIXES, files_at, has_table, kind_of
from penstock.formats.tables.source import TableSource, is_surveyed, survey_of


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
        return TableSource(path, **options)

    def are_shards(self, files: Sequence[Path]) -> bool:
        return all(file.suffix in SUFFIXES for file in files)

    def open_files(self, files: Sequence[Path], **options: Any) -> TableSource:
        """Open files as the shards of one table. Raises as `open` does."""
        return TableSource(files, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for Parquet files without a footer. Values are checked by `penstock.check`."""
        return _footers(path)

    def check_files(self, files: Sequence[Path], **options: Any) -> Iterator[Finding]:
        """Look for damage as `check` does, in all files."""
        return _footers(files)

    @override
    def survey(self, paths: Sequence[Path]) -> FileSurvey | None:
        files = files_at(paths[0] if len(paths) == 1 else paths)
        return survey_of(files) if is_surveyed(files) else None

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if all(finding.name != "missing-footer" for finding in findings):
            return
        parquet = [file for file in files_at(path) if kind_of(file) == "parquet"]
        lacking = [file for file in parquet if lacks_footer(file)]
        for file in lacking:
            if footer_end(file) is not None:
                continue  # the bytes behind the footer may be data
            if (footer := footer_like(file, [other for other in parquet if other not in lacking])) is not None:
                content = partial(bytes, footer.content)
                yield Repair(
                    "missing-footer", file, f"add a footer for {footer.rows} rows", content, footer.keep, str(file)
                )


def _footers(path: Path | Sequence[Path]) -> Iterator[Finding]:
    """Yield a finding for each Parquet file that does not end with a footer."""
    for file in files_at(path):
        if kind_of(file) == "parquet" and lacks_footer(file):
            if (end := footer_end(file)) is not None:
                message = "expected the end of the file behind its footer, got other bytes; move them to another file"
                yield Finding("behind-the-end", f"{file.name}: byte {end}", message)
            else:
                yield Finding("missing-footer", str(file), "expected a footer at the end of the file, got none")
