"""Files with several archives, one behind the other, are read to their end; other bytes behind an end are named."""

# pyright: basic

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import penstock
from penstock.containers.tar import END, member, stream, walk
from penstock.core.damage import collected_damage
from penstock.errors import DataError, FormatError
from penstock.formats.webdataset import FORMAT
from penstock.formats.webdataset.copying import copy
from penstock.formats.webdataset.source import WORTH, ShardSource
from penstock.formats.webdataset.streaming import ShardStream

ZEROS = [512, 1024, 10240, 1 << 20]  # bytes that an archive ends with
FIRST = b"".join(member(f"{i}.cls", b"%d" % i) for i in range(5))
SECOND = b"".join(member(f"{i}.cls", b"%d" % i) for i in range(5, 10))
zstd = zstandard.ZstdCompressor().compress
JOINS: dict[str, tuple[str, Callable[[bytes, bytes], bytes]]] = {
    "plain": ("a.tar", lambda a, b: a + b),
    "gzip of both": ("a.tgz", lambda a, b: gzip.compress(a + b)),
    "two gzip members": ("a.tar.gz", lambda a, b: gzip.compress(a) + gzip.compress(b)),
    "two zstd frames": ("a.tar.zst", lambda a, b: zstd(a) + zstd(b)),
}
SPEC = penstock.Spec(
    {
        "observations": penstock.Field(np.dtype("f4"), (2,), "boundary"),
        "actions": penstock.Field(np.dtype("i8")),
        "terminations": penstock.Field(np.dtype("bool")),
        "truncations": penstock.Field(np.dtype("bool")),
    }
)


def episode(number: int) -> penstock.Episode:
    last = np.arange(4) == 3
    columns = {"observations": np.full((5, 2), number, "f4"), "actions": np.arange(4)}
    return penstock.Episode(SPEC, {**columns, "terminations": last, "truncations": last & False}, 0, {"number": number})


def recorded(path: Path, layout: str, numbers: range) -> Path:
    with FORMAT.create(path, SPEC, {}, layout=layout) as writer:
        for number in numbers:
            writer.write(episode(number))
    return path


def numbers(path: Path, **options: Any) -> list[int]:
    with penstock.open(path, **options) as data:
        return [int(each.metadata["number"]) for each in data]


def samples(path: Path, **options: Any) -> tuple[list[int], list[int], list[str]]:
    """Samples of the dataset, of a stream of the file, and the warnings of both."""
    with collected_damage() as messages:
        with penstock.open(path, **options) as data:
            read = [int(each.columns["cls"][0]) for each in data]
        streamed = [int(x) for block in ShardStream(path)() for x in block["cls"]]
    return read, streamed, messages


@pytest.mark.parametrize("zeros", ZEROS)
def test_members_of_joined_archives_are_those_of_tarfile(zeros: int) -> None:
    folder = io.BytesIO()
    with tarfile.open(fileobj=folder, mode="w") as archive:
        info = tarfile.TarInfo("folder")
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    parts = [FIRST, b"", SECOND, folder.getvalue()[:512], member("long" * 40 + ".cls", b"x" * 600)]
    raw = b"".join(part + bytes(zeros) for part in parts)
    with tarfile.open(fileobj=io.BytesIO(raw), ignore_zeros=True) as archive:
        files = [info for info in archive if info.isreg()]
    members = walk(np.frombuffer(raw, np.uint8))
    assert [members.name(i) for i in range(len(members))] == [info.name for info in files]
    assert members.payload.tolist() == [info.offset_data for info in files]
    assert [(each.name.decode(), each.payload) for each, _ in stream(io.BytesIO(raw))] == [
        (info.name, info.offset_data) for info in files
    ]
    assert (members.archives, members.tail.behind, members.torn) == ((0, 5, 10), None, None)
    assert [raw[end - 1024 : end] for end in members.ends[[4, 9]].tolist()] == [FIRST[-1024:], SECOND[-1024:]]


@pytest.mark.parametrize("join", JOINS)
def test_all_samples_are_read_and_copied(join: str, tmp_path: Path) -> None:
    name, joined = JOINS[join]
    (path := tmp_path / name).write_bytes(joined(FIRST + END, SECOND + bytes(10240)))
    assert samples(path) == (list(range(10)), list(range(10)), [])
    assert penstock.check(path).sound
    with ShardSource(path) as source:
        copy(source, tmp_path / "copy.tar", (1 << 30, 100))
    with tarfile.open(tmp_path / "copy.tar") as archive:  # which stops at the first end
        assert archive.getnames() == [f"{i}.cls" for i in range(10)]


def test_the_index_has_all_samples(tmp_path: Path) -> None:
    many = [b"".join(member(f"{i:05d}.cls", b"1") for i in range(n, n + WORTH)) + END for n in (0, WORTH)]
    (path := tmp_path / "a.tar").write_bytes(b"".join(many))
    for _ in ("read", "from the index"):
        with ShardSource(path) as source:
            assert len(source) == 2 * WORTH
            assert source.samples.archive.tolist() == [0] * WORTH + [1] * WORTH
    assert source.index_file.path.exists()


def test_equal_keys_that_meet_stay_two_samples(tmp_path: Path) -> None:
    archive = b"".join(member(f"{key}.cls", b"%d" % key) for key in (3, 4))
    (path := tmp_path / "a.tar").write_bytes(archive + END + member("4.cls", b"7") + END)
    assert samples(path) == ([3, 4, 7], [3, 4, 7], [])
    with ShardSource(path) as source:
        copy(source, tmp_path / "copy.tar", (1 << 30, 100))
    assert samples(tmp_path / "copy.tar")[0] == [3, 4, 7]


