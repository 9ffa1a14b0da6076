"""The format of training games: how they are recognised, opened, checked and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.containers.tar import END
from penstock.containers.tar.walk import torn_end
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files import locked, move, sync
from penstock.formats.base.findings import Finding, Repair, cut_repair
from penstock.formats.base.format import Format
from penstock.formats.base.writer import Target
from penstock_chess.formats.lc0.check import findings
from penstock_chess.formats.lc0.files import files_at, has_games, read_metadata, write_metadata
from penstock_chess.formats.lc0.index import begins_with_record
from penstock_chess.formats.lc0.source import Lc0Source
from penstock_chess.formats.lc0.writer import IN_A_TAR, Lc0Writer, lock_of


def torn_archives(path: Path) -> Iterator[Repair]:
    """Yield a repair for each tar that is torn. A gzip member that was cut off lost its last positions, and stays."""
    for file in files_at(path):
        if file.suffix == ".tar" and begins_with_record(file):
            try:
                members, size, torn = torn_end(file)
            except FormatError:
                continue  # damaged before its end: nothing there can be mended
            if torn and len(members):
                yield replace(cut_repair(file, members.end, size, where=file.name, then=END), finding="truncated")


TARGET = Target(
    "lc0",
    aligns=("step",),
    options=("level",),  # records of version 6 have no place for three columns
    kept=("level",),
    files=("training.*.gz", ".penstock-lc0.json", ".lock"),
    restored=frozenset(("file", "member", "frames", "version")),
)


class Lc0Format(Format):
    """Training games of Leela Chess Zero: gzip chunks, plain ones, tars of them, or a folder. See docs/lc0.md.

    `open` knows the options of `Lc0Source`; `create` and `append` know `record` (`"v7"` or `"v6"`) and `level`.
    """

    name: ClassVar[str] = "lc0"
    description: ClassVar[str] = "training games of Leela Chess Zero: chunks, and tars of chunks"
    file_suffixes: ClassVar[tuple[str, ...]] = (".gz",)

    def recognises(self, path: Path) -> bool:
        """Whether a record stands where the first one must. Empty archives of other formats look the same."""
        return has_games(path)

    def open(self, path: Path, **options: Any) -> Lc0Source:
        return Lc0Source(path, **options)

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Always: no other format has the columns of these games."""
        return True

    def open_files(self, files: Sequence[Path], **options: Any) -> Lc0Source:
        """Open the games of several files as one dataset. Raises as `open` does."""
        return Lc0Source(files, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> Lc0Writer:
        """Create an empty dataset."""
        return Lc0Writer.create(path, spec, metadata, **options)

    @override
    def parts_refusal(self, path: Path, **options: Any) -> str | None:
        return f"expected no metadata {IN_A_TAR}, got {path.name}" if path.suffix == ".tar" else None

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Games are moved; they have the names that one writer gives them."""
        out.mkdir(parents=True, exist_ok=True)
        for game in (game for part in parts for game in sorted(part.glob("training.*.gz"))):
            move(game, out / game.name)
        write_metadata(out, read_metadata(parts[0]))
        sync(out)

    def append(self, path: Path, **options: Any) -> Lc0Writer:
        """Open an existing dataset for writing more games."""
        return Lc0Writer(path, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for files that are cut off; with `deep` for bad chunks, broken histories, and values out of range."""
        return findings(path, deep=deep)

    def check_files(self, files: Sequence[Path], *, deep: bool = True, **options: Any) -> Iterator[Finding]:
        """Look for damage as `check` does, in all files."""
        return findings(files, deep=deep)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name == "truncated" for finding in findings):
            yield from torn_archives(path)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return locked(*lock_of(path))
