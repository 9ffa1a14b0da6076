"""`open` of lists, globs and braces: shards of one dataset, or datasets that are joined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.tar import TarAppender, member
from penstock.core.episode import Episode
from penstock.errors import FormatError, SpecError, UnknownFormatError
from penstock.formats.base.format import named
from penstock.formats.joined import JoinedSource
from penstock.formats.memory import MemorySource
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.streaming import ShardStream
from penstock.testing.sources import SourceContract


class TestJoined(SourceContract):
    """Of parts in memory; one of them has no episodes, if there are enough."""

    def open(self, path: Path, episodes: Sequence[Episode]) -> JoinedSource:
        cuts = [episodes[:1], episodes[1:2], episodes[2:]]
        parts = [MemorySource.from_episodes(part) for part in cuts if part]
        return JoinedSource(parts, [str(i) for i in range(len(parts))])


def dataset(first: int, lengths: list[int]) -> penstock.EpisodeDataset:
    """Actions count from `first` on."""
    columns = {"observations": np.zeros(sum(lengths) + len(lengths)), "actions": np.arange(sum(lengths)) + first}
    return penstock.from_arrays(columns, lengths, metadata={"by": "me", "first": first})


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for i, lengths in enumerate(([2, 3], [1], [4, 2, 3])):
        penstock.convert(dataset(100 * i, lengths), tmp_path / f"run-{i}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", ["run-*", "run-{0..2}", ["run-0", "run-{1,2}"], ["file:run-0", Path("run-[12]")]])
def test_several_datasets_are_joined(runs: Path, given: str | list[str]) -> None:
    with penstock.open(given) as data:
        source = data.source
        assert isinstance(source, JoinedSource)
        assert source.part_of(range(6)).tolist() == [0, 0, 1, 2, 2, 2]
        assert [episode.actions[0] for episode in data] == [0, 2, 100, 200, 204, 206]
        assert data.table()["part"].tolist() == [0, 0, 1, 2, 2, 2]
        assert data.filter("part == 2").total_steps == 9
        assert data.metadata["by"] == "me"
        parts = data.metadata["parts"]
        assert [(p["name"], p["episodes"], p["steps"], p["first"]) for p in parts] == [
            ("run-0", 2, 5, 0),
            ("run-1", 1, 1, 100),
            ("run-2", 3, 9, 200),
        ]
        windows = data.windows(2, pad="zero").shuffle(seed=1)[:]
        assert sorted(windows["actions"][:, 0].tolist()) == [*range(5), 100, *range(200, 209)]
        assert penstock.open(["run-0", "run-1", "run-2"]).source.fingerprint == source.fingerprint
        assert penstock.open(["run-1", "run-0", "run-2"]).source.fingerprint != source.fingerprint


def test_datasets_of_other_columns_are_refused(runs: Path) -> None:
    penstock.convert(penstock.from_arrays({"actions": np.zeros(3)}, [3]), runs / "other")
    with pytest.raises(SpecError, match=r"columns of run-0 in other too, got other fields of \['observations', 'act"):
        penstock.open(["run-0", "other"])


def test_formats_may_differ(runs: Path) -> None:
    penstock.convert("run-0", runs / "as.tar", format="webdataset")
    data = penstock.open(["as.tar", "run-1"])
    assert [episode.actions[0] for episode in data] == [0, 2, 100]


def test_what_is_missing_is_named(runs: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected 4 files or folders, 1 are missing, first run-3"):
        penstock.open("run-{0..3}")
    with pytest.raises(FileNotFoundError, match=r"nothing matches the pattern ru\*\.tar"):
        penstock.open("ru*.tar")


def test_a_folder_of_datasets_is_named_as_one(runs: Path) -> None:
    (runs / "notes.txt").write_text("none")
    with pytest.raises(UnknownFormatError, match="datasets in it, such as run-0, run-1, run-2; open one of them"):
        penstock.open(runs)
    (runs / "above").mkdir()
    (runs / "run-0").rename(runs / "above" / "run-0")
    with pytest.raises(UnknownFormatError, match=r"such as above/run-0, run-1, run-2; .* - in "):
        penstock.open(runs)
    (runs / "empty").mkdir()
    with pytest.raises(UnknownFormatError, match="got an empty folder"):
        penstock.open(runs / "empty")


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for i in range(12):
        TarAppender.create(tmp_path / f"s-{i}.tar", member(f"{i}.cls", b"%d" % i)).close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("s-*.tar", list(range(12))),
        ("s-{9..11}.tar", [9, 10, 11]),
        (["s-3.tar", "s-{2,1}.tar"], [3, 2, 1]),
    ],
)
def test_shards_are_one_dataset(shards: Path, given: str | list[str], expected: list[int]) -> None:
    with penstock.open(given) as data:
        assert isinstance(data.source, ShardSource)
        assert data.steps()[:]["cls"].tolist() == expected
    assert [int(n) for block in ShardStream(given)() for n in block["cls"]] == expected


def test_a_format_that_knows_no_shards_says_so(runs: Path) -> None:
    columns = named("columns")
    with pytest.raises(FormatError, match="'columns' has no dataset of several files"):
        columns.open_files([runs / "run-0", runs / "run-1"])


def test_tables_are_shards(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.jsonl").write_text(f'{{"episode": {i}, "x": {i}}}\n{{"episode": {i}, "x": 5}}\n')
    data = penstock.open(str(tmp_path / "*.jsonl"))
    assert data.metadata["files"] == ["0.jsonl", "1.jsonl"]
    assert data.steps()[:]["x"].tolist() == [0, 5, 1, 5]
