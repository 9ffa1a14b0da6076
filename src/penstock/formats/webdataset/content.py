"""What an index has: samples, the places of the values of each column (reading them is one gather), and the dataset.

The author of an index can make any bytes of the archives appear as any value. So one that comes with the data is never
read: only what this user's processes wrote in the user's cache, for archives that are what they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from penstock.containers.on_demand import FilesOnDemand
from penstock.containers.tar import Members
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, IntArray
from penstock.core.ragged import Ragged, offsets_of, ranges
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field, Spec
from penstock.errors import FormatError, PenstockError
from penstock.files.remote import Wanted, file_state, remote_file
from penstock.files.user_cache import IndexFile
from penstock.formats.base.account import Account
from penstock.formats.base.pieces import FileRows, spread
from penstock.kernels.rows import RowMap

META = "_metadata"  # the key of the members that describe a shard of the self-describing layout
EXTENSIONS = 4096  # different extensions of a dataset
PASSED = re.compile(rb"__[^/]*__($|/)")  # names that the webdataset library passes over as well


@dataclass(frozen=True, eq=False)
class Samples:
    """`n` samples in order: `keys` `[n]` bytes, `shard` `[n]`, `archive` `[n]` in the shard, which may have several,
    and the members of each, by extension.

    The member with the extension `extensions[x]` of sample `i` has `size[x, i]` bytes from `payload[x, i]` on; a size
    of -1 says that the sample has none.
    """

    keys: npt.NDArray[np.bytes_]
    shard: IntArray
    archive: IntArray
    extensions: tuple[str, ...]
    payload: IntArray
    size: IntArray

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, i: int) -> str:
        """The key of sample `i` as text."""
        return bytes(self.keys[i]).decode("utf-8", "backslashreplace")

    def where(self, i: int, extension: str) -> str:
        """The place of a member for a message."""
        position = self.payload[self.extensions.index(extension), i]
        return f"member {self.key(i) + '.' + extension!r} at byte {position}"

    def take(self, kept: BoolArray) -> Samples:
        """Some of the samples, with those extensions that one of them has."""
        used = np.asarray((self.size[:, kept] >= 0).any(axis=1))
        extensions = tuple(e for e, is_used in zip(self.extensions, used.tolist(), strict=True) if is_used)
        payload, size = self.payload[used][:, kept], self.size[used][:, kept]
        return Samples(self.keys[kept], self.shard[kept], self.archive[kept], extensions, payload, size)

    @staticmethod
    def concatenate(parts: Sequence[Samples]) -> Samples:
        """The samples of all shards, in order."""
        extensions = tuple(dict.fromkeys(e for part in parts for e in part.extensions))
        if len(extensions) > EXTENSIONS:
            raise FormatError(f"expected at most {EXTENSIONS} different extensions, got {len(extensions)}")
        n = sum(map(len, parts))
        payload, size = np.zeros((len(extensions), n), np.int64), np.full((len(extensions), n), -1)
        first = 0
        for part in parts:
            rows = np.array([extensions.index(e) for e in part.extensions], np.int64)
            payload[rows, first : first + len(part)], size[rows, first : first + len(part)] = part.payload, part.size
            first += len(part)
        keys = np.concatenate([part.keys for part in parts]) if parts else np.zeros(0, "S1")
        none = np.zeros(0, np.int64)
        shard = np.concatenate([none, *(part.shard for part in parts)])
        archive = np.concatenate([none, *(part.archive for part in parts)])
        return Samples(keys, shard, archive, extensions, payload, size)


def grouped(members: Members, shard: int, path: Path) -> Samples:
    """The samples of one shard: the key is the name up to the first dot of its last part, the extension the rest."""
    keys, extension, names = _split(members)
    named = np.flatnonzero(extension >= 0)
    keys, extension = keys[named], extension[named]
    archive = np.searchsorted(members.archives, named, side="right") - 1
    begins = np.ones(len(named), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (archive[1:] != archive[:-1])
    sample = np.cumsum(begins) - 1
    n = int(begins.sum())
    place = extension * n + sample
    filled = np.zeros(len(names) * n, np.bool_)
    filled[place] = True
    if np.count_nonzero(filled) != len(place):
        raise _twice(members, place, named, path)
    payload, size = np.zeros(len(names) * n, np.int64), np.full(len(names) * n, -1)
    payload[place], size[place] = members.payload[named], members.size[named]
    shape = (len(names), n)
    places = (payload.reshape(shape), size.reshape(shape))
    return Samples(keys[begins], np.full(n, shard), archive[begins], names, *places)


def keys_of(members: Members) -> list[bytes]:
    """The key of each member; empty for what is passed over."""
    return _split(members)[0].tolist()


def is_of_sample(members: Members) -> BoolArray:
    """`[n]` whether a member is one of a sample, or one that the library keeps for itself."""
    named = _dots(members) >= 0
    named[_passed(members)] = True
    return named


def without_cut_sample(samples: Samples) -> Samples:
    """The samples of an archive that was cut off: all but the last one if it lacks a member that all others have."""
    others = samples.keys[:-1] != META.encode()
    if not others.any():
        return samples
    required = np.asarray((samples.size[:, :-1][:, others] >= 0).all(axis=1))
    if (samples.size[required, -1] >= 0).all():
        return samples
    return samples.take(np.arange(len(samples)) < len(samples) - 1)


def chosen(samples: Samples, extensions: Sequence[str] | None, path: Path) -> Samples:
    """Only the members of these extensions, and the samples that have one; all where None."""
    if extensions is None:
        return samples
    missing = [e for e in extensions if e not in samples.extensions]
    if missing:
        raise FormatError(f"expected the extensions {missing}, found {list(samples.extensions)}", path=path)
    rows = np.array([samples.extensions.index(e) for e in extensions], np.int64)
    places = (samples.payload[rows], samples.size[rows])
    picked = replace(samples, extensions=tuple(extensions), payload=places[0], size=places[1])
    return picked.take(np.asarray((picked.size >= 0).any(axis=0)))


def _dots(members: Members) -> IntArray:
    """`[n]` place of the first dot in the last part of each name; -1 where there is none, or nothing before it."""
    names = members.matrix
    width = names.shape[1]
    slash = np.where((names == ord("/")).any(axis=1), width - 1 - np.argmax(names[:, ::-1] == ord("/"), axis=1), -1)
    dots = (names == ord(".")) & (np.arange(width, dtype=np.int64) > slash[:, None])
    dot = np.where(dots.any(axis=1), np.argmax(dots, axis=1), -1)
    dot[dot == slash + 1] = -1
    return dot


def _split(members: Members) -> tuple[npt.NDArray[np.bytes_], IntArray, tuple[str, ...]]:
    """`[n]` keys, and `[n]` extensions as numbers of the names in the third: -1 for what is passed over."""
    names = members.matrix
    n, width = names.shape
    dot = _dots(members)
    dot[_passed(members)] = -1
    extensions: dict[bytes, int] = {}
    extension = np.full(n, -1)
    for dot_place in np.unique(dot[dot >= 0]).tolist():
        rows = np.flatnonzero(dot == dot_place)
        rest = np.ascontiguousarray(names[rows, dot_place + 1 :])
        texts = rest.view(f"S{rest.shape[1]}").ravel() if rest.shape[1] else np.zeros(len(rows), "S1")
        different, which = np.unique(texts, return_inverse=True)
        numbers = [extensions.setdefault(bytes(text).lower(), len(extensions)) for text in different]
        extension[rows] = np.array(numbers, np.int64)[which.ravel()]
    keys = np.where(np.arange(width, dtype=np.int64) < dot[:, None], names, 0).astype(np.uint8)
    return keys.view(f"S{max(width, 1)}").reshape(n), extension, tuple(_text(name) for name in extensions)


def _passed(members: Members) -> IntArray:
    names = members.matrix
    marked = np.flatnonzero((names[:, :2] == ord("_")).all(axis=1)) if names.shape[1] > 1 else np.zeros(0, np.int64)
    return np.array([i for i in marked.tolist() if PASSED.match(bytes(members.names[i]))], np.int64)


def _twice(members: Members, place: IntArray, named: IntArray, path: Path) -> FormatError:
    order = np.argsort(place, kind="stable")
    again = order[1:][place[order][1:] == place[order][:-1]]
    where = members.where(int(named[again.min()]))
    return FormatError("expected each extension once in a sample, got one twice", path=path, where=where)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


@dataclass(frozen=True, eq=False)
class Places:
    """Runs of one column: run `r` has `rows[r]` rows (of a ragged column: values), in order, from byte
    `offset[r]` of buffer `buffer[r]` on. The buffers are the archives by number; -1 is `held`, the decoded values.

    Of a ragged column, `cuts` `[rows + 1]` says which values belong to each row.
    """

    field: Field
    rows: IntArray
    buffer: IntArray
    offset: IntArray
    held: ByteArray
    cuts: IntArray | None = None

    @classmethod
    def of(cls, field: Field, array: AnyArray) -> Places:
        """A column that was decoded: `[rows, *shape]`."""
        one = np.ones(1, np.int64)
        raw = np.ascontiguousarray(array, field.dtype).reshape(-1).view(np.uint8)
        return cls(field, one * len(array), -one, one * 0, raw)

    @classmethod
    def of_ragged(cls, field: Field, rows: Ragged) -> Places:
        """A ragged column that was decoded."""
        one = np.ones(1, np.int64)
        raw = np.ascontiguousarray(rows.values, field.dtype).view(np.uint8)
        return cls(field, one * len(rows.values), -one, one * 0, raw, rows.offsets)

    @classmethod
    def of_column(cls, field: Field, rows: AnyArray | Ragged, ragged: Align) -> Places:
        """A column that was decoded; a ragged one is aligned as `ragged` says."""
        return cls.of_ragged(replace(field, align=ragged), rows) if isinstance(rows, Ragged) else cls.of(field, rows)

    def among(self, rows: BoolArray) -> Places:
        """The same as the rows of a longer column where `rows` `[n]` is true; the others are zeros, or empty."""
        n = len(rows)
        if self.cuts is not None:
            lengths = np.zeros(n, np.int64)
            lengths[rows] = np.diff(self.cuts)
            return replace(self, cuts=offsets_of(lengths))
        if len(self.rows) != int(rows.sum()) or (self.rows != 1).any():  # one run of decoded rows
            out = np.zeros((n, *self.field.shape), self.field.dtype)
            out[rows] = self.held.view(self.field.dtype).reshape(-1, *self.field.shape)
            return Places.of(self.field, out)
        buffer, offset = np.full(n, -1), np.full(n, len(self.held))
        buffer[rows], offset[rows] = self.buffer, self.offset
        raw = np.concatenate([self.held, np.zeros(self.field.row_bytes, np.uint8)])
        return replace(self, rows=np.ones(n, np.int64), buffer=buffer, offset=offset, held=raw)

    def on(self, buffers: Sequence[ByteArray]) -> PlacedColumn | PlacedRagged:
        """The column, to be read."""
        width = self.field.dtype.itemsize if self.cuts is not None else self.field.row_bytes
        buffer = np.where(self.buffer < 0, len(buffers), self.buffer)
        if isinstance(buffers, FilesOnDemand):
            rows = FileRows.of(_ArchivesAndDecoded(buffers, self.held), self.rows, buffer, self.offset, width)
        else:
            rows = RowMap.build([*buffers, self.held], self.rows, buffer, self.offset, width)
        if self.cuts is None:
            return PlacedColumn(rows)
        if int(self.cuts[-1]) != rows.n:
            raise IndexError(f"expected cuts up to {rows.n}, got {self.cuts[-1]}")
        return PlacedRagged(self.field, rows, self.cuts)


@dataclass(frozen=True, eq=False)
class PlacedColumn:
    """An array column whose places were checked against the archives."""

    rows: RowMap | FileRows

    def read(self, selection: Selection, out: AnyArray) -> None:
        if out.size and self.rows.row_bytes:
            self.rows.gather(selection.start, selection.length, selection.destination, out.reshape(-1).view(np.uint8))

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        return self.rows.remote_ranges(selection.start, selection.length) if self.rows.row_bytes else []


@dataclass(frozen=True, eq=False)
class PlacedRagged:
    """A ragged column whose places were checked against the archives. `rows` are its values."""

    field: Field
    rows: RowMap | FileRows
    value_offsets: IntArray

    def read_values(self, selection: Selection, out: AnyArray) -> None:
        """Values into the covered places of `out`: one gather."""
        PlacedColumn(self.rows).read(selection, out)

    def remote_ranges(self, selection: Selection) -> list[Wanted]:
        first = self.value_offsets[selection.start]
        return self.rows.remote_ranges(first, self.value_offsets[selection.start + selection.length] - first)

    def read_ragged(self, selection: Selection) -> Ragged:
        """The rows of the grid, those not covered empty: one gather of values, one span a span."""
        cuts = self.value_offsets
        first, last = cuts[selection.start], cuts[selection.start + selection.length]
        lengths = last - first
        values = np.empty(int(lengths.sum()), self.field.dtype)
        if len(values):
            self.rows.gather(first, lengths, offsets_of(lengths)[:-1], values.view(np.uint8))
        rows = ranges(selection.start, selection.length)
        return spread(Ragged(values, offsets_of(cuts[rows + 1] - cuts[rows])), selection)


def gathered(buffers: Sequence[ByteArray], buffer: IntArray, offset: IntArray, width: int) -> ByteArray:
    """`[n, width]` bytes from `n` places."""
    one = np.ones(len(offset), np.int64)
    out = np.empty((len(offset), width), np.uint8)
    if out.size:
        build = FileRows.of if isinstance(buffers, FilesOnDemand) else RowMap.build
        build(buffers, one, buffer, offset, width).gather(np.arange(len(offset)), one, np.arange(len(offset)), out)
    return out


class _ArchivesAndDecoded(Sequence[ByteArray]):
    """Archives that are mapped when they are read, and the decoded values of a column behind the last one."""

    def __init__(self, archives: FilesOnDemand[ByteArray], decoded: ByteArray) -> None:
        self._archives, self._decoded = archives, decoded

    def __len__(self) -> int:
        return len(self._archives) + 1

    @overload
    def __getitem__(self, number: int) -> ByteArray: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ByteArray]: ...
    def __getitem__(self, number: int | slice) -> ByteArray | Sequence[ByteArray]:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return self._decoded if number == len(self._archives) else self._archives[number]


Arrays = dict[str, AnyArray]
_PLACES = ("rows", "buffer", "offset", "held", "cuts")
_SAMPLES = ("keys", "shard", "archive", "payload", "size")
MAGIC = b"penstock shards 3\n"
BYTES = 8 << 30  # that all indexes together may have
_SAMPLE = 512  # bytes of a block, of which three an archive are looked at


@dataclass(frozen=True, eq=False)
class Content:
    """A dataset in archives, by the layout that it was read by, with the place of each column."""

    layout: str
    spec: Spec
    offsets: IntArray
    columns: Mapping[str, Places]
    samples: Samples
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    episodes: tuple[Mapping[str, Any], ...] = ()  # metadata of each; () where there is none
    described: int = 0  # how often our own layout was described again
    account: Account = field(default_factory=Account)
    torn_tails: Mapping[str, int] = field(default_factory=dict[str, int])  # by archive: byte where an append stopped

    def packed(self) -> tuple[dict[str, Any], Arrays]:
        """As a header that JSON can hold once its arrays are lists, and arrays; `unpacked` is the inverse."""
        arrays: Arrays = {"offsets": self.offsets}
        arrays |= {f"samples/{name}": getattr(self.samples, name) for name in _SAMPLES}
        for i, places in enumerate(self.columns.values()):
            arrays |= {f"{i}/{name}": a for name in _PLACES if (a := getattr(places, name)) is not None}
        header = {
            "layout": self.layout,
            "spec": self.spec.to_json(),
            "columns": {path: places.field.to_json() for path, places in self.columns.items()},
            "extensions": self.samples.extensions,
            "metadata": self.metadata,
            "episodes": self.episodes,
            "described": self.described,
            "account": self.account.to_json(),
            "torn_tails": self.torn_tails,
        }
        return header, arrays

    @classmethod
    def unpacked(cls, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> Content:
        """What `packed` took apart. Places are checked against the archives when they are read."""
        columns: dict[str, Places] = {}
        for i, (path, described) in enumerate(header["columns"].items()):
            columns[path] = Places(Field.from_json(described), *(arrays.get(f"{i}/{name}") for name in _PLACES))  # pyright: ignore[reportArgumentType]
        keys, shard, archive, payload, size = (arrays[f"samples/{name}"] for name in _SAMPLES)
        samples = Samples(keys, shard, archive, tuple(header["extensions"]), payload, size)
        spec, episodes = Spec.from_json(header["spec"]), tuple(header["episodes"])
        account = Account.from_json(header["account"])
        entries = (header["metadata"], episodes, header["described"], account, header["torn_tails"])
        return cls(header["layout"], spec, arrays["offsets"], columns, samples, *entries)


def index_file(path: Path | Sequence[Path]) -> IndexFile | None:
    """The index of the dataset at `path`, or of several archives, in the user's cache."""
    paths = [path] if isinstance(path, Path) else path
    return IndexFile.of("shard-indexes", "\0".join(os.fspath(each.absolute()) for each in paths), MAGIC, BYTES)


