"""Blocks from other hosts: equal bytes, each from its owner, and from the store where no host has them."""

# pyright: basic

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.locations.server import serving

from penstock.errors import ChangedObjectError, RemoteError
from penstock.files.remote import FOLDER, read_bytes
from penstock.locations.block_peers import OWNED, TRIED, USED_PEERS, BlockPeers, MirroredPlace, is_whole, owners_of
from penstock.locations.blocks import BlockCache
from penstock.locations.mirror import MANIFEST, Mirrors, mirror


class Host(Mirrors):
    """Another host: the mirrors of another process, with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.blocks = BlockCache(folder / FOLDER, 1 << 30)

    def cache(self, root: Path | None = None) -> BlockCache:
        return self.blocks


class Hosts(BlockPeers):
    """Peers without a network. `answers` may change what a host says."""

    def __init__(self, folder: Path, count: int) -> None:
        self.served = {f"host{i}": Host(folder / str(i)) for i in range(count)}
        self.asked: list[tuple[str, int, int]] = []
        self.answers = lambda answer: answer

    def hosts(self) -> Sequence[str]:
        return list(self.served)

    def read(self, path: Path, begin: int, end: int) -> bytes | None:
        """As a process that reads; the hosts, which would be other processes, have no peers themselves."""
        if any(path.is_relative_to(host.blocks.root) for host in self.served.values()):
            return None
        return super().read(path, begin, end)

    def ask(self, host: str, place: MirroredPlace, begin: int, end: int) -> tuple[bytes, Sequence[int]] | None:
        self.asked.append((host, begin, end))
        server = self.served[host]
        try:
            answer = server.read_blocks(place.tree, place.name, begin, end)
            if answer is None:
                server.adopt(place.tree, (place.folder / MANIFEST).read_bytes())
                answer = server.read_blocks(place.tree, place.name, begin, end)
        except (ChangedObjectError, RemoteError):
            return None
        return self.answers(answer)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    yield
    USED_PEERS.set(None)


@pytest.fixture
def content() -> bytes:
    return np.random.default_rng(2).integers(0, 256, 3 * OWNED + 12345, np.uint8).tobytes()


def test_blocks_come_from_their_owners(tmp_path: Path, content: bytes) -> None:
    peers = Hosts(tmp_path, 3)
    with serving({"a/b.bin": content}) as site:
        USED_PEERS.set(peers)
        assert read_bytes(mirror(f"{site.url}/a/b.bin")) == content
        sent = sum(request.end + 1 - request.begin for request in site.gets())
        assert sent == len(content)  # the owners have fetched each block once, and this process none
        for host, begin, end in peers.asked:
            assert begin // OWNED == (end - 1) // OWNED
            regions = [owner for owner, first, _ in peers.asked if first // OWNED == begin // OWNED]
            assert set(regions) == {host}


@pytest.mark.parametrize("wrong", ["bit", "short", "silent", "none"])
def test_the_store_is_asked_where_no_host_has_the_blocks(tmp_path: Path, content: bytes, wrong: str) -> None:
    peers = Hosts(tmp_path, 0 if wrong == "none" else 3)
    changed = {
        "bit": lambda answer: (bytes([answer[0][0] ^ 1]) + answer[0][1:], answer[1]),
        "short": lambda answer: (answer[0][:-1], answer[1]),
        "silent": lambda _: None,
        "none": None,
    }
    peers.answers = changed[wrong]
    with serving({"a.bin": content}) as site:
        USED_PEERS.set(peers)
        assert read_bytes(mirror(f"{site.url}/a.bin")) == content
        asked = {(begin // OWNED, host) for host, begin, _ in peers.asked}
        regions = Counter(region for region, _ in asked)
        assert regions == ({} if wrong == "none" else dict.fromkeys(range(4), TRIED))  # which hosts, the port decides


def test_a_changed_object_is_an_error_of_the_reader(tmp_path: Path, content: bytes) -> None:
    with serving({"a.bin": content}) as site:
        path = mirror(f"{site.url}/a.bin")
        site.change("a.bin", content[::-1])
        USED_PEERS.set(Hosts(tmp_path, 2))
        with pytest.raises(ChangedObjectError):
            read_bytes(path)


def test_a_forked_process_has_no_peers(tmp_path: Path) -> None:
    USED_PEERS.set(Hosts(tmp_path, 1))
    place = tmp_path / FOLDER / "trees" / "5e" / "7f" / "data"
    pid = os.fork()
    if pid == 0:
        os._exit(0 if USED_PEERS.read(place, 0, 10) is None else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_regions_are_even_and_move_only_when_their_owner_leaves() -> None:
    hosts = [f"host{i}" for i in range(8)]
    owners = {f"data {i}": owners_of(hosts, f"data {i}") for i in range(8000)}
    assert all(850 < count < 1150 for count in Counter(ranked[0] for ranked in owners.values()).values())
    for region, ranked in owners.items():
        assert owners_of([host for host in hosts if host != "host3"], region) == [h for h in ranked if h != "host3"]


def test_checksums() -> None:
    assert is_whole(b"", [], 0)
    assert not is_whole(b"ab", [1], 2)
