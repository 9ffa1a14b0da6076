"""Answers are proven before they are kept, and requests are repeated, whatever makes the requests."""

# pyright: basic

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.boundary import parsing
from penstock.errors import ArgumentError, DataError, FormatError, RemoteError, RemoteWarning
from penstock.files.arrays import read_checked, write_checked
from penstock.files.mapping import map_file, read_mapped
from penstock.files.remote import begin_fetch, range_of, read_bytes, remote_errors_kept, remote_file
from penstock.formats.webdataset.streaming import ShardStream
from penstock.locations import fetching, transports
from penstock.locations.blocks import BLOCK
from penstock.locations.mirror import mirror
from penstock.locations.objects import NoRangesError, ObjectInfo, ObjectStore, TransientError
from penstock.locations.retry import Retry, retry_of
from penstock.locations.stores import object_store
from tests.locations.clock import Clock
from tests.locations.server import serving

DATA = np.random.default_rng(1).integers(1, 256, 5 * BLOCK + 70, np.uint8).tobytes()  # no byte is 0


class Transport(ObjectStore):
    """One object, whose answers a test spoils: `spoil` gets each answer and returns what is sent instead."""

    def __init__(self, *, ranges: bool = True) -> None:
        super().__init__("fake://host/set")
        self.ranges = ranges
        self.info = ObjectInfo("a.bin", len(DATA), "v1")
        self.spoil: Callable[[bytes], bytes] = lambda raw: raw
        self.pieces: Callable[[bytes], list[tuple[int, bytes]]] = lambda raw: [(0, raw)]
        self.asked = 0

    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        return [self.info]

    def stat(self, name: str) -> ObjectInfo:
        return self.info

    def read(self, name: str, ranges: Any, version: str = "") -> list[bytes]:
        if not self.ranges:
            raise NoRangesError("no ranges")
        self.asked += 1
        return [self.spoil(DATA[begin:end]) for begin, end in ranges]

    def read_all(self, name: str, size: int, version: str, write: Callable[[int, bytes], None]) -> None:
        self.asked += 1
        for begin, raw in self.pieces(self.spoil(DATA)):
            write(begin, raw)

    def put(self, name: str, path: Path) -> None:
        raise NotImplementedError

    def delete(self, name: str) -> None:
        raise NotImplementedError


