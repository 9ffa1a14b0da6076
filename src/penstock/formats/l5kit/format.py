"""The format of driving logs: how they are recognised, opened, checked and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock.core.spec import Spec
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock.formats.l5kit.check import findings
from penstock.formats.l5kit.source import L5KitSource
from penstock.formats.l5kit.tables import has_tables
from penstock.formats.l5kit.writer import L5KitWriter


class L5KitFormat(Format):
    """Driving logs as L5Kit stores them: scenes, frames, agents and faces of traffic lights. See docs/formats/l5kit.md.

    `open` knows the options of `L5KitSource`, `create` the options of `L5KitWriter.create`.

    >>> L5KitFormat().recognises(Path("/"))
    False
    """

    name: ClassVar[str] = "l5kit"
    description: ClassVar[str] = "driving logs of L5Kit: a zarr group of scenes, frames, agents and traffic lights"
    extras: ClassVar[tuple[str, ...]] = ("zarr", "remote")

    def recognises(self, path: Path) -> bool:
        """Whether there is a group with scenes or frames in it: a folder, a zip archive, or `.npy` files."""
        return has_tables(path)

    def open(self, path: Path, **options: Any) -> L5KitSource:
        """Open for reading. Raises `FormatError` for damaged data, `TypeError` for an unknown option."""
        return L5KitSource(path, **options)

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> L5KitWriter:
        """Create an empty dataset. Raises `FileExistsError`, `SpecError`, `DataError`, `TypeError`."""
        return L5KitWriter.create(path, spec, metadata, **options)

    def append(self, path: Path, **options: Any) -> L5KitWriter:
        """Open an existing dataset for more scenes. Raises `FormatError`, `LockedError`, `TypeError`."""
        return L5KitWriter(path, **options)

    def check(self, path: Path) -> Iterator[Finding]:
        """Look for chunks that cannot be read, intervals that do not fit, times that fall, and tracks twice."""
        return findings(path)
