"""Index of the records of a split: where they are, where the list of each feature is, and how many steps they have.

One pass over the heads of records and features makes it, one thread a shard. It is kept in the user's cache, and places
in it are compared with the files before anything is read there. Of a remote shard whose records are large (`LARGE`) the
heads alone are fetched; small records are faster to fetch whole than to ask for one by one.

A record whose message is damaged, or whose features disagree about the number of steps, is left out, and so are the
records behind a damaged size. The half record of a killed writer and its total can be repaired. If `dataset_info.json`
states more records than there are whole ones, complete records are lost, and nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.array_record import START, decode_chunk, is_riegeli, record_chunks
from penstock.containers.tfrecord import index_records, map_records
from penstock.core.arrays import AnyArray, BoolArray, ByteArray, Int32Array, IntArray, UInt32Array, read_only
from penstock.core.boundary import parsing
from penstock.core.narrowing import is_dict, is_list
from penstock.errors import FormatError
from penstock.files.arrays import Arrays
from penstock.files.listing import file_states
from penstock.files.mapping import FetchedParts, is_lazy, read_mapped
from penstock.files.remote import file_state, is_mirrored
from penstock.files.user_cache import IndexFile
from penstock.flow import OrderedMap, PrefetchLimits
from penstock.formats.base.findings import Repair, cut_repair
from penstock.formats.base.signatures import POINTED, POINTER
from penstock.formats.rlds.features import INFO, RLDSFeature, SplitFiles, read_info, splits_of
from penstock.kernels.crc32c import HEAD, TAIL, crc32c, masked
from penstock.kernels.examples import ABSENT, BYTES, LACKING, PART, SOUND, count_blobs, scan_examples

MAGIC = b"penstock rlds index 3\n"
BEHIND = "those behind it: a damaged size"  # in messages about the end of a shard
_STATED = "records as in dataset_info.json, got"
BYTES_KEPT = 4 << 30  # that all indexes together may have
LARGE = 8 * PART
"""Mean bytes of the records of a remote shard from which on their heads are fetched alone."""

_WALKS = 16  # remote shards that are indexed at once: each waits for one answer after the other


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """The sound records of a split, in the order of the shards."""

    shard: Int32Array
    number: IntArray
    begin: IntArray
    chunked: BoolArray
    within: IntArray
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


ARRAYS = ("shard", "number", "begin", "chunked", "within", "size", "checksum", "steps", "spans", "kinds")


def keys_of(features: Sequence[RLDSFeature]) -> list[str]:
    """Return the names of all lists that the features need."""
    return [key for feature in features for key in feature.keys]


def index_split(splits: Sequence[SplitFiles], features: Sequence[RLDSFeature], *, cache: bool) -> RecordIndex:
    """Return the index of the shards of splits, from the cache if possible."""
    paths = [path for split in splits for path in split.paths]
    keys = keys_of(features)
    states = file_states(paths)
    stats = [(path.name, state.size, state.mtime_ns, state.inode) for path, state in zip(paths, states, strict=True)]
    lengths = [length for split in splits for length in (split.lengths or (-1,) * len(split.paths))]
    key = json.dumps([stats, keys, [list(map(str, f.shape)) for f in features], lengths])
    name = f"{os.fspath(paths[0].parent)}\0{'+'.join(split.name for split in splits)}"
    kept = IndexFile.of("rlds", name, MAGIC, BYTES_KEPT) if cache else None
    if kept is not None and (entries := kept.read(key)) is not None:
        header, arrays = entries
        return _made(arrays, [(a, b) for a, b in header["damaged"]])
    numbered = list(zip(range(len(paths)), paths, lengths, strict=True))
    limits = PrefetchLimits(_WALKS if is_mirrored(paths[0]) else None, limit=len(paths))
    with OrderedMap(lambda each: _index_shard(*each, features), numbered, limits, name="penstock-rlds-index") as shards:
        index = _joined(list(shards))
    if kept is not None:
        arrays = {name: getattr(index, name) for name in ARRAYS}
        header = {"damaged": [list(each) for each in index.damaged]}
        kept.write(key, header, arrays, settled=bool(states.settled.all()))
    return index


def _joined(parts: Sequence[RecordIndex]) -> RecordIndex:
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ARRAYS}
    return _made(arrays, [each for part in parts for each in part.damaged])


def _made(arrays: Arrays, damaged: Sequence[tuple[str, str]]) -> RecordIndex:
    fields: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    return RecordIndex(**fields, damaged=tuple(damaged))


def _index_shard(shard: int, path: Path, length: int, features: Sequence[RLDSFeature]) -> RecordIndex:
    data, chunked = _map_shard(path, length)
    with parsing(path):
        index, damaged = (_index_chunks if chunked else _index_frames)(data, features)
    count = len(index.steps)
    if 0 <= length != count:
        damaged = [*damaged, f"expected {length} {_STATED} {count}"]
    bad = np.flatnonzero(index.steps < 0)
    kept: dict[str, Any] = {name: np.delete(getattr(index, name), bad, 0) for name in ARRAYS}
    kept["shard"] = np.full(count - len(bad), shard, np.int32)
    return RecordIndex(**kept, damaged=tuple((path.name, text) for text in (*(t for _, t in index.damaged), *damaged)))


def _map_shard(path: Path, length: int) -> tuple[ByteArray, bool]:
    """Map a shard to find its records: lazily if the heads of its records are to be fetched alone."""
    by_heads = length > 0 and is_mirrored(path) and file_state(path).size >= LARGE * length
    data = map_records(path, lazy=by_heads)
    chunked = is_riegeli(read_mapped(data[: len(START)]))
    return (map_records(path) if chunked and is_lazy(data) else data), chunked


def _index_frames(data: ByteArray, features: Sequence[RLDSFeature]) -> tuple[RecordIndex, list[str]]:
    """Index a TFRecord file, and return what ends it."""
    records = index_records(data)
    scanned = scan_records(data, records.begin, records.size, features)
    count = len(records.begin)
    ends = records.end < len(data)
    damaged = [f"record {count} and {BEHIND} at byte {records.end}"] if ends else []
    if ends and not count and read_mapped(data[: len(POINTER)]).tobytes() == POINTER:
        damaged = [f"expected records, got {POINTED}"]
    return _index_of(scanned, np.arange(count), records.begin, None, records.size, records.checksum), damaged


def _index_chunks(data: ByteArray, features: Sequence[RLDSFeature]) -> tuple[RecordIndex, list[str]]:
    """Index an ArrayRecord file, whose chunks are decoded for that, and return what ends it."""
    chunks, ends = record_chunks(data)
    damaged = [] if ends is None else [ends]
    none = np.zeros(0, np.int64)
    parts = [_index_of(scan_records(data[:0], none, none, features), none, none, none, none, none)]
    count = 0
    for chunk in chunks:
        number = np.arange(count, count + chunk.records)
        count += chunk.records
        try:
            values, offsets = decode_chunk(data, chunk)
        except FormatError as error:
            damaged.append(f"records {number[:1].tolist()} and {chunk.records - 1} more: {error}")
            continue
        scanned = scan_records(values, offsets[:-1], np.diff(offsets), features)
        sums = [masked(crc32c(values[a:b])) for a, b in pairwise(offsets.tolist())]
        begin = np.full(chunk.records, chunk.position)
        parts.append(_index_of(scanned, number, begin, number - number[:1], np.diff(offsets), np.array(sums)))
    return _joined(parts), damaged


def _index_of(
    scanned: ScannedRecords,
    number: IntArray,
    begin: IntArray,
    within: IntArray | None,
    size: IntArray,
    checksum: AnyArray,
) -> RecordIndex:
    """Return the index of records. TFRecord files have no `within`, so it is None."""
    shard = np.zeros(len(number), np.int32)
    chunked = np.full(len(number), within is not None)
    within = np.zeros(len(number), np.int64) if within is None else within
    place = {"shard": shard, "number": number, "begin": begin, "chunked": chunked, "within": within, "size": size}
    values = {
        "checksum": checksum.astype(np.uint32),
        "steps": scanned.steps,
        "spans": scanned.spans,
        "kinds": scanned.kinds,
    }
    renamed = [re.sub(r"^record (\d+)", lambda m: f"record {number[int(m[1])]}", text) for text in scanned.damaged]
    return _made({**place, **values}, [("", text) for text in renamed])


@dataclass(frozen=True, eq=False)
class ScannedRecords:
    """Lists and steps of records: `steps` is -1 for damaged records, which `damaged` describes. See `RecordIndex`."""

    steps: IntArray
    spans: IntArray
    kinds: ByteArray
    damaged: list[str]


def scan_records(data: ByteArray, begin: IntArray, size: IntArray, features: Sequence[RLDSFeature]) -> ScannedRecords:
    """Find the lists of all features in records, and count their steps."""
    keys = [key.encode("utf-8", "surrogatepass") for key in keys_of(features)]
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    spans = np.empty((len(begin), len(keys), 3), np.int64)
    kinds = np.empty((len(begin), len(keys)), np.uint8)
    blob = read_only(np.frombuffer(b"".join(keys), np.uint8))
    bad = _scan(data, begin, size, blob, ends, spans, kinds) != SOUND
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


def _scan(
    data: ByteArray,
    begin: IntArray,
    size: IntArray,
    keys: ByteArray,
    key_ends: IntArray,
    spans: IntArray,
    kinds: ByteArray,
) -> IntArray:
    """Scan records as `scan_examples`, and fetch what a lazy map lacks, of all records at once."""
    need = np.zeros((len(begin), 2), np.int64)
    with FetchedParts(data, PART) as parts:
        parts.fetch(begin, begin + np.minimum(size, 1))
        result = scan_examples(data, begin, size, keys, key_ends, spans, kinds, parts.present, need)
        while len(lacking := np.flatnonzero(result == LACKING)):
            parts.fetch(need[lacking, 0], need[lacking, 1])
            places = begin[lacking], size[lacking]
            again = spans[lacking], kinds[lacking]
            missing = need[lacking]
            result[lacking] = scan_examples(data, *places, keys, key_ends, *again, parts.present, missing)
            spans[lacking], kinds[lacking] = again
            need[lacking] = missing
    return result


def _counted(data: ByteArray, begin: int, spans: IntArray, kinds: ByteArray, features: Sequence[RLDSFeature]) -> int:
    """Return the number of steps of a record without plain numbers, or -1."""
    column = 0
    for feature in features:
        k, column = column, column + len(feature.keys)
        if feature.of_step and not feature.within and kinds[k] == BYTES:
            blobs = read_mapped(data[begin + int(spans[k, 0]) : begin + int(spans[k, 1])])
            with suppress(ValueError):
                return count_blobs(blobs, 0, len(blobs))
        if feature.of_step and feature.within and kinds[k + 1] != ABSENT:
            return int(spans[k + 1, 2])
    return -1


def check_places(index: RecordIndex, sizes: Sequence[int]) -> None:
    """Raise `FormatError` if a place in the index of TFRecord files is outside the files, of these sizes in bytes."""
    room = np.array(sizes, np.int64)[index.shard]
    inside = (index.begin >= HEAD) & (index.size >= 0) & (index.begin <= room - TAIL - index.size)
    spans = index.spans
    inside &= (index.steps >= 0) & ((spans[:, :, 0] >= 0) & (spans[:, :, 0] <= spans[:, :, 1])).all(axis=1)
    inside &= (spans[:, :, 1] <= index.size[:, None]).all(axis=1)
    if not inside.all():
        raise FormatError("expected records within their files; a shard changed while it was opened")


@dataclass(frozen=True)
class ShardEnd:
    """How a shard ends."""

    path: Path
    split: str
    number: int
    records: int
    stated: int
    end: int
    size: int
    torn: bool

    def reason(self, message: str) -> str:
        """Return the finding that a message of the index is about: of half a record, of a wrong total, or of damage."""
        if self.torn and BEHIND in message:
            return "torn-tail"
        return "totals" if 0 <= self.stated < self.records and _STATED in message else "damaged-part"


def shard_ends(folder: Path) -> list[ShardEnd]:
    """Return how each TFRecord shard of a version ends. Cost: the heads of all records."""
    ends: list[ShardEnd] = []
    for split in splits_of(folder, read_info(folder)).values():
        for number, path in enumerate(split.paths if split.kind == "tfrecord" else ()):
            stated = split.lengths[number] if split.lengths else -1
            data, _ = _map_shard(path, stated)
            records = index_records(data)
            count = len(records.begin)
            rest = read_mapped(data[records.end :])
            whole_head = len(rest) >= HEAD
            right = whole_head and masked(crc32c(rest[:8])) == int(np.array(rest[8:HEAD]).view("<u4")[0])
            torn = len(rest) > 0 and (right or not whole_head) and stated <= count
            ends.append(ShardEnd(path, split.name, number, count, stated, records.end, len(data), torn))
    return ends


def tail_repairs(folder: Path) -> Iterator[Repair]:
    """Yield the repairs of half records at the end of shards, and of totals."""
    ends = shard_ends(folder)
    for end in ends:
        if end.torn:
            yield cut_repair(end.path, end.end, end.size, where=end.path.name)
    wrong = [end for end in ends if 0 <= end.stated < end.records]
    if not wrong:
        return
    info = read_info(folder)
    listed: Any = info.get("splits")
    for split in listed if is_list(listed) else []:
        for end in wrong:
            if is_dict(split) and split.get("name") == end.split:
                split["shardLengths"][end.number] = str(end.records)
    message = ", ".join(f"{end.path.name}: {end.stated} -> {end.records} records" for end in wrong)
    yield Repair("totals", folder / INFO, message, partial(bytes, json.dumps(info, indent=2).encode()), None, INFO)
