"""The format of replay buffers: how they are recognised, opened, checked and written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.group import ZarrGroup
from penstock.containers.zarr.metadata import ARRAY, ATTRIBUTES, GROUP, NODE
from penstock.containers.zarr.stores import open_store
from penstock.containers.zarr.writing import ArrayPart, cut_rows, join_arrays
from penstock.core.arrays import AnyArray
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files import locked, sync
from penstock.files.remote import open_file, read_text
from penstock.formats.base.findings import Repair
from penstock.formats.base.format import Finding, Format
from penstock.formats.base.metadata import each_metadata
from penstock.formats.base.writer import Target
from penstock.formats.zarr.layout import DATA, ENDS, EPISODES, META, PART, BufferLayout
from penstock.formats.zarr.source import ZarrSource
from penstock.formats.zarr.writer import ZarrWriter

_MOST = 10  # chunks of an array that are reported as damaged
_MOST_MISSING = 1 << 16  # chunks that are not stored, after which an array of a false length is not searched further

TARGET = Target(
    "zarr",
    flat=True,
    options=("compressor", "chunk_rows", "zarr_format"),
    files=(".zattrs*", ".zgroup*", "zarr.json*", "data", "meta"),
)


class ZarrFormat(Format):
    """Replay buffers in Zarr, as Diffusion Policy and UMI store them. See docs/formats/zarr.md."""

    name: ClassVar[str] = "zarr"
    description: ClassVar[str] = "replay buffers of Diffusion Policy and UMI: Zarr arrays and the ends of episodes"
    suffixes: ClassVar[tuple[str, ...]] = (".zarr",)
    file_suffixes: ClassVar[tuple[str, ...]] = (".zip",)
    extras: ClassVar[tuple[str, ...]] = ("zarr", "jpegxl", "remote")
    places_values: ClassVar[bool] = True

    def recognises(self, path: Path) -> bool:
        """Return whether there is a Zarr group with `meta/episode_ends`: a folder, or a ZIP archive."""
        try:
            if not path.is_dir():
                with open_file(path) as file:
                    if file.read(4) != b"PK\3\4":
                        return False
            store = open_store(path)
            return any(
                store.has(root) and store.has(f"{ENDS}/{array}") for root, array in ((GROUP, ARRAY), (NODE, NODE))
            )
        except (OSError, FormatError):
            return False

    def open(self, path: Path, **options: Any) -> ZarrSource:
        return ZarrSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> ZarrWriter:
        return ZarrWriter.create(path, spec, metadata, **options)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Chunks are moved. Those with rows of two parts, and metadata of episodes, are encoded again.

        `ZarrWriter.begin_at` puts the rows of a part where they are in the whole buffer. How many values ragged columns
        and the metadata of episodes have before a part may not be known in advance. These values are encoded again
        where they begin elsewhere, and what their ends count from is changed.
        """
        firsts: list[Mapping[str, int]] = [json.loads(read_text(part / PART))["first_rows"] for part in parts]
        for folder in ("", DATA, META):
            (out / folder).mkdir(parents=True, exist_ok=True)
            for name in (GROUP, NODE, ATTRIBUTES):
                if (parts[0] / folder / name).exists():
                    shutil.copyfile(parts[0] / folder / name, out / folder / name)
        groups = [ZarrGroup(part) for part in parts]
        layout = BufferLayout.of(groups[0], np.zeros(0, np.int64))
        values = {str(stored.ends): stored.rows for stored in layout.columns.values() if stored.ends}
        values[f"{EPISODES}.ends"] = f"{EPISODES}.values"
        names = {name for stored in layout.columns.values() for name in stored.names()}
        for name in sorted({*names, *values, *values.values(), ENDS}):
            changes: list[Callable[[AnyArray], AnyArray] | None] = [None] * len(parts)
            if name in values:
                counts = [len(group.array(values[name])) for group in groups]
                changes = _changes(counts, [first.get(values[name], 0) for first in firsts])
            begins = [first.get(name, 0) for first in firsts]
            join_arrays(name, [ArrayPart(*each) for each in zip(parts, begins, changes, strict=True)], out)
        sync(out)

    def append(self, path: Path, **options: Any) -> ZarrWriter:
        """Open an existing folder for more episodes."""
        return ZarrWriter(path, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Search for chunks that are not stored, and rows of no episode; with `deep` for chunks that cannot be read."""
        with ZarrSource(path, cache_bytes=0, missing="fill") as source:
            for stored in source.layout.columns.values():
                for name in stored.names():
                    yield from _check_array(source, name, deep=deep)
            for e, entries in each_metadata(source) if deep else ():
                if isinstance(entries, FormatError):
                    yield Finding("unreadable", entries.where or f"episode {e}", str(entries))

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if all(finding.name != "unused-rows" for finding in findings):
            return
        with ZarrSource(path, cache_bytes=0, missing="fill") as source:
            names = sorted({name for stored in source.layout.columns.values() for name in stored.names()})
            arrays = {name: source.array(name) for name in names if name.startswith(f"{DATA}/")}
            longer = {name: (array, source.steps) for name, array in arrays.items() if len(array) > source.steps}
            for change in cut_rows(path, longer):
                message = f"cut the rows of no episode off {', '.join(change.names)}"
                where = None if change.keep else change.names[0]
                yield Repair("unused-rows", change.path, message, partial(bytes, change.content), change.keep, where)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return locked(path / META if path.is_dir() else path)


def _check_array(source: ZarrSource, name: str, *, deep: bool) -> Iterator[Finding]:
    array = source.array(name)
    damaged = missing = 0
    size = array.metadata.chunk_rows
    for start in range(0, len(array), size):
        stored = array.is_stored(start)
        missing += not stored
        try:
            if stored and deep:
                array.read(start, min(start + size, len(array)))
        except FormatError as error:
            damaged += 1
            yield Finding("unreadable", error.where or name, str(error))
        if damaged == _MOST:
            yield Finding("unreadable", name, f"the first {_MOST} chunks that cannot be read; others were not read")
            break
        if missing == _MOST_MISSING:
            break
    if missing:
        least = "at least " if missing == _MOST_MISSING else ""
        yield Finding("not-stored", name, f"{least}{missing:,} chunks are not stored, and read as the fill value")


def _changes(ends: Sequence[int], firsts: Sequence[int]) -> list[Callable[[AnyArray], AnyArray] | None]:
    """For each part, the function that adds the number of values before the part that it did not count to its ends."""
    changes: list[Callable[[AnyArray], AnyArray] | None] = []
    before = 0
    for end, first in zip(ends, firsts, strict=True):
        changes.append(partial(np.add, before - first) if before != first else None)
        before += end - first
    return changes
