"""Any bytes are chunks or a `FormatError`: mutations of good files, and made-up ones."""

from __future__ import annotations

import gzip
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.containers.gunzip import GzipError, gunzip
from penstock.containers.tar.writer import END, member
from penstock_chess.formats.lc0 import FORMAT, RECORDS, ChunkError, Lc0Source, open_chunks

PROFILE = settings(max_examples=150, deadline=None, derandomize=True)


def record(version: int, n: int) -> bytes:
    records = np.zeros(n, RECORDS[version])
    records["version"] = version
    if version >= 5:
        records["input_format"] = 1
    return records.tobytes()


GOOD = [
    gzip.compress(record(6, 2), mtime=0),
    gzip.compress(record(3, 1), mtime=0) + gzip.compress(record(3, 1), mtime=0),
    member("a.gz", gzip.compress(record(7, 2), mtime=0)) + member("b", record(4, 1)) + END,
    member("x" * 120, gzip.compress(record(5, 2), mtime=0)) + member("LICENSE", b"text") + END,
]


def read_all(data: bytes) -> None:
    """Value or error; and what the dataset says agrees with the chunks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "games.gz"
        path.write_bytes(data)
        frames: list[int] = []
        file = None
        with suppress(ChunkError):
            file = open_chunks(path, limit=1 << 20)
        for i in range(len(file or ())):
            assert file is not None
            with suppress(ChunkError):
                found = file.load(i)
                assert found.shape[1:] == (8396,)
                frames.append(len(found))
        FORMAT.recognises(path)
        list(FORMAT.check(path))
        with Lc0Source(path, limit=1 << 20) as games:
            lengths = np.diff(games.offsets).tolist()
            sound: list[int] = []
            for e in range(len(games)):
                try:
                    sound.append(len(games.episode(e)))
                except ChunkError:
                    lengths[e] = None
            assert sound == frames == [n for n in lengths if n is not None]


@PROFILE
@given(st.sampled_from(GOOD), st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=4))
def test_changed_bytes(good: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(good)
    for at, change in changes:
        data[at % len(data)] ^= change
    read_all(bytes(data))


@PROFILE
@given(st.sampled_from(GOOD), st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.binary(max_size=30))
def test_bytes_cut_out_and_put_in(good: bytes, first: int, second: int, more: bytes) -> None:
    a, b = sorted((first % len(good), second % len(good)))
    read_all(good[:a] + more + good[b:])


@PROFILE
@given(st.binary(max_size=200))
def test_made_up_files(data: bytes) -> None:
    for head in (b"", b"\x1f\x8b\x08\0", b"\6\0\0\0\1\0\0\0"):
        read_all(head + data)


@PROFILE
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.binary(max_size=5), st.integers(0, 200))
def test_gunzip_is_what_python_reads(parts: list[bytes], behind: bytes, limit: int) -> None:
    expected = b"".join(parts)
    data = b"".join(map(gzip.compress, parts)) + (behind if not behind.startswith(b"\x1f\x8b") else b"")
    if len(expected) <= limit:
        assert gunzip(data, limit) == expected
    else:
        with pytest.raises(GzipError) as caught:
            gunzip(data, limit)
        assert caught.value.reason == "too_large"
