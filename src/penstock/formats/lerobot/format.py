"""The LeRobot format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import PenstockError
from penstock.formats.base.format import Finding, Format
from penstock.formats.lerobot.check import findings
from penstock.formats.lerobot.info import has_info
from penstock.formats.lerobot.source import LeRobotSource


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

    def check(self, path: Path, **options: Any) -> Iterator[Finding]:
        """Read every value once, and compare totals, indices and timestamps. Raises `FormatError` if nothing opens."""
        return findings(path, options)
