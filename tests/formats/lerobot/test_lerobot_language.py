"""Columns of annotations: read equal to lerobot 0.6.1, whatever types their files have, and written without loss."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.errors import DamageWarning, DataError, FormatError
from penstock.formats.lerobot import FORMAT
from penstock.formats.lerobot.language import messages_type
from tests.formats.lerobot.test_lerobot_damage import changed

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
EXPECTED = json.loads((GOLDEN / "language_expected.json").read_text())
NAMES = ("language_persistent", "language_events")


def messages(path: Path, name: str) -> list[Any]:
    """Messages of all rows."""
    with penstock.open(path) as data:
        return [json.loads(text) for episode in data for text in episode.columns[name].strings()]


def rewritten(root: Path, name: str, rows: list[Any], kind: Any = None) -> None:
    """Put other rows into a column of annotations."""
    file = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    column = pa.array(rows, messages_type(name))
    column = column if kind is None else column.cast(kind)
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, column), file)


@pytest.mark.parametrize("name", NAMES)
def test_messages_equal_those_of_lerobot(name: str, tmp_path: Path) -> None:
    wanted = [row[name] for row in EXPECTED]
    assert messages(GOLDEN / "language", name) == wanted
    source = penstock.open(GOLDEN / "language")
    assert penstock.check(GOLDEN / "language", deep=True).sound
    report = penstock.convert(source, tmp_path / "again", format="lerobot")
    assert {column.column: column.status for column in report.certificate.columns}[name] == "equal"
    stored = json.loads((tmp_path / "again/meta/info.json").read_text())
    assert stored["features"][name] == {"dtype": "language", "shape": [1], "names": None}
    assert stored["tools"] == source.metadata["tools"] == penstock.open(tmp_path / "again").metadata["tools"]
    assert [tool["function"]["name"] for tool in stored["tools"]] == ["say", "look"]
    assert pq.read_schema(tmp_path / "again/data/chunk-000/file-000.parquet").field(name).type == messages_type(name)
    penstock.convert(source, tmp_path / "columns", format="columns")  # and through another format
    penstock.convert(penstock.open(tmp_path / "columns"), tmp_path / "back", format="lerobot")
    assert messages(tmp_path / "back", name) == wanted


@pytest.mark.parametrize("json_type", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_type_of_a_file_gives_the_same_messages(name: str, json_type: bool, tmp_path: Path) -> None:
    """LeRobot describes tool calls as JSON, and its tool for annotations writes structs, and null for no text."""
    root = Path(shutil.copytree(GOLDEN / "language", tmp_path / "a"))
    rows = [row[name] for row in EXPECTED]
    stored = [
        [{**m, "tool_calls": m["tool_calls"] and [json.dumps(call) for call in m["tool_calls"]]} for m in row]
        for row in rows
    ]
    kind = None
    if json_type and hasattr(pa, "json_"):
        fields = [
            (f.name, pa.list_(pa.json_()) if f.name == "tool_calls" else f.type) for f in messages_type(name).value_type
        ]
        kind = pa.list_(pa.struct(fields))
    rewritten(root, name, [*stored[:-1], None], kind)
    assert messages(root, name) == [*rows[:-1], None]


def written(path: Path, texts: list[str]) -> None:
    """Write an episode with rows of events into a dataset, which may exist."""
    spec = Spec({"language_events": Field(np.dtype(np.uint8), kind="text")})
    with FORMAT.append(path) if path.exists() else FORMAT.create(path, spec, fps=10) as writer:
        writer.write(Episode(spec, {"language_events": Ragged.from_strings(texts)}))


def test_wrong_annotations_are_errors(tmp_path: Path) -> None:
    say = {"role": "user", "content": "hi"}
    good = json.dumps([say])
    for text, message in (
        ("hi", "expected JSON in language_events, got 'hi'"),
        ('{"role": "user"}', "expected a list of messages with the fields"),
        (json.dumps([{**say, "timestamp": 0.0}]), "expected a list of messages"),  # events have no time
        (json.dumps([{"content": "hi"}]), "expected a role"),
        (json.dumps([{**say, "tool_calls": "say"}]), "tool_calls as a list"),
        (json.dumps([{**say, "camera": 3}]), "expected a role, text"),
    ):
        with pytest.raises(DataError, match=message):
            written(tmp_path / "a", [good, text])
    written(tmp_path / "a", [good, "null"])
    whole = {**say, "style": None, "camera": None, "tool_calls": None}
    assert messages(tmp_path / "a", "language_events") == [[whole], None]

    root = Path(shutil.copytree(GOLDEN / "language", tmp_path / "b"))
    file = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    place = table.schema.get_field_index("language_events")
    pq.write_table(table.set_column(place, "language_events", pa.array(np.zeros(len(table)))), file)
    with pytest.raises(FormatError, match=r"expected lists of messages, got double"):
        messages(root, "language_events")


def test_annotations_that_metadata_do_not_describe_are_named(tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "language", tmp_path / "a"))
    changed(root / "meta/info.json", lambda info: info["features"].pop("language_events"))
    with pytest.warns(DamageWarning, match="language_events .*expected a column that is among the features"):
        assert "language_events" not in penstock.open(root).spec
    changed(
        root / "meta/info.json",
        lambda info: info["features"].update({"notes": {"dtype": "language", "shape": [1], "names": None}}),
    )
    with pytest.warns(DamageWarning, match="notes .*expected the dtype of numbers, text"):
        penstock.open(root)


def test_tools_are_changed_where_lerobot_reads_them(tmp_path: Path) -> None:
    penstock.convert(penstock.open(GOLDEN / "language"), tmp_path / "a", format="lerobot")
    look = [{"type": "function", "function": {"name": "look"}}]
    with FORMAT.append(tmp_path / "a") as writer:
        writer.update_metadata({"tools": look, "place": "kitchen"})
    metadata = penstock.open(tmp_path / "a").metadata
    assert (metadata["tools"], metadata["place"]) == (look, "kitchen")
    assert json.loads((tmp_path / "a/meta/info.json").read_text())["tools"] == look
