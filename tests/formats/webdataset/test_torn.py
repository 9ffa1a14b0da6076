"""Archives that were cut off: within a member, within a sample, or between two samples, plain and compressed."""

from __future__ import annotations

import gzip
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import penstock
from penstock.containers.tar import END, TornError, member, stream, walk
from penstock.core.damage import collected_damage
from penstock.errors import DamageWarning, FormatError
from penstock.formats.webdataset import FORMAT
from penstock.formats.webdataset.content import index_file
from penstock.formats.webdataset.source import WORTH, ShardSource
from penstock.formats.webdataset.streaming import ShardStream

PIECES = [member(f"{i}.{e}", b"%d" % i if e == "cls" else b"x" * 700) for i in range(4) for e in ("cls", "txt")]
WHOLE = b"".join(PIECES)
BOUNDARIES = np.cumsum([0, *map(len, PIECES)]).tolist()
PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "plain": ("a.tar", bytes),
    "gzip": ("a.tgz", gzip.compress),
    "zstd": ("a.tar.zst", zstandard.ZstdCompressor().compress),
}


def keys(path: Path, **options: Any) -> tuple[list[int], list[str]]:
    """The samples, and the warnings of opening."""
    with collected_damage() as messages, penstock.open(path, index=False, **options) as data:
        return [int(e.columns["cls"][0]) for e in data], messages


def streamed(raw: bytes, **options: Any) -> tuple[list[int], list[str]]:
    with collected_damage() as messages:
        blocks = list(ShardStream({"pipe": lambda: io.BytesIO(raw)}, **options)())
        return [int(x) for block in blocks for x in block["cls"]], messages


@pytest.mark.parametrize("packed", PACKED)
def test_a_cut_between_two_samples_is_told(packed: str, tmp_path: Path) -> None:
    name, pack = PACKED[packed]
    raw = pack(WHOLE[: BOUNDARIES[6]])
    (tmp_path / name).write_bytes(raw)
    found, told = keys(tmp_path / name)
    assert found == [0, 1, 2]
    assert len(told) == 1
    assert name in told[0]
    assert f"expected the end-of-archive marker, got the end of the file - at byte {BOUNDARIES[6]}" in told[0]
    findings = [each for each in penstock.check(tmp_path / name).findings if each.level == "error"]
    assert [(each.name, each.where, "end-of-archive marker" in each.message) for each in findings] == [
        ("truncated", name, True)
    ]
    assert streamed(raw)[0] == [0, 1, 2]
    assert "end-of-archive marker" in streamed(raw)[1][0]


