"""The layout that we write new data in: a sample an episode, an `.npy` member a column, and JSON.

    __penstock__/000000.json                   {"format": "penstock shards", "version": 1, "spec": ..., "metadata": ...}
    episode_000000000.json                      {"steps": 2, "metadata": ...}
    episode_000000000.observations.npy          [T + 1, ...]
    episode_000000000.actions.npy               [T, ...]
    episode_000000000.infos.hits.values.npy     a ragged column: its values,
    episode_000000000.infos.hits.offsets.npy    and [rows + 1] where each row begins

The first member of an archive describes it; the one with the highest number counts. `/` in the path of a column is a
dot in the extension, which is in lower case. The webdataset library passes over the description and gives one sample
an episode, with an array for every member.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.npy import header_bytes
from penstock.containers.tar import Members
from penstock.core.arrays import ByteArray, IntArray
from penstock.core.narrowing import is_dict
from penstock.core.ragged import offsets_of
from penstock.core.spec import Spec
from penstock.errors import FormatError, SpecError
from penstock.files.mapping import check_mapped
from penstock.formats.webdataset.content import Content, Places
from penstock.formats.webdataset.reading import Archives

NAME = "npy"
MARKER = "penstock shards"
VERSION = 1
FOLDER = "__penstock__/"
LARGEST = 1 << 28  # bytes of a description
_OFFSETS = np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class Description:
    """Description of an archive, and how often it was written again."""

    number: int
    spec: Spec
    metadata: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{FOLDER}{self.number:06d}.json"

    def encode(self) -> bytes:
        entries = {"format": MARKER, "version": VERSION, "spec": self.spec.to_json(), "metadata": dict(self.metadata)}
        return json.dumps(entries).encode()


def described(paths: Sequence[Path], buffers: Sequence[ByteArray], members: Sequence[Members]) -> Description | None:
    """The newest description in any of the archives; None if the first archive with members has none."""
    first = next((each for each in members if len(each)), None)
    if first is None or not first.name(0).startswith(FOLDER):
        return None
    newest: tuple[str, int, int] | None = None
    for shard, shard_members in enumerate(members):
        for i in np.flatnonzero(np.char.startswith(shard_members.names, FOLDER.encode())).tolist():
            newest = max(newest or ("", 0, 0), (shard_members.name(i), shard, i))
    if newest is None:
        return None
    name, shard, i = newest
    return _description(name, buffers[shard], members[shard], i, paths[shard])


def _description(name: str, data: ByteArray, members: Members, i: int, path: Path) -> Description:
    begin, size = int(members.payload[i]), min(int(members.size[i]), LARGEST)
    try:
        entries = json.loads(data[begin : begin + size].tobytes())
        if (entries["format"], entries["version"]) != (MARKER, VERSION):
            raise ValueError(f"format {entries['format']!r} of version {entries['version']!r}")
        return Description(int(name[len(FOLDER) : -5]), Spec.from_json(entries["spec"]), dict(entries["metadata"]))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        message = f"expected a description of {MARKER!r}, version {VERSION}, got {error}"
        raise FormatError(message, path=path, where=members.where(i)) from error


def extensions(spec: Spec) -> dict[str, str]:
    """The extension of every member of an episode, by column; ragged columns have `path:offsets` besides."""
    names: dict[str, str] = {}
    for path, field in spec.items():
        if field.ragged and field.shape:
            raise SpecError(f"expected ragged rows of one dimension, got {field.dtype}{field.shape} - at {path}")
        name = path.replace("/", ".").encode().lower().decode()
        if field.ragged:
            names |= {path: f"{name}.values.npy", f"{path}:offsets": f"{name}.offsets.npy"}
        else:
            names[path] = f"{name}.npy"
    if len(set(names.values())) < len(names):
        raise SpecError(f"expected columns whose names differ with '/' as '.' and in lower case, got {list(spec)}")
    return names


def read(archives: Archives, description: Description) -> Content:
    spec = description.spec
    entries = [_episode(archives, i) for i in range(len(archives.samples))]
    steps = np.array([steps for steps, _ in entries], np.int64)
    columns = {path: _OwnColumn(archives, spec, path).places(steps) for path in spec}
    metadata = tuple(entry for _, entry in entries)
    told_of = (description.metadata, metadata, description.number)
    return Content(NAME, spec, offsets_of(steps), columns, archives.samples, *told_of)


def _episode(archives: Archives, i: int) -> tuple[int, dict[str, Any]]:
    if "json" not in archives.samples.extensions:
        message = "expected a .json member in every episode, found none"
        raise FormatError(message, path=archives.paths[0], where=f"sample {archives.samples.key(i)!r}")
    member = archives.member(i, "json")
    try:
        entries = json.loads(member.raw)
        steps, metadata = entries["steps"], entries["metadata"]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise member.error(f"expected steps and metadata of an episode, got {error}") from error
    if type(steps) is not int or not 0 <= steps < 1 << 48 or not is_dict(metadata):
        raise member.error(f"expected steps and metadata of an episode, got {steps!r} and {type(metadata).__name__}")
    return steps, {str(key): value for key, value in metadata.items()}


class _OwnColumn:
    """One column on its way from members to places."""

    def __init__(self, archives: Archives, spec: Spec, path: str) -> None:
        self._archives = archives
        self._path = path
        self._field = spec[path]
        self._extensions = extensions(spec)

    def places(self, steps: IntArray) -> Places:
        """Places of its rows, for episodes of so many steps."""
        rows = steps + (self._field.align == "boundary") if self._field.align != "episode" else np.ones_like(steps)
        extension, field = self._extensions[self._path], self._field
        if not field.ragged:
            offset = self._payloads(extension, field.dtype, field.shape, rows)
            return Places(field, rows, self._archives.samples.shard, offset, np.zeros(0, np.uint8))
        cuts = list(self._cuts(rows))
        counts = np.array([part[-1] for part in cuts], np.int64)
        offset = self._payloads(extension, field.dtype, (), counts)
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(part) for part in cuts)])
        none = np.zeros(0, np.uint8)
        return Places(field, counts, self._archives.samples.shard, offset, none, offsets_of(lengths))

    def _payloads(self, extension: str, dtype: np.dtype[Any], shape: tuple[int, ...], rows: IntArray) -> IntArray:
        """`[E]` where the values begin in each member, whose headers must have so many rows."""
        samples = self._archives.samples
        if extension not in samples.extensions:
            if not len(samples):
                return np.zeros(0, np.int64)
            message = f"expected a member {extension!r} in every episode, found none"
            raise FormatError(message, path=self._archives.paths[0])
        x = samples.extensions.index(extension)
        width = dtype.itemsize * math.prod(shape)
        begins: list[int] = []
        for i, count in enumerate(rows.tolist()):
            expected = header_bytes(dtype.str, (count, *shape))
            begin, size = int(samples.payload[x, i]), int(samples.size[x, i])
            data = self._archives.buffers[int(samples.shard[i])]
            check_mapped(data)
            raw = data[begin : begin + len(expected)].tobytes()
            if raw != expected or size != len(expected) + count * width:
                message = f"expected an .npy file of {dtype}{[count, *shape]}, got {size} bytes that begin {raw!r}"
                raise self._archives.member(i, extension).error(message)
            begins.append(begin + len(expected))
        return np.array(begins, np.int64)

    def _cuts(self, rows: IntArray) -> Iterator[IntArray]:
        extension = self._extensions[f"{self._path}:offsets"]
        begins = self._payloads(extension, _OFFSETS, (), rows + 1)
        for i, (begin, count) in enumerate(zip(begins.tolist(), (rows + 1).tolist(), strict=True)):
            data = self._archives.buffers[int(self._archives.samples.shard[i])]
            check_mapped(data)
            cuts = data[begin : begin + 8 * count].view(_OFFSETS).astype(np.int64)
            if cuts[0] != 0 or np.any(np.diff(cuts) < 0) or cuts[-1] >= 1 << 48:
                message = f"expected offsets from 0 that never decrease, got {cuts[0]} to {cuts[-1]}"
                raise self._archives.member(i, extension).error(message)
            yield cuts


def key(number: int) -> str:
    """The key of episode `number`, of one width so that names sort as numbers do."""
    return f"episode_{number:09d}"


def episode_json(steps: int, metadata: Mapping[str, Any]) -> bytes:
    return json.dumps({"steps": steps, "metadata": dict(metadata)}).encode()
