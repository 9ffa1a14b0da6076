"""`penstock info` of a folder of datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.data.located
from penstock.cli.catalogue import catalogue, render
from tests.cli.conftest import Call


def test_a_folder_of_datasets_is_a_catalogue(call: Call, tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[2, 1])
    for name, format in (("b/one", "columns"), ("a/data.tar", "webdataset"), ("b/deeper/two", "columns")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        penstock.convert(data, tmp_path / name, format=format, certificate=False)
    (tmp_path / "notes.txt").write_text("no dataset")
    damaged = tmp_path / "c"
    penstock.convert(data, damaged, certificate=False)
    (damaged / "episodes").write_bytes(bytes(96))
    rows = call("info", tmp_path, "--json").json["datasets"]
    assert [(row["path"], row["format"], row["episodes"]) for row in rows[:3]] == [
        ("a", "webdataset", 2),
        ("b/deeper/two", "columns", 2),
        ("b/one", "columns", 2),
    ]
    assert rows[3]["path"] == "c"
    assert (rows[0]["steps"], rows[0]["columns"]) == (3, ["rewards"])
    assert rows[0]["bytes"] == (tmp_path / "a/data.tar").stat().st_size
    assert "b/one" in call("info", tmp_path).out
    assert [row["problem"] for row in catalogue(tmp_path, seconds=-1)] == ["not opened within -1 s"] * 4
    (tmp_path / "empty").mkdir()
    assert call("info", tmp_path / "empty").code == 2


def test_what_cannot_be_looked_at_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    penstock.convert(penstock.from_arrays({"rewards": [0.0]}, lengths=[1]), tmp_path / "run", certificate=False)
    (tmp_path / "secret").touch()
    recognise = penstock.data.located.recognise

    def refusing(path: Path) -> Any:
        if path.name == "secret":
            raise PermissionError(f"no permission to read {path}")
        return recognise(path)

    monkeypatch.setattr(penstock.data.located, "recognise", refusing)
    rows = catalogue(tmp_path)
    assert [(row["path"], row["format"]) for row in rows] == [("run", "columns"), ("secret", None)]
    assert "no permission" in rows[1]["problem"]
    assert "no permission" in str(list(render(rows).table.columns[5].cells))


def test_a_search_that_finds_nothing_ends(tmp_path: Path, call: Call) -> None:
    """As in `/proc`: the search has a time, the last row says where it ended, and links to folders above end."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/up").symlink_to(tmp_path)
    for number in range(9):
        (tmp_path / f"notes-{number}.txt").write_text("no dataset")
    penstock.convert(penstock.from_arrays({"rewards": [0.0]}, lengths=[1]), tmp_path / "z", certificate=False)
    assert [row["path"] for row in catalogue(tmp_path)] == ["z"]
    assert [row["path"] for row in catalogue(tmp_path, fruitless=-1)] == ["."]
    assert "the search ended at a, after -1 s without a dataset" in catalogue(tmp_path, fruitless=-1)[0]["problem"]
