"""What the reader of archives does not use is in its account; messages say what is wrong with the samples."""

# pyright: basic

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.damage import collected_damage
from penstock.errors import DamageWarning, FormatError, UnknownFormatError
from penstock.formats.base.format import folder_of, recognise
from penstock.formats.base.source import Source
from penstock.formats.webdataset import FORMAT, source
from penstock.formats.webdataset.streaming import ShardStream
from penstock.testing.accounts import AccountContract, Leftover, Planted

HTML = b"<!doctype html><title>404</title>" * 30


def jsons(first: int, *entries: object) -> bytes:
    """Members of samples with a JSON file alone."""
    return b"".join(member(f"{first + i:05d}.json", json.dumps(entry).encode()) for i, entry in enumerate(entries))


def put(name: str, raw: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(raw)


class TestFolder(AccountContract):
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(put("labels.bin", b"1"), "other-file", "labels.bin"),
        "member": Planted(put("s3.tar", member("labels", b"a") + END), "other-file", "s3.tar: labels"),
        "column": Planted(put("s3.tar", jsons(4, {"v": 4, "w": 1}) + END), "other-length", "json/w"),
        "tail": Planted(put("s3.tar", jsons(4, {"v": 4}) + END + b"tail"), "behind-the-end", "s3.tar: byte 2048"),
        "bad first file": Planted(put("s0.tar", HTML), "bad-file", "s0.tar"),
    }
    absent: ClassVar[Mapping[Leftover, str]] = {
        "array": "an array is a member",
        "unfinished": "opening any format reads the mark of a conversion",
    }

    @pytest.fixture(autouse=True)
    def indexed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also small archives have an index in the cache."""
        monkeypatch.setattr(source, "WORTH", 1)

    def write(self, path: Path) -> Path:
        (path / "s1.tar").write_bytes(jsons(0, {"v": 0}, {"v": 1}) + END)
        (path / "s2.tar").write_bytes(jsons(2, {"v": 2}, {"v": 3}) + END)
        return path

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


@pytest.mark.parametrize("bad", [b"", b"<html>", HTML, b"PK\x03\x04" + bytes(5000), json.dumps([1] * 400).encode()])
@pytest.mark.parametrize("name", ["s0.tar", "s15.tar", "s9.tar"])
def test_a_file_that_is_no_archive_is_left_out_wherever_it_sorts(bad: bytes, name: str, tmp_path: Path) -> None:
    for i in range(1, 3):
        (tmp_path / f"s{i}.tar").write_bytes(jsons(i, {"v": i}) + END)
    (tmp_path / name).write_bytes(bad)
    with pytest.warns(DamageWarning, match=name):
        data = penstock.open(tmp_path)
    assert (data.source.account.left_out[0].reason, len(data)) == ("bad-file", 2)
    assert [f.where for f in penstock.check(tmp_path).findings if f.level == "error"] == [name]
    with collected_damage() as messages:
        assert [int(x) for block in ShardStream(tmp_path)() for x in block["json/v"]] == [1, 2]
    assert name in messages[0]
    (alone := tmp_path / "alone").mkdir()
    (alone / "s0.tar").write_bytes(bad)
    with pytest.raises(FormatError):
        FORMAT.open(alone)
    with pytest.raises(UnknownFormatError):
        penstock.open(alone)


def test_damage_within_an_archive_of_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"s{i}.tar").write_bytes(jsons(i, {"v": i}) + END)
    first, cut = tmp_path / "s0.tar", tmp_path / "s1.tar"
    first.write_bytes(b"?" + first.read_bytes()[1:])
    with pytest.raises(FormatError, match=r"the archive is damaged here.*s0\.tar"):
        penstock.open(tmp_path)
    first.unlink()
    cut.write_bytes(cut.read_bytes()[:515])
    with pytest.raises(FormatError, match=r"ends within.*s1\.tar.*salvage=True"):
        penstock.open(tmp_path, format="webdataset")


CHUNK = member("run/training.1.gz", gzip.compress(b"x"))
FOLDERS = {
    "samples behind an empty one": ((END, jsons(0, {"v": 1}) + END), True),
    "samples behind a text": ((member("LICENSE", b"ODbL") + END, jsons(0, {"v": 1}) + END), True),
    "samples behind hidden files": ((member(".DS_Store", b"x") + END, jsons(0, {"v": 1}) + END), True),
    "samples behind an end": ((END + jsons(0, {"v": 1}) + END,), True),
    "games behind an empty one": ((END, CHUNK + END), False),
    "games behind a text": ((member("LICENSE", b"ODbL") + END, CHUNK + END), False),
    "games between": ((END, CHUNK + END, END, END), False),
    "empty ones": ((END, END), True),
    "texts": ((member("LICENSE", b"ODbL") + END,), False),
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_not_judged_by_its_first_archive(folder: str, tmp_path: Path) -> None:
    raws, expected = FOLDERS[folder]
    for i, raw in enumerate(raws):
        (tmp_path / f"{i}.tar").write_bytes(raw)
    assert FORMAT.recognises(tmp_path) == expected


def test_a_folder_of_recorded_episodes_may_begin_with_an_empty_archive(tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2])
    out = Path(penstock.convert(data, tmp_path / "data", format="webdataset").out)
    (out / "a.tar").write_bytes(END)
    assert recognise(out)[0] is FORMAT
    assert penstock.open(out)[0].rewards.tolist() == [0.0, 1.0]


HIDDEN = ("._{}", "./._{}", ".DS_Store", ".gitkeep", "d/._{}", ".hidden/.x", "__x__/{}")


@pytest.mark.parametrize("hidden", HIDDEN)
def test_hidden_members_are_no_samples(hidden: str, tmp_path: Path) -> None:
    names = [f"{i}.{extension}" for i in range(3) for extension in ("cls", "txt")]
    raw = b"".join(_member(hidden.format(name), b"Mac OS X") + member(name, b"7") for name in names)
    (path := tmp_path / "a.tar").write_bytes(raw + END)
    with penstock.open(path) as data:
        assert len(data) == 3
        entries = [(entry.thing, entry.reason, entry.count) for entry in data.source.account.left_out]
        assert entries == ([] if "__x__" in hidden else [("member", "hidden", 6)])
    assert [len(block["cls"]) for block in ShardStream(path)()] == [3]
    assert penstock.check(path).sound


def test_a_thing_in_each_of_many_archives_looks_up_their_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        (tmp_path / f"{number}.tar").write_bytes(member(f"._{number}.cls", b"x") + member(f"{number}.cls", b"7") + END)
    calls: list[Any] = []
    monkeypatch.setattr(source, "folder_of", lambda paths: calls.append(paths) or folder_of(paths))
    with penstock.open(tmp_path) as data:
        (entry,) = data.source.account.left_out
    assert (entry.count, entry.where) == (9, "0.tar: ._0.cls")
    assert len(calls) == 2  # and for the location of the source


def _member(name: str, payload: bytes) -> bytes:
    """A member whose name may begin with `./`."""
    raw = bytearray(member(name.removeprefix("./"), payload))
    raw[:100] = name.encode().ljust(100, b"\0")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw)


@pytest.mark.parametrize("missing", ["error", "leave_out", "fill"])
def test_members_that_stand_apart_are_named(missing: str, tmp_path: Path) -> None:
    members = {"a.cls": b"1", "b.cls": b"2", "c.cls": b"3", "c.txt": b"c", "b.txt": b"b", "a.txt": b"a"}
    (path := tmp_path / "a.tar").write_bytes(b"".join(member(*each) for each in members.items()) + END)
    message = r"next to each other, got cls apart from txt; sort the archive by name.*sample 'a'.*a\.tar"
    with pytest.raises(FormatError, match=message):
        penstock.open(path, missing=missing)
    assert len(penstock.open(path, extensions=["cls"])) == 3


def test_a_sample_that_lacks_a_member_twice_is_not_one_that_stands_apart(tmp_path: Path) -> None:
    names = ("a.cls", "b.cls", "b.txt", "a.cls")
    (path := tmp_path / "a.tar").write_bytes(b"".join(member(name, b"1") for name in names) + END)
    assert len(penstock.open(path, missing="leave_out")) == 1


NULLS = {
    "null": ([{"v": 1}, {"v": None}], r"json/v: expected a value in every sample, got none or null in 1 sample of 2"),
    "types": ([{"v": 1}, {"v": "x"}], r"json/v: expected numbers, text, .*, got int and str"),
    "others": ([{"v": 1}, {"w": 1}], r"json/v: .* first in '00001'; json/w: .* first in '00000'"),
}


@pytest.mark.parametrize("kind", NULLS)
def test_values_that_fit_no_column_are_named(kind: str, tmp_path: Path) -> None:
    entries, message = NULLS[kind]
    (path := tmp_path / "a.tar").write_bytes(jsons(0, *entries) + END)
    with pytest.raises(FormatError, match=message):
        penstock.open(path)
    path.write_bytes(jsons(0, *({"u": 1, **entry} for entry in entries)) + END)
    with pytest.warns(DamageWarning, match="left out .* column.*json/v"):
        assert list(penstock.open(path).spec) == ["json/u"]
