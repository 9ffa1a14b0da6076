"""The format of driving logs: how they are recognised, opened, checked, written and repaired."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.npy import header_bytes
from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.writing import cut_rows
from penstock.core.cache import Cache
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files import locked
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.base.format import Format
from penstock.formats.base.writer import Target
from penstock_driving.formats.l5kit.check import findings
from penstock_driving.formats.l5kit.columns import NESTED
from penstock_driving.formats.l5kit.npy import mapped
from penstock_driving.formats.l5kit.source import L5KitSource, offsets_in
from penstock_driving.formats.l5kit.tables import Tables, has_tables, open_tables, stored_rows
from penstock_driving.formats.l5kit.writer import ENTRIES, L5KitWriter, join_tables


def unused_rows(path: Path) -> Iterator[Repair]:
    """Yield a repair for each array with rows of no scene: of the file that says how many rows it has, of a `.npy` file
    as a whole, of a ZIP archive one for all arrays.
    """
    tables = open_tables(path, Cache(0))
    try:
        longer: dict[str, tuple[ZarrArray, int]] = {}
        for name, used in _used(tables, path).items():
            rows = stored_rows(tables.rows(name))
            if len(rows) > used and isinstance(rows, ZarrArray):
                longer[name] = rows, used
            elif len(rows) > used and (file := path / f"{name}.npy").exists():
                message = f"cut {len(rows) - used} rows of no scene off"
                yield Repair("unused-rows", file, message, partial(_first_rows, file, used), None, name)
        for change in cut_rows(path, longer):
            message = f"cut the rows of no scene off {', '.join(change.names)}"
            where = None if change.keep else change.names[0]
            yield Repair("unused-rows", change.path, message, partial(bytes, change.content), change.keep, where)
    finally:
        tables.close()


def _first_rows(file: Path, count: int) -> bytes:
    """A `.npy` file with the first rows of another one."""
    rows = mapped(file)[:count]
    return header_bytes(rows.dtype, (count,)) + rows.tobytes()


def _used(tables: Tables, path: Path) -> dict[str, int]:
    """Rows of each array that belong to a scene; none where intervals do not follow one another."""
    frames = len(tables.frames)
    try:
        used = int(offsets_in(tables.scenes[:]["frame_index_interval"], frames, "scenes", path)[-1])
        intervals = tables.frames[:used] if used else np.zeros(0, tables.frames.dtype)
        used_rows = {"frames": used}
        for table, (_, field) in NESTED.items():
            rows = tables.agents if table == "agents" else tables.tl_faces
            name = "agents" if table == "agents" else "traffic_light_faces"
            used_rows[name] = int(offsets_in(intervals[field], len(rows), name, path)[-1]) if used else 0
    except FormatError:
        return {}
    return used_rows


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
    """Driving logs as L5Kit stores them: scenes, frames, agents and faces of traffic lights. See docs/logs.md.

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
