"""A store as it stood at one moment: its episodes, and a reader for each of its columns.

Entries never change once they are written, and files only grow (a retention removes whole segments), so a snapshot
stays valid while writers append. `grown` checks that its last entry is still in the table, and reads only new entries.
A file that is shorter than the entries say is damage, and an error when the snapshot is made. Where a retention may
remove files, they are mapped at once; `open` reads the first kept episode before and after, and tries again if it
moved.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray, IntArray, StructArray
from penstock.core.cache import Cache
from penstock.core.episode import Episode
from penstock.core.narrowing import is_dict
from penstock.core.ragged import offsets_of
from penstock.core.spec import Align
from penstock.errors import ExpiredRowError, FormatError
from penstock.files.mapping import check_mapped, map_file, read_mapped
from penstock.formats.base.state import SourceState
from penstock.formats.columns import table
from penstock.formats.columns.layout import StoreLayout
from penstock.formats.columns.reading import (
    CACHE_BYTES,
    Blocks,
    EpisodeRuns,
    FixedColumnReader,
    PackedColumn,
    RaggedColumnReader,
)
from penstock.formats.columns.retention import RETENTION, first_kept

Column = FixedColumnReader | RaggedColumnReader | PackedColumn


class Maps:
    """Memory maps by file, renewed when more of a file is in use, and decoded blocks, for all snapshots of a source."""

    def __init__(self) -> None:
        self._held: dict[Path, ByteArray] = {}
        self.decoded = Cache(CACHE_BYTES)

    def has(self, path: Path, size: int) -> bool:
        """Whether so many bytes of a file are mapped. They can be read after the file was removed."""
        mapped = self._held.get(path)
        return mapped is not None and len(mapped) >= size

    def keep(self, paths: Collection[Path]) -> None:
        """Let go of the maps of all other files, which keep removed files on the disk."""
        self._held = {path: mapped for path, mapped in self._held.items() if path in paths}

    def __call__(self, path: Path, size: int) -> ByteArray:
        """The first `size` bytes of a file."""
        mapped = self._held.get(path)
        if mapped is None or len(mapped) < size:
            self._held[path] = mapped = map_file(path, size, follow=False, lazy=True)
        return mapped[:size]


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot(SourceState):
    """The episodes of `entries`, in that order. Files are mapped when first read, or at once where a retention may
    remove them (`penstock.formats.columns.retention`). `base` is the number in the store of the first entry."""

    layout: StoreLayout
    entries: StructArray
    maps: Maps
    packed: Blocks | None
    columns: Mapping[str, Column]
    metadata_ends: Mapping[int, int]  # of each segment: how many bytes of its metadata are in use
    base: int

    @classmethod
    def of(cls, layout: StoreLayout, entries: StructArray, maps: Maps, base: int = 0) -> Snapshot:
        offsets = offsets_of(entries["steps"].astype(np.int64))
        runs = EpisodeRuns.of(entries, offsets)
        packed = Blocks(layout, layout.packing, entries, offsets, maps) if layout.packing else None
        arrays: dict[str, FixedColumnReader | PackedColumn] = {}
        ragged: dict[str, RaggedColumnReader] = {}
        for path, field in layout.spec.items():
            if packed is not None and path in packed.columns:
                arrays[path] = PackedColumn(layout, path, packed, maps, maps.decoded)
            elif field.ragged:
                ragged[path] = RaggedColumnReader(layout, path, runs, maps)
            else:
                arrays[path] = FixedColumnReader(layout, path, runs, maps)
        readers: dict[str, Column] = {**arrays, **ragged}
        snapshot = cls(
            spec=layout.spec,
            offsets=offsets,
            digest=partial(_digest, layout, entries),
            arrays=arrays,
            ragged=ragged,
            layout=layout,
            entries=entries,
            maps=maps,
            packed=packed,
            columns={path: readers[path] for path in layout.spec},
            metadata_ends={s: table.ends(entries, s)[2] for s in runs.segments},
            base=base,
        )
        removable = (layout.root / RETENTION).exists()
        for path, size in snapshot.files():
            if maps.has(path, size):
                continue
            _check_size(path, size)
            if removable:
                maps(path, size)
        return snapshot

    @classmethod
    def open(cls, root: Path) -> Snapshot:
        """The present contents of the store."""
        layout = StoreLayout.read(root)
        while True:
            base = first_kept(root)
            entries = table.read(layout.table)
            table.check_order(entries, layout.table, layout.packing)
            if base > len(entries):
                message = f"expected at least {base} episodes, from which on all are kept, got {len(entries)}"
                raise FormatError(message, path=layout.table)
            try:
                return cls.of(layout, entries[base:], Maps(), base)
            except FormatError:
                if first_kept(root) == base:  # otherwise episodes have left between two reads
                    raise

    def grown(self) -> Snapshot | None:
        """The present contents of the store, or None where nothing was appended."""
        known = len(self.entries)
        number = self.base + known
        new_entries = table.read(self.layout.table, number - min(known, 1))
        if known and (len(new_entries) == 0 or new_entries[0] != self.entries[-1]):
            path, where = self.layout.table, f"entry {number - 1}"
            raise FormatError("the store was replaced or rolled back since it was opened", path=path, where=where)
        added = new_entries[min(known, 1) :]
        if len(added) == 0:
            return None
        entries = np.concatenate([self.entries, added])
        table.check_order(entries, self.layout.table, self.layout.packing, whole=self.base == 0)
        if (kept := first_kept(self.layout.root)) > number:
            raise ExpiredRowError(
                f"expected the episodes after number {number - 1} in {self.layout.root}, got a store that keeps "
                f"episodes from number {kept} on; open it again"
            )
        return Snapshot.of(self.layout, entries, self.maps, self.base)

    def first(self, episodes: int) -> Snapshot:
        if len(self.entries) < episodes:
            shortage = f"expected at least {episodes} episodes, got {len(self.entries)}"
            raise FormatError(shortage, path=self.layout.table)
        return Snapshot.of(self.layout, self.entries[:episodes], self.maps, self.base)

    def files(self) -> Iterator[tuple[Path, int]]:
        """Every file in use, and how many of its bytes."""
        for segment, size in self.metadata_ends.items():
            yield self.layout.metadata(segment), size
        if self.packed is not None:
            yield from self.packed.files(self.layout)
        for column in self.columns.values():
            yield from column.files()

    @property
    def table_end(self) -> int:
        """The byte of the table behind the last of the entries."""
        return self.base * table.SIZE + self.entries.nbytes

    @cached_property
    def rows(self) -> dict[Align, IntArray]:
        """`[E + 1]` first row of each episode in the row space of each alignment."""
        e = np.arange(len(self.offsets))
        return {"step": self.offsets, "boundary": self.offsets + e, "episode": e}

    def episode(self, e: int) -> Episode:
        """Episode `e`; its arrays are read-only views of the memory maps."""
        segment, index, start, steps, *_ = self._entry(e)
        places = table.places(index, start, steps)
        columns = {path: column.part(e, segment, *places[column.field.align]) for path, column in self.columns.items()}
        return Episode.trusted(self.layout.spec, columns, e, self._parsed(self.metadata_bytes(e), e))

    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        """The metadata of the given episodes. Cost: one pass of the JSON parser over all of them."""
        check_mapped(*self._texts.values())
        numbers = np.asarray(episodes, np.int64)
        parsed: list[Any] = []  # stays so where one of them is damaged; which one is found out below
        with suppress(ValueError, RecursionError):
            parsed = json.loads(f"[{','.join(map(_list_items, self._metadata_runs(numbers)))}]")
        if len(parsed) == len(numbers) and set(map(type, parsed)) <= {dict}:
            return parsed
        return [self._parsed(self.metadata_bytes(e), e) for e in numbers.tolist()]

    def _metadata_runs(self, episodes: IntArray) -> Iterator[memoryview]:
        """The lines of JSON about the given episodes; lines that follow one another in a file come together."""
        if len(episodes) == 0:
            return
        entries = self.entries[episodes]
        segment, first = entries["segment"], entries["metadata"]
        last = first + entries["metadata_bytes"]
        is_next = (segment[1:] == segment[:-1]) & (first[1:] == last[:-1])
        breaks = np.flatnonzero(~is_next)
        starts, ends = np.append(0, breaks + 1), np.append(breaks, len(entries) - 1)
        for s, begin, end in zip(segment[starts].tolist(), first[starts].tolist(), last[ends].tolist(), strict=True):
            yield self._texts[s][begin:end]

    def metadata_bytes(self, e: int) -> memoryview:
        """The line of JSON about episode `e`."""
        segment, _, _, _, first, size, *_ = self._entry(e)
        return self._texts[segment][first : first + size]

    def payload_check(self, e: int) -> int:
        """The CRC-32 of the stored bytes of episode `e`: every column in the order of the spec, then the metadata."""
        segment, index, start, steps, *_ = self._entry(e)
        places, check = table.places(index, start, steps), 0
        for column in self.columns.values():
            for part in column.payload(e, segment, *places[column.field.align]):
                check_mapped(part)
                check = zlib.crc32(part.data, check)
        return zlib.crc32(self.metadata_bytes(e), check)

    def payload_checks(self, first: int, last: int) -> list[int]:
        """`payload_check` of episodes `first` to `last - 1`. The columns of adjacent episodes are looked at once."""
        entries = self.entries[first:last]
        index, start, steps = (entries[name].astype(np.int64) for name in ("index", "start", "steps"))
        segment = int(entries["segment"][0])
        adjacent = (entries["segment"] == segment).all() and (np.diff(index) == 1).all()
        adjacent = adjacent and (np.diff(start) == steps[:-1]).all()
        if not adjacent or not all(isinstance(column, FixedColumnReader) for column in self.columns.values()):
            return [self.payload_check(e) for e in range(first, last)]
        one = np.ones_like(index)
        places = {"step": (start, steps), "boundary": (start + index, steps + 1), "episode": (index, one)}
        checks = [0] * len(entries)
        for column in self.columns.values():
            begins, rows = places[column.field.align]
            ends = begins + rows - begins[0]
            for part in column.payload(first, segment, int(begins[0]), int(ends[-1])):
                check_mapped(part)
                cuts = np.append(0, ends) * column.field.row_bytes
                checks = _checks(part.data, cuts, checks)
        texts = entries["metadata"].astype(np.int64)
        return [
            zlib.crc32(self._texts[segment][a:b], check)
            for a, b, check in zip(texts.tolist(), (texts + entries["metadata_bytes"]).tolist(), checks, strict=True)
        ]

    @cached_property
    def _texts(self) -> dict[int, memoryview]:
        return {s: read_mapped(self.maps(self.layout.metadata(s), size)).data for s, size in self.metadata_ends.items()}

    @cached_property
    def _packed(self) -> bytes:
        return self.entries.tobytes()

    def _entry(self, e: int) -> tuple[int, ...]:
        return table.unpack(self._packed, e)  # a structured NumPy scalar takes ten times as long

    def _parsed(self, text: memoryview, e: int) -> dict[str, Any]:
        try:
            value = json.loads(str(text, "utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise self._damaged(e, f"expected a line of JSON, got {error}") from error
        if not is_dict(value):
            raise self._damaged(e, f"expected an object, got {type(value).__name__}")
        return value

    def _damaged(self, e: int, problem: str) -> FormatError:
        return FormatError(problem, path=self.layout.metadata(self._entry(e)[0]), where=f"episode {e}")


def _digest(layout: StoreLayout, entries: StructArray) -> str:
    """A digest of the spec, and of the length and checksum of every episode, in any segment."""
    digest = hashlib.sha256(layout.spec.fingerprint.encode())
    for name in ("steps", "payload"):
        digest.update(entries[name].tobytes())
    return digest.hexdigest()


def _checks(data: memoryview, cuts: IntArray, checks: list[int]) -> list[int]:
    """Checksums, continued with the bytes between cuts."""
    parts = zip(pairwise(cuts.tolist()), checks, strict=True)
    return [zlib.crc32(data[a:b], check) for (a, b), check in parts]


def _list_items(lines: memoryview) -> str:
    """Lines of JSON as items of a JSON list. A line break within a text is escaped in JSON."""
    return str(lines, "ascii").removesuffix("\n").replace("\n", ",")


def _check_size(path: Path, size: int) -> None:
    try:
        actual = os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        actual = None
    if actual is None or actual < size:
        got = "no file" if actual is None else str(actual)
        raise FormatError(
            f"expected at least {size} bytes, got {got}; `compact` with damaged='skip' saves what is whole", path=path
        )
