"""Index of the records of a split: where they are, where the list of each feature is, and how many steps they have.

The index is made in one pass over the heads of records and of their features, by several threads, one shard each; the
values are skipped. It is kept in the user's cache, under the name, size and time of each shard. Places in it are
compared with the files before anything is read there.

A record whose message is damaged, or whose features disagree about the number of steps, is left out, and so are the
records behind a damaged size. `RecordIndex.damaged` names them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.tfrecord import index_records, map_records
from penstock.core.arrays import ByteArray, Int32Array, IntArray, UInt32Array, read_only
from penstock.errors import FormatError
from penstock.files.arrays import Arrays, read_arrays, write_arrays
from penstock.files.user_cache import make_room, user_cache
from penstock.flow import OrderedMap, PrefetchLimits
from penstock.formats.rlds.features import RLDSFeature
from penstock.formats.rlds.folder import SplitFiles
from penstock.kernels.crc32c import HEAD, TAIL
from penstock.kernels.examples import ABSENT, BYTES, count_blobs, scan_examples

MAGIC = b"penstock rlds index 1\n"
BYTES_KEPT = 4 << 30  # that all indexes together may have


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """The sound records of a split, in the order of the shards.

    Args:
        shard: `[R]` int32 number of each record's shard.
        number: `[R]` int64 number of each record in its shard.
        begin: `[R]` int64, the byte at which each record begins in its shard.
        size: `[R]` int64, the bytes of each record.
        checksum: `[R]` uint32, the stored checksum of each record.
        steps: `[R]` int64 number of steps.
        spans: `[R, K, 3]` int64: begin and end of the list of each key, from the start of the record, and the number
            of its values, -1 for bytes.
        kinds: `[R, K]` uint8 kind of each list.
        damaged: Name of the shard and reason, for each record that was left out.
    """

    shard: Int32Array
    number: IntArray
    begin: IntArray
    size: IntArray
    checksum: UInt32Array
    steps: IntArray
    spans: IntArray
    kinds: ByteArray
    damaged: tuple[tuple[str, str], ...]

    def without(self, records: IntArray, reason: str, names: Sequence[str]) -> RecordIndex:
        """Return the index without some records. `names` has the name of each shard, for `damaged`."""
        kept: dict[str, Any] = {name: np.delete(getattr(self, name), records, 0) for name in ARRAYS}
        left_out = [(names[int(self.shard[r])], f"record {self.number[r]}: {reason}") for r in records.tolist()]
        return RecordIndex(**kept, damaged=(*self.damaged, *left_out))


ARRAYS = ("shard", "number", "begin", "size", "checksum", "steps", "spans", "kinds")


def keys_of(features: Sequence[RLDSFeature]) -> list[str]:
    """Return the names of all lists that the features need."""
    return [key for feature in features for key in feature.keys]


def index_split(splits: Sequence[SplitFiles], features: Sequence[RLDSFeature], *, cache: bool) -> RecordIndex:
    """Return the index of the shards of splits, from the cache if possible.

    Args:
        splits: The splits.
        features: The features to find.
        cache: Whether the index is kept in the user's cache.

    Raises:
        FormatError: A shard cannot be read.
        OSError: A shard cannot be opened.
    """
    paths = [path for split in splits for path in split.paths]
    keys = keys_of(features)
    stats = [(path.name, found.st_size, found.st_mtime_ns) for path in paths for found in (path.stat(),)]
    key = json.dumps([stats, keys, [list(map(str, f.shape)) for f in features]])
    place = _place(paths[0], splits) if cache else None
    if place is not None and (kept := read_arrays(place, MAGIC, key)) is not None:
        header, arrays = kept
        return _made(arrays, [(a, b) for a, b in header["damaged"]])
    lengths = [length for split in splits for length in (split.lengths or (-1,) * len(split.paths))]
    numbered = list(zip(range(len(paths)), paths, lengths, strict=True))
    limits = PrefetchLimits(limit=len(paths))
    with OrderedMap(lambda each: _index_shard(*each, features), numbered, limits, name="penstock-rlds-index") as shards:
        index = _joined(list(shards))
    if place is not None:
        with suppress(OSError):  # costs only time at the next opening
            arrays = {name: getattr(index, name) for name in ARRAYS}
            write_arrays(place, MAGIC, key, {"damaged": [list(each) for each in index.damaged]}, arrays)
            make_room(place.parent, "*", BYTES_KEPT)
    return index


def _place(path: Path, splits: Sequence[SplitFiles]) -> Path | None:
    with suppress(OSError):
        name = f"{os.fspath(path.parent)}\0{'+'.join(split.name for split in splits)}"
        return user_cache("rlds") / hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return None


def _joined(parts: Sequence[RecordIndex]) -> RecordIndex:
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
    return _made(joined, [each for part in parts for each in part.damaged])


def _made(arrays: Arrays, damaged: Sequence[tuple[str, str]]) -> RecordIndex:
    found: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    return RecordIndex(**found, damaged=tuple(damaged))


def _index_shard(shard: int, path: Path, length: int, features: Sequence[RLDSFeature]) -> RecordIndex:
    data = map_records(path)
    records = index_records(data)
    found = scan_records(data, records.begin, records.size, features)
    damaged = [(path.name, text) for text in found.damaged]
    count = len(records.begin)
    if records.end < len(data):
        lost = f" of {length}" if length >= 0 else ""
        damaged.append((path.name, f"record {count}{lost} and those behind it: a damaged size at byte {records.end}"))
    elif 0 <= length != count:
        damaged.append((path.name, f"expected {length} records as in dataset_info.json, got {count}"))
    keep = np.flatnonzero(found.steps >= 0)
    return RecordIndex(
        np.full(len(keep), shard, np.int32),
        keep,
        records.begin[keep],
        records.size[keep],
        records.checksum[keep],
        found.steps[keep],
        found.spans[keep],
        found.kinds[keep],
        tuple(damaged),
    )


@dataclass(frozen=True, eq=False)
class ScannedRecords:
    """Lists and steps of records: `steps` is -1 for damaged records, which `damaged` describes. See `RecordIndex`."""

    steps: IntArray
    spans: IntArray
    kinds: ByteArray
    damaged: list[str]


def scan_records(data: ByteArray, begin: IntArray, size: IntArray, features: Sequence[RLDSFeature]) -> ScannedRecords:
    """Find the lists of all features in records, and count their steps.

    Args:
        data: `[n]` uint8, read-only, all records.
        begin: `[R]` int64, the byte at which each record begins.
        size: `[R]` int64, the bytes of each record.
        features: The features.
    """
    keys = [key.encode("utf-8", "surrogatepass") for key in keys_of(features)]
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    spans = np.empty((len(begin), len(keys), 3), np.int64)
    kinds = np.empty((len(begin), len(keys)), np.uint8)
    blob = read_only(np.frombuffer(b"".join(keys), np.uint8))
    bad = scan_examples(data, begin, size, blob, ends, spans, kinds) != 0
    damaged = [f"record {r}: expected a tf.train.Example, got a damaged message" for r in np.flatnonzero(bad)]
    steps = np.full(len(begin), -1, np.int64)
    agree = ~bad
    column = 0
    for feature in features:
        k, column = column, column + len(feature.keys)
        per_step = int(np.prod([size or 0 for size in feature.shape], dtype=np.int64))
        if not feature.of_step or feature.kind != "number" or feature.within or not per_step:
            continue
        here = (kinds[:, k] != ABSENT) & (kinds[:, k] != BYTES) & ~bad
        count = spans[:, k, 2]
        agree &= ~here | ((count % per_step == 0) & ((steps < 0) | (steps == count // per_step)))
        steps = np.where(here & (steps < 0), count // per_step, steps)
    unknown = np.flatnonzero(agree & (steps < 0))
    for r in unknown.tolist():
        steps[r] = _counted(data, int(begin[r]), spans[r], kinds[r], features)
    damaged += [f"record {r}: features of different numbers of steps" for r in np.flatnonzero(~agree & ~bad)]
    damaged += [f"record {r}: no feature tells the number of steps" for r in unknown.tolist() if steps[r] < 0]
    return ScannedRecords(np.where(agree, steps, -1), spans, kinds, damaged)


def _counted(data: ByteArray, begin: int, spans: IntArray, kinds: ByteArray, features: Sequence[RLDSFeature]) -> int:
    """Return the number of steps of a record without plain numbers, or -1."""
    column = 0
    for feature in features:
        k, column = column, column + len(feature.keys)
        if feature.of_step and not feature.within and kinds[k] == BYTES:
            with suppress(ValueError):
                return count_blobs(data, begin + int(spans[k, 0]), begin + int(spans[k, 1]))
        if feature.of_step and feature.within and kinds[k + 1] != ABSENT:
            return int(spans[k + 1, 2])
    return -1


def check_places(index: RecordIndex, sizes: Sequence[int]) -> None:
    """Raise `FormatError` if a place in the index is outside the files, which have so many bytes."""
    room = np.array(sizes, np.int64)[index.shard]
    inside = (index.begin >= HEAD) & (index.size >= 0) & (index.begin <= room - TAIL - index.size)
    spans = index.spans
    inside &= (index.steps >= 0) & ((spans[:, :, 0] >= 0) & (spans[:, :, 0] <= spans[:, :, 1])).all(axis=1)
    inside &= (spans[:, :, 1] <= index.size[:, None]).all(axis=1)
    if not inside.all():
        raise FormatError("expected records within their files; a shard changed while it was opened")
