"""The format of column stores: how they are recognised, opened, checked and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock.formats.base.repairs import Repair
from penstock.formats.base.writer import Target
from penstock.formats.columns.check import findings
from penstock.formats.columns.files import read_json
from penstock.formats.columns.joining import join_stores
from penstock.formats.columns.layout import MARKER, SPEC, has_table
from penstock.formats.columns.repair import torn_tails, without_writers
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter

TARGET = Target(
    "columns",
    flat=True,
    options=("sync", "compression", "block_steps"),
    kept=("sync",),
    files=("spec.json", "metadata.json", "episodes", "segments"),
)


class ColumnsFormat(Format):
    """A folder with one append-only file of raw values a column, and a table of episodes. See
    docs/formats/columns.md.

    `open` knows the option `episodes` of `ColumnsSource`; `append` knows `sync`, `create` knows `sync`, `compression`
    and `block_steps`, as `ColumnsWriter` does.
    """

    name: ClassVar[str] = "columns"
    description: ClassVar[str] = "a file of raw values a column; safe to append to by several, and to read meanwhile"

    def recognises(self, path: Path) -> bool:
        """Whether `spec.json` in the folder says so, or is missing or damaged next to a table and segments."""
        try:
            return read_json(path / SPEC).get("format") == MARKER
        except (OSError, FormatError):
            return has_table(path)

    def open(self, path: Path, **options: Any) -> ColumnsSource:
        """Open for reading. Raises `FormatError` for damaged data, `TypeError` for an unknown option."""
        return ColumnsSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(
        self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> ColumnsWriter:
        """Create an empty store and open it for writing. Raises `FileExistsError`, `SpecError`, `TypeError`."""
        return ColumnsWriter.create(path, spec, metadata, **options)

    def append(self, path: Path, **options: Any) -> ColumnsWriter:
        """Open an existing store for writing more episodes. Raises `FormatError`, `TypeError`."""
        return ColumnsWriter(path, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Compare table and sizes, and with `deep`, or for up to 256 MiB, every byte with its checksum."""
        return findings(path, deep=deep)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Each part becomes a segment."""
        join_stores(parts, out)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name == "torn-tail" for finding in findings):
            yield from torn_tails(path)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return without_writers(path)
