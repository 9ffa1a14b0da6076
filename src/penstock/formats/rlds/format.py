"""The format of TFDS datasets of episodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock.core.spec import Spec
from penstock.errors import ChecksumError, DamageWarning, PenstockError
from penstock.formats.base.format import Finding, Format
from penstock.formats.rlds.folder import SPLIT, is_version, versions_below
from penstock.formats.rlds.source import RLDSSource
from penstock.formats.rlds.writer import RLDSWriter


class RLDSFormat(Format):
    """RLDS and TFDS datasets whose records are episodes. See docs/formats/rlds.md.

    >>> RLDSFormat().recognises(Path("/"))
    False
    """

    name: ClassVar[str] = "rlds"
    description: ClassVar[str] = "RLDS and TFDS datasets of episodes, such as Open X-Embodiment"
    extras: ClassVar[tuple[str, ...]] = ("images", "jpeg", "zstd")

    def locate(self, name: str) -> Path | None:
        """Return the path of a folder and a split, as `folder:train`, or None."""
        base, colon, split = name.rpartition(":")
        return Path(name) if colon and SPLIT.fullmatch(split) and self.recognises(Path(base)) else None

    def recognises(self, path: Path) -> bool:
        """Return whether a folder has `features.json` next to shards, or versions that have. Cost: lists of folders."""
        try:
            return path.is_dir() and (is_version(path) or bool(versions_below(path)))
        except (PenstockError, OSError):
            return False

    def open(self, path: Path, **options: Any) -> RLDSSource:
        """Open for reading. Raises `FormatError`, `ArgumentError`, `MissingExtraError`."""
        base, colon, split = str(path).rpartition(":")
        if colon and not path.exists():
            given: dict[str, Any] = {"split": split, **options}
            return RLDSSource(Path(base), **given)
        return RLDSSource(path, **options)

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> RLDSWriter:
        """Create an empty dataset; options are those of `RLDSWriter.create`. Raises as that."""
        return RLDSWriter.create(path, spec, metadata or {}, **options)

    def append(self, path: Path, **options: Any) -> RLDSWriter:
        """Open a dataset that penstock created for more episodes. Raises `FormatError`, `LockedError`."""
        return RLDSWriter(path, **options)

    def check(self, path: Path, **options: Any) -> Iterator[Finding]:
        """Read every record once. Raises `FormatError` if the dataset cannot be opened."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)  # each part becomes a finding
            source = self.open(path, **options)
        with source:
            for message in source.metadata.get("damage", []):
                yield Finding("damaged-part", "shards", message)
            for episode, error in source.unreadable():
                name = "checksum" if isinstance(error, ChecksumError) else "unreadable"
                yield Finding(name, f"episode {episode}", str(error))
