"""Parquet files that do not end with a footer: their findings, and their repairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from penstock.containers.arrow.footer import footer_end, footer_like, lacks_footer
from penstock.formats.base.findings import Finding
from penstock.formats.base.repairs import Repair
from penstock.formats.tables.files import files_at, kind_of


def findings(path: Path | Sequence[Path]) -> Iterator[Finding]:
    """Yield a finding for each Parquet file that does not end with a footer."""
    for file in files_at(path):
        if kind_of(file) == "parquet" and lacks_footer(file):
            if (end := footer_end(file)) is not None:
                message = "expected the end of the file behind its footer, got other bytes; move them to another file"
                yield Finding("behind-the-end", f"{file.name}: byte {end}", message)
            else:
                yield Finding("missing-footer", str(file), "expected a footer at the end of the file, got none")


def footer_repairs(files: Sequence[Path]) -> Iterator[Repair]:
    """Yield a repair for each Parquet file without a footer, if another file has one and fits."""
    parquet = [file for file in files if kind_of(file) == "parquet"]
    lacking = [file for file in parquet if lacks_footer(file)]
    for file in lacking:
        if footer_end(file) is not None:
            continue  # the bytes behind the footer may be data
        if (footer := footer_like(file, [other for other in parquet if other not in lacking])) is not None:
            content = partial(bytes, footer.content)
            yield Repair(
                "missing-footer", file, f"add a footer for {footer.rows} rows", content, footer.keep, str(file)
            )
