"""Some hundred edited files of every format: values or an error of ours. `make fuzz` goes on for as long as asked."""

from __future__ import annotations

import gzip
import random
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FormatError
from tests.fuzz import cases
from tests.fuzz.__main__ import Run, main, processes, table
from tests.fuzz.edits import corrupted, edited, odd_tree, protobuf, tar_header
from tests.fuzz.targets import Target, bytes_of, of_the_core

CORE = of_the_core()


@pytest.mark.parametrize("target", cases.quick(CORE.values()), ids=lambda target: target.key)
def test_edited_files_give_values_or_errors_of_ours(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    cases.check_edited(target, tmp_path)


def one(read: Any, **options: Any) -> Target:
    return Target("made", "up", bytes_of("a", b"x" * 50), read, **options)


def test_what_may_not_be_is_found(tmp_path: Path) -> None:
    def raises(error: Exception) -> Any:
        def read(folder: Path, rng: random.Random) -> tuple[str, bool]:
            raise error

        return read

    def too_large(folder: Path, rng: random.Random) -> tuple[str, bool]:
        raise FormatError("expected less") from MemoryError()

    kinds = {
        "finding": [one(raises(KeyError("x"))), one(raises(OSError("bad"))), one(too_large)],
        "FormatError": [one(raises(FormatError("bad")))],
        "FileNotFoundError": [one(raises(FileNotFoundError("gone")))],
    }
    for kind, found in kinds.items():
        assert [cases.judged(target, 1, tmp_path / "x").kind for target in found] == [kind] * len(found)


@pytest.mark.parametrize(("reported", "kind"), [(False, "finding"), (True, "other values")])
def test_other_values_without_a_word_are_found_where_checksums_are(tmp_path: Path, reported: bool, kind: str) -> None:
    sealed = one(lambda folder, rng: ((folder / "a").read_bytes().hex(), reported), sealed=True)
    expected = cases.judged(sealed, 0, tmp_path / "x").message
    assert cases.judged(sealed, 0, tmp_path / "x", expected).kind == "values"
    assert cases.judged(sealed, 1, tmp_path / "x", expected).kind == kind


def test_a_replay_compares_with_the_unedited_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed = one(lambda folder, rng: ((folder / "a").read_bytes().hex(), False), sealed=True)
    monkeypatch.setattr("tests.fuzz.targets.targets", lambda: {sealed.key: sealed})
    monkeypatch.setattr(cases, "limit_memory", lambda: None)
    monkeypatch.setenv("PENSTOCK_CACHE", "")  # restored at the end
    monkeypatch.setattr(sys, "argv", ["fuzz", "--replay", "made/up:1"])
    assert main() == 1
    assert capsys.readouterr().out.startswith("finding\nother values without a word\n")


@pytest.mark.parametrize("seed", range(11, 41))
def test_sealed_files_are_neither_doubled_nor_moved(seed: int) -> None:
    """A gzip file twice in a row is a valid file, and readers ignore bytes after its last member."""
    whole = gzip.compress(bytes(range(256)), mtime=0)
    damaged = corrupted(whole, random.Random(seed))
    assert len(damaged) <= len(whole)
    changed = sum(a != b for a, b in zip(whole, damaged, strict=False))
    assert changed <= 64


def test_a_case_that_takes_too_long_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(folder: Path, rng: random.Random) -> tuple[str, bool]:
        while True:
            pass

    monkeypatch.setattr(cases, "CPU_SECONDS", 0.01)
    assert cases.judged(one(endless), 1, tmp_path / "x").place.startswith("TooLongError")


def test_a_seed_is_one_case_and_most_are_different() -> None:
    target = CORE["webdataset/samples"]
    files = [str(cases.edited_files(target, seed)) for seed in range(1, 20)]
    assert files == [str(cases.edited_files(target, seed)) for seed in range(1, 20)]
    assert len(set(files)) > 15


def test_edits_reach_what_is_behind_checksums() -> None:
    zipped, reached = gzip.compress(b"\6\0\0\0" + bytes(500), mtime=0), Counter[bool]()
    for seed in range(100):
        try:
            reached[gzip.decompress(edited(zipped, random.Random(seed))) != gzip.decompress(zipped)] += 1
        except (OSError, EOFError, ValueError):
            reached[False] += 1
    assert reached[True] > 50


def test_edits_of_structure_keep_it() -> None:
    header = tar_header(b"\0" * 512, name=b"a", size=b"%011o" % 3)
    assert int(header[148:154], 8) == sum(header[:148]) + sum(header[156:]) + 8 * 32
    message = b"\x0a\x03\x08\x96\x01"
    lengths = {len(protobuf(message, random.Random(seed))) for seed in range(50)}
    assert len(lengths) > 3
    trees = {repr(odd_tree({"a": [1, {"b": "x"}], "c": 2.5}, random.Random(seed))) for seed in range(50)}
    assert len(trees) > 30


def test_targets_without_their_library_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def no_library(folder: Path) -> None:
        import_module("penstock_no_such_library")

    found = cases.judged(Target("made", "up", no_library, lambda folder, rng: ("", False)), 0, tmp_path / "x")
    assert found.kind in cases.MISSING
    run = Run(tmp_path)
    for _ in range(2):
        run.take({"key": "made/up", "seed": 0}, found.kind, found.place, found.message)
    assert capsys.readouterr().out == "left out: made/up, No module named 'penstock_no_such_library'\n"
    assert not run.findings
    assert list(run.missing) == ["made/up"]


def test_unedited_files_that_cannot_be_read_are_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.targets.targets", lambda: CORE)
    run = Run(tmp_path)
    run.take({"key": "columns/flat", "seed": 0}, "other values", "", "digest")
    assert not run.findings
    assert not run.kinds
    run.take({"key": "columns/flat", "seed": 0}, "FormatError", "reader.py:3", "torn")
    assert list(run.findings) == ["unedited files of columns/flat are not read: reader.py:3"]
    assert (tmp_path / "columns-flat-0" / "traceback.txt").read_text() == "torn"


def test_processes_are_shared_by_the_number_of_targets() -> None:
    sizes = {"lc0": 11, "journal": 1, "demos": 14}
    assert processes(sizes, 1) == {"lc0": 1, "journal": 1, "demos": 1}
    assert processes(sizes, 6) == {"lc0": 2, "journal": 1, "demos": 3}


def test_a_run_over_all_formats_ends_with_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.fuzz.targets.targets", lambda: CORE)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--all", "--minutes", "0", "--jobs", "2", "--out", str(tmp_path)])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("format "))
    formats = list(dict.fromkeys(target.format for target in CORE.values()))
    assert [line.split()[0] for line in lines[start + 1 :]] == [*formats, "all"]
    run = Run(tmp_path)
    run.take({"key": "columns/flat", "seed": 5}, "finding", "reader.py:3", "torn")
    assert table({"columns": run}).splitlines()[1].split() == ["columns", "1", "1", "finding", "1"]
