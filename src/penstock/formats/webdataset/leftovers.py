"""What the reader of archives does not use: files that are no archives, ends that are torn, bytes, and members."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.containers.tar import Members
from penstock.core.arrays import ByteArray
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.format import folder_of
from penstock.formats.webdataset.samples import Samples, is_of_sample


def is_none(members: Members) -> bool:
    """Whether the file of these members is no archive."""
    return members.tail.behind == 0


def leftovers(
    paths: Sequence[Path], buffers: Sequence[ByteArray], members: Sequence[Members], *, appended: bool
) -> tuple[list[LeftOut], Mapping[str, int]]:
    """The entries of files and bytes; and by name of a file, the byte at which an append begins that was not finished.

    `appended` says whether our writer may have appended to the archives.
    """
    left_out: list[LeftOut] = []
    torn_tails: dict[str, int] = {}
    for shard, listed in enumerate(members):
        behind = listed.tail.behind
        if behind is None and listed.torn is None:
            continue
        name = _name(paths, shard)
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
    for shard, (listed, grouped) in enumerate(zip(members, samples, strict=True)):
        if np.count_nonzero(grouped.size >= 0) == len(listed):
            continue
        for entry in _unused(listed, _name(paths, shard)):
            first = by_reason.get(entry.reason)
            by_reason[entry.reason] = entry if first is None else replace(first, count=first.count + 1)
    return list(by_reason.values())


def _unused(members: Members, shard: str) -> Iterator[LeftOut]:
    """Members of one file that belong to no sample: hidden ones, and names without an extension."""
    names = [members.name(i) for i in np.flatnonzero(~is_of_sample(members)).tolist()]
    for entry in unused_files(names, "names such as 'key.extension'"):
        yield replace(entry, thing="member", where=f"{shard}: {entry.where}")


def _name(paths: Sequence[Path], shard: int) -> str:
    """The name of a file in the folder of all."""
    path = paths[shard]
    return os.path.relpath(path, path.parent if len(paths) == 1 else folder_of(paths))


def _instead(data: ByteArray) -> str:
    """What a file is that is no archive, for a message."""
    begins = data[:16].tobytes()
    return f"expected an archive, got a file that begins {begins!r}" if begins else "expected an archive, got no bytes"
