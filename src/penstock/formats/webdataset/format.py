"""The format of tar shards: how they are recognised, opened, checked and written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError
from penstock.files import locked
from penstock.formats.base.file_facts import FileSurvey, ReadFacts
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format
from penstock.formats.base.repairs import Repair
from penstock.formats.base.writer import Target
from penstock.formats.webdataset.check import findings
from penstock.formats.webdataset.indexing import ArchiveSurvey, index_shards, members_from
from penstock.formats.webdataset.joining import join_members, join_shards
from penstock.formats.webdataset.packed_parts import join_packed
from penstock.formats.webdataset.repair import torn_archives
from penstock.formats.webdataset.seed_writer import SeedWriter
from penstock.formats.webdataset.shards import SUFFIXES, has_shards
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.writer import NpyShardWriter, ShardWriter, lock_path, packing

LAYOUTS: Mapping[str, type[NpyShardWriter] | type[SeedWriter]] = {"npy": NpyShardWriter, "seed": SeedWriter}


SHARD_OPTIONS = ("shard_bytes", "shard_episodes", "compression")
SHARDS = Target(
    "webdataset",
    flat=True,
    options=("layout", *SHARD_OPTIONS),
    kept=SHARD_OPTIONS,
    files=("shard-*.tar", "shard-*.tgz", "shard-*.tar.zst", ".shard-*", ".lock", ".penstock-*"),
)
SEED = replace(
    SHARDS,
    name="webdataset, layout seed",
    needs=("observations", "actions", "terminations", "truncations"),
    aligns=("step",),
    ragged="infos",
    flat=False,
)


class WebDatasetFormat(Format):
    """Tar archives of samples: one, several, or a folder of them. See docs/formats/webdataset.md.

    `open` knows the options of `ShardSource`; `create` knows `layout` (`"npy"` or `"seed"`) and, as `append`, the
    options of `ShardWriter`.
    """

    name: ClassVar[str] = "webdataset"
    description: ClassVar[str] = "tar shards of the webdataset library, il-representations' and our own"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    extras: ClassVar[tuple[str, ...]] = ("zstd", "images", "msgpack", "cbor")

    def recognises(self, path: Path) -> bool:
        """Whether an archive of samples is at `path`, or in the folder there."""
        return has_shards(path)

    def locate(self, name: str) -> Path | None:
        """The name of one packed archive that is still being recorded."""
        return Path(name) if has_shards(Path(name)) else None

    def are_shards(self, files: Sequence[Path]) -> bool:
        """Whether all are named like archives, or have the same ending."""
        return all(file.name.endswith(SUFFIXES) for file in files) or len({file.suffix for file in files}) == 1

    def open(self, path: Path, **options: Any) -> ShardSource:
        """Open for reading. Raises `FormatError` for damaged data, `TypeError` for an unknown option."""
        return ShardSource(path, **options)

    def open_files(self, files: Sequence[Path], **options: Any) -> ShardSource:
        """Open archives as the shards of one dataset. Raises as `open` does."""
        return ShardSource(files, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store in this layout."""
        return SEED if options.get("layout") == "seed" else SHARDS

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> ShardWriter:
        """Create an empty dataset. Raises `FileExistsError`, `SpecError`, `DataError`, `TypeError`."""
        layout = options.pop("layout", "npy")
        if layout not in LAYOUTS:
            raise DataError(f"expected layout to be one of {list(LAYOUTS)}, got {layout!r}")
        return LAYOUTS[layout].create(path, spec, metadata, **options)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """The archives of all parts are numbered again; the last one of a part may be shorter than its limit.

        One archive has the members of all parts, whose bytes are copied, compressed as they are.
        """
        if not out.name.endswith(SUFFIXES):
            join_shards(parts, out)
        elif (kind := packing(out, None)[1]) is None:
            join_members(parts, out)
        else:
            join_packed(parts, out, kind)

    def append(self, path: Path, **options: Any) -> ShardWriter:
        """Open an existing dataset for writing more episodes, in the layout that it has."""
        with ShardSource(path) as source:
            layout = source.layout
        if layout not in LAYOUTS:
            message = "archives of single samples are read-only here; write a new dataset"
            raise FormatError(message, path=path)
        return LAYOUTS[layout](path, **options)

    @override
    def survey(self, paths: Sequence[Path]) -> FileSurvey:
        return ArchiveSurvey.of(paths)

    @override
    def build_index(
        self, paths: Sequence[Path], *, force: bool = False, facts: ReadFacts | None = None
    ) -> dict[str, Any]:
        members = [members_from(each) for each in facts.table] if facts is not None and len(facts.numbers) else None
        return index_shards(paths, members, force=force)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for members cut off, keys used twice, values left out and steps that do not follow one another."""
        return findings(path)

    def check_files(self, files: Sequence[Path], **options: Any) -> Iterator[Finding]:
        """Look for damage as `check` does, also for keys that several archives use."""
        return findings(files)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        names = {finding.where for finding in findings if finding.name in ("truncated", "torn-tail")}
        if names:
            yield from torn_archives(path, names)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return locked(lock_path(path), os.O_RDWR | os.O_CREAT)
