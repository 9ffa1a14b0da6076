"""Torn ends of TFRecord shards, and totals that a killed writer did not write, and their repairs.

A shard ends in half a record if the size of its last record is not whole, or is right and reaches behind the end of the
file. If `dataset_info.json` states more records than there are whole ones, complete records are lost: that is no torn
tail, and nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.tfrecord import index_records
from penstock.core.narrowing import is_dict, is_list
from penstock.files.mapping import read_mapped
from penstock.formats.base.repairs import Repair, cut_repair
from penstock.formats.rlds.folder import INFO, read_info, splits_of
from penstock.formats.rlds.index import BEHIND, STATED, map_shard
from penstock.kernels.crc32c import HEAD, crc32c, masked


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
        return "totals" if 0 <= self.stated < self.records and STATED in message else "damaged-part"


def shard_ends(folder: Path) -> list[ShardEnd]:
    """Return how each TFRecord shard of a version ends. Cost: the heads of all records."""
    ends: list[ShardEnd] = []
    for split in splits_of(folder, read_info(folder)).values():
        for number, path in enumerate(split.paths if split.kind == "tfrecord" else ()):
            stated = split.lengths[number] if split.lengths else -1
            data, _ = map_shard(path, stated)
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
