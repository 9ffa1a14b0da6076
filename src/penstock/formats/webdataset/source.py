"""Archives opened as a source: members are slices of memory maps, and reading a column is one gather."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.containers.on_demand import MANY, FilesOnDemand
from penstock.containers.pickle import PickleTemplate
from penstock.containers.tar import ArchiveEnd, Members, NoArchiveError, TornError, walk
from penstock.containers.tar.walk import with_advice
from penstock.core.arrays import ByteArray
from penstock.core.narrowing import is_array, is_scalar
from penstock.errors import FormatError
from penstock.files.listing import FileStates, file_states
from penstock.files.mapping import is_lazy, map_file, read_mapped
from penstock.files.remote import remote_file
from penstock.flow import map_on_threads
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.format import folder_of
from penstock.formats.base.state import SourceState, StateSource
from penstock.formats.webdataset import general, own, seed
from penstock.formats.webdataset.content import (
    Content,
    PlacedColumn,
    PlacedRagged,
    Samples,
    chosen,
    grouped,
    index_file,
    index_state,
    is_of_sample,
    load_index,
    without_cut_sample,
)
from penstock.formats.webdataset.decoders import Decode, How, MemberBytes, Trust, decoder, is_pickle, kind_of
from penstock.formats.webdataset.reading import LIKE, TEMPLATES, Archives, Missing, Options
from penstock.formats.webdataset.shards import COPIED_BYTES, plain, shards_of, unused_in
from penstock.locations.location import Location

WORTH = 2048  # members from which keeping an index is worth a file
KNOWN = 1 << 12  # small values that are kept for an extension
_PLAIN = (bool, int, float, str, bytes, type(None))  # immutable values


@dataclass(frozen=True, eq=False, kw_only=True)
class OpenedArchives(SourceState):
    """The content of archives, and the archives."""

    content: Content
    archives: Archives

    @classmethod
    def of(cls, content: Content, archives: Archives, key: str, beside: Sequence[LeftOut] = ()) -> OpenedArchives:
        """Build the readers; `key` is a digest of the archives and options, `beside` are other files of the folder."""
        columns = {path: places.on(archives.buffers) for path, places in content.columns.items()}
        return cls(
            spec=content.spec,
            offsets=content.offsets,
            digest=lambda: hashlib.sha256(f"{key} {content.spec.fingerprint}".encode()).hexdigest(),
            metadata=content.metadata,
            arrays={path: column for path, column in columns.items() if isinstance(column, PlacedColumn)},
            ragged={path: column for path, column in columns.items() if isinstance(column, PlacedRagged)},
            account=replace(content.account, left_out=(*content.account.left_out, *beside)),
            content=content,
            archives=archives,
        )

    @cached_property
    def stored(self) -> ArchiveSamples:
        return ArchiveSamples(self.archives)


class ShardSource(StateSource[OpenedArchives]):
    """The dataset in an archive, a folder of archives, or several archives: a list, or a pattern as `Location` has.

    docs/formats/webdataset.md describes the layouts, the options and what is left out. `trust="pickle"` lets Python run
    the pickles that are not plain data, so it is an argument and never a setting of the environment. Cost: one pass
    over the headers the first time, 2 µs a member; afterwards the index is read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        extensions: Sequence[str] | None = None,
        images: str | None = None,
        decoded_bytes: int = 1 << 30,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int = COPIED_BYTES,
        index: bool | Literal["refresh"] = True,
        trust: Trust = False,
        salvage: bool = False,
        join: bool = False,
        missing: Missing = "error",
        resize: int | tuple[int, int] | None = None,
        crop: tuple[int, int] | None = None,
        ragged: bool = False,
    ) -> None:
        places = Location.of(path).paths()
        self._files: Path | tuple[Path, ...] = places[0] if len(places) == 1 else places
        self.location = folder_of(self._files)
        how = How(images, trust, resize, crop, ragged)
        names = None if extensions is None else tuple(extensions)
        self._options = Options(names, how, decoded_bytes, salvage, join, missing)
        self._rest: dict[str, Any] = {"cache": cache, "cache_bytes": cache_bytes, "index": index}
        self.index_file = index_file(self._files)
        self._index_written = False
        self._shards = shards_of(self._files)
        states = file_states(self._shards)
        self._settled = bool(states.settled.all())
        self._key = _key(self._shards, states, self._options)
        buffers = _mapped(self._shards, states, cache, cache_bytes, "drop" if salvage else "refuse")
        self._state = self._open(buffers)

    def __reduce__(self) -> tuple[Callable[..., ShardSource], tuple[Any, ...]]:
        how = self._options.how
        options = {"extensions": self._options.extensions, **{f.name: getattr(how, f.name) for f in fields(how)}}
        options |= {name: getattr(self._options, name) for name in ("decoded_bytes", "salvage", "join", "missing")}
        return partial(ShardSource, **options, **self._rest), (self._files,)

    def _open(self, buffers: Sequence[ByteArray]) -> OpenedArchives:
        if self._rest["index"] is True and (content := self._indexed(buffers)) is not None:
            with contextlib.suppress(IndexError):  # an index that names places outside of the archives is made again
                return self._on(content, buffers)
        # Every header is read, so a remote archive is fetched whole, once: afterwards its index is in the cache.
        content = read(self._shards, _whole(self._shards, buffers), self._options)
        remote = remote_file(self._shards[0]) is not None if self._shards else False
        opened = self._on(content, buffers)
        if self._rest["index"] and (remote or content.samples.size.size >= WORTH):
            self._save_index(content, buffers)
        return opened

    def _on(self, content: Content, buffers: Sequence[ByteArray]) -> OpenedArchives:
        archives = Archives(self._shards, buffers, content.samples, self._options)
        return OpenedArchives.of(content, archives, self._key, unused_in(self._files))

    def keep_index(self) -> bool:
        """Write the index, unless the cache has it; return whether it was written since these archives were opened."""
        buffers = self.state.archives.buffers
        if self._indexed(buffers) is None:
            self._save_index(self.state.content, buffers)
        return self._index_written

    def _save_index(self, content: Content, buffers: Sequence[ByteArray]) -> None:
        if self.index_file is not None:
            state = index_state(self._key, self._shards, buffers)
            self._index_written = self.index_file.write(state, *content.packed(), settled=self._settled)

    def _indexed(self, buffers: Sequence[ByteArray]) -> Content | None:
        if self.index_file is None or not self.index_file.path.exists():
            return None
        return load_index(self.index_file, index_state(self._key, self._shards, buffers))

    @property
    def path(self) -> Path:
        """The archive or folder; of several archives, the first."""
        return self._files if isinstance(self._files, Path) else self._files[0]

    @property
    def shards(self) -> Sequence[Path]:
        """The archives, in order."""
        return self._shards

    @property
    def layout(self) -> str:
        """`npy`, `seed` or `samples`."""
        return self.state.content.layout

    @property
    def torn_tails(self) -> Mapping[str, int]:
        """The archives in which a killed writer left an append, by name, and the byte where it begins."""
        return self.state.content.torn_tails

    @property
    def described(self) -> int:
        """How often our own layout was described again."""
        return self.state.content.described

    @override
    def episode_metadata(self, episodes: Sequence[int]) -> list[dict[str, Any]]:
        entries = self.state.content.episodes
        return [dict(entries[e]) if entries else {} for e in episodes]

    @property
    def samples(self) -> Samples:
        """Keys and places of the stored samples: a step each in the seed's layout, a record or an episode elsewhere."""
        return self.state.content.samples

    def sample(self, i: int) -> dict[str, Any]:
        """Stored sample `i` as it is, `__key__` and a value an extension, decoded as data, but for text and bytes."""
        return self.state.stored.sample(i)

    @override
    def close(self) -> None:
        self._state = None


