"""The account of flat demonstrations: whatever is planted next to their arrays is named."""

# pyright: basic

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pyarrow as pa

import penstock
from penstock.core.damage import collected_damage
from penstock.formats.base.source import Source
from penstock.testing.accounts import AccountContract, Planted
from tests.formats.demos import test_aloha
from tests.formats.demos.test_robomimic import EXAMPLE
from tests.formats.demos.test_robomimic import write as write_robomimic

ONE_FILE = {
    "file": "one file is a dataset",
    "bad first file": "one file is a dataset",
    "unfinished": "penstock does not write the format",
}
ARRAYS = {
    "observations": np.arange(8.0)[:, None],
    "actions": np.arange(8.0),
    "rewards": np.arange(8.0),
    "terminals": np.arange(8) % 4 == 3,
}
STOP = np.arange(8) % 2 == 1


class Contract(AccountContract):
    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


def appended(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"another archive")


def put(name: str, value: Any) -> Any:
    def plant(path: Path) -> None:
        with h5py.File(path, "a") as file:
            file[name] = value

    return plant


def saved(name: str, value: Any) -> Any:
    def plant(path: Path) -> None:
        with np.load(path, allow_pickle=True) as arrays:
            np.savez(path, **{**arrays, name: value})

    return plant


def member(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more.bin", b"bytes")


class TestD4rl(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "array": Planted(put("infos/notes", ["a"] * 8), "unsupported-dtype", "infos/notes"),
        "column": Planted(put("stop", STOP), "unused-end", "stop"),
        "tail": Planted(appended, "behind-the-end", "byte "),
    }
    absent: ClassVar[Mapping[Any, str]] = {**ONE_FILE, "member": "a file has datasets"}

    def write(self, path: Path) -> Path:
        with h5py.File(path / "a.hdf5", "w") as file:
            for name, array in ARRAYS.items():
                file[name] = array
            file["version"] = "1.0"
            file["metadata/weights"] = np.zeros((9, 9))
        return path / "a.hdf5"


class TestNpz(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "array": Planted(saved("notes", np.array(["a"] * 8)), "unsupported-dtype", "notes"),
        "column": Planted(saved("stop", STOP), "unused-end", "stop"),
        "member": Planted(member, "other-file", "more.bin"),
        "tail": Planted(appended, "behind-the-end", "byte "),
    }
    absent: ClassVar[Mapping[Any, str]] = ONE_FILE

    def write(self, path: Path) -> Path:
        np.savez(path / "a.npz", **ARRAYS, version=np.array("1.0"))
        return path / "a.npz"


class TestImitationNpz(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "array": Planted(saved("more", np.arange(3)), "unused-array", "more"),
        "member": Planted(member, "other-file", "more.bin"),
        "tail": Planted(appended, "behind-the-end", "byte "),
    }
    absent: ClassVar[Mapping[Any, str]] = {
        **ONE_FILE,
        "column": "an array that the library does not write is no column",
    }

    def write(self, path: Path) -> Path:
        infos = np.array([{}] * 4)
        arrays = {"obs": np.arange(6.0), "acts": np.arange(4), "infos": infos, "terminal": np.array([True, False])}
        np.savez(path / "a.npz", **arrays, indices=np.array([2]))
        return path / "a.npz"


def column(path: Path) -> None:
    file = path / "data.arrow"
    table = pa.ipc.open_stream(file.read_bytes()).read_all()
    table = table.append_column("more", [[0] * table.num_rows])
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


class TestImitationFolder(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "file": Planted(lambda path: (path / "more.arrow").write_bytes(b"rows"), "other-file", "more.arrow"),
        "column": Planted(column, "unused-array", "more"),
        "bad first file": Planted(lambda path: (path / "data.arrow").write_bytes(b""), "", "data.arrow", refused=True),
    }
    absent: ClassVar[Mapping[Any, str]] = {
        "array": "a column of Arrow",
        "member": "a folder has files",
        "tail": "the Arrow streams of a folder are checked as tables are",
        "unfinished": "penstock does not write the format",
    }

    def write(self, path: Path) -> Path:
        folder = path / "saved"
        folder.mkdir()
        lists = pa.list_(pa.float64())
        rows = {"obs": [[0.0, 1.0, 2.0]], "acts": [[0.0, 1.0]], "rews": [[0.0, 1.0]]}
        columns = {name: pa.array(values, lists) for name, values in rows.items()} | {"terminal": pa.array([True])}
        table = pa.table(columns)
        with pa.ipc.new_stream(folder / "data.arrow", table.schema) as writer:
            writer.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
        features: dict[str, Any] = {name: {} for name in table.column_names}
        (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
        return folder


def test_bytes_before_an_archive_are_named_too(tmp_path: Path) -> None:
    """`cat a.npz b.npz`: zip readers find the second archive alone."""
    first, second = TestNpz().write(tmp_path), tmp_path / "b.npz"
    np.savez(second, **ARRAYS)
    both = tmp_path / "both.npz"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    with collected_damage() as messages, penstock.open(both) as data:
        assert [entry.reason for entry in data.source.account.left_out] == ["behind-the-end"]
    assert f"got {first.stat().st_size} bytes before it" in messages[0]


class TestRobomimic(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "array": Planted(put("data/demo_0/language", "lift"), "uneven-column", "language"),
        "column": Planted(put("data/demo_3/depth", h5py.ExternalLink("a.h5", "/x")), "damaged-part", "demo_3/depth"),
        "member": Planted(put("notes", np.arange(3)), "unused-array", "notes"),
        "tail": Planted(appended, "behind-the-end", "byte "),
    }
    absent: ClassVar[Mapping[Any, str]] = ONE_FILE

    def write(self, path: Path) -> Path:
        return write_robomimic(path / "a.hdf5", EXAMPLE.episodes())


class TestAloha(Contract):
    planted: ClassVar[Mapping[Any, Planted]] = {
        "array": Planted(put("instruction", "fold the shirt"), "unsupported-dtype", "instruction"),
        "column": Planted(put("observations/touched", np.zeros(3)), "other-length", "touched"),
        "member": Planted(put("observations/depth", h5py.SoftLink("/nowhere")), "damaged-part", "depth"),
        "tail": Planted(appended, "behind-the-end", "byte "),
    }
    absent: ClassVar[Mapping[Any, str]] = ONE_FILE

    def write(self, path: Path) -> Path:
        return test_aloha.write(path / "episode_0.hdf5", 4, compress=False)
