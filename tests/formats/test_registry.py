"""Formats are found by folder and by entry point, and data by its content."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow.ipc
import pyarrow.parquet
import pytest

import penstock
from penstock import formats
from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.format import available, named, recognise
from penstock.formats.base.signatures import likely_formats

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))
tables = importlib.import_module("tables")

LINES_FORMAT = '''
"""A format that knows files by their first line."""
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.spec import Field, Spec
from penstock.formats.base.format import Format
from penstock.formats.memory import MemorySource


class Lines(Format):
    """Rewards, one a line."""

    name, description = "lines", "rewards, one a line"

    def recognises(self, path: Path) -> bool:
        return path.is_file() and path.read_bytes().startswith(b"#rewards")

    def open(self, path: Path, **options: Any) -> MemorySource:
        rewards = np.array([float(x) for x in path.read_text().split()[1:]])
        return MemorySource(Spec({"rewards": Field(np.dtype("f8"))}), {"rewards": rewards}, np.array([0, len(rewards)]))


FORMAT = Lines()
'''


@pytest.fixture
def fresh():
    available.cache_clear()
    yield
    available.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch, fresh) -> Path:
    (tmp_path / "lines_format").mkdir()
    (tmp_path / "lines_format" / "__init__.py").write_text(LINES_FORMAT)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    (tmp_path / "any.name").write_text("#rewards 1 2 3")
    return tmp_path


def test_a_folder_is_all_that_a_format_needs(folder):
    data = penstock.open(folder / "any.name")
    assert data[0].rewards.tolist() == [1.0, 2.0, 3.0]
    assert recognise(folder / "any.name")[0].name == "lines"
    assert {"columns", "minari", "lines"} <= set(available())
    assert "| `lines` | rewards, one a line | yes | no | no | none |" in tables.formats_table().splitlines()


def test_a_format_may_be_named(folder):
    assert penstock.open(folder / "any.name", format="lines").total_steps == 3
    with pytest.raises(UnknownFormatError, match="'sheet'"):
        penstock.open(folder / "any.name", format="sheet")


def test_what_a_format_cannot_do_it_says(folder):
    lines = named("lines")
    for act in (lambda: lines.create(folder / "new", penstock.Spec({})), lambda: lines.append(folder / "any.name")):
        with pytest.raises(FormatError, match="read-only"):
            act()
    with pytest.raises(FormatError, match="no detailed check"):
        lines.check(folder / "any.name")


class Point:
    name = "thing"

    def __init__(self, found: object) -> None:
        self.load = lambda: found


def test_entry_points_are_formats(folder, monkeypatch):
    entry = named("lines")
    other = type("Other", (type(entry),), {"name": "other"})()
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Point(other)] if "penstock" in group else [])
    available.cache_clear()
    assert named("other") is other


def test_an_entry_point_that_is_no_format_is_an_error(fresh, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [Point(object())])
    with pytest.raises(FormatError, match="'thing' to name a Format"):
        available()


def test_nothing_and_nothing_known(tmp_path, fresh):
    with pytest.raises(FileNotFoundError, match=r"nothing at .*absent"):
        penstock.open(tmp_path / "absent")
    (tmp_path / "noise").write_bytes(b"\x00" * 100)
    with pytest.raises(UnknownFormatError, match="columns"):
        penstock.open(tmp_path / "noise")


IMPORTED = """
import sys
import penstock
penstock.open(sys.argv[1]).close()
prefix = "penstock.formats."
folders = {name.removeprefix(prefix).split(".")[0] for name in sys.modules if name.startswith(prefix)}
print(*sorted(folders & set(sys.argv[2:])))
"""


@pytest.mark.parametrize(
    ("folder", "format"),
    [
        ("minari/0.5.4/hdf5-nested-v0", "minari"),
        ("rlds/tfrecord/toy_arm", "rlds"),
        ("lerobot/v3_image", "lerobot"),
    ],
)
def test_opening_a_folder_imports_the_format_of_its_files(folder, format):
    call = [sys.executable, "-c", IMPORTED, str(ROOT / "tests" / "golden" / folder), *available()]
    assert set(subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()) == {"columns", format}


@pytest.mark.parametrize("kind", ["columns", "zarr", "parquet", "arrow", "hdf5"])
def test_opening_imports_the_formats_that_the_data_can_have(kind, tmp_path):
    columns = {"rewards": np.arange(3.0), "episode_index": np.zeros(3, np.int64)}
    path = tmp_path / f"data.{kind}"
    if kind in ("columns", "zarr"):
        penstock.convert(penstock.from_arrays({"rewards": np.arange(3.0)}, lengths=[3]), path, format=kind)
    elif kind == "hdf5":
        flags = {name: np.array([False, False, True]) for name in ("terminals", "timeouts")}
        with h5py.File(path, "w") as file:
            arrays = {"observations": np.zeros((3, 2)), "actions": np.zeros((3, 1)), "rewards": np.zeros(3), **flags}
            for name, values in arrays.items():
                file[name] = values
    else:
        table = pyarrow.table(columns)
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            with pyarrow.ipc.new_file(path, table.schema) as file:
                file.write_table(table)
    call = [sys.executable, "-c", IMPORTED, str(path), *available()]
    imported = subprocess.run(call, capture_output=True, text=True, check=True).stdout.split()
    own = {"columns": [], "zarr": ["zarr"], "parquet": ["tables"], "arrow": ["tables"], "hdf5": ["demos"]}
    assert imported == ["columns", *own[kind]]  # cached columns are column stores


def test_a_format_that_recognises_a_file_is_asked_first():
    """Every file of the tests whose first bytes are known, and every folder by its files, with every format."""
    files = [path for path in (ROOT / "tests" / "golden").rglob("*") if likely_formats(path) is not None]
    assert len({path.suffix for path in files}) > 2
    for path in files:
        names = {entry.name for entry in available().values() if _recognised(entry, path)}
        assert names <= likely_formats(path), path


def test_a_mapping_in_a_folder_comes_before_its_files(tmp_path):
    for name in ("meta/info.json", "penstock.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert likely_formats(tmp_path) is None


def _recognised(entry, path) -> bool:
    try:
        return entry.recognises(path)
    except FormatError:
        return False


def test_what_has_no_data_is_not_read(tmp_path: Path) -> None:
    """Reading a pipe, a device or a file of the kernel that says it is empty may wait for ever."""
    os.mkfifo(tmp_path / "pipe.tar")
    (tmp_path / "empty.tar").touch()
    for path, kind in ((tmp_path / "pipe.tar", "a named pipe"), ("/dev/zero", "a device"), ("/proc/kmsg", "an empty")):
        with pytest.raises(UnknownFormatError, match=f"expected a file with data or a folder, got {kind}"):
            penstock.open(path)
    with pytest.raises(UnknownFormatError, match="got an empty file"):
        penstock.open(tmp_path / "empty.tar")
    with pytest.raises(UnknownFormatError, match="no format recognises"):
        penstock.open(tmp_path)