def index_state(key: str, shards: Sequence[Path], buffers: Sequence[ByteArray]) -> str:
    """State that an index belongs to: the options and archives that `key` names, and the very files that these are."""
    parts: list[object] = [key]
    if isinstance(buffers, FilesOnDemand):  # opening each archive takes longer than reading their index
        states = zip(shards, buffers.states, strict=True)
        parts += [[str(shard.absolute()), state.size, state.mtime_ns, state.inode] for shard, state in states]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    for shard, data in zip(shards, buffers, strict=True):
        if remote_file(shard) is not None:
            parts.append([str(shard.absolute()), file_state(shard).mtime_ns, len(data)])
            continue
        state, middle = shard.stat(), len(data) // 2
        sample = b"".join(bytes(data[i : i + _SAMPLE]) for i in (0, middle, max(len(data) - _SAMPLE, 0)))
        place = str(shard.absolute())
        parts.append([place, state.st_ino, state.st_ctime_ns, len(data), hashlib.sha256(sample).hexdigest()])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def load_index(file: IndexFile, state: str) -> Content | None:
    """The content kept for this state of archives; None if there is none, or anything is wrong with it."""
    cached = file.read(state)
    if cached is None:
        return None
    with suppress(PenstockError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Content.unpacked(*cached)
    return None  # by another version
