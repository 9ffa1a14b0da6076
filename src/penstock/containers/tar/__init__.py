"""Tar archives as containers: an index of the members, so that payloads are slices of a memory map, and a writer.

Nothing is ever put on the disk by a member's name. `TarAppender` adds members so that every other process sees all of
them or none.
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
