"""The walk over headers, against Python's tarfile; and archives that are damaged or meant to do harm."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.containers.tar import NoArchiveError, TornError, stream, walk
from penstock.containers.tar.header import BLOCK
from penstock.containers.tar.walk import Members
from penstock.errors import FormatError, UnsafeDataError

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def archive(entries: list[tuple[str, bytes]], kind: int = tarfile.USTAR_FORMAT, **fields: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, payload in entries:
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(payload))
    return out.getvalue()


def walked(raw: bytes, **options: Any) -> Members:
    return walk(np.frombuffer(raw, np.uint8), "a.tar", **options)


def agrees(raw: bytes) -> None:
    """Names, places and sizes are tarfile's, by both ways of reading."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        files = [info for info in tar.getmembers() if info.isreg()]
        payloads = [tar.extractfile(info).read() for info in files]  # type: ignore[union-attr]
    found = walked(raw)
    assert [found.name(i) for i in range(len(found))] == [info.name.removeprefix("./") for info in files]
    assert found.payload.tolist() == [info.offset_data for info in files]
    assert found.size.tolist() == [info.size for info in files]
    assert [payload for _, payload in stream(io.BytesIO(raw))] == payloads


def frames(n: int, first: int = 0) -> list[tuple[str, bytes]]:
    sizes = {"acts": 116, "frame": 5, "obs": 2000, "rews": 0}
    return [(f"frame_{t:03d}.{name}.pickle", bytes(size)) for t in range(first, n) for name, size in sizes.items()]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("mtime", [0, 1_795_218_288.1541677])
def test_repeating_members_are_those_of_tarfile(kind: str, mtime: float) -> None:
    if kind != "pax":
        mtime = int(mtime)
    agrees(archive(frames(1200), FORMATS[kind], mtime=mtime))


@pytest.mark.parametrize("kind", FORMATS)
def test_names_of_any_length(kind: str) -> None:
    longest = 4000 if kind != "ustar" else 180
    names = ["a", "é" * 20, "d/" * 40 + "x" * 60, "a" * 80 + "/" + "b" * (longest - 81)]
    agrees(archive([(name, name.encode()) for name in names if kind != "ustar" or name.isascii()], FORMATS[kind]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), max_size=40),
    st.integers(1, 30),
    st.sampled_from(sorted(FORMATS.values())),
)
def test_any_sequence_of_sizes(sizes: list[tuple[int, int]], times: int, kind: int) -> None:
    entries = [(f"{i:05d}.{e}", bytes(size)) for i in range(times) for e, size in sizes]
    agrees(archive(entries, kind))


def test_a_break_in_the_pattern_loses_nothing() -> None:
    agrees(archive([*frames(500), ("frame_500.obs.pickle", b"longer" * 900), *frames(900, 501)]))


def test_folders_are_passed_over_and_empty_archives_are_fine() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("folder")
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        tar.addfile(tarfile.TarInfo("folder/a.txt"))
    agrees(out.getvalue())
    assert len(walked(bytes(10240))) == 0
    with pytest.raises(NoArchiveError, match="got no bytes"):
        walked(b"")


def test_a_base_256_size_and_a_name_with_a_prefix() -> None:
    raw = bytearray(archive([("a/b.bin", b"12345")]))
    raw[124:136] = b"\x80" + (5).to_bytes(11, "big")
    raw[345:348] = b"pre"
    assert walked(signed(raw)).name(0) == "pre/a/b.bin"
    assert walked(signed(raw)).size.tolist() == [5]


def test_global_comments_as_git_writes_them() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "abc"}) as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))
    agrees(out.getvalue())


def signed(raw: bytearray, at: int = 0) -> bytes:
    """With the right checksum in the header at a position."""
    raw[at + 148 : at + 156] = b" " * 8
    raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + BLOCK])
    return bytes(raw)


