"""Unpacking ahead: the same bytes, within a bound, errors behind what was read before them, and no thread left over."""

from __future__ import annotations

import gzip
import io
import threading
from typing import IO

import numpy as np
import pytest

from penstock.containers.tar.compress import PIECE, Ahead
from penstock.errors import FormatError

RAW = np.random.default_rng(0).integers(0, 9, 5 * PIECE + 17, np.uint8).tobytes()


def ended(name: str) -> bool:
    """Whether the thread that unpacks ends."""
    for thread in threading.enumerate():
        if thread.name == f"unpacking {name}":
            thread.join(60)
            return not thread.is_alive()
    return True


@pytest.mark.parametrize("n", [1 << 18, PIECE + 1, 1 << 30])
@pytest.mark.parametrize("packed", [gzip.compress(RAW, 1), RAW], ids=["gzip", "plain"])
def test_the_bytes_are_those_of_the_file(packed: bytes, n: int) -> None:
    file = Ahead(lambda: io.BytesIO(packed), "the bytes", PIECE)
    parts: list[bytes] = []
    while part := file.read(n):
        parts.append(part)
    assert b"".join(parts) == RAW
    assert max(map(len, parts)) <= n
    assert file.read(n) == b""
    assert ended("the bytes")


def test_no_more_is_held_than_was_said() -> None:
    given = 0
    most = list[int]()

    class Counted(io.BytesIO):
        def read(self, n: int | None = -1, /) -> bytes:
            most.append(self.tell() - given)
            return super().read(n)

    file = Ahead(lambda: Counted(RAW), "counted", 2 * PIECE)
    while part := file.read(1000):
        given += len(part)
    assert given == len(RAW)
    assert max(most) <= 4 * PIECE


def test_errors_come_where_they_are() -> None:
    whole = gzip.compress(RAW, 1)
    file = Ahead(lambda: io.BytesIO(whole[:-9]), "torn.tar.gz", 1)
    seen = b""
    while len(seen) < 4 * PIECE:
        seen += file.read(PIECE)
    assert RAW.startswith(seen)
    with pytest.raises(FormatError, match=r"damaged compression.*torn\.tar\.gz"):
        [file.read(PIECE) for _ in range(9)]

    def missing() -> IO[bytes]:
        raise FileNotFoundError("no such archive")

    with pytest.raises(FileNotFoundError, match="no such archive"):
        Ahead(missing, "missing", 1).read(1)
    assert ended("torn.tar.gz")
    assert ended("missing")


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_thread_that_is_no_longer_wanted_ends(reads: int) -> None:
    file = Ahead(lambda: io.BytesIO(RAW), "unwanted", 1)
    for _ in range(reads):
        file.read(PIECE)
    file.close()
    assert ended("unwanted")
    assert file.read(1) == b""
