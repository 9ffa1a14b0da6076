"""Members grouped into samples: adjacent members of one archive with the same key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock.containers.tar import Members
from penstock.core.arrays import BoolArray, IntArray
from penstock.errors import FormatError

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
        """The samples of all shards, in order. Raises `FormatError` for too many extensions."""
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
    """The samples of one shard. The key is the name up to the first dot of its last part, the extension the rest, in
    lower case. Names without a dot, hidden ones (`.x`), and what the library keeps for itself (`__x__`), are passed
    over.

    Raises `FormatError` if a sample has an extension twice. Cost: 1 µs a member.
    """
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
    """Only the members of these extensions, and the samples that have one; all where None. Raises `FormatError`."""
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
