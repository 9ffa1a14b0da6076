"""Damaged and odd inputs: what happens is said in the names."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import tarfile
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.gunzip import MEMBERS, GzipError, gunzip
from penstock.containers.tar import compress
from penstock.containers.tar.writer import END, member
from penstock.errors import UnknownFormatError
from penstock.formats.base.format import recognise
from penstock_chess.formats.lc0 import FORMAT, FRAME, ChunkError, ChunkFile, Lc0Source, Reason, open_chunks
from penstock_chess.formats.lc0.descriptors import DESCRIPTORS, Descriptors, Identity
from tests.descriptors import opened_below

Raw = Callable[..., bytes]


def opened(path: Path, **options: Any) -> ChunkFile:
    found = open_chunks(path, **options)
    assert found is not None
    return found


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def counts(file: ChunkFile, i: int = 0) -> list[int]:
    """What tells the frames of a chunk apart."""
    return file.load(i).view(FRAME)[:, 0]["rule50_count"].tolist()


def archive(path: Path, members: Mapping[str, bytes], format: int = tarfile.PAX_FORMAT) -> Path:
    """A tar by Python's own writer."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def reason(path: Path, i: int = 0, **options: Any) -> Reason:
    """Why a chunk is bad; the message names the file, and `Lc0Source` says the same."""
    file = opened(path, **options)
    with pytest.raises(ChunkError) as caught:
        file.load(i)
    assert path.name in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason
    return caught.value.reason


def test_several_members_of_a_gzip_are_read_in_full(raw: Raw, tmp_path: Path) -> None:
    data = gzip.compress(raw(2)) + gzip.compress(raw(3, first=2)) + gzip.compress(b"")
    file = opened(put(tmp_path / "a.gz", data))
    assert (counts(file), file.count(0).frames) == ([0, 1, 2, 3, 4], 5)


def test_several_members_inside_a_tar_member_are_read_in_full(raw: Raw, tmp_path: Path) -> None:
    data = gzip.compress(raw(2)) + gzip.compress(raw(3, first=2))
    path = archive(tmp_path / "a.tar", {"training.1.gz": data, "training.2.gz": gzip.compress(raw(1))})
    assert counts(opened(path)) == [0, 1, 2, 3, 4]
    assert [len(game) for game in penstock.open(path)] == [5, 1]


def test_a_record_may_be_cut_by_the_members(raw: Raw, tmp_path: Path) -> None:
    data = raw(2)
    path = put(tmp_path / "a.gz", gzip.compress(data[:5000]) + gzip.compress(data[5000:]))
    assert counts(opened(path)) == [0, 1]


def test_records_that_are_not_compressed_are_a_chunk_whatever_the_name(raw: Raw, tmp_path: Path) -> None:
    for name in ("a.gz", "a.bin", "a"):
        assert counts(opened(put(tmp_path / name, raw(3)))) == [0, 1, 2]
    path = archive(tmp_path / "a.tar", {"a.gz": raw(2), "b": raw(1, 3), "c": gzip.compress(raw(3))})
    assert [len(game) for game in penstock.open(path)] == [2, 1, 3]


def test_a_compressed_chunk_is_told_by_its_bytes_and_not_by_its_name(raw: Raw, tmp_path: Path) -> None:
    assert counts(opened(put(tmp_path / "a.bin", gzip.compress(raw(2))))) == [0, 1]


def test_other_files_are_no_chunks(tmp_path: Path) -> None:
    (tmp_path / "folder.gz").mkdir()
    os.mkfifo(tmp_path / "pipe.gz")
    put(tmp_path / "text.txt", b"hello, this is no chunk of games")
    put(tmp_path / "empty.txt", b"")
    for name in ("folder.gz", "pipe.gz", "text.txt", "empty.txt"):
        assert open_chunks(tmp_path / name) is None
    with pytest.raises(FileNotFoundError):
        open_chunks(tmp_path / "nothing.gz")


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.gz", b"", "empty"),
        ("a.tar", b"", "empty"),
        ("a.gz", b"hello, this is no gzip", "not_gzip"),
        ("a.tar", b"hello, this is no tar", "archive"),
    ],
)
def test_files_named_like_chunks_that_are_none_are_refused_with_a_reason(
    tmp_path: Path, name: str, data: bytes, expected: str
) -> None:
    with pytest.raises(ChunkError, match=name) as caught:
        open_chunks(put(tmp_path / name, data))
    assert caught.value.reason == expected


