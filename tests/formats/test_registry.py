"""Formats are found by folder and by entry point, and data by its content."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest

import penstock
from penstock import formats
from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.format import available, named, recognise

sys.path.append(str(Path(__file__).parents[2] / "docs"))
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
    assert penstock.open(folder / "any.name", format="lines").steps == 3
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
    with pytest.raises(FileNotFoundError, match="no format knows"):
        penstock.open(tmp_path / "absent")
    (tmp_path / "noise").write_bytes(b"\x00" * 100)
    with pytest.raises(UnknownFormatError, match="columns"):
        penstock.open(tmp_path / "noise")
