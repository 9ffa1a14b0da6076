"""Archives read once, forward, without unpacking them to a disk: pipes, and compressed shards too large for a cache.

A stream without positions cannot be shuffled as a whole. Samples are read into a buffer of so many, and that is
shuffled; which archive comes when is shuffled as well. Both orders are functions of the seed, so a position is four
numbers, and going there again reads the archive again from its beginning.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from typing_extensions import override

from penstock.containers.tar import ArchiveEnd, Members, NoArchiveError, stream
from penstock.containers.tar.compress import Ahead
from penstock.containers.tar.walk import TarMember
from penstock.core.arrays import ByteArray
from penstock.core.blocks import BlockIterator, IteratorState
from penstock.core.columns import Columns
from penstock.core.damage import warn_damage
from penstock.core.selection import Selection
from penstock.errors import DataError, FormatError, StateError, UnsafeDataError
from penstock.files.remote import file_state, open_file
from penstock.formats.webdataset import general
from penstock.formats.webdataset.content import META, PASSED, PlacedRagged, Samples, chosen, grouped
from penstock.formats.webdataset.decoders import How, Trust
from penstock.formats.webdataset.reading import Archives, Missing, Options
from penstock.formats.webdataset.shards import shards_of
from penstock.locations.location import Location, LocationLike

Opener = Callable[[], IO[bytes]]
Sample = list[tuple[TarMember, bytes]]

AHEAD = 1 << 25  # bytes that a thread unpacks ahead
GAP = 1 << 16  # bytes between samples that are filled with zeros rather than left out


@dataclass(frozen=True)
class Archive:
    """One archive: its name, how to open it, and its part of the fingerprint."""

    name: str
    open: Opener
    state: str = ""


class ShardStream:
    """The samples of archives in blocks of columns, read one way: an origin of `penstock.IterDataset`.

    `path` may also be a mapping of names to functions that open a pipe or file of bytes. A buffer of `shuffle` samples
    is shuffled; it ends where it has `buffer_bytes`, and a sample that has more is refused. Each of `threads` unpacks
    an archive, so that the next are opened before they are needed. Memory: the buffer twice, and 32 MiB a thread.
    """

    def __init__(
        self,
        path: LocationLike | Mapping[str, Opener],
        *,
        rows: int = 256,
        shuffle: int = 0,
        seed: int | Sequence[int] = 0,
        buffer_bytes: int = 1 << 28,
        extensions: Sequence[str] | None = None,
        images: str | None = None,
        trust: Trust = False,
        threads: int = 2,
        salvage: bool = False,
        missing: Missing = "error",
        resize: int | tuple[int, int] | None = None,
        crop: tuple[int, int] | None = None,
        ragged: bool = False,
    ) -> None:
        if rows < 1 or shuffle < 0 or buffer_bytes < 1 or threads < 1:
            message = "expected at least a row, a byte and a thread, and a buffer of 0 samples or more"
            got = f"rows={rows}, buffer_bytes={buffer_bytes}, threads={threads}, shuffle={shuffle}"
            raise DataError(f"{message}, got {got}")
        self.archives = _archives(path)
        self.rows = rows
        self.shuffle = shuffle
        self.buffer_bytes = buffer_bytes
        self.threads = threads
        self.seed = [seed] if isinstance(seed, int) else [int(part) for part in seed]
        how = How(images, trust, resize, crop, ragged)
        names = None if extensions is None else tuple(extensions)
        self.options = Options(names, how, 4 * buffer_bytes, salvage, missing=missing)

    @property
    def shuffling(self) -> str:
        """How far samples are shuffled; a dataset of `penstock.open` is shuffled as a whole instead."""
        return f"a buffer of {self.shuffle} samples" if self.shuffle else "none"

    @property
    def fingerprint(self) -> str:
        """A digest of the archives' names and states, the order and the options."""
        parts = [[a.state or a.name for a in self.archives], self.rows, self.shuffle, self.seed, self.buffer_bytes]
        return hashlib.sha256(f"shard stream {parts} {self.options}".encode()).hexdigest()

    def __call__(self) -> ShardIterator:
        """A fresh iterator, at the start."""
        return ShardIterator(self)