def damage(chunk: bytes) -> dict[str, tuple[bytes, Reason]]:
    """Bad gzip files, and why each is."""
    body = bytearray(chunk)
    body[len(body) // 2] ^= 0x10
    return {
        "checksum": (chunk[:-8] + b"xxxx" + chunk[-4:], Reason.CRC),
        "length": (chunk[:-4] + b"xxxx", Reason.CRC),
        "no trailer": (chunk[:-8], Reason.TRUNCATED),
        "half a trailer": (chunk[:-3], Reason.TRUNCATED),
        "half": (chunk[: len(chunk) // 2], Reason.TRUNCATED),
        "magic alone": (chunk[:2], Reason.TRUNCATED),
        "method": (chunk[:2] + b"\7" + chunk[3:], Reason.DAMAGED),
        "block": (chunk[:10] + b"\xff" * 20 + chunk[30:], Reason.DAMAGED),
        "second member": (chunk + chunk[:30], Reason.TRUNCATED),
    }


@pytest.mark.parametrize("library", ["zlib-ng", "zlib"])
@pytest.mark.parametrize("kind", damage(gzip.compress(b"x" * 100)))
def test_a_damaged_gzip_is_refused_with_a_reason_and_by_every_library_with_the_same(
    chunk: Raw, tmp_path: Path, kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "zlib":
        monkeypatch.setattr("penstock.containers.gunzip.inflating", lambda: zlib)
    else:
        assert compress.inflating().__name__ == "zlib_ng.zlib_ng"
    data, expected = damage(chunk())[kind]
    assert reason(put(tmp_path / "a.gz", data)) == expected
    assert reason(archive(tmp_path / "b.tar", {"good": chunk(), "bad": data}), 1) == expected


def test_any_flipped_bit_of_a_chunk_is_seen_or_changes_nothing(chunk: Raw, tmp_path: Path) -> None:
    whole = chunk(2)
    expected = opened(put(tmp_path / "a.gz", whole)).load(0).tobytes()
    for bit in range(0, 8 * len(whole), 7):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        with suppress(ChunkError):
            found = open_chunks(put(tmp_path / "b.gz", bytes(data)))
            assert found is not None
            assert found.load(0).tobytes() == expected  # a time or a name in the header


def test_bytes_behind_the_last_member_are_passed_over(chunk: Raw, tmp_path: Path) -> None:
    for more in (b"garbage", bytes(512), b"\x1f"):
        file = opened(put(tmp_path / "a.gz", chunk() + more))
        assert (counts(file), file.count(0).frames) == ([0, 1, 2], 3)


@pytest.mark.parametrize("compressed", [True, False])
def test_part_of_a_frame_at_the_end_is_refused(raw: Raw, tmp_path: Path, compressed: bool) -> None:
    data = raw(2)[:-1]
    assert reason(put(tmp_path / "a.gz", gzip.compress(data) if compressed else data)) == Reason.SIZE


def test_a_gzip_of_nothing_is_refused(tmp_path: Path) -> None:
    assert reason(put(tmp_path / "a.gz", gzip.compress(b""))) == Reason.EMPTY


def test_an_empty_member_of_a_tar_is_refused_and_the_rest_is_read(chunk: Raw, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"a.gz": chunk(), "b.gz": b"", "c.gz": chunk()})
    assert reason(path, 1) == Reason.EMPTY
    assert counts(opened(path), 2) == [0, 1, 2]


@pytest.mark.parametrize("version", [0, 2, 8, 255, 1 << 31])
def test_an_unknown_version_is_refused(raw: Raw, tmp_path: Path, version: int) -> None:
    data = version.to_bytes(4, "little") + raw(1)[4:]
    assert reason(put(tmp_path / "a.gz", gzip.compress(data))) == Reason.VERSION
    if version < 256:
        assert reason(archive(tmp_path / "b.tar", {"a": data})) == Reason.VERSION


@pytest.mark.parametrize(("first", "second"), [(6, 7), (7, 6), (3, 5)])
def test_records_of_several_versions_in_a_chunk_are_refused(raw: Raw, tmp_path: Path, first: int, second: int) -> None:
    path = put(tmp_path / "a.gz", gzip.compress(raw(2, first) + raw(1, second)))
    assert reason(path) == Reason.MIXED


def test_records_of_one_size_and_several_versions_are_refused(raw: Raw, tmp_path: Path) -> None:
    data = bytearray(raw(3, 6))
    data[8356] = 5
    assert reason(put(tmp_path / "a.gz", gzip.compress(bytes(data)))) == Reason.MIXED


def test_a_member_that_is_neither_is_refused(chunk: Raw, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"README": b"read me, please", "a.gz": chunk()})
    assert reason(path) == Reason.NOT_GZIP
    assert counts(opened(path), 1) == [0, 1, 2]


def test_values_out_of_range_are_loaded_as_they_are(raw: Raw, tmp_path: Path) -> None:
    frames = np.frombuffer(raw(2, 7), FRAME).copy()
    frames["best_q"] = [np.nan, 1e30]
    frames["probabilities"][0] = np.nan
    path = put(tmp_path / "a.gz", gzip.compress(frames.tobytes()))
    assert opened(path).load(0).tobytes() == frames.tobytes()


def test_a_bomb_is_stopped_at_the_limit(tmp_path: Path) -> None:
    bomb = gzip.compress(b"\6\0\0\0\1\0\0\0" + bytes(10 << 20))
    path = put(tmp_path / "a.gz", bomb)
    assert reason(path, limit=1 << 20) == Reason.TOO_LARGE
    assert reason(path, limit=10 << 20) == Reason.TOO_LARGE
    assert reason(path) == Reason.SIZE
    assert reason(put(tmp_path / "b.gz", bomb + gzip.compress(b"")), limit=10 << 20) == Reason.TOO_LARGE


@pytest.mark.parametrize("size", [0, 1, 8356, 1 << 31, (1 << 32) - 1])
def test_a_length_that_lies_costs_no_memory_and_is_seen(chunk: Raw, tmp_path: Path, size: int) -> None:
    data = chunk()[:-4] + size.to_bytes(4, "little")
    assert reason(put(tmp_path / "a.gz", data)) == Reason.CRC


def test_more_compressed_bytes_than_the_limit_are_refused(chunk: Raw, tmp_path: Path) -> None:
    assert reason(put(tmp_path / "a.gz", chunk()), limit=20) == Reason.TOO_LARGE


def test_very_many_members_are_refused() -> None:
    with pytest.raises(GzipError, match="members") as caught:
        gunzip(gzip.compress(b"", 1, mtime=0) * (MEMBERS + 1), 1 << 20)
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize("limit", [2999, 3000, 3001, 1 << 20])
@pytest.mark.parametrize("members", [1, 3])
def test_the_limit_is_that_of_all_members_together(limit: int, members: int) -> None:
    data = gzip.compress(b"x" * (3000 // members)) * members
    if limit < 3000:
        with pytest.raises(GzipError, match="limit"):
            gunzip(data, limit)
    else:
        assert gunzip(data, limit) == b"x" * 3000


LONG = "a" * 90 + "/" + "b" * 150 + "/training.1.gz"


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("name", [LONG, "c" * 150 + "/" + "d" * 90, "ä/training.1.gz", "training.1.gz"])
def test_every_dialect_of_tar_and_long_names_are_read(raw: Raw, tmp_path: Path, format: int, name: str) -> None:
    if format == tarfile.USTAR_FORMAT and name == LONG:
        name = "a" * 90 + "/" + "b" * 80 + "/training.1.gz"
    path = archive(tmp_path / "a.tar", {"x.gz": raw(2), name: raw(3), "z.gz": raw(1)}, format)
    file = opened(path)
    assert [file.name(i) for i in range(3)] == ["x.gz", name, "z.gz"]
    assert [len(file.load(i)) for i in range(3)] == [2, 3, 1]
    assert file.torn is None


def told(header: bytearray, size: bytes) -> bytes:
    """A header of a tar with another size, and the checksum that belongs to it."""
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize("form", [b"%11o ", b"%010o \0", b"%11o\0", b"%012o"])
def test_a_size_padded_with_spaces_or_without_an_end_is_read(raw: Raw, tmp_path: Path, form: bytes) -> None:
    data = raw(2)
    plain = member("a.gz", data)
    path = put(tmp_path / "a.tar", told(bytearray(plain[:512]), form % len(data)) + plain[512:] + plain + END)
    assert [counts(opened(path), i) for i in range(2)] == [[0, 1], [0, 1]]


def test_a_pax_size_and_a_base_256_size_are_read(raw: Raw, tmp_path: Path) -> None:
    data = raw(2)
    plain = member("a.gz", data)
    binary = told(bytearray(plain[:512]), b"\x80" + len(data).to_bytes(11, "big")) + plain[512:]
    record = b"%d size=%d\n" % (len("13 size=") + len(str(len(data))) + 1, len(data))
    pax = member("b.gz", record)
    pax = told(bytearray(pax[:156] + b"x" + pax[157:512]), pax[124:136]) + pax[512:]
    path = put(tmp_path / "a.tar", binary + pax + told(bytearray(plain[:512]), b"0" * 11 + b"\0") + plain[512:] + END)
    assert [counts(opened(path), i) for i in range(2)] == [[0, 1], [0, 1]]


def test_folders_and_licenses_are_no_chunks(chunk: Raw, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        folder = tarfile.TarInfo("games")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in (("games/LICENSE", b"text"), ("LICENSE", b"text"), ("games/a.gz", chunk())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    file = opened(tmp_path / "a.tar")
    assert [file.name(i) for i in range(len(file))] == ["games/a.gz"]
    assert penstock.open(tmp_path / "a.tar").source.metadata == {}


def test_of_a_truncated_tar_the_members_before_the_cut_are_used_and_the_cut_one_is_named(
    raw: Raw, tmp_path: Path
) -> None:
    whole = b"".join(member(f"training.{i}.gz", raw(1, first=i)) for i in range(3)) + END
    step = len(member("training.0.gz", raw(1)))
    for cut in (step + 1, step + 511, step + 512, step + 5000, step + 512 + 8355):
        file = opened(put(tmp_path / "a.tar", whole[:cut]))
        assert [counts(file, i) for i in range(len(file))] == [[0]]
        if cut < step + 512:
            assert "byte" in str(file.torn)
        else:
            assert "training.1.gz" in str(file.torn)
        games = Lc0Source(tmp_path / "a.tar")
        assert (len(games), [entry.reason for entry in games.account.left_out]) == (1, ["truncated"])
        assert file.expected == 2


def test_a_tar_that_is_cut_between_two_members_is_torn(raw: Raw, tmp_path: Path) -> None:
    whole = b"".join(member(f"training.{i}.gz", raw(1)) for i in range(3))
    for n in range(1, 4):
        file = opened(put(tmp_path / "a.tar", whole[: n * len(whole) // 3]))
        assert (len(file), file.expected) == (n, n + 1)
        assert "end-of-archive marker" in str(file.torn)
    for end in (END, END[:512], bytes(10240)):  # what GNU tar writes, half of it, and a record of it
        file = opened(put(tmp_path / "a.tar", whole + end))
        assert (len(file), file.expected, file.torn) == (3, 3, None)


@pytest.mark.parametrize("at", [0, 100, 124, 148, 156], ids=["name", "mode", "size", "checksum", "type"])
def test_a_flipped_bit_in_a_header_costs_its_member_alone(chunk: Raw, tmp_path: Path, at: int) -> None:
    members = [member(f"training.{i}.gz", chunk(i + 1)) for i in range(5)]
    damaged = bytearray(members[2])
    damaged[at] ^= 4
    file = opened(put(tmp_path / "a.tar", b"".join([*members[:2], damaged, *members[3:], END])))
    assert [len(file.load(i)) for i in range(len(file))] == [1, 2, 4, 5]
    assert (file.expected, "checksum" in str(file.torn)) == (5, True)


@pytest.mark.parametrize("packed", [True, False])
def test_the_members_of_a_damaged_part_are_counted_by_where_they_begin(
    chunk: Raw, raw: Raw, tmp_path: Path, packed: bool
) -> None:
    members = [member(f"training.{i}.gz", (chunk if packed else raw)(2)) for i in range(9)]
    headless = [bytes(512) + each[512:] for each in members[2:6]]  # a page of zeros over each header
    file = opened(put(tmp_path / "a.tar", b"".join([*members[:2], *headless, *members[6:], END])))
    assert (len(file), file.expected) == (5, 9)
    assert "zeros" in str(file.torn)
    last = opened(put(tmp_path / "b.tar", b"".join([*members[:2], bytes(512) + members[2][512:], END])))
    assert (len(last), last.expected) == (2, 3)


def test_archives_that_are_put_one_behind_the_other_are_read_to_the_end(chunk: Raw, tmp_path: Path) -> None:
    one = member("a.gz", chunk(1)) + END
    file = opened(put(tmp_path / "a.tar", one + bytes(8192) + member("b.gz", chunk(2)) + END))
    assert ([len(file.load(i)) for i in range(len(file))], file.expected, file.torn) == ([1, 2], 2, None)


def test_what_stands_behind_the_end_of_an_archive_and_is_no_member_is_passed_over(chunk: Raw, tmp_path: Path) -> None:
    file = opened(put(tmp_path / "a.tar", member("a.gz", chunk(1)) + END + b"signed by me" * 99))
    assert (len(file), file.expected, file.torn) == (1, 1, None)


def test_a_member_of_no_bytes_is_a_bad_chunk_and_no_damage_of_the_archive(chunk: Raw, tmp_path: Path) -> None:
    file = opened(archive(tmp_path / "a.tar", {"a": chunk(1), "b": b"", "c": chunk(3)}))
    assert (len(file), file.expected, file.torn) == (3, 3, None)
    with pytest.raises(ChunkError) as caught:
        file.load(1)
    assert caught.value.reason == Reason.EMPTY


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, b"S"])
def test_of_a_tar_with_a_link_or_a_damaged_header_the_other_members_are_used(
    chunk: Raw, tmp_path: Path, kind: bytes
) -> None:
    info = tarfile.TarInfo("link.gz")
    info.type, info.linkname = kind, "/etc/passwd"
    good = member("a.gz", chunk())
    file = opened(put(tmp_path / "a.tar", good + info.tobuf() + good + END))
    assert (len(file), file.expected, counts(file)) == (2, 3, [0, 1, 2])
    assert "link.gz" in str(file.torn)
    broken = opened(put(tmp_path / "b.tar", good + b"x" * 512 + good + END))
    assert (len(broken), broken.expected, counts(broken)) == (2, 3, [0, 1, 2])
    assert "checksum" in str(broken.torn)


def test_a_bad_member_leaves_the_others(chunk: Raw, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"a": chunk(1), "b": chunk(2)[:-9], "c": chunk(3), "d": gzip.compress(b"1234")})
    with Lc0Source(path) as games:
        assert [len(game) for game in games.episodes()] == [1, 3]
        found = [(entry.where, entry.message.split(":")[0]) for entry in games.account.left_out]
        assert found == [("b in a.tar", "truncated"), ("d in a.tar", "version")]
    with pytest.raises(ChunkError, match="2 chunks are damaged") as caught:
        Lc0Source(path, damaged="refuse")
    assert caught.value.reason == Reason.TRUNCATED


def test_a_checksum_is_seen_when_the_game_is_read(chunk: Raw, tmp_path: Path) -> None:
    bad = chunk()[:-8] + b"xxxx" + chunk()[-4:]
    with Lc0Source(archive(tmp_path / "a.tar", {"a": chunk(2), "b": bad})) as games:
        assert games.offsets.tolist() == [0, 2, 5]
        assert len(games.episode(0)) == 2
        with pytest.raises(ChunkError, match="member 'b'") as caught:
            games.episode(1)
    assert caught.value.reason == Reason.CRC


def test_a_tar_cut_after_it_was_indexed_is_refused_and_indexed_anew_gives_what_is_left(
    raw: Raw, tmp_path: Path
) -> None:
    path = archive(tmp_path / "a.tar", {"a": raw(2), "b": raw(2)})
    os.utime(path, ns=(1, 1))
    file = opened(path)
    file.load(0)
    os.truncate(path, 20_000)
    with pytest.raises(ChunkError, match="written again") as caught:
        file.load(0)
    assert caught.value.reason == Reason.IO
    again = opened(path)
    assert (len(again), counts(again)) == (1, [0, 1])


def test_a_file_cut_unnoticed_while_it_is_read_is_truncated(raw: Raw, tmp_path: Path) -> None:
    path = put(tmp_path / "a.gz", raw(2))
    file = opened(path)
    time = path.stat().st_mtime_ns
    os.truncate(path, 9000)
    os.utime(path, ns=(time, time))
    with pytest.raises(ChunkError, match="cut") as caught:
        file.load(0)
    assert caught.value.reason == Reason.TRUNCATED


def test_a_file_deleted_after_the_scan_is_a_bad_chunk(chunk: Raw, tmp_path: Path) -> None:
    path = put(tmp_path / "a.gz", chunk())
    file = opened(path)
    path.unlink()
    with pytest.raises(ChunkError, match=r"a\.gz") as caught:
        file.load(0)
    assert caught.value.reason == Reason.IO


def test_a_file_replaced_after_the_scan_is_a_bad_chunk(chunk: Raw, tmp_path: Path) -> None:
    path = put(tmp_path / "a.gz", chunk())
    file = opened(path)
    os.replace(put(tmp_path / "b.gz", chunk(2)), path)
    with pytest.raises(ChunkError, match="replaced") as caught:
        file.load(0)
    assert caught.value.reason == Reason.IO
    assert counts(opened(path)) == [0, 1]


@pytest.mark.parametrize("read_before", [True, False])
def test_a_file_written_anew_in_place_is_a_bad_chunk_and_one_that_grew_is_not(
    raw: Raw, tmp_path: Path, read_before: bool
) -> None:
    first, second = (member(name, raw(1, first=n)) for name, n in (("a", 0), ("b", 1)))
    path = put(tmp_path / "a.tar", first + END)
    os.utime(path, ns=(1, 1))
    file = opened(path)
    if read_before:
        file.load(0)
    put(path, first + second + END)
    assert counts(file) == [0]
    put(path, second + END)
    with pytest.raises(ChunkError, match="written again") as caught:
        file.load(0)
    assert caught.value.reason == Reason.IO


def test_a_hard_link_is_a_file_like_any_other(chunk: Raw, tmp_path: Path) -> None:
    os.link(put(tmp_path / "a.gz", chunk()), tmp_path / "b.gz")
    assert counts(opened(tmp_path / "b.gz")) == [0, 1, 2]


def test_reading_after_close_is_an_error(chunk: Raw, tmp_path: Path) -> None:
    file = opened(put(tmp_path / "a.gz", chunk()))
    file.close()
    with pytest.raises(ChunkError, match="closed"):
        file.load(0)
    with pytest.raises(IndexError):
        file.load(1)


def test_frames_are_in_memory_of_their_own(raw: Raw, tmp_path: Path) -> None:
    for version in (3, 6, 7):
        file = opened(put(tmp_path / f"{version}.gz", raw(2, version)))
        first, second = file.load(0), file.load(0)
        first[:] = 0
        assert second.any()


def test_a_window_of_many_files_holds_few_descriptors(chunk: Raw, tmp_path: Path) -> None:
    files = [opened(archive(tmp_path / f"{i}.tar", {"a": chunk(1), "b": chunk(2)})) for i in range(150)]
    assert opened_below(tmp_path) == 0
    for i in (0, 1):
        for file in files:
            assert counts(file, i) == list(range(i + 1))
    assert 0 < opened_below(tmp_path) <= 64
    for file in files:
        file.close()
    assert opened_below(tmp_path) == 0


def test_descriptors_in_use_are_not_closed(tmp_path: Path) -> None:
    held = Descriptors(limit=1)
    paths = [put(tmp_path / str(i), b"%d" % i) for i in range(3)]
    ids = [Identity(s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for s in map(os.stat, paths)]
    with held.borrow(paths[0], ids[0]) as a, held.borrow(paths[1], ids[1]) as b:
        with held.borrow(paths[2], ids[2]) as c:
            assert [os.pread(fd, 9, 0) for fd in (a, b, c)] == [b"0", b"1", b"2"]
        held.drop(paths[0], ids[0])  # in use: stays
        assert os.pread(a, 9, 0) == b"0"
    assert len(held) == 1
    for path, identity in zip(paths, ids, strict=True):
        held.drop(path, identity)
    assert len(held) == 0


def test_any_number_of_threads_read_one_archive(raw: Raw, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {str(i): gzip.compress(raw(2, first=i)) for i in range(40)})
    file = opened(path)
    wrong: list[int] = []

    def read() -> None:
        wrong.extend(i for i in range(40) if counts(file, i) != [i, i + 1])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_process_reads_though_a_thread_held_the_lock(chunk: Raw, tmp_path: Path) -> None:
    file = opened(put(tmp_path / "a.gz", chunk()))
    with DESCRIPTORS._lock:
        child = os.fork()
        if not child:
            os._exit(len(file.load(0)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_files_of_other_formats_are_not_claimed(golden: Path, tmp_path: Path) -> None:
    others = [path for path in golden.parent.rglob("*") if golden not in path.parents and path != golden]
    assert len(others) > 100
    assert [path for path in others if FORMAT.recognises(path)] == []
    shard = archive(tmp_path / "shard.tar", {"000.npy": b"\x93NUMPY", "000.json": b"{}"})
    packed = put(tmp_path / "data.gz", gzip.compress(pickle.dumps([1, 2, 3])))
    table = put(tmp_path / "table.gz", gzip.compress(b"\6\0\0\0\6\0\0\0" * 100))
    for path in (shard, packed, table, tmp_path, tmp_path / "nothing", put(tmp_path / "zeros", bytes(4096))):
        assert not FORMAT.recognises(path)


def test_games_are_told_from_other_archives_by_their_first_chunk(raw: Raw, tmp_path: Path) -> None:
    names = {"LICENSE": b"text", "000.npy": gzip.compress(raw(1, 3)), "README": b"text"}
    assert recognise(archive(tmp_path / "a.tar", names))[0].name == "lc0"
    assert recognise(put(tmp_path / "b", raw(1, 4)))[0].name == "lc0"
    assert recognise(put(tmp_path / "c.tar", (tmp_path / "a.tar").read_bytes()[:2000]))[0].name == "lc0"
    with pytest.raises(UnknownFormatError):
        recognise(put(tmp_path / "d.gz", gzip.compress(raw(1))[:12]))


@pytest.mark.parametrize(("order", "expected"), [("natural", [2, 10, 1]), ("key", [10, 2, 1])])
def test_files_of_a_folder_are_in_order_and_hidden_ones_are_left_out(
    raw: Raw, tmp_path: Path, order: Any, expected: list[int]
) -> None:
    for name, n in (("training.10.gz", 10), ("training.2.gz", 2), ("training.30.tar", 1), (".training.1.gz.x", 5)):
        put(tmp_path / name, raw(n) if n != 1 else member("a", raw(1)) + END)
    put(tmp_path / "notes.txt", b"hello, no game in here")
    with Lc0Source(tmp_path, order=order) as games:
        assert np.diff(games.offsets).tolist() == expected
    assert opened(tmp_path / "training.2.gz").key == "training.2.gz"


def test_a_folder_with_an_empty_file_opens_and_says_so(raw: Raw, tmp_path: Path) -> None:
    put(tmp_path / "a.gz", raw(2))
    put(tmp_path / "b.gz", b"")
    with Lc0Source(tmp_path) as games:
        assert len(games) == 1
        (entry,) = games.account.left_out
    assert (entry.thing, entry.where, entry.reason, entry.message[:6]) == ("file", "b.gz", "bad-file", "empty:")


def test_a_trailer_that_lies_plausibly_is_seen_when_the_game_is_read(raw: Raw, tmp_path: Path) -> None:
    data = gzip.compress(raw(2)) + (8356).to_bytes(4, "little")  # behind the end, as if there were one frame
    with Lc0Source(put(tmp_path / "a.gz", data)) as games:
        assert games.steps == 1
        with pytest.raises(ChunkError, match="expected 1 frames, got 2") as caught:
            games.episode(0)
    assert caught.value.reason == Reason.SIZE
