"""Repairs of tar shards: an archive that was cut off ends again behind its last whole sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from penstock.containers.tar import END
from penstock.containers.tar.tail import torn_end
from penstock.containers.tar.walk import Members
from penstock.errors import FormatError
from penstock.formats.base.repairs import Repair, cut_repair
from penstock.formats.webdataset.samples import grouped, without_cut_sample
from penstock.formats.webdataset.shards import shards_of


def torn_archives(path: Path) -> Iterator[Repair]:
    """Yield a repair for each plain archive that is torn. Compressed ones would have to be packed again.

    Args:
        path: One archive, or a folder of them.
    """
    for shard in shards_of(path):
        if shard.name.endswith(".tar"):
            try:
                members, size, torn = torn_end(shard)
            except FormatError:
                continue  # damaged before its end: nothing there can be mended
            if torn and len(members):
                repair = cut_repair(shard, _whole_samples(members, shard), size, where=str(shard), then=END)
                yield repair if members.torn is None else replace(repair, finding="truncated")


def _whole_samples(members: Members, shard: Path) -> int:
    """The byte behind the last whole sample."""
    if members.torn is None:
        return members.end
    samples = grouped(members, 0, shard)
    if len(without_cut_sample(samples)) == len(samples):
        return members.end
    first = int(samples.payload[samples.size[:, -1] >= 0, -1].min())
    return int(members.header[members.payload == first][0])