def _archives(path: LocationLike | Mapping[str, Opener]) -> list[Archive]:
    if isinstance(path, Mapping):
        return [Archive(str(name), opener) for name, opener in path.items()]

    def one(shard: Path) -> Archive:
        state = file_state(shard)
        return Archive(str(shard), lambda: open_file(shard), f"{shard.name} {state.size} {state.mtime_ns}")

    places = Location.of(path).paths()
    return [one(shard) for shard in shards_of(places[0] if len(places) == 1 else places)]


class ShardIterator(BlockIterator):
    """One pass over a `ShardStream`; `state_dict` says where it stands, `load_state_dict` goes there."""

    def __init__(self, origin: ShardStream) -> None:
        self._origin = origin
        order = np.arange(len(origin.archives))
        self._order: list[int] = (self._draw(0).permutation(order) if origin.shuffle else order).tolist()
        self._load(0, 0, 0, 0)

    @override
    def __next__(self) -> Columns:
        while self._held is None or self._given >= self._held.n:
            if self._held is not None:
                self._place = self._after
                self._number = self._number + 1
                self._given = 0
            self._held = self._filled()
            if self._held is None:
                raise StopIteration
        block = self._held.take(slice(self._given, self._given + self._origin.rows))
        self._given += block.n
        return block

    def state_dict(self) -> IteratorState:
        """Archive and sample that the buffer begins with, its number, the rows of it that are out; as plain JSON."""
        place = self._place
        number = self._number
        given = self._given
        if self._held is not None and given >= self._held.n:
            place = self._after
            number = number + 1
            given = 0
        state = {"archive": place[0], "sample": place[1], "buffer": number, "given": given}
        return {"stream": self._origin.fingerprint, **state}

    def load_state_dict(self, state: IteratorState) -> None:
        if state.get("stream") != self._origin.fingerprint:
            raise StateError("expected a state of this stream, got one of other archives, another order or options")
        self._load(*(int(state[name]) for name in ("archive", "sample", "buffer", "given")))

    def _load(self, archive: int, sample: int, number: int, given: int) -> None:
        self._place = self._after = (archive, sample)
        self._number, self._given = number, given
        self._held: Columns | None = None
        self._kinds: dict[str, Any] | None = None
        self._samples = self._from(archive, sample)

    def _draw(self, *what: int) -> np.random.Generator:
        return np.random.default_rng([*self._origin.seed, *what])

    def _from(self, archive: int, sample: int) -> Iterator[tuple[int, int, Sample]]:
        """Place in the order, number and content of every sample from a place on."""
        origin = self._origin
        sources = [origin.archives[number] for number in self._order[archive:]]
        files = (Ahead(source.open, source.name, AHEAD) for source in sources)
        running = deque(islice(files, origin.threads))
        try:
            for archive_number, source in enumerate(sources, archive):
                samples = samples_of(running[0], source.name, origin.buffer_bytes, origin.options.salvage)
                try:
                    for i, one in enumerate(samples):
                        if archive_number > archive or i >= sample:
                            yield archive_number, i, one
                except NoArchiveError as error:
                    if len(self._order) == 1:
                        raise
                    warn_damage(f"left out 1 file: {error}", stacklevel=2)
                running.popleft().close()
                running.extend(islice(files, 1))
        finally:
            for file in running:
                file.close()

    def _filled(self) -> Columns | None:
        """The next buffer, shuffled; None at the end."""
        origin, parts = self._origin, list[_BufferedArchive]()
        count = nbytes = 0
        for archive, i, sample in self._samples:
            begin, before = sample[0][0].header, nbytes
            if not parts or self._after[0] != archive or begin - parts[-1].end > GAP:
                parts.append(_BufferedArchive(origin.archives[self._order[archive]].name, begin))
            nbytes = before + parts[-1].add(sample)
            self._after, count = (archive, i + 1), count + 1
            if count >= max(origin.shuffle, origin.rows) or nbytes >= origin.buffer_bytes:
                break
        if not count:
            return None
        columns = self._columns(parts)
        if not origin.shuffle:
            return columns
        return columns.take(self._draw(1, self._number).permutation(columns.n))

    def _columns(self, parts: list[_BufferedArchive]) -> Columns:
        samples = Samples.concatenate([grouped(part.members(), i, part.path) for i, part in enumerate(parts)])
        paths, buffers = [part.path for part in parts], [part.data for part in parts]
        options = self._origin.options
        content = general.read(Archives(paths, buffers, chosen(samples, options.extensions, paths[0]), options))
        n = len(content.samples)
        whole = Selection.consecutive(0, n)
        columns: dict[str, Any] = {}
        for path, places in content.columns.items():
            column = places.on(buffers)
            if isinstance(column, PlacedRagged):
                columns[path] = column.read_ragged(whole)
            else:
                columns[path] = np.empty((n, *places.field.shape), places.field.dtype)
                column.read(whole, columns[path])
        kinds = {path: (p.field.dtype.str, p.field.shape, p.field.kind) for path, p in content.columns.items()}
        if self._kinds not in (None, kinds):
            message = f"expected the columns {self._kinds} as before, got {kinds}; choose some with `extensions`"
            raise FormatError(message, path=paths[0])
        self._kinds = kinds
        return Columns(columns)


