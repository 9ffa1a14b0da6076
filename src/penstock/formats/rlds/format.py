"""The format of TFDS datasets of episodes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.spec import Spec
from penstock.errors import ChecksumError, FormatError, PenstockError
from penstock.files import locked
from penstock.formats.base.findings import Repair
from penstock.formats.base.format import Finding, Format
from penstock.formats.base.metadata import each_metadata
from penstock.formats.base.writer import Target
from penstock.formats.rlds.features import SPLIT, is_version, version_folder, versions_below
from penstock.formats.rlds.index import shard_ends, tail_repairs
from penstock.formats.rlds.source import RLDSSource
from penstock.formats.rlds.writer import RLDSWriter, join_datasets

TARGET = Target(
    "rlds",
    options=("name", "images"),
    files=(
        "features.json",
        "dataset_info.json",
        ".dataset_info.json.*",
        "penstock.json",
        ".penstock.json.*",
        "*-train.tfrecord-*",
    ),
)


class RLDSFormat(Format):
    """RLDS and TFDS datasets whose records are episodes. See docs/formats/rlds.md."""

    name: ClassVar[str] = "rlds"
    description: ClassVar[str] = "RLDS and TFDS datasets of episodes, such as Open X-Embodiment"
    extras: ClassVar[tuple[str, ...]] = ("images", "jpeg", "zstd")
    file_suffixes: ClassVar[tuple[str, ...]] = (".tfrecord", ".array_record")

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
        base, colon, split = str(path).rpartition(":")
        if colon and not path.exists():
            given: dict[str, Any] = {"split": split, **options}
            return RLDSSource(Path(base), **given)
        return RLDSSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> RLDSWriter:
        """Create an empty dataset; options and errors are as in `RLDSWriter.create`."""
        return RLDSWriter.create(path, spec, metadata or {}, **options)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """The parts are the shards of the dataset. Their records have the same bytes as the one shard of one run."""
        join_datasets(parts, out, place)

    def append(self, path: Path, **options: Any) -> RLDSWriter:
        """Open a dataset that penstock created for more episodes."""
        return RLDSWriter(path, **options)

    def check(self, path: Path, *, deep: bool = True, **options: Any) -> Iterator[Finding]:
        """With `deep`, read every record once; the account of the source names what cannot be read."""
        with self.open(path, **options) as source:
            for episode, entries in each_metadata(source) if deep else ():
                if isinstance(entries, FormatError):
                    name = "checksum" if isinstance(entries, ChecksumError) else "unreadable"
                    yield Finding(name, f"episode {episode}", str(entries))

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name in ("torn-tail", "totals") for finding in findings):
            yield from tail_repairs(version_folder(path, None, None))

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        stack = ExitStack()
        try:
            for shard in shard_ends(version_folder(path, None, None)):
                stack.enter_context(locked(shard.path, os.O_RDWR))
        except BaseException:
            stack.close()
            raise
        return stack
