"""Blocks of remote objects from other hosts that read the same data, in place of the store.

Blocks are addressed by number, so any host may serve any other. Each region of an object has an *owner*, which fetches
the region for all hosts: the host with the highest hash of its name, the object and the region (rendezvous hashing,
Thaler and Ravishankar 1998). When a host leaves, only its own regions get other owners, and no table has to agree.

A region is as large as the largest part of an object that `fetching` fetches for one wanted block, so what an owner
fetches in addition is its own, too. No block is fetched twice, as long as its owner lives.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.files.remote import FOLDER
from penstock.locations.blocks import BLOCK, checksum

OWNED = 128 * BLOCK
"""Bytes of a region."""

TRIED = 2
"""Owners that a reader asks before it asks the store."""


class MirroredPlace(NamedTuple):
    """Where a mirrored file is, apart from the folder of this host's cache."""

    folder: Path
    tree: str
    name: str

    @classmethod
    def of(cls, path: Path) -> MirroredPlace:
        """Return the place of a mirrored file."""
        begin = path.parts.index(FOLDER) + 2
        tree, name = path.parts[begin : begin + 2], path.parts[begin + 2 :]
        return cls(Path(*path.parts[: begin + 2]), "/".join(tree), "/".join(name))


class BlockPeers(ABC):
    """Asks other hosts for blocks, in any thread."""

    @abstractmethod
    def hosts(self) -> Sequence[str]:
        """Return the names of the hosts that answer."""

    @abstractmethod
    def ask(self, host: str, place: MirroredPlace, begin: int, end: int) -> tuple[bytes, Sequence[int]] | None:
        """Return bytes of a mirrored file and the checksums of their blocks; None if the host does not answer.

        Args:
            host: One of `hosts`.
            place: The file.
            begin: The first byte, which begins a block.
            end: The byte after the last one, which ends a block or the file.
        """

    def read(self, path: Path, begin: int, end: int) -> bytes | None:
        """Return bytes from the owners of their regions; None where the store has to be asked.

        Args:
            path: The file, below a mirror of this host.
            begin: The first byte, which begins a block.
            end: The byte after the last one, which ends a block or the file.
        """
        place = MirroredPlace.of(path)
        parts: list[bytes] = []
        for region in range(begin // OWNED, -(-end // OWNED)):
            part = self._read_region(place, region, max(begin, region * OWNED), min(end, (region + 1) * OWNED))
            if part is None:
                return None
            parts.append(part)
        return b"".join(parts)

    def _read_region(self, place: MirroredPlace, region: int, begin: int, end: int) -> bytes | None:
        url, _, _ = place.tree.partition("/")
        for host in owners_of(self.hosts(), f"{url} {place.name} {region}")[:TRIED]:
            answer = self.ask(host, place, begin, end)
            if answer is not None and is_whole(*answer, end - begin):
                return answer[0]
        return None


class UsedPeers:
    """The peers of this process. A forked process has none, because connections do not survive a fork."""

    def __init__(self) -> None:
        self._peers: BlockPeers | None = None
        self._pid = 0

    def set(self, peers: BlockPeers | None) -> None:
        """Ask these peers from now on, or none."""
        self._peers = peers
        self._pid = os.getpid()

    def read(self, path: Path, begin: int, end: int) -> bytes | None:
        """Return bytes of a mirrored file from peers; None if there are no peers, or none has the bytes."""
        if self._peers is None or self._pid != os.getpid():
            return None
        return self._peers.read(path, begin, end)


USED_PEERS = UsedPeers()


def owners_of(hosts: Sequence[str], region: str) -> list[str]:
    """Return hosts in the order in which they own a region."""
    return sorted(hosts, key=lambda host: hashlib.blake2b(f"{host} {region}".encode(), digest_size=8).digest())


def is_whole(raw: bytes, sums: Sequence[int], size: int) -> bool:
    """Return whether bytes have the right length, and each block its checksum."""
    view = memoryview(raw)
    blocks = [view[begin : begin + BLOCK] for begin in range(0, len(raw), BLOCK)]
    return len(raw) == size and [checksum(block) for block in blocks] == list(sums)
