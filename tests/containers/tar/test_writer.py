"""Archives that we write, against Python's tarfile; appending; compression."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from penstock.containers.tar import END, TarAppender, glance, member, walk
from penstock.containers.tar.compress import pack, unpack
from penstock.containers.tar.writer import Heads, head
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock.files.mapping import map_file

NAMES = ["a.txt", "frame_000000001.obs.pickle", "é.txt", "d/" * 60 + "long.npy", "x" * 100, "x" * 101]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 511, 512, 513])
def test_members_are_tarfiles(name: str, size: int) -> None:
    raw = member(name, b"x" * size) + member("after", b"y") + END
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        first, after = tar.getmembers()
        assert (first.name, first.size, after.name) == (name, size, "after")
        assert (first.mtime, first.uid, first.gid, first.mode) == (0, 0, 0, 0o644)
        assert tar.extractfile(first).read() == b"x" * size  # type: ignore[union-attr]
    assert walk(np.frombuffer(raw, np.uint8)).name(0) == name


@pytest.mark.parametrize("name", ["", "../a", "a/..", "./a", "a\0b", "x" * 5000])
def test_names_no_reader_takes(name: str) -> None:
    with pytest.raises(DataError):
        member(name, b"")


def test_sizes_above_8_gib_are_in_a_pax_header() -> None:
    told = head("a.bin", 9 << 30)
    assert len(told) == 3 * 512
    assert b"size=9663676416\n" in told


@pytest.mark.parametrize("rest", [".obs.npy", "." + "x" * 200, ".é"])
def test_quick_heads_are_the_same(rest: str) -> None:
    quick = Heads("frame_000", rest)
    for number in range(0, 1000, 7):
        assert quick.head(f"frame_{number:03d}", number) == head(f"frame_{number:03d}{rest}", number)


def test_appended_members_are_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with TarAppender.create(path, member("0", b"zero")) as archive:
        before = path.read_bytes()
        for i in range(1, 4):
            archive.append([member(str(i), b"x" * 700), member(f"{i}b", b"")])
            assert walk(map_file(path)).end == archive.end
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["0", "1", "1b", "2", "2b", "3", "3b"]
    # What a killed writer leaves: all but the first block of what is new.
    torn = before[: -len(END)] + bytes(512) + member("1", b"x" * 700)[512:]
    path.write_bytes(torn)
    assert len(walk(map_file(path))) == 1
    with TarAppender(path) as archive:
        archive.append([member("2", b"")])
    assert path.read_bytes() == before[: -len(END)] + member("2", b"") + END


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    TarAppender.create(path).close()
    with pytest.raises(FileExistsError):
        TarAppender.create(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_a_damaged_archive_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(member("0", b"zero")[:514])
    with pytest.raises(FormatError):
        TarAppender(path)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_packed_and_unpacked(tmp_path: Path, kind: str) -> None:
    raw = member("a.bin", os.urandom(5000)) + END
    (tmp_path / "a.tar").write_bytes(raw)
    for name in ("b", "c"):
        pack(tmp_path / "a.tar", tmp_path / name, kind)  # type: ignore[arg-type]
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    assert list(glance(tmp_path / "b")) == [b"a.bin"]
    out = io.BytesIO()
    assert unpack(tmp_path / "b", out, len(raw)) == len(raw)
    assert out.getvalue() == raw
    with pytest.raises(UnsafeDataError, match="cache_bytes"):
        unpack(tmp_path / "b", io.BytesIO(), len(raw) - 1)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_several_members_and_damage(tmp_path: Path, kind: str) -> None:
    raw = member("a.bin", bytes(1 << 20)) + END
    (tmp_path / "a.tar").write_bytes(raw)
    pack(tmp_path / "a.tar", tmp_path / "packed", kind)  # type: ignore[arg-type]
    packed = (tmp_path / "packed").read_bytes()
    (tmp_path / "twice").write_bytes(packed * 2)
    out = io.BytesIO()
    assert unpack(tmp_path / "twice", out, 1 << 30) == 2 * len(raw)
    broken = bytearray(packed)
    broken[len(broken) // 2] ^= 0xFF
    for name, data in (("broken", bytes(broken)), ("short", packed[:-9])):
        (tmp_path / name).write_bytes(data)
        try:
            done = unpack(tmp_path / name, io.BytesIO(), 1 << 30)
        except FormatError:
            continue
        assert done < len(raw) or kind == "zstd"  # frames without a checksum end where they end


def test_a_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "bomb.tgz").write_bytes(gzip.compress(bytes(64 << 20)))
    out = io.BytesIO()
    with pytest.raises(UnsafeDataError, match="at most 1000000 bytes"):
        unpack(tmp_path / "bomb.tgz", out, 1_000_000)
    assert len(out.getvalue()) <= 1_000_000


@pytest.mark.parametrize(
    "raw", [b"", b"x" * 512, b"\x1f\x8b", b"\x1f\x8b" + b"x" * 600, b"\x28\xb5\x2f\xfd" + b"x" * 600]
)
def test_what_is_no_archive(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(FormatError):
        list(glance(tmp_path / "a"))
