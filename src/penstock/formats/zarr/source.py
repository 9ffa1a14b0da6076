"""Episodes of a buffer: rows `episode_ends[e - 1]` to `episode_ends[e]` of every array."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.group import CACHE_BYTES, ZarrGroup
from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.cache import Cache
from penstock.core.narrowing import is_dict
from penstock.core.ragged import Ragged, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.errors import ArgumentError, FormatError
from penstock.files.remote import Wanted
from penstock.formats.base.account import Account
from penstock.formats.base.pieces import RowPieces, cut
from penstock.formats.base.state import ArrayReader, SourceState, StateSource
from penstock.formats.zarr.layout import ENDS, EPISODES, KEYS, MARK, BufferLayout, ColumnArrays

_CLAIMED = 1 << 30  # bytes; an array that claims more must show a row of it before memory is taken


class ZarrSource(StateSource[SourceState]):
    """The replay buffer at a path: a folder or a ZIP archive, of Zarr 2 or 3.

    A batch decodes the blocks or chunks that it needs, and keeps some of them for the next one. Rows behind the last
    episode, as an interrupted writer leaves them, are not read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cache_bytes: int = CACHE_BYTES,
        names: Mapping[str, str] | None = None,
        missing: str | None = None,
    ) -> None:
        if missing not in (None, "fill", "refuse"):
            raise ArgumentError(f"expected missing to be 'fill' or 'refuse', got {missing!r}")
        if cache_bytes < 0:
            raise ArgumentError(f"expected cache_bytes from 0 on, got {cache_bytes}")
        self._reopen = partial(ZarrSource, path, cache_bytes=cache_bytes, names=names, missing=missing)
        self.group = ZarrGroup(path, Cache(cache_bytes))
        self._missing = missing
        name = self.group.store.name
        ends = self.group.array(ENDS)
        if ends.nbytes > _CLAIMED:
            _shown(ends, name)
        offsets = ends_in(ends, len(ends), 1 << 62, ENDS, name)
        self.layout = BufferLayout.of(self.group, offsets[1:], names)
        arrays: dict[str, ArrayReader] = {}
        ragged: dict[str, RaggedArrays] = {}
        for column, stored in self.layout.columns.items():
            if stored.ends is not None:
                ragged[column] = self._ragged(stored, offsets)
            else:
                arrays[column] = self._rows(stored, offsets)
        self._entries = self._episode_entries(len(offsets) - 1)
        self._state = SourceState(
            spec=self.layout.spec,
            offsets=offsets,
            digest=self._digest,
            metadata=self._about(),
            account=Account(self.layout.left_out, self.layout.used),
            arrays=arrays,
            ragged=ragged,
        )

    def __reduce__(self) -> tuple[Callable[..., ZarrSource], tuple[()]]:
        return self._reopen, ()

    def array(self, name: str) -> ZarrArray:
        """Return an array by its name in the group, such as `data/img`."""
        return self.group.array(name, "refuse" if self._missing == "refuse" else "fill")

    @property
    def entry_bytes(self) -> int | None:
        """Size of the metadata of all episodes, None if there is none."""
        return None if self._entries is None else int(self._entries.value_offsets[-1])

    def _used(self, name: str, rows: int) -> ZarrArray:
        """An array of which `rows` rows are used."""
        array, path = self.array(name), self.group.store.name
        if len(array) < rows:
            raise FormatError(f"expected {rows} rows, as {ENDS} says, got {len(array)}", path=path, where=name)
        if self._missing is None and rows * array.metadata.row_bytes > _CLAIMED:
            _shown(array, path, rows)
        return array

    def _rows(self, stored: ColumnArrays, offsets: IntArray) -> ArrayReader:
        episodes = len(offsets) - 1
        if not stored.rows:
            return EmptyColumn()
        if stored.field.align == "episode":
            return RowsColumn(self._used(stored.rows, episodes))
        rows = self._used(stored.rows, int(offsets[-1]))
        if stored.final is None:
            return RowsColumn(rows)
        return BoundaryColumn(rows, self._used(stored.final, episodes), offsets + np.arange(episodes + 1))

    def _ragged(self, stored: ColumnArrays, offsets: IntArray) -> RaggedArrays:
        episodes, steps = len(offsets) - 1, int(offsets[-1])
        rows = {"step": steps, "boundary": steps + episodes, "episode": episodes}[stored.field.align]
        return self._ended(stored.rows, str(stored.ends), rows)

    def _ended(self, values: str, ends: str, rows: int) -> RaggedArrays:
        array, path = self.array(values), self.group.store.name
        offsets = ends_in(self._used(ends, rows), rows, len(array), ends, path)
        return RaggedArrays(self._used(values, int(offsets[-1])), offsets)

    def _episode_entries(self, episodes: int) -> RaggedArrays | None:
        """The metadata of episodes, None if not all have any."""
        values, ends = f"{EPISODES}.values", f"{EPISODES}.ends"
        if values not in self.group or ends not in self.group or len(self.array(ends)) < episodes:
            return None
        array = self.array(values)
        if array.dtype != np.uint8 or array.ndim != 1:
            message = f"expected [n] bytes, got {array.dtype}{list(array.shape)}"
            raise FormatError(message, path=self.group.store.name, where=values)
        return self._ended(values, ends, episodes)

    def _about(self) -> dict[str, Any]:
        entries = {name: value for name, value in self.group.attributes.items() if name != MARK}
        if MARK not in self.group.attributes:
            entries[KEYS] = {path: stored.rows for path, stored in self.layout.columns.items()}
        return entries

    def _digest(self) -> str:
        """Digest of names, lengths and types, and of name, size and time (in an archive: checksum) of every chunk."""
        names = {name for stored in self.layout.columns.values() for name in stored.names()}
        if self._entries is not None:
            names |= {f"{EPISODES}.values", f"{EPISODES}.ends"}
        parts: list[object] = [self.spec.fingerprint, self.offsets.tobytes()]
        for name in sorted({*names, ENDS}):
            array = self.array(name)
            parts.append((name, array.shape, str(array.dtype), list(self.group.store.states(name))))
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        if self._entries is None:
            return [{} for _ in episodes]
        offsets = self._entries.value_offsets
        entries: list[dict[str, Any]] = []
        first, last = min(episodes, default=0), max(episodes, default=-1)
        base = int(offsets[first]) if last - first < 2 * len(episodes) else None
        # Neighbours are read at once, so that each chunk is decoded once.
        block = None if base is None else self._entries.values[base : int(offsets[last + 1])]
        for e in episodes:
            begin, end = int(offsets[e]), int(offsets[e + 1])
            part = self._entries.values[begin:end] if block is None else block[begin - (base or 0) : end - (base or 0)]
            raw = part.tobytes()
            try:
                entry = json.loads(raw)
            except (ValueError, RecursionError) as error:
                raise FormatError(
                    f"expected JSON: {error}", path=self.group.store.name, where=f"episode {e}"
                ) from error
            if not is_dict(entry):
                message = f"expected an object, got {type(entry).__name__}"
                raise FormatError(message, path=self.group.store.name, where=f"episode {e}")
            entries.append(entry)
        return entries

    @override
    def close(self) -> None:
        """Release files and memory. Arrays that were returned stay valid."""
        self._state = None
        self.group.close()