@pytest.mark.parametrize("layout", ["npy", "seed"])
def test_appending_to_joined_recordings_keeps_every_episode(layout: str, tmp_path: Path) -> None:
    parts = [recorded(tmp_path / f"{name}.tar", layout, r) for name, r in (("x", range(3)), ("y", range(3, 6)))]
    raw = b"".join(part.read_bytes() for part in parts)
    (path := tmp_path / "both.tar").write_bytes(raw)
    assert numbers(path) == list(range(6))
    with FORMAT.append(path) as writer:
        writer.write(episode(6))
    assert path.read_bytes()[: len(raw) - len(END)] == raw[: -len(END)]
    assert numbers(path) == list(range(7))
    with FORMAT.append(path) as writer:
        if layout == "npy":
            writer.update_metadata({"author": "me"})
        else:  # whose archives are written again
            with pytest.raises(DataError, match=r"got several in both\.tar; change metadata after `penstock reshard`"):
                writer.update_metadata({"author": "me"})
    assert numbers(path) == list(range(7))


def test_an_episode_of_steps_ends_with_its_archive(tmp_path: Path) -> None:
    raw = recorded(tmp_path / "x.tar", "seed", range(1)).read_bytes()
    members = walk(np.frombuffer(raw, np.uint8))
    cut = raw[: int(members.header[[members.name(i).startswith("frame_000000003") for i in range(len(members))]][0])]
    (path := tmp_path / "a.tar").write_bytes(cut + END + raw)
    with penstock.open(path) as data:
        assert data.source.offsets.tolist() == [0, 3, 7]
        assert data[0].columns["truncations"].tolist() == [False, False, True]


JUNK = [b"x", b"x" * 511, b"junk" * 300, b"\0" * 700 + b"x" * 900, b"PK\x03\x04" + bytes(2000)]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_bytes_behind_the_end_are_named_and_kept(junk: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "a.tar").write_bytes(FIRST + END + SECOND + END + junk)
    behind = len(FIRST + END + SECOND + END) + (512 if junk.startswith(b"\0") else 0)
    read, streamed, messages = samples(path)
    assert read == streamed == list(range(10))
    assert len(messages) == 2
    assert all(f"byte {behind}" in message for message in messages)
    (finding,) = (each for each in penstock.check(path).findings if each.level == "error")
    assert (finding.name, finding.where) == ("behind-the-end", f"a.tar: byte {behind}")
    assert penstock.repair(path, plan=True).repairs == ()


@pytest.mark.parametrize("layout", ["npy", "seed"])
def test_no_writer_touches_bytes_behind_the_end(layout: str, tmp_path: Path) -> None:
    folder = recorded(tmp_path / "data", layout, range(3))
    path = folder / "shard-000000.tar"
    raw = path.read_bytes() + b"something that was put here"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="27 bytes behind it, which may be data; move them to another file"):
        FORMAT.append(folder)
    (folder / "shard-000001.tar").write_bytes(recorded(tmp_path / "b.tar", layout, range(3, 4)).read_bytes())
    with FORMAT.append(folder) as writer:
        writer.write(episode(4))
        if layout == "seed":
            with pytest.raises(FormatError, match="may be data"):
                writer.update_metadata({"author": "me"})
    assert path.read_bytes() == raw
    with collected_damage():
        assert numbers(folder) == list(range(5))


def test_an_append_that_was_not_finished_is_cut_off_before_the_next(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.tar", "npy", range(2))
    raw = path.read_bytes()
    larger = b"".join(member(f"episode_{i}.bin", b"left" * 900) for i in range(9))
    path.write_bytes(raw[:-512] + larger[512:] + END)  # all but its first block
    with collected_damage() as messages:
        assert numbers(path) == [0, 1]
    assert messages == []
    assert [each.name for each in penstock.check(path).findings if each.where == "a.tar"] == ["torn-tail"]
    writer = FORMAT.append(path)
    writer.write(episode(2))
    after = path.read_bytes()  # as a kill leaves it now
    writer.close()
    assert walk(np.frombuffer(after, np.uint8)).tail.behind is None
    assert after == path.read_bytes()
    assert penstock.check(path).sound


def test_one_zero_block_before_other_bytes_of_foreign_archives(tmp_path: Path) -> None:
    (path := tmp_path / "a.tar").write_bytes(FIRST + bytes(512) + b"junk" * 300)
    assert samples(path)[0] == list(range(5))
    assert [each.name for each in penstock.check(path).findings if each.level == "error"] == ["behind-the-end"]
    penstock.repair(path, in_place=True)
    assert path.stat().st_size == len(FIRST) + 512 + 1200


@pytest.mark.parametrize("join", ["two gzip members", "two zstd frames"])
def test_bytes_behind_a_compressed_stream_are_refused_and_kept(join: str, tmp_path: Path) -> None:
    name, joined = JOINS[join]
    (path := tmp_path / name).write_bytes(raw := joined(FIRST + END, SECOND + END) + b"something else")
    expected = "got a tail that begins b'something else'" if "gzip" in join else "damaged compression"
    with pytest.raises(FormatError, match=expected):
        penstock.open(path)
    assert not penstock.check(path).sound
    assert penstock.repair(path, in_place=True).repairs == ()
    assert path.read_bytes() == raw


def test_tar_agrees(tmp_path: Path) -> None:
    (path := tmp_path / "a.tar").write_bytes(FIRST + END + SECOND + END)
    listed = subprocess.run(["tar", "-tif", path], capture_output=True, text=True, check=True).stdout.split()
    assert listed == [f"{i}.cls" for i in range(10)]
