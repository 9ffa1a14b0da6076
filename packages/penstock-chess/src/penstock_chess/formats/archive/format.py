"""The format of archives: a column store that is recognised by its column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.formats.base.writer import Target
from penstock.formats.columns.format import TARGET as STORE
from penstock.formats.columns.format import ColumnsFormat
from penstock.formats.columns.layout import SPEC, read_json
from penstock_chess.formats.archive.source import CONTENT, ArchiveSource
from penstock_chess.formats.archive.writer import ArchiveWriter

TARGET = Target(CONTENT, aligns=("step",), options=("sync",), kept=("sync",), files=STORE.files)


class ArchiveFormat(ColumnsFormat):
    """An archive of games of Leela Chess Zero, from which any frame is read alone. See docs/lc0.md.

    Checks, repairs and parts are those of the column store that it is; with `format="columns"` it opens as one.
    """

    name: ClassVar[str] = CONTENT
    description: ClassVar[str] = "training games of Leela Chess Zero, about 430 bytes a frame; any frame is read alone"

    @override
    def recognises(self, path: Path) -> bool:
        """Whether it is a column store that says so."""
        try:
            return read_json(path / SPEC).get("content") == CONTENT
        except (OSError, FormatError):
            return False

    @override
    def open(self, path: Path, **options: Any) -> ArchiveSource:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ArchiveSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    @override
    def create(
        self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> ArchiveWriter:
        """Create an empty archive and open it for writing."""
        return ArchiveWriter.create(path, spec, metadata, **options)

    @override
    def append(self, path: Path, **options: Any) -> ArchiveWriter:
        """Open an existing archive for writing more games."""
        return ArchiveWriter(path, **options)
