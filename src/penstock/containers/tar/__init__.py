"""Tar archives as containers: an index of the members, so that payloads are slices of a memory map, and a writer.

**Reading.** `walk` goes from header to header of a mapped archive and gives `Members`, columns of names, positions and
sizes. Checksums, numbers and sizes are checked, and nothing is ever put on the disk by a member's name. Where sizes
repeat, as in shards, headers are checked some thousand at a time. Archives that were put one behind the other are all
read. `stream` reads what can only be read
forward. `compress` tells compressed archives and unpacks them within a limit.

**Writing.** `member` makes a file as stored in an archive, the same bytes for every writer and time. `TarAppender`
adds members so that every other process sees all of them or none.

>>> import numpy as np
>>> data = np.frombuffer(member("a.txt", b"hello") + END, np.uint8)
>>> found = walk(data)
>>> found.name(0), bytes(data[found.payload[0] :][: found.size[0]])
('a.txt', b'hello')
"""

from __future__ import annotations

from penstock.containers.tar.compress import glance
from penstock.containers.tar.walk import ArchiveEnd, Members, NoArchiveError, TarMember, TornError, stream, walk
from penstock.containers.tar.writer import END, TarAppender, member

__all__ = [
    "END",
    "ArchiveEnd",
    "Members",
    "NoArchiveError",
    "TarAppender",
    "TarMember",
    "TornError",
    "glance",
    "member",
    "stream",
    "walk",
]