@pytest.mark.parametrize("end", [END, END[:512], bytes(10240)])
@pytest.mark.parametrize("packed", PACKED)
def test_a_whole_archive_is_read_without_a_word(packed: str, end: bytes, tmp_path: Path) -> None:
    name, pack = PACKED[packed]
    raw = pack(WHOLE + end)
    (tmp_path / name).write_bytes(raw)
    for salvage in (False, True):
        assert keys(tmp_path / name, salvage=salvage) == ([0, 1, 2, 3], [])
        assert streamed(raw, salvage=salvage) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize(
    "cut", [*BOUNDARIES[3:], *(b - 1400 for b in BOUNDARIES[4:]), *(b - 10 for b in BOUNDARIES[4:])]
)
def test_salvage_reads_up_to_the_last_whole_sample(cut: int, packed: str, tmp_path: Path) -> None:
    name, pack = PACKED[packed]
    raw = pack(WHOLE[:cut])
    (tmp_path / name).write_bytes(raw)
    complete = walk(np.frombuffer(WHOLE[:cut], np.uint8), torn="drop")
    expected = list(range(len(complete) // 2))
    for found, told in (keys(tmp_path / name, salvage=True), streamed(raw, salvage=True)):
        assert found == expected
        assert len(told) == 1
        assert ("the last sample" in told[0]) == (len(complete) % 2 == 1)


@pytest.mark.parametrize("packed", ["gzip", "zstd"])
def test_salvage_of_cut_compression(packed: str, tmp_path: Path) -> None:
    name, pack = PACKED[packed]
    noise = np.random.default_rng(0).bytes(200_000)
    pieces = [
        member(f"{i}.{e}", b"%d" % i if e == "cls" else noise[i * 20000 :][:20000])
        for i in range(9)
        for e in ("cls", "bin")
    ]
    raw = pack(b"".join(pieces) + END)[:150_000]
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(FormatError, match=r"cut off|ends within"):
        keys(tmp_path / name)
    found, told = keys(tmp_path / name, salvage=True)
    assert found == list(range(len(found)))
    assert 4 <= len(found) <= 7
    assert "samples are whole" in told[0]
    assert streamed(raw, salvage=True)[0] == found
    with pytest.raises(FormatError, match=r"cut off|ends within"):  # the copy that salvage unpacked is not taken
        keys(tmp_path / name)


def test_a_cut_within_a_member_is_refused_with_advice(tmp_path: Path) -> None:
    (path := tmp_path / "a.tar").write_bytes(WHOLE[: BOUNDARIES[6] - 1000])
    with pytest.raises(TornError, match=r"the last whole member is '2.cls'; open it with salvage=True") as caught:
        ShardSource(path)
    assert caught.value.path == path


@pytest.mark.parametrize("layout", ["npy", "seed"])
def test_salvage_of_recorded_episodes(layout: str, tmp_path: Path) -> None:
    flag = penstock.Field(np.dtype("bool"))
    spec = penstock.Spec(
        {
            "observations": penstock.Field(np.dtype("u1"), (2, 4, 4), "boundary"),
            "actions": penstock.Field(np.dtype("i8")),
            "terminations": flag,
            "truncations": flag,
        }
    )
    last = np.arange(3) == 2
    with FORMAT.create(path := tmp_path / "a.tar", spec, layout=layout) as writer:
        for i in range(5):
            columns = {"observations": np.full((4, 2, 4, 4), i, "u1"), "actions": np.arange(3)}
            writer.write(penstock.Episode(spec, {**columns, "terminations": last, "truncations": last & False}))
    raw = path.read_bytes()
    members = walk(np.frombuffer(raw, np.uint8))
    for cut in (int(members.payload[-1]) + 5, int(members.header[-1])):
        path.write_bytes(raw[:cut])
        with pytest.warns(DamageWarning, match="is left out"):
            source = penstock.open(path, salvage=True, index=False).source
        with source:
            whole = [int(np.asarray(each.columns["observations"])[0, 0, 0, 0]) for each in source.episodes()]
            assert whole == ([0, 1, 2, 3] if layout == "npy" else [0, 1, 2, 3, 4])  # there a sample is a step
            assert layout == "npy" or len(source.episode(4)) == 2


def test_the_index_remembers_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(member(f"{i:05d}.cls", b"1") for i in range(WORTH)))
    for _ in range(2):
        with pytest.warns(DamageWarning, match="end-of-archive marker"):
            penstock.open(path).close()
    assert index_file(path).path.exists()


def test_a_source_that_is_sent_elsewhere_keeps_to_salvage(tmp_path: Path) -> None:
    (path := tmp_path / "a.tar").write_bytes(WHOLE[: BOUNDARIES[6] - 1000])
    with ShardSource(path, salvage=True) as source, pickle.loads(pickle.dumps(source)) as sent:
        assert len(sent) == len(source) == 2
        assert sent.account == source.account
        assert [entry.reason for entry in sent.account.left_out] == ["truncated"]


def test_streams_of_members_return_what_is_cut_off() -> None:
    def result(raw: bytes) -> str | None:
        members = stream(io.BytesIO(raw), torn="drop")
        while True:
            try:
                next(members)
            except StopIteration as end:
                return end.value.torn

    assert result(WHOLE + END) is None
    assert "end-of-archive marker" in str(result(WHOLE))
    assert "the last whole member is '3.cls'" in str(result(WHOLE[:-1000]))