def _key(shards: Sequence[Path], states: FileStates, options: Options) -> str:
    """Digest of a JSON list of the name, size and time of each archive, and of the options."""
    digest, between = hashlib.sha256(b"[["), ""
    for shard, size, mtime_ns in zip(shards, states.size.tolist(), states.mtime_ns.tolist(), strict=True):
        digest.update(f"{between}{json.dumps([shard.name, size, mtime_ns])}".encode())
        between = ", "
    digest.update(f"], {json.dumps(str(options))}]".encode())
    return digest.hexdigest()


def read(paths: Sequence[Path], buffers: Sequence[ByteArray], options: Options) -> Content:
    """The content of archives by the layout that their members have."""

    def headers(shard: int) -> Members:
        return read_members(buffers[shard], paths[shard], options)

    members = map_on_threads(headers, range(len(paths)), name="penstock-headers")
    if paths and all(map(is_none, members)):
        walk(buffers[0], paths[0])  # says what it is
    groups = [grouped(listed, shard, paths[shard]) for shard, listed in enumerate(members)]
    unused = unused_members(paths, members, groups)
    if not any(map(len, members)) and (torn := next((each.torn for each in members if each.torn is not None), None)):
        raise TornError(f"expected samples, got an archive that was cut off: {torn}", path=paths[0])
    if options.salvage:
        whole = [_salvaged(listed, samples) for listed, samples in zip(members, groups, strict=True)]
        members, groups = [listed for listed, _ in whole], [samples for _, samples in whole]
    archives = Archives(paths, buffers, chosen(Samples.concatenate(groups), options.extensions, paths[0]), options)
    if (description := own.described(paths, buffers, members)) is not None:
        content = own.read(archives, description)
    else:
        content = seed.read(archives) if seed.is_seed(archives.samples) else general.read(archives)
    if options.missing != "error" and content.layout != general.NAME:
        message = f"expected missing='error' for the layout {content.layout!r}, whose samples have all members"
        raise FormatError(message, path=paths[0])
    if options.join and content.layout != seed.NAME:
        message = f"expected join=False for the layout {content.layout!r}: its episodes never go on in another archive"
        raise FormatError(message, path=paths[0])
    left_out, torn_tails = leftovers(paths, buffers, members, appended=content.layout != general.NAME)
    account = replace(content.account, left_out=(*content.account.left_out, *unused, *left_out))
    return replace(content, account=account, torn_tails=torn_tails)


