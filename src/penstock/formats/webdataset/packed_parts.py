"""Parts of one compressed archive: the description, the episodes and the end are segments, which are copied when parts
are joined. Next to the archive of a part, a file of JSON says where its segments are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from penstock.containers.tar import END, walk
from penstock.containers.tar.segments import PackedSegment, join_segments, pack_segments
from penstock.core.arrays import ByteArray
from penstock.core.boundary import parsing
from penstock.files import write_atomic
from penstock.files.mapping import map_file
from penstock.files.remote import read_bytes

SEGMENTS = ".segments"


def cuts_of(data: ByteArray, path: Path) -> tuple[int, int]:
    """Return where the episodes of an archive begin, behind its description, and the end of the last member."""
    members = walk(data, path)
    return int(members.header[1]) if len(members) > 1 else members.end, members.end


def pack_part(plain: Path, packed: Path, kind: Literal["gzip", "zstd"]) -> None:
    """Compress the archive of a part in segments, and write where they are."""
    episodes, end = cuts_of(map_file(plain), plain)
    segments = pack_segments(plain, packed, kind, [0, episodes, end, end + len(END)])
    write_atomic(packed.with_name(packed.name + SEGMENTS), json.dumps(segments).encode())


def join_packed(parts: Sequence[Path], out: Path, kind: Literal["gzip", "zstd"]) -> None:
    """Copy the segments of parts into one archive, which appears when it is complete, after one description."""
    segments = [_segments(part) for part in parts]
    episodes = [(part, each[1]) for part, each in zip(parts, segments, strict=True)]
    first, last = (parts[0], segments[0][0]), (parts[-1], segments[-1][2])
    join_segments([first, *episodes, last], out, kind)


def _segments(part: Path) -> list[PackedSegment]:
    """Return the segments of a part: description, episodes and end."""
    path = part.with_name(part.name + SEGMENTS)
    with parsing(path):
        head, episodes, end = json.loads(read_bytes(path))
        return [PackedSegment(*map(int, each)) for each in (head, episodes, end)]
