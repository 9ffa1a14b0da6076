"""The accounts of native demonstrations: pickles, `.npz` of Atari, streams of MineRL."""

# pyright: basic

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from native import test_atari, test_dm_control, test_magical, test_minerl, test_procgen
from penstock.formats.base.source import Source
from penstock.testing.accounts import Planted
from tests.formats.demos.test_flat_accounts import ONE_FILE, Contract, appended


def refused(where: str) -> Planted:
    """Bytes behind a pickle, which are an error."""
    return Planted(appended, "", where, refused=True)


def empty(name: str) -> Planted:
    return Planted(lambda path: (path / name).write_bytes(b""), "", name, refused=True)


class TestProcgen(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "column": Planted(
            lambda path: path.write_bytes(pickle.dumps({**pickle.loads(path.read_bytes()), "levels": [1]})),
            "unused-array",
            "levels",
        ),
        "tail": refused("after STOP"),
    }
    absent: ClassVar[Mapping[Any, str]] = {**ONE_FILE, "array": "a column", "member": "a file is one pickle"}

    def write(self, path: Path) -> Path:
        return test_procgen.write(path / "a", test_procgen.demos())


class TestAtari(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "column": Planted(
            lambda path: test_atari.write(path, [test_atari.run(4), test_atari.run(3, maps=[1, 2])]),
            "unused-array",
            "maps",
        ),
    }
    absent: ClassVar[Mapping[Any, str]] = {
        **ONE_FILE,
        "array": "a column",
        "member": "an archive of two arrays is not recognised",
        "tail": "the archive has its table at the end",
    }

    def write(self, path: Path) -> Path:
        return test_atari.write(path / "a.npz", [test_atari.run(4), test_atari.run(3)])


class TestMagical(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "file": Planted(lambda path: (path / "c.pkl").touch(), "other-file", "c.pkl"),
        "member": Planted(lambda path: (path / ".a.pkl.gz").touch(), "hidden", ".a.pkl.gz"),
        "bad first file": empty("0.pkl.gz"),
    }
    absent: ClassVar[Mapping[Any, str]] = {
        "array": "entries of a pickle are metadata",
        "column": "entries of a pickle are metadata",
        "tail": "the pickle in a gzip is refused, if bytes follow it",
        "unfinished": "penstock does not write the format",
    }

    def write(self, path: Path) -> Path:
        folder = path / "demos"
        folder.mkdir()
        for seed in range(2):
            test_magical.write(folder / f"{seed + 1}.pkl.gz", test_magical.demo(2, seed, side=8))
        return folder


class TestDmControl(TestMagical):
    def write(self, path: Path) -> Path:
        folder = path / "demos"
        folder.mkdir()
        for seed in range(2):
            test_dm_control.write(folder / f"{seed + 1}.pkl.gz", [test_dm_control.demo(3, seed)])
        return folder


def without_arrays(path: Path) -> None:
    (path / "v3_9").mkdir()
    (path / "v3_9/recording.mp4").write_bytes(b"frames")


class TestMineRL(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "file": Planted(lambda path: (path / "notes.bin").touch(), "other-file", "notes.bin"),
        "member": Planted(lambda path: (path / "v3_1/univ.bin").touch(), "other-file", "v3_1/univ.bin"),
        "bad first file": Planted(without_arrays, "bad-file", "v3_9"),
    }
    absent: ClassVar[Mapping[Any, str]] = {
        "array": "a test of the kind has arrays of text",
        "column": "an array",
        "tail": "archives have their table at the end",
        "unfinished": "penstock does not write the format",
    }

    def write(self, path: Path) -> Path:
        folder = path / "MineRLTreechop-v0"
        for number in (1, 2):
            test_minerl.stream(folder / f"v3_{number}", 3, number)
        return folder

    def open(self, path: Path, **options: Any) -> Source:
        return super().open(path, video=False, **options)
