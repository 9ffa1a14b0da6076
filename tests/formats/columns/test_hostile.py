"""Files that lie: every one a `FormatError`, no hang, no huge allocation, nothing outside the folder."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError, PenstockError, SpecError
from penstock.formats.base.format import recognise
from penstock.formats.columns import FORMAT, table
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import RAGGED, random_episode

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with ColumnsWriter.create(tmp_path / "store", RAGGED.spec) as writer:
        writer.write_all(RAGGED.episodes())
    return tmp_path / "store"


def field_of(name: str, **changes: Any) -> Change:
    return lambda data: data["spec"]["fields"][name].update(changes)


SPECS: dict[str, Change] = {
    "another marker": lambda d: d.update(format="zip"),
    "a later version": lambda d: d.update(version=2),
    "no spec": lambda d: d.pop("spec"),
    "spec is a list": lambda d: d.update(spec=[]),
    "fields is a list": lambda d: d["spec"].update(fields=[]),
    "a field is null": lambda d: d["spec"]["fields"].update(rewards=None),
    "objects": field_of("rewards", dtype="|O"),
    "a dtype of nothing": field_of("rewards", dtype="nonsense"),
    "an expression as dtype": field_of("rewards", dtype="__import__('os').getcwd()"),
    "a huge dtype": field_of("rewards", dtype="|V2147483647", shape=[1024]),
    "a huge shape": field_of("rewards", shape=[1 << 40, 1 << 40]),
    "a product that wraps to zero": field_of("rewards", shape=[1 << 32, 1 << 32]),
    "a negative shape": field_of("rewards", shape=[-1]),
    "a shape of strings": field_of("rewards", shape=["x"]),
    "a shape beyond int64": field_of("rewards", shape=[1 << 80]),
    "an endless extent": field_of("rewards", shape=[float("inf")]),
    "another align": field_of("rewards", align="sideways"),
    "ragged rows of two dimensions": field_of("infos/legal", shape=[2]),
    "ragged rows of nothing": field_of("infos/legal", dtype="|S0"),
    "an unknown space": lambda d: d["spec"].update(observation_space={"type": "os.system"}),
    "a name too long": lambda d: d["spec"]["fields"].update({"x" * 999: d["spec"]["fields"]["rewards"]}),
    "a name that is no Unicode": lambda d: d["spec"]["fields"].update({"\ud800": d["spec"]["fields"]["rewards"]}),
    "an unknown compression": lambda d: d.update(compression={"name": "pickle"}),
    "a level too high": lambda d: d.update(compression={"name": "zlib", "steps": 2, "levels": {"rewards": 10}}),
    "blocks of nothing": lambda d: d.update(compression={"name": "zlib", "steps": 0, "levels": {"rewards": 1}}),
    "blocks without end": lambda d: d.update(compression={"name": "zlib", "steps": 1 << 40, "levels": {"rewards": 1}}),
    "nothing is compressed": lambda d: d.update(compression={"name": "zlib", "steps": 2, "levels": {}}),
    "no such column": lambda d: d.update(compression={"name": "zlib", "steps": 2, "levels": {"x": 1}}),
    "a ragged one": lambda d: d.update(compression={"name": "zlib", "steps": 2, "levels": {"infos/legal": 1}}),
    "values that are raw": lambda d: d.update(compression={"name": "zlib", "steps": 2, "levels": {"rewards": 1}}),
    "a column without files": lambda d: d["spec"]["fields"].update({"../../x": d["spec"]["fields"]["rewards"]}),
    "rows wider than the files": field_of("rewards", dtype="<c16"),
}


@pytest.mark.parametrize("change", SPECS.values(), ids=SPECS)
def test_a_spec_that_lies(store: Path, change: Change) -> None:
    data = json.loads((store / "spec.json").read_text())
    change(data)
    (store / "spec.json").write_text(json.dumps(data))
    with pytest.raises(FormatError):
        ColumnsSource(store)
    assert "error" in [finding.level for finding in FORMAT.check(store)]


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "null", "\xff", '{"format": ' + "9" * 5000 + "}"])
def test_a_spec_that_is_no_object(store: Path, text: str) -> None:
    (store / "spec.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError):
        ColumnsSource(store)
    assert FORMAT.recognises(store)  # by its table, so that errors name the file


def packed(**changes: int) -> bytes:
    fields = {"segment": 0, "index": 3, "start": 7, "steps": 1, "metadata": 0, "metadata_bytes": 0, "blocks": 0}
    return table.pack(*{**fields, "payload": 0, **changes}.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"segment": 4_000_000_000},
        {"segment": 1},
        {"index": 4},
        {"index": 2},
        {"start": 8},
        {"steps": (1 << 64) - 1},
        {"steps": 1 << 59},
        {"start": (1 << 64) - 7, "steps": 14},
        {"metadata": 1 << 63},
        {"metadata_bytes": 4_000_000_000},
        {},
    ],
    ids=str,
)
def test_an_entry_that_lies(store: Path, changes: dict[str, int]) -> None:
    with ColumnsSource(store) as source:
        end = table.ends(table.read(store / "episodes"), 0)[2]
        assert source.extent == (0, 7)
    entry = packed(**{"metadata": end, **changes})
    with open(store / "episodes", "ab") as file:
        file.write(entry)
    with pytest.raises(FormatError):
        ColumnsSource(store)
    with pytest.raises(FormatError):
        ColumnsWriter(store)


@pytest.mark.parametrize("row", range(8))
@pytest.mark.parametrize("value", [-1, 1 << 62, -(1 << 62), 3])
def test_offsets_that_lie(store: Path, row: int, value: int) -> None:
    file = store / "segments/0/infos%2Flegal.offsets"
    zero = np.zeros(1, np.int64)
    everything = Selection(zero, zero, zero + 7, zero, (1, 7))
    with ColumnsSource(store) as source:  # what a first read loads is not the matter here
        source.read(["rewards"], everything)
    offsets = np.fromfile(file, "<i8")
    assert len(offsets) == 8
    offsets[row] = value
    offsets.tofile(file)
    tracemalloc.start()
    try:
        with ColumnsSource(store) as source:
            source.read(["infos/legal"], everything)
            list(source.episodes())
    except FormatError:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert "error" in [finding.level for finding in FORMAT.check(store)]


def test_pipes_and_links_are_not_followed(store: Path, tmp_path: Path) -> None:
    for name in ("episodes", "metadata.json", "spec.json", "segments/0/rewards.values", "segments/0/metadata.jsonl"):
        whole = (store / name).read_bytes()
        for make in (os.mkfifo, lambda p: os.symlink("/etc/passwd", p), os.mkdir):
            (store / name).unlink()
            make(store / name)
            with pytest.raises(FormatError):
                read_everything(store)
            assert list(FORMAT.check(store)) != []
            os.rmdir(store / name) if make is os.mkdir else (store / name).unlink()
            (store / name).write_bytes(whole)
    assert list(FORMAT.check(store)) == []


def read_everything(store: Path) -> None:
    with ColumnsSource(store) as source:
        assert source.metadata == {}
        for episode in source.episodes():
            dict(episode.metadata)  # read when it is looked at


NAMES = [
    "..",
    ".",
    "../x",
    "etc/../../passwd",
    "a/b",
    "a%2Fb",
    "metadata.jsonl",
    "x.values",
    "nul\0",
    "é",
    "C:\\x",
    "~",
    "-rf",
    "*",
]


def test_no_column_name_leaves_the_segment(tmp_path: Path) -> None:
    spec = Spec({name: Field(np.dtype("f4")) for name in NAMES})
    episode = random_episode(np.random.default_rng(0), spec, 3)
    before = sorted(tmp_path.rglob("*"))
    with ColumnsWriter.create(tmp_path / "store", spec) as writer:
        writer.write(episode)
    with ColumnsSource(tmp_path / "store") as source:
        assert_same_episode(source.episode(0), episode)
    segment = tmp_path / "store" / "segments" / "0"
    outside = [
        path for path in tmp_path.rglob("*") if path.is_file() and path.parent not in (segment, tmp_path / "store")
    ]
    assert outside == before == []
    assert len(list(segment.iterdir())) == len(NAMES) + 1


@pytest.mark.parametrize(
    "field",
    [Field(np.dtype([("a", "f4")])), Field(np.dtype("f4"), (1 << 60,)), Field(np.dtype("S0"), (), kind="ragged")],
)
def test_specs_that_could_not_be_read_back_are_not_created(tmp_path: Path, field: Field) -> None:
    with pytest.raises(SpecError):
        ColumnsWriter.create(tmp_path / "store", Spec({"a": field}))
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_random_damage_is_an_error_of_ours_or_harmless(store: Path, data: st.DataObject) -> None:
    files = sorted(path for path in store.rglob("*") if path.is_file())
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    start = data.draw(st.integers(0, max(len(whole) - 1, 0)))
    patch = data.draw(st.binary(max_size=12))
    keep = data.draw(st.integers(0, len(whole)))
    file.write_bytes(
        (whole[:start] + patch + whole[start + len(patch) :])[: keep if data.draw(st.booleans()) else None]
    )
    try:
        with ColumnsSource(store) as source:
            list(source.episodes())
            source.table()
            source.read(["rewards"], Selection(*np.array([[0], [0], [1], [0]]), (1, 1)))
    except PenstockError:
        pass
    finally:
        list(FORMAT.check(store))
        file.write_bytes(whole)


def test_a_folder_is_recognised_by_what_is_in_it(store: Path, tmp_path: Path) -> None:
    moved = tmp_path / "anything.zip"
    store.rename(moved)
    assert recognise(moved) == (FORMAT, moved)
    for other in (tmp_path / "nothing", tmp_path, moved / "spec.json"):
        assert not FORMAT.recognises(other)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "the dtype and shape of each column.*restore it"), (b"{", "JSON")]
)
def test_a_lost_spec_is_named(store: Path, content: bytes | None, message: str) -> None:
    (store / "spec.json").unlink()
    if content is not None:
        (store / "spec.json").write_bytes(content)
    assert recognise(store)[0] is FORMAT
    assert [finding.name for finding in FORMAT.check(store)] == ["unreadable"]
    for read in (FORMAT.open, FORMAT.append):
        with pytest.raises(FormatError, match=rf"(?s){message}.*spec.json"):
            read(store)


def test_unknown_options_are_refused(store: Path) -> None:
    for call in (FORMAT.open, FORMAT.append):
        with pytest.raises(TypeError):
            call(store, colour="red")