def read_members(data: ByteArray, path: Path, options: Options) -> Members:
    """The members of a file: none of one that is no archive."""
    try:
        return walk(data, path, torn="drop" if options.salvage else "refuse")
    except NoArchiveError:
        none = np.zeros(0, np.int64)
        return Members(np.zeros(0, "S1"), none, none, none, ArchiveEnd(0, behind=0))
    except TornError as error:
        raise with_advice(error, "; open it with salvage=True to read up to the last whole sample") from error


def _salvaged(members: Members, samples: Samples) -> tuple[Members, Samples]:
    """The whole samples of a file, and its members, whose tail says what was cut off."""
    if (torn := members.torn) is None:
        return members, samples
    whole = without_cut_sample(samples)
    left_out = "" if len(whole) == len(samples) else f", the last sample {samples.key(len(whole))!r} is left out"
    message = f"{torn}; {len(whole)} samples are whole{left_out}"
    return replace(members, tail=replace(members.tail, torn=message)), whole


def _mapped(
    shards: Sequence[Path],
    states: FileStates,
    cache: str | os.PathLike[str] | None,
    limit: int,
    torn: Literal["refuse", "drop"],
) -> Sequence[ByteArray]:
    """The archives, unpacked where they are compressed, on one thread a core; many are mapped when they are read."""

    def one(shard: Path) -> ByteArray:
        return plain(shard, cache, limit, torn=torn)

    if len(shards) >= MANY:
        return FilesOnDemand(shards, states, lambda number: one(shards[number]))
    return map_on_threads(one, shards, name="penstock-unpack")


def _whole(shards: Sequence[Path], buffers: Sequence[ByteArray]) -> Sequence[ByteArray]:
    """The archives with all of their bytes on this machine."""
    if isinstance(buffers, FilesOnDemand):
        return FilesOnDemand(shards, buffers.states, lambda number: _fetched(shards[number], buffers.read(number)))
    return [_fetched(shard, data) for shard, data in zip(shards, buffers, strict=True)]


def _fetched(shard: Path, data: ByteArray) -> ByteArray:
    return map_file(shard) if is_lazy(data) else data


def is_none(members: Members) -> bool:
    """Whether the file of these members is no archive."""
    return members.tail.behind == 0


def leftovers(
    paths: Sequence[Path], buffers: Sequence[ByteArray], members: Sequence[Members], *, appended: bool
) -> tuple[list[LeftOut], Mapping[str, int]]:
    """The entries of files and bytes; and by file, the byte at which an unfinished append begins."""
    left_out: list[LeftOut] = []
    torn_tails: dict[str, int] = {}
    name_of = _names(paths)
    for shard, listed in enumerate(members):
        behind = listed.tail.behind
        if behind is None and listed.torn is None:
            continue
        name = name_of(shard)
        if is_none(listed):
            left_out.append(LeftOut("file", name, "bad-file", _instead(buffers[shard])))
        elif listed.torn is not None:
            left_out.append(LeftOut("bytes", name, "truncated", listed.torn))
        elif behind is not None and appended and listed.tail.unfinished:
            torn_tails[name] = behind
        elif behind is not None:
            size = len(buffers[shard]) - behind
            message = f"expected the end of the archive or another archive, got {size} bytes of something else"
            left_out.append(LeftOut("bytes", f"{name}: byte {behind}", "behind-the-end", message))
    return left_out, torn_tails