def _shown(array: ZarrArray, path: object, rows: int | None = None) -> None:
    """Decode a row of an array that claims to be large."""
    n = len(array) if rows is None else rows
    for row in (n - 1, 0):
        if array.is_stored(row):
            array[row]
            return
    message = f"expected the chunk of row 0 or {n - 1} of {n * array.metadata.row_bytes} bytes, got neither"
    raise FormatError(f"{message}; missing='fill' reads missing chunks as the fill value", path=path, where=array.name)


@dataclass(frozen=True, eq=False)
class RowsColumn:
    """A row of the array for each step, or for each episode."""

    rows: ZarrArray

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Gather rows; each piece of a chunk is decoded once."""
        gather(self.rows, selection.start, selection.length, selection.destination, out)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        return self.rows.remote_ranges(selection.start, selection.length)


class EmptyColumn:
    """Rows without bytes."""

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Nothing is to be read."""


@dataclass(frozen=True, eq=False)
class BoundaryColumn:
    """T + 1 rows for an episode of T steps: T rows of one array, and a row of another."""

    rows: ZarrArray
    final: ZarrArray
    first: IntArray

    def read(self, selection: Selection, out: AnyArray) -> None:
        """Gather rows of steps, then the last rows of episodes."""
        pieces, length, ends = self._stored(selection)
        some = length > 0
        gather(self.rows, (pieces.start - pieces.run)[some], length[some], pieces.destination[some], out)
        last = pieces.run[ends]
        gather(self.final, last, np.ones_like(last), (pieces.destination + length)[ends], out)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        pieces, length, ends = self._stored(selection)
        last = pieces.run[ends]
        steps = self.rows.remote_ranges(pieces.start - pieces.run, length)
        return [*steps, *self.final.remote_ranges(last, np.ones_like(last))]

    def _stored(self, selection: Selection) -> tuple[RowPieces, IntArray, BoolArray]:
        """Pieces of episodes, how many rows of each are rows of steps, and which end with the last row."""
        pieces = cut(self.first, selection.start, selection.length, selection.destination)
        ends = pieces.start + pieces.length == self.first[pieces.run + 1]
        return pieces, pieces.length - ends, ends