def samples_of(file: Ahead, name: str, limit: int, salvage: bool = False) -> Iterator[Sample]:
    """The samples of one file, each a list of members with their payloads: adjacent members of an archive with one key.

    An archive that was cut off is a `DamageWarning` at its end, as are bytes behind the end that are no archive; with
    `salvage`, the last sample is left out if it lacks a member that all others have.
    """
    members = stream(file, name, limit=limit, torn="drop" if salvage else "refuse")
    waiting: Sample = []
    key, end = b"", ArchiveEnd(0)
    required: set[bytes] | None = None  # the extensions that all samples have
    while True:
        try:
            member, payload = next(members)
        except StopIteration as stop:
            end = stop.value
            break
        mine, dot = key_of(member.name)
        if not dot or mine == META.encode() or PASSED.match(member.name):
            continue
        if waiting and (mine != key or member.archive != waiting[0][0].archive):
            extensions = _extensions(waiting)
            required = extensions if required is None else required & extensions
            yield waiting
            waiting = []
        key = mine
        waiting.append((member, payload))
        if member.payload + member.size - waiting[0][0].header > limit:
            message = f"expected samples of at most {limit} bytes, got more; raise buffer_bytes"
            raise UnsafeDataError(message, path=name, where=f"member {member.name.decode(errors='replace')!r}")
    cut = waiting and salvage and end.torn is not None and required is not None and not required <= _extensions(waiting)
    if waiting and not cut:
        yield waiting
    if end.torn is not None:
        left_out = f"; the last sample {key.decode(errors='replace')!r} is left out" if cut else ""
        warn_damage(f"{name} was cut off: {end.torn}{left_out}", stacklevel=2)
    if end.behind is not None:
        warn_damage(f"{name}: left out what follows the end of the archive at byte {end.behind}", stacklevel=2)


def key_of(name: bytes) -> tuple[bytes, bytes]:
    """The name of a member up to the first dot of its last part, and that dot; none without one, and of hidden ones."""
    folder, slash, last = name.rpartition(b"/")
    before, dot, _ = last.partition(b".")
    return folder + slash + before, dot if before else b""


def _extensions(sample: Sample) -> set[bytes]:
    return {member.name[len(key_of(member.name)[0]) + 1 :].lower() for member, _ in sample}


class _BufferedArchive:
    """Samples of one archive in the buffer, at the distances from the first that they have in the archive."""

    def __init__(self, name: str, begin: int) -> None:
        self.path, self._begin = Path(f"{name} from unpacked byte {begin} on"), begin
        self._data = bytearray()
        self._found: list[TarMember] = []

    @property
    def end(self) -> int:
        """Where the last payload ends in the archive."""
        return self._begin + len(self._data)

    @property
    def data(self) -> ByteArray:
        """The bytes; those between members are zeros."""
        return np.frombuffer(self._data, np.uint8)

    def add(self, sample: Sample) -> int:
        """Take a sample in; how many bytes that took."""
        before = len(self._data)
        for member, payload in sample:
            self._data.extend(bytes(member.payload - self._begin - len(self._data)))
            self._data.extend(payload)
            self._found.append(member)
        return len(self._data) - before

    def members(self) -> Members:
        """Their places in `data`."""
        names = np.array([member.name for member in self._found])
        numbers = np.array([(m.header, m.payload, m.size) for m in self._found], np.int64)
        header, payload, size = numbers.T.copy()
        archive = np.array([member.archive for member in self._found])
        first = (0, *(np.flatnonzero(np.diff(archive)) + 1).tolist())
        end = ArchiveEnd(len(self._data))
        return Members(names, header - self._begin, payload - self._begin, size, end, first)