def unused_members(paths: Sequence[Path], members: Sequence[Members], samples: Sequence[Samples]) -> list[LeftOut]:
    """Members that belong to no sample, an entry for each reason with the first of them."""
    by_reason: dict[str, LeftOut] = {}
    name_of = _names(paths)
    for shard, (listed, group) in enumerate(zip(members, samples, strict=True)):
        if np.count_nonzero(group.size >= 0) == len(listed):
            continue
        for entry in _unused(listed, name_of(shard)):
            first = by_reason.get(entry.reason)
            by_reason[entry.reason] = entry if first is None else replace(first, count=first.count + 1)
    return list(by_reason.values())


def _unused(members: Members, shard: str) -> Iterator[LeftOut]:
    """Members of one file that belong to no sample: hidden ones, and names without an extension."""
    names = [members.name(i) for i in np.flatnonzero(~is_of_sample(members)).tolist()]
    for entry in unused_files(names, "names such as 'key.extension'"):
        yield replace(entry, thing="member", where=f"{shard}: {entry.where}")


def _names(paths: Sequence[Path]) -> Callable[[int], str]:
    """Return what gives the name of a file in the folder of all, which is looked up at most once."""
    folder = cache(lambda: paths[0].parent if len(paths) == 1 else folder_of(paths))
    return lambda shard: os.path.relpath(paths[shard], folder())


def _instead(data: ByteArray) -> str:
    """What a file is that is no archive, for a message."""
    begins = data[:16].tobytes()
    return f"expected an archive, got a file that begins {begins!r}" if begins else "expected an archive, got no bytes"


class ArchiveSamples:
    """The samples of archives, each decoded as data when it is asked for. Shared by threads."""

    def __init__(self, archives: Archives) -> None:
        self._archives = archives
        self._values = [_Values(name, decoder(name, archives.options.how)) for name in archives.samples.extensions]

    def sample(self, i: int) -> dict[str, Any]:
        """`__key__`, and a value an extension; arrays are read-only."""
        samples = self._archives.samples
        if not 0 <= i < len(samples):
            raise IndexError(f"expected a sample within 0:{len(samples)}, got {i}")
        decoded: dict[str, Any] = {"__key__": samples.key(i)}
        shard = int(samples.shard[i])
        buffer = self._archives.buffers[shard]
        places = zip(self._values, samples.payload[:, i].tolist(), samples.size[:, i].tolist(), strict=True)
        for values, begin, size in places:
            if size >= 0:
                name = values.extension
                decoded[name] = values.of(
                    read_mapped(buffer[begin : begin + size]).data, lambda name=name: self._archives.member(i, name)
                )
        return decoded


class _Values:
    """How the members of one extension become values. Knowledge of earlier ones is only a hint."""

    def __init__(self, extension: str, decode: Decode | None) -> None:
        self.extension, self._decode = extension, decode
        self._tries = TEMPLATES if is_pickle(extension) and not kind_of(extension).endswith(".gz") else 0
        self._templates: list[PickleTemplate] = []
        self._known: dict[bytes, Any] = {}

    def of(self, raw: memoryview, member: Callable[[], MemberBytes]) -> Any:
        """The value of a member with these bytes."""
        if self._decode is None:
            return bytes(raw)
        for template in self._templates:
            if (array := template.match(raw)) is not None:
                return array[()] if template.scalar else array
        small = bytes(raw) if len(raw) <= LIKE else b""
        if small in self._known:
            return self._known[small]
        value = self._decode(member())
        if isinstance(value, _PLAIN):
            if small and len(self._known) < KNOWN:
                self._known[small] = value
        elif (is_array(value) or is_scalar(value)) and self._tries:
            self._tries -= 1
            if (learnt := PickleTemplate.learn(raw)) is not None:
                self._templates.append(learnt)
        return value
