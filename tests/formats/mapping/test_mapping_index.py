"""The index of a mapping's files: a second opening reads no file, and reads what the first read."""

# pyright: basic

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock
from penstock.core.damage import collected_damage
from penstock.errors import ArgumentError, FormatError
from penstock.formats.mapping import source
from penstock.testing.compare import assert_same_episode
from tests.formats.mapping import layouts


@pytest.fixture(autouse=True)
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache of this test's own, where every index is kept; and the names of files that are opened."""
    names: list[str] = []
    original = source.tree_of

    def counted(paths: Any, *args: Any, **options: Any) -> Any:
        names.append(paths[0].name)
        return original(paths, *args, **options)

    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "WORTH_FILES", 1)
    monkeypatch.setattr(source, "tree_of", counted)
    return names


def flat(path: Path) -> dict[str, Any]:
    for e in range(3):
        flags = np.arange(6) % (e + 2) == e + 1
        np.savez(path / f"{e}.npz", x=np.arange(6.0) + e, y=-np.arange(6.0), u=np.arange(6), done=flags, task=e)
    (path / "notes.txt").write_text("x")
    return {"files": "{n}.npz", "columns": {"observations": ["x", "y"], "actions": {"from": "u", "dtype": "float32"}}}


def groups(path: Path) -> dict[str, Any]:
    with h5py.File(path / "a.h5", "w") as file:
        for e in range(3):
            file[f"data/{e}/obs"], file[f"data/{e}/act"] = np.arange(5) + e, np.arange(4)
            file[f"data/{e}"].attrs["success"] = bool(e)
    return {"group": "data/{i}", "columns": {"observations": "obs", "actions": "act"}}


def text(path: Path) -> dict[str, Any]:
    for e in range(2):
        (path / f"{e}.csv").write_text("x,say,\n1,né,\n2,,\n")
    return {}


def joined(outside: str) -> Callable[[Path], dict[str, Any]]:
    def write(path: Path) -> dict[str, Any]:
        for e in range(2):
            times = np.arange(0, 2, 0.01)
            np.savez(path / f"fast_{e}.npz", t=times, sound=times * 8 + e, line=np.sin(times))
            np.savez(path / f"slow_{e}.npz", t=np.arange(0.1, 2.5, 0.2), u=np.arange(12))
        columns = {
            "actions": "u",
            "sound": {"files": "fast_{e}.npz", "from": "sound", "rule": "since"},
            "line": {"files": "fast_{e}.npz", "from": "line", "rule": "linear"},
        }
        clock = {"reference": "actions", "times": "t", "within": 0.05, "outside": outside}
        return {"files": "slow_{e}.npz", "columns": columns, "clock": clock}

    return write


def dqn(path: Path) -> dict[str, Any]:
    rows = {"observation": np.zeros((3, 2), "u1"), "action": np.int32(0), "reward": np.float32(0)}
    ring = layouts.DopamineRing(path, 20, {**rows, "terminal": np.uint8(0)})
    for i in range(60):
        ring.add({**rows, "observation": np.full((3, 2), i + 1, "u1"), "terminal": np.uint8(i % 7 == 6)})
    return {"mapping": "dqn_replay"}


@pytest.mark.parametrize("write", [flat, groups, text, joined("drop"), joined("mask"), dqn])
def test_a_second_opening_reads_no_file_and_the_same(
    write: Callable[[Path], dict[str, Any]], tmp_path: Path, opened: list[str]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    options = {"format": "mapping", **write(folder)}
    with collected_damage(), penstock.open(folder, **options) as first:
        assert opened
        opened.clear()
        with penstock.open(folder, **options) as second:
            assert opened == []
            assert second.spec == first.spec
            assert second.source.fingerprint == first.source.fingerprint
            assert second.source.account == first.source.account
            assert second.metadata == first.metadata
            for ours, theirs in zip(second, first, strict=True):
                assert_same_episode(ours, theirs)
                assert ours.metadata == theirs.metadata
        with penstock.open(folder, cache="off", **options) as third:
            assert third.source.fingerprint == first.source.fingerprint
            assert opened


@pytest.mark.parametrize("change", ["content", "new", "gone", "mapping", "index"])
def test_changes_are_noticed(change: str, tmp_path: Path, opened: list[str]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    options: dict[str, Any] = {"format": "mapping", **flat(folder)}
    with collected_damage():
        before = penstock.open(folder, **options)
        opened.clear()
        if change == "content":
            np.savez(folder / "1.npz", **{**np.load(folder / "1.npz"), "u": np.arange(6) * 2})
        elif change == "new":
            np.savez(folder / "3.npz", **np.load(folder / "0.npz"))
        elif change == "gone":
            os.unlink(folder / "2.npz")
        elif change == "mapping":
            options["columns"] = {"observations": "x", "actions": "u"}
        else:
            (place,) = (tmp_path / "cache" / "mappings").iterdir()
            raw = bytearray(place.read_bytes())
            raw[len(raw) // 2] ^= 255
            place.write_bytes(raw)
        after = penstock.open(folder, **options)
        assert opened
        assert (after.source.fingerprint == before.source.fingerprint) == (change == "index")
        opened.clear()
        assert penstock.open(folder, **options).source.fingerprint == after.source.fingerprint
        assert opened == []


def test_a_file_that_changes_after_the_index_was_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    options: dict[str, Any] = {"format": "mapping", **flat(folder)}
    with collected_damage():
        penstock.open(folder, **options).close()
        data = penstock.open(folder, **options)
        np.savez(folder / "1.npz", x=np.arange(9.0), y=np.arange(9.0), u=np.arange(9), done=np.zeros(9, bool), task=1)
        with pytest.raises(FormatError, match=r"1\.npz"):
            list(data)
        with pytest.raises(ArgumentError, match=r"expected cache among .*got 'on'"):
            penstock.open(folder, **options, cache="on")
