"""The LeRobot format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock.core.spec import Spec
from penstock.errors import ArgumentError, PenstockError
from penstock.formats.base.format import Finding, Format
from penstock.formats.lerobot.check import findings
from penstock.formats.lerobot.info import has_info
from penstock.formats.lerobot.source import LeRobotSource
from penstock.formats.lerobot.writer import LeRobotWriter, WriteOptions, create


class LeRobotFormat(Format):
    """LeRobot datasets of versions 2.0, 2.1 and 3.0. See docs/formats/lerobot.md.

    >>> LeRobotFormat().recognises(Path("/"))
    False
    """

    name: ClassVar[str] = "lerobot"
    description: ClassVar[str] = "LeRobot datasets 2.0, 2.1 and 3.0, with images or video"
    extras: ClassVar[tuple[str, ...]] = ("arrow", "images", "video")

    def recognises(self, path: Path) -> bool:
        """Return whether there is a `meta/info.json` with a version. Cost: one small file."""
        try:
            return has_info(path)
        except (PenstockError, OSError):
            return False

    def open(self, path: Path, **options: Any) -> LeRobotSource:
        """Open for reading. Raises `FormatError`, `ArgumentError`, `MissingExtraError`."""
        return LeRobotSource(path, **options)

    def create(
        self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> LeRobotWriter:
        """Create a dataset of version 3.0. Options are those of `WriteOptions`.

        Raises `FileExistsError`, `SpecError` for columns that LeRobot has no place for, `ArgumentError`.
        """
        return create(Path(path), spec, metadata or {}, WriteOptions(**options))

    def append(self, path: Path, **options: Any) -> LeRobotWriter:
        """Open a dataset of version 3.0 for appending. There are no options. Raises `FormatError`, `LockedError`."""
        if options:
            raise ArgumentError(f"expected no options to append, got {options}")
        with LeRobotSource(path) as source:
            spec = source.written_spec
        return LeRobotWriter(path, spec)

    def check(self, path: Path, **options: Any) -> Iterator[Finding]:
        """Read every value once, and compare totals, indices and timestamps. Raises `FormatError` if nothing opens."""
        return findings(path, options)