@dataclass(frozen=True, eq=False)
class RaggedArrays:
    """Rows of unequal length: the values of all of them, and where each begins."""

    values: ZarrArray
    value_offsets: IntArray

    def read_ragged(self, selection: Selection) -> Ragged:
        offsets = self.value_offsets
        rows = ranges(selection.start, selection.length)
        lengths = np.zeros(selection.shape[0] * selection.shape[1], np.int64)
        lengths[ranges(selection.destination, selection.length)] = np.diff(offsets)[rows]
        first = offsets[selection.start]
        counts = offsets[selection.start + selection.length] - first
        order = np.argsort(selection.destination, kind="stable")
        values = np.empty(int(counts.sum()), self.values.dtype.newbyteorder("="))
        gather(self.values, first[order], counts[order], offsets_of(counts[order])[:-1], values)
        return Ragged(values, offsets_of(lengths))

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        first = self.value_offsets[selection.start]
        return self.values.remote_ranges(first, self.value_offsets[selection.start + selection.length] - first)

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        gather(self.values, selection.start, selection.length, selection.destination, out)


def gather(rows: ZarrArray, start: IntArray, length: IntArray, destination: IntArray, out: AnyArray) -> None:
    """Copy rows to `out`, in the dtype that it has."""
    if rows.dtype == out.dtype:
        rows.gather(start, length, destination, out.reshape(-1).view(np.uint8))
    else:  # stored in the other order of bytes
        out[ranges(destination, length)] = rows.take(ranges(start, length))


def ends_in(rows: ZarrArray, count: int, most: int, where: str, path: object) -> IntArray:
    """`[count + 1]` int64 offsets from the first `count` ends, which rise up to `most`."""
    if len(rows.shape) != 1 or rows.dtype.kind not in "iu":
        raise FormatError(f"expected [n] whole numbers, got {rows.dtype}{list(rows.shape)}", path=path, where=where)
    ends = rows[:count].astype(np.int64)
    offsets = np.append(np.zeros(1, np.int64), ends)
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        i = int(falls.argmax())
        raise FormatError(
            f"expected ends that rise, got {offsets[i]} and then {ends[i]}", path=path, where=f"{where}[{i}]"
        )
    if len(ends) and ends[-1] > most:
        raise FormatError(f"expected ends up to {most}, the number of rows, got {ends[-1]}", path=path, where=where)
    return offsets
