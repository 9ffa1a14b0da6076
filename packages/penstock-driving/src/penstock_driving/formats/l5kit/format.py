"""The format of driving logs: how they are recognised, opened, checked and written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.spec import Spec
from penstock.files import locked
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.base.format import Format
from penstock.formats.base.writer import Target
from penstock_driving.formats.l5kit.check import findings
from penstock_driving.formats.l5kit.joining import join_tables
from penstock_driving.formats.l5kit.repair import unused_rows
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.formats.l5kit.tables import has_tables
from penstock_driving.formats.l5kit.writer import ENTRIES, L5KitWriter

TARGET = Target(
    "l5kit",
    options=("layout", "compressor", "chunk_rows"),
    entries=frozenset(ENTRIES),
    files=(
        *(".zattrs*", ".zgroup*", ".zmetadata", "attributes.json", ".attributes.json.*"),
        *("scenes*", "frames*", "agents*", "traffic_light_faces*"),
    ),
)


class L5KitFormat(Format):
    """Driving logs as L5Kit stores them: scenes, frames, agents and faces of traffic lights. See
    docs/logs.md.

    `open` knows the options of `L5KitSource`, `create` the options of `L5KitWriter.create`.
    """

    name: ClassVar[str] = "l5kit"
    description: ClassVar[str] = "driving logs of L5Kit: a zarr group of scenes, frames, agents and traffic lights"
    extras: ClassVar[tuple[str, ...]] = ("zarr", "remote")
    places_values: ClassVar[bool] = True

    def recognises(self, path: Path) -> bool:
        """Whether there is a group with scenes or frames in it: a folder, a zip archive, or `.npy` files."""
        return has_tables(path)

    def open(self, path: Path, **options: Any) -> L5KitSource:
        """Open for reading."""
        return L5KitSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> L5KitWriter:
        """Create an empty dataset."""
        return L5KitWriter.create(path, spec, metadata, **options)

    @override
    def open_part(self, path: Path) -> L5KitSource:
        return self.open(path, missing="fill")

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Chunks are moved. Those with rows of two parts are encoded again, and `.npy` files are copied."""
        join_tables(parts, out)

    def append(self, path: Path, **options: Any) -> L5KitWriter:
        """Open an existing dataset for more scenes."""
        return L5KitWriter(path, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Look for intervals that do not fit; with `deep` also for damaged chunks, times that fall, tracks twice."""
        return findings(path, deep=deep)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name == "unused-rows" for finding in findings):
            yield from unused_rows(path)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        flat = path / "scenes.npy"
        if flat.exists():
            return locked(flat, os.O_RDWR)
        return locked(path / "scenes" if path.is_dir() else path)