@pytest.mark.parametrize("cut", [425, 511, 512, 700, 1024, 1500])
def test_an_archive_that_is_cut_off(cut: int) -> None:
    whole = archive([("a.txt", b"x" * 600), ("b.txt", b"y" * 600)])[: 2 * 1536]
    found = walked(whole[:-cut], torn="drop")
    assert [found.name(i) for i in range(len(found))] == ["a.txt"]
    assert len(walked(whole[:-424])) == 2  # padding alone is no loss
    with pytest.raises(TornError, match=r"last whole member is 'a\.txt'"):
        walked(whole[:-cut])
    with pytest.raises(TornError):
        list(stream(io.BytesIO(whole[:-cut])))


@pytest.mark.parametrize("position", [0, 100, 124, 148, 156, 257, 400])
def test_a_flipped_byte_in_a_header(position: int) -> None:
    raw = bytearray(archive(frames(200)))
    raw[BLOCK * 6 * 40 + position] ^= 1
    with pytest.raises(FormatError, match="byte"):
        walked(bytes(raw))


KINDS = {
    "hard link": tarfile.LNKTYPE,
    "symbolic link": tarfile.SYMTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "sparse": tarfile.GNUTYPE_SPARSE,
    "type b'Z'": b"Z",
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files(kind: str) -> None:
    raw = bytearray(archive([("a.txt", b"")]))
    raw[156:157] = KINDS[kind]
    with pytest.raises(UnsafeDataError, match=kind):
        walked(signed(raw))


@pytest.mark.parametrize("name", ["../a.txt", "a/../../b.txt", "..", "a/.."])
def test_names_that_step_out(name: str) -> None:
    with pytest.raises(UnsafeDataError, match="stays in its folder"):
        walked(archive([(name, b"")]))
    repeated = archive([*frames(100), (name, bytes(116))])
    with pytest.raises(UnsafeDataError, match="stays in its folder"):
        walked(repeated)


def test_absolute_names_are_only_names() -> None:
    assert walked(archive([("/etc/passwd", b"")])).name(0) == "/etc/passwd"


@pytest.mark.parametrize("record", ["GNU.sparse.major", "GNU.sparse.map", "size", "linkpath"])
def test_pax_records_that_lie(record: str) -> None:
    raw = archive([("a.txt", b"12345")], tarfile.PAX_FORMAT, pax_headers={record: "-5" if record == "size" else "1"})
    with pytest.raises(FormatError):
        walked(raw)


@pytest.mark.parametrize(
    "size", [b"77777777777\0", b"\x80" + bytes(3) + b"\x7f" + bytes(7), b"\xff" * 12, b"0000000000x\0"]
)
def test_sizes_that_lie(size: bytes) -> None:
    raw = bytearray(archive([("a.txt", b"")]))
    raw[124:136] = size
    with pytest.raises(FormatError):
        walked(signed(raw))
    with pytest.raises(FormatError):
        list(stream(io.BytesIO(signed(raw))))


def test_a_long_extended_header_is_not_read() -> None:
    raw = bytearray(archive([("a" * 300, b"")], tarfile.GNU_FORMAT))
    raw[124:136] = b"%011o\0" % (1 << 24)
    with pytest.raises(UnsafeDataError, match="extended header"):
        walked(signed(raw) + bytes(1 << 25))


def test_the_number_of_members_has_a_limit() -> None:
    with pytest.raises(UnsafeDataError, match="at most 2 members"):
        walked(archive([(f"{i}.txt", b"x" * 600 * i) for i in range(4)]), limit=2)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 40 * BLOCK - 1), st.binary(min_size=1, max_size=20))
def test_any_damage_is_a_format_error_or_a_whole_read(at: int, patch: bytes) -> None:
    raw = bytearray(archive(frames(10)))
    raw[at : at + len(patch)] = patch
    try:
        found = walked(bytes(raw))
    except FormatError:
        return
    assert (found.payload + found.size <= len(raw)).all()
