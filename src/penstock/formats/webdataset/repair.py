"""Repairs of tar shards: an archive that was cut off ends again behind its last whole sample.

A plain archive keeps its bytes up to there. A compressed one is unpacked as far as it goes, into the folder of unpacked
archives, and compressed again: the end of a stream cannot be mended alone. Memory: the compressed archive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from penstock.containers.tar import END, TornError
from penstock.containers.tar.compress import compression_of, pack_bytes
from penstock.containers.tar.walk import Members, torn_end, walk
from penstock.errors import FormatError
from penstock.files.remote import open_file
from penstock.formats.base.repairs import Repair, cut_repair
from penstock.formats.webdataset.cache import plain
from penstock.formats.webdataset.samples import grouped, without_cut_sample
from penstock.formats.webdataset.shards import shards_of


def torn_archives(path: Path, names: Collection[str]) -> Iterator[Repair]:
    """Yield a repair for each archive that is torn. Bytes that may be data stay where they are."""
    for shard in (shard for shard in shards_of(path) if shard.name in names):
        with open_file(shard) as file:
            kind = compression_of(file.read(4))
        try:
            repair = _cut(shard) if kind is None else _packed_again(shard, kind)
        except FormatError:
            continue  # damaged before its end: nothing there can be mended
        if repair is not None:
            yield repair


def _cut(shard: Path) -> Repair | None:
    members, size, torn = torn_end(shard)
    if not torn or not len(members):
        return None
    repair = cut_repair(shard, _whole_samples(members, shard), size, where=shard.name, then=END)
    return repair if members.torn is None else replace(repair, finding="truncated")


def _packed_again(shard: Path, kind: Literal["gzip", "zstd"]) -> Repair | None:
    try:
        if walk(plain(shard, None), shard, torn="drop").torn is None:
            return None
    except TornError:  # the stream ends early, perhaps behind the last member
        pass
    unpacked = plain(shard, None, torn="drop")
    members = walk(unpacked, shard, torn="drop")
    if not len(members):
        return None
    end = _whole_samples(members, shard)

    def content() -> bytes:
        return pack_bytes([unpacked[:end].data, END], kind)

    message = f"keep {end:,} bytes of whole samples, compressed again"
    return Repair("truncated", shard, message, content, None, shard.name)


def _whole_samples(members: Members, shard: Path) -> int:
    """The byte behind the last whole sample."""
    if members.torn is None:
        return members.end
    samples = grouped(members, 0, shard)
    if len(without_cut_sample(samples)) == len(samples):
        return members.end
    first = int(samples.payload[samples.size[:, -1] >= 0, -1].min())
    return int(members.header[members.payload == first][0])
