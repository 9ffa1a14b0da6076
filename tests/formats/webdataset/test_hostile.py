"""Whole archives that were made to do harm, opened and read as users do: a value, or a `FormatError` with its place."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.containers.tar import END, member, walk
from penstock.containers.tar.header import BLOCK
from penstock.errors import FormatError, UnsafeDataError
from penstock.formats.webdataset import FORMAT
from penstock.formats.webdataset.source import ShardSource

GOLDEN = Path(__file__).parents[2] / "golden" / "ilr" / "shards"
GOOD = member("0.cls", b"1")
BOMB = 64 << 20


def outcome(path: Path, **options: Any) -> FormatError | None:
    """Read everything; the error that came instead, which names the archive."""
    caught: FormatError | None = None
    try:
        FORMAT.recognises(path)
        with ShardSource(path, index=False, **options) as source:
            list(source.episodes())
            for i in range(len(source.samples)):
                source.sample(i)
    except FormatError as error:
        caught = error
    assert caught is None or path.name in str(caught)
    return caught


def changed(raw: bytes, at: int, patch: bytes) -> bytes:
    """With other bytes in the first header, and its checksum right again."""
    new = bytearray(raw)
    new[at : at + len(patch)] = patch
    new[148:156] = b" " * 8
    new[148:156] = b"%06o\0 " % sum(new[:BLOCK])
    return bytes(new)


def pax(**records: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("0.cls")
        info.size, info.pax_headers = 1, records
        tar.addfile(info, io.BytesIO(b"1"))
    return out.getvalue()


def sized(size: bytes) -> bytes:
    return changed(GOOD, 124, size) + END


ARCHIVES: dict[str, bytes] = {
    "a name above its folder": changed(GOOD, 0, b"../../etc/0.cls\0") + END,
    "a name above, inside": changed(GOOD, 0, b"a/../../0.cls\0") + END,
    "a name above, in PAX": pax(path="../0.cls"),
    "a NUL in a name": pax(path="0\0x.cls"),
    "an empty name": changed(GOOD, 0, bytes(100)) + END,
    "a name of 5000 bytes": pax(path="x" * 5000 + ".cls"),
    "a hard link": changed(GOOD, 156, b"1") + END,
    "a symbolic link": changed(GOOD, 156, b"2/etc/passwd\0") + END,
    "a character device": changed(GOOD, 156, b"3") + END,
    "a block device": changed(GOOD, 156, b"4") + END,
    "a pipe": changed(GOOD, 156, b"6") + END,
    "an old GNU sparse file": changed(GOOD, 156, b"S") + END,
    "a sparse file by PAX": pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
    "an older sparse file by PAX": pax(**{"GNU.sparse.size": "99999999"}),
    "a real size by PAX": pax(**{"SCHILY.realsize": "99"}),
    "a link by PAX": pax(linkpath="/etc/passwd"),
    "a size of all sevens": sized(b"77777777777\0"),
    "a negative size": sized(b"\xff" * 12),
    "a size of 2^80": sized(b"\x80\xff" + bytes(10)),
    "a size of 2^62": sized(b"\x80" + (1 << 62).to_bytes(11, "big")),
    "a size that is no number": sized(b"99999999999\0"),
    "a PAX size that is too large": pax(size="5000000"),
    "a PAX size that is negative": pax(size="-1"),
    "a PAX size without end": pax(size="9" * 400),
    "a wrong checksum": GOOD[:148] + b"000000\0 " + GOOD[156:] + END,
    "a key and extension twice": GOOD + GOOD + END,
    "an extended header of a gigabyte": changed(changed(member("x", b""), 124, b"%011o\0" % (1 << 30)), 156, b"x")
    + END,
    "a PAX record that lies about its length": changed(member("x", b"99 path=a\n"), 156, b"x") + GOOD + END,
}


@pytest.mark.parametrize("what", ARCHIVES)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_archives_that_lie(what: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    path.write_bytes(pack(ARCHIVES[what]))
    error = outcome(path)
    assert error is not None
    assert "byte" in (error.where or "")
    assert [finding.level for finding in FORMAT.check(path)] == ["error"]


def test_a_pickle_names_archive_member_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    path.write_bytes(GOOD + member("1.pkl", b"Ncos\nsystem\n(S'true'\ntR.") + END)
    error = outcome(path, extensions=["pkl"])
    assert isinstance(error, UnsafeDataError)
    assert "os.system" in str(error)
    assert str(error).endswith(f"byte 1 of the pickle member '1.pkl' at byte 1536 in {path}")


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("zlib_ng", [True, False])
def test_bombs_stop_at_the_cache_and_leave_nothing(
    kind: str, zlib_ng: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zlib

    import zstandard

    if not zlib_ng:
        monkeypatch.setattr("penstock.containers.tar.compress.inflating", lambda: zlib)
    raw = member("0.bin", bytes(BOMB)) + END
    packed = gzip.compress(raw) if kind == "gzip" else zstandard.compress(raw)
    assert len(packed) < len(raw) // 500
    path, cache = tmp_path / "bomb", tmp_path / "cache"
    path.write_bytes(packed)
    error = outcome(path, cache=cache, cache_bytes=BOMB // 2)
    assert isinstance(error, UnsafeDataError)
    assert "at most" in str(error)
    assert list(cache.iterdir()) == []
    path.write_bytes(packed * 3)  # members and frames one after the other count together
    assert isinstance(outcome(path, cache=cache, cache_bytes=2 * BOMB), UnsafeDataError)


def test_a_zstd_frame_that_asks_for_a_huge_window(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([0xF8]) + b"\x01\x00\x00")
    assert "damaged compression" in str(outcome(path))


def test_zlib_ng_is_what_inflates_here() -> None:
    from penstock.containers.tar.compress import inflating

    assert inflating().__name__ == "zlib_ng.zlib_ng"


@pytest.mark.parametrize("zlib_ng", [True, False])
@pytest.mark.parametrize("name", ["A.tgz", "nometa.tgz"])
def test_both_inflaters_give_the_same(name: str, zlib_ng: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import zlib

    from penstock.containers.tar import compress

    if not zlib_ng:
        monkeypatch.setattr(compress, "inflating", lambda: zlib)
    raw = (GOLDEN / name).read_bytes()
    expected = gzip.decompress(raw)

    def everything(data: bytes) -> bytes:
        reader = compress.opened(io.BytesIO(data), "a.tgz")
        return b"".join(iter(lambda: reader.read(1 << 16), b""))

    for data, count in ((raw, 1), (raw + raw, 2), (raw + bytes(512) + raw, 2), (raw + bytes(7), 1)):
        assert everything(data) == expected * count
    for bad in (
        raw[:-1],
        raw[:-9],
        raw[:40],
        raw + b"junk",
        raw[:-6] + b"\0\1\2\3\4\5",
        raw[:99] + b"\xff" + raw[100:],
    ):
        with pytest.raises(FormatError, match="damaged compression"):
            everything(bad)


@pytest.mark.parametrize("name", ["A_plain.tar", "A.tgz", "A.tar.zst"])
def test_cut_off_anywhere(name: str, tmp_path: Path) -> None:
    raw = (GOLDEN / name).read_bytes()
    path = tmp_path / name
    whole = bytes(raw).rstrip(b"\0")
    members = walk(np.frombuffer(raw, np.uint8)) if name.endswith(".tar") else None
    for cut in range(1, len(whole), max(len(whole) // 60, 1)):
        path.write_bytes(raw[:cut])
        if outcome(path) is None:  # between members, or in the zeros behind one
            with ShardSource(path, index=False) as source:
                assert [entry.reason for entry in source.account.left_out] == ["truncated"]
            assert members is not None
            last = int(np.searchsorted(members.header, cut)) - 1
            assert cut >= members.payload[last] + members.size[last]


def samples() -> bytes:
    def npy(array: Any) -> bytes:
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    members = [
        (f"{i}.{name}", raw)
        for i in range(3)
        for name, raw in (
            ("cls", b"%d" % i),
            ("json", b'{"a": {"b": [1, 2]}, "c": "text"}'),
            ("npy", npy(np.arange(6.0).reshape(2, 3))),
            ("pkl", pickle.dumps({"x": np.arange(3), "y": [1, "a"]}, protocol=4)),
            ("txt", b"words"),
        )
    ]
    return b"".join(member(name, raw) for name, raw in members) + END


BASES = {"samples": samples(), "seed": (GOLDEN / "A_plain.tar").read_bytes(), "gzip": gzip.compress(samples())}


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(sorted(BASES)),
    st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=6)), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_damage_is_a_value_or_a_format_error(
    tmp_path_factory: pytest.TempPathFactory, base: str, patches: list[tuple[float, bytes]], signed: bool
) -> None:
    raw = bytearray(BASES[base])
    for at, patch in patches:
        begin = min(int(at * len(raw)), len(raw) - 1)
        raw[begin : begin + len(patch)] = patch[: len(raw) - begin]
    if signed and base != "gzip":  # so that what the headers say is believed
        for at in range(0, len(raw) - BLOCK + 1, BLOCK):
            if raw[at + 257 : at + 262] == b"ustar":
                raw[at : at + BLOCK] = changed(bytes(raw[at : at + BLOCK]), 0, b"")
    path = tmp_path_factory.mktemp("fuzz") / "shard.tar"
    path.write_bytes(raw)
    outcome(path)
    path.unlink()


def test_the_fuzz_reads_what_is_not_damaged(tmp_path: Path) -> None:
    for name, raw in BASES.items():
        (tmp_path / name).write_bytes(raw)
        assert outcome(tmp_path / name) is None