@pytest.fixture(params=["ranges", "whole objects"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Transport:
    made = Transport(ranges=request.param == "ranges")
    monkeypatch.setattr(transports, "transport", lambda *_: made)
    return made


def raising(error: Exception) -> Callable[[bytes], bytes]:
    def spoil(_: bytes) -> bytes:
        raise error

    return spoil


SPOILED = {
    "cut within a block": lambda raw: raw[: len(raw) // 2],
    "cut at a block": lambda raw: raw[: len(raw) // BLOCK * BLOCK],
    "without its last byte": lambda raw: raw[:-1],
    "empty": lambda raw: b"",
    "too long": lambda raw: raw + b"more",
    "a passing error": raising(TransientError("later")),
}


@pytest.mark.parametrize("kind", SPOILED)
def test_nothing_enters_the_cache_before_its_length_is_proven(transport: Transport, kind: str, cache: Path) -> None:
    path = mirror("fake://host/set")
    mapped = map_file(path / "a.bin", lazy=True)
    transport.spoil = SPOILED[kind]
    for _ in range(3):  # the second read found what the first one had left
        with pytest.raises(RemoteError):
            read_mapped(mapped)
    assert transport.asked == 3 * (1 + Retry().max_retries)
    file = remote_file(path / "a.bin")
    assert len(file.cached.absent(np.arange(6))) == 6
    transport.spoil = lambda raw: raw
    assert bytes(read_mapped(mapped)) == DATA
    assert not any("tmp" in each.name for each in cache.rglob("*"))


def test_pieces_of_a_whole_object_have_any_size_and_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Transport(ranges=False)
    monkeypatch.setattr(transports, "transport", lambda *_: transport)
    for cuts in ([], [1], [BLOCK - 1, BLOCK + 1], [BLOCK, 2 * BLOCK]):
        edges = [0, *cuts, len(DATA)]
        transport.pieces = lambda raw, edges=edges: [(a, raw[a:b]) for a, b in pairwise(edges)]
        transport.info = ObjectInfo("a.bin", len(DATA), str(cuts))
        assert read_bytes(mirror("fake://host/set") / "a.bin") == DATA
    for pieces in ([(0, DATA[:9]), (9, DATA[9:]), (9, DATA[9:])], [(0, DATA[:9]), (10, DATA[9:])], [(5, DATA)]):
        transport.pieces = lambda _, pieces=pieces: pieces
        transport.info = ObjectInfo("a.bin", len(DATA), str(len(pieces[0][1]) + len(pieces)))
        with pytest.raises(TransientError, match="bytes in order"):
            read_bytes(mirror("fake://host/set") / "a.bin")


def test_part_of_a_block_cannot_be_entered(transport: Transport) -> None:
    cached = remote_file(mirror("fake://host/set") / "a.bin").cached
    for begin, raw in ((0, b"part"), (1, DATA[:BLOCK]), (5 * BLOCK, DATA[:71]), (5 * BLOCK, DATA[:69])):
        with pytest.raises(ValueError, match="whole blocks"):
            cached.write(begin, raw)


def test_a_failed_request_ahead_is_repeated_by_the_read_and_reported(transport: Transport) -> None:
    path = mirror("fake://host/set")
    mapped = map_file(path / "a.bin", lazy=True)
    transport.spoil = SPOILED["cut within a block"]
    begin_fetch([range_of(remote_file(path / "a.bin"), 0, len(DATA))], most=True)
    fetching._pools.pop(True).shutdown()  # which waits for the request
    with pytest.raises(RemoteError, match="bytes"):
        read_mapped(mapped)
    transport.spoil = lambda raw: raw
    with pytest.warns(RemoteWarning, match="requests ahead of reading failed, and reads repeat them: expected 3"):
        assert bytes(read_mapped(mapped)) == DATA


@pytest.mark.parametrize("size", [-1, 1 << 63, 10**30])
def test_sizes_that_no_object_has_are_refused(transport: Transport, size: int) -> None:
    transport.info = ObjectInfo("a.bin", size, "v1")
    with pytest.raises(RemoteError, match=r"expected the size of fake://host/set/a\.bin in bytes, got"):
        mirror("fake://host/set")


@pytest.mark.parametrize("error", [ValueError("token=secret"), UnicodeError(), OverflowError(), KeyError("x")])
def test_errors_of_libraries_are_remote_errors_without_their_text(transport: Transport, error: Exception) -> None:
    path = mirror("fake://host/set")
    transport.spoil = raising(error)
    with pytest.raises(RemoteError, match=f"can be understood at fake://host/set/a.bin, .* {type(error).__name__}"):
        read_bytes(path / "a.bin")
    assert transport.asked == 1  # another try gives the same answer


def test_a_full_disk_is_no_error_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Transport(ranges=False)
    monkeypatch.setattr(transports, "transport", lambda *_: transport)

    def full(begin: int, raw: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        object_store("fake://host/set").read_all("a.bin", len(DATA), "v1", full)
    assert transport.asked == 1


# --- repeating ----------------------------------------------------------------------------------------------------


def outage(clock: Clock, seconds: float) -> Callable[[], str]:
    """A server that fails until some seconds have passed."""

    def request() -> str:
        if clock.now < seconds:
            raise TransientError("answers with status 503")
        return "answer"

    return request


@pytest.mark.parametrize("seconds", [0.1, 5, 15])
def test_outages_of_seconds_are_outlasted(clock: Clock, seconds: float) -> None:
    for _ in range(20):
        clock.now = 0.0
        assert Retry()(outage(clock, seconds)) == "answer"


def test_tries_and_time_are_options_and_variables(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"max_retries": 10_000, "retry_timeout": 3600}
    assert retry_of(long)(outage(clock, 3000)) == "answer"
    with pytest.raises(TransientError, match="tried 2 times"):
        retry_of({"max_retries": 1})(outage(clock, 1e9))
    clock.now = 0.0
    with pytest.raises(TransientError, match=r"in (4[0-9]|50) s, the storage options max_retries and retry_timeout"):
        retry_of({"max_retries": 1000, "retry_timeout": 50})(outage(clock, 1e9))
    assert clock.now <= 50
    monkeypatch.setenv("PENSTOCK_MAX_RETRIES", "3")
    monkeypatch.setenv("PENSTOCK_RETRY_TIMEOUT", "7.5")
    assert retry_of({}) == Retry(max_retries=3, retry_timeout=7.5)
    assert retry_of({"max_retries": 0}).max_retries == 0
    monkeypatch.setenv("PENSTOCK_MAX_RETRIES", "many")
    with pytest.raises(DataError, match="the variable PENSTOCK_MAX_RETRIES to be a number of 0 or more, got 'many'"):
        retry_of({})
    for value in (-1, "3", True, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="max_retries"):
            retry_of({"max_retries": value})
    with pytest.raises(ArgumentError, match=r"whole number, got 1\.5"):
        retry_of({"max_retries": 1.5})


def test_options_of_retries_reach_every_store(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"max_retries": 2, "retry_timeout": 9}
    for url in ("https://host/a", "s3://bucket/a", f"memory://{tmp_path.name}"):
        assert object_store(url, options).retry == Retry(max_retries=2, retry_timeout=9)
    monkeypatch.setenv("PENSTOCK_TIMEOUT", "3")
    assert object_store("https://host/a").transport._timeout == 3
    assert object_store("s3://bucket/a", {"timeout": 4}).transport._given()["config_kwargs"]["read_timeout"] == 4
    with serving({"a.tar": b"x"}) as site:
        site.fault = lambda _: 503
        with pytest.raises(RemoteError, match="tried 3 times"):
            penstock.open(f"{site.url}/a.tar", storage_options=options)
        assert len(site.seen) == 3


def test_ranks_with_one_seed_wait_for_different_times(clock: Clock) -> None:
    """Training seeds `random` alike on all ranks, which would ask a busy server at the same instants."""
    waits: list[list[float]] = []
    for after in (0.0, 7.0):
        for _ in range(2):
            random.seed(0)
            clock.waits.clear()
            with pytest.raises(TransientError):
                Retry(max_retries=4)(lambda after=after: (_ for _ in ()).throw(TransientError("busy", after)))
            waits.append(list(clock.waits))
            assert min(waits[-1]) >= after
    assert waits[0] != waits[1]
    assert waits[2] != waits[3]


def test_an_outage_that_lasts_is_said_once(transport: Transport, clock: Clock) -> None:
    path = mirror("fake://host/set")
    begun = clock.now
    plain = transport.spoil

    def spoil(raw: bytes) -> bytes:
        return plain(raw) if clock.now > begun + 12 else raising(TransientError("answers with status 503"))(raw)

    transport.spoil = spoil
    with pytest.warns(RemoteWarning, match=r"fake://host/set: requests fail, and are repeated for at most 180 s") as w:
        assert read_bytes(path / "a.bin") == DATA
    assert len(w) == 1


# --- what is made of bytes ----------------------------------------------------------------------------------------


def test_nothing_is_kept_of_a_block_in_which_a_fetch_failed(transport: Transport, tmp_path: Path) -> None:
    """A reader that takes the error for damage would keep an index without the file, for all later openings."""
    path = mirror("fake://host/set") / "a.bin"
    transport.spoil = SPOILED["a passing error"]

    @remote_errors_kept()
    def make_index() -> None:
        for _ in range(2):  # the block cannot end well after the first error, so no other request is made
            with suppress(OSError):
                read_bytes(path)
        with suppress(OSError):
            write_checked(tmp_path / "index", b"index 1\n", "key", b"without a file")

    with pytest.raises(RemoteError, match="later"):
        make_index()
    assert transport.asked == 1 + Retry().max_retries
    assert read_checked(tmp_path / "index", b"index 1\n", "key") is None


def test_an_error_of_the_server_is_no_damage(transport: Transport) -> None:
    """Whatever error a parser made of it, and at whatever distance."""
    path = mirror("fake://host/set") / "a.bin"
    transport.spoil = SPOILED["a passing error"]

    @parsing(path)
    def parse() -> None:
        try:
            try:
                read_bytes(path)
            except OSError as error:
                raise KeyError("no such column") from error
        except KeyError:
            raise FormatError("expected a table") from None

    with pytest.raises(RemoteError, match="later"):
        parse()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("salvage", [False, True])
def test_a_stream_over_a_server_that_fails_is_not_a_cut_archive(pack: Callable[[bytes], bytes], salvage: bool) -> None:
    content = b"".join(member(f"{i}.bin", random.Random(i).randbytes(200_000)) for i in range(20)) + END
    with serving({"a.tar": pack(content)}) as site:
        site.fault = lambda request: 503 if (request.begin or 0) > 1_000_000 else None
        with pytest.raises(RemoteError, match="status 503"):
            list(ShardStream(f"{site.url}/a.tar", rows=2, threads=1, salvage=salvage)())
