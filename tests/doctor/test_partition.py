"""Splits without leakage, and merges of datasets with different columns."""

# pyright: basic

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.conversion.merge import MergedSource, merged_statistics
from penstock.data.loaded_episodes import LoadedEpisodes
from penstock.data.map_dataset import planned_samples
from penstock.errors import ArgumentError, PlanError, SpecError
from penstock.formats.base.source import Source
from penstock.formats.memory import MemorySource

N = 40


def episodes(seed: int = 0, copies: dict[int, int] | None = None) -> penstock.EpisodeDataset:
    """Episodes of random values; `copies` says of which episode another one is a copy."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, N)
    for copy, original in (copies or {}).items():
        lengths[copy] = lengths[original]
    rewards = [rng.normal(size=n) for n in lengths]
    for copy, original in (copies or {}).items():
        rewards[copy] = rewards[original]
    room = np.repeat(rng.integers(0, 7, N), lengths)
    when = np.repeat(rng.permutation(N) * 10.0, lengths)
    columns = {"rewards": np.concatenate(rewards), "room": room, "when": when}
    if copies:
        columns = {"rewards": columns["rewards"]}
    return penstock.from_arrays(columns, lengths=lengths.tolist())


def index(part: penstock.EpisodeDataset) -> set[int]:
    return set(np.asarray(part.episodes.index).tolist())


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_exact_and_disjoint(seed: int) -> None:
    parts = episodes().split({"a": 0.5, "b": 0.3, "c": 0.2}, seed=seed)
    assert [len(part) for part in parts.values()] == [20, 12, 8]
    assert sorted(e for part in parts.values() for e in index(part)) == list(range(N))
    again = episodes().split({"a": 0.5, "b": 0.3, "c": 0.2}, seed=seed)
    assert [index(part) for part in again.values()] == [index(part) for part in parts.values()]
    other = episodes().split({"a": 0.5, "b": 0.3, "c": 0.2}, seed=seed + 10)
    assert index(other["a"]) != index(parts["a"])
    few = episodes().split({"a": 5, "b": 3}, seed=seed)
    assert [len(part) for part in few.values()] == [5, 3]
    assert not index(few["a"]) & index(few["b"])


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_in_one_part(seed: int) -> None:
    data = episodes(seed)
    parts = data.split({"train": 0.7, "test": 0.3}, by="room", seed=seed)
    rooms = {name: {int(part[e].columns["room"][0]) for e in range(len(part))} for name, part in parts.items()}
    assert rooms["train"] | rooms["test"] == set(range(7))
    assert not rooms["train"] & rooms["test"]
    largest = max(np.bincount([int(data[e].columns["room"][0]) for e in range(N)]))
    assert abs(len(parts["train"]) - 28) < largest


@pytest.mark.parametrize("seed", range(3))
def test_duplicates_are_in_one_part(seed: int) -> None:
    copies = {7: 3, 11: 3, 20: 19, 30: 2}
    data = episodes(seed, copies)
    parts = data.split({"train": 0.5, "test": 0.5}, seed=seed)
    assert len(parts["train"]) == 20
    for copy, original in copies.items():
        assert (copy in index(parts["train"])) == (original in index(parts["train"]))
    divided = [data.split({"train": 0.5, "test": 0.5}, seed=s, duplicates=True) for s in range(20)]
    assert any((7 in index(each["train"])) != (3 in index(each["train"])) for each in divided)


def test_duplicates_are_found_by_reading_few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[range] = []
    whole = LoadedEpisodes.read.__func__  # type: ignore[attr-defined]

    def counted(cls: type, source: Source, first: int, last: int, paths: list[str]) -> LoadedEpisodes:
        read.append(range(first, last))
        return whole(cls, source, first, last, paths)

    monkeypatch.setattr(LoadedEpisodes, "read", classmethod(counted))
    data = episodes(0, {7: 3, 11: 3, 20: 19, 30: 2})
    data.split(0.5, 0.5, threads=0)
    assert sorted(e for part in read for e in part) == [2, 3, 7, 11, 19, 20, 30]
    read.clear()
    data.split(0.5, 0.5, duplicates=True)
    assert read == []


def test_parts_without_groups_are_those_of_the_transform() -> None:
    data = episodes()
    for number, part in enumerate(data.split(0.6, 0.4, seed=3)):
        assert part.episodes.fingerprint == data.apply(penstock.Split((0.6, 0.4), number, 3)).episodes.fingerprint


def test_labels_are_in_one_part() -> None:
    labels = np.array([f"robot {e % 9}" for e in range(N)])
    parts = episodes().split({"train": 0.7, "test": 0.3}, groups=labels, seed=2)
    robots = [set(labels[sorted(index(part))]) for part in parts.values()]
    assert len(robots[0] | robots[1]) == 9
    assert not robots[0] & robots[1]
    with pytest.raises(ArgumentError, match=r"groups= with a label for each of 40 episodes, got \[3\]; by= takes"):
        episodes().split(0.5, 0.5, groups=[1, 2, 3])


def test_parts_are_made_again_of_fewer_episodes(tmp_path: Path) -> None:
    penstock.convert(episodes(), tmp_path / "data")
    before = penstock.open(tmp_path / "data").split(0.5, 0.5)[0].steps()
    with penstock.open(tmp_path / "data") as data:
        assert planned_samples(data.split(0.5, 0.5)[0].steps()).as_of([N]).fingerprint == before.fingerprint
        late = data.split(0.5, 0.5, by="room")[1]
        assert planned_samples(late.steps()).as_of([1]) is None


def test_time_goes_forward() -> None:
    data = episodes()
    parts = data.split({"past": 0.6, "now": 0.2, "future": 0.2}, time="when")
    when = {name: [float(part[e].columns["when"][0]) for e in range(len(part))] for name, part in parts.items()}
    assert [len(part) for part in parts.values()] == [24, 8, 8]
    assert max(when["past"]) < min(when["now"])
    assert max(when["now"]) < min(when["future"])


def test_episodes_that_go_on_after_a_later_part_begins_are_counted() -> None:
    starts = np.array([0.0, 2.0, 4.0, 6.0])
    for length, overlapping in ((2, 0), (4, 1), (8, 2)):  # a step a second
        columns = {"rewards": np.random.default_rng(0).normal(size=4 * length)}
        columns["when"] = np.concatenate([start + np.arange(length) * 0.9 for start in starts])
        data = penstock.from_arrays(columns, lengths=[length] * 4)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parts = data.split({"past": 2, "future": 2}, time="when")
        assert [index(part) for part in parts.values()] == [{0, 1}, {2, 3}]
        told = [f"{overlapping} episode{'s' * (overlapping > 1)} of earlier parts end"] if overlapping else []
        assert [str(each.message)[: len(told[0])] for each in caught] == told


def test_wrong_arguments() -> None:
    data = episodes()
    with pytest.raises(ArgumentError, match="did you mean 'room'"):
        data.split({"a": 1.0}, by="rom")
    with pytest.raises(PlanError, match="adding up to 1"):
        data.split({"a": 0.5, "b": 0.1})
    with pytest.raises(PlanError, match="at most"):
        data.split({"a": 30, "b": 11})


def test_merge_keeps_names_columns_and_statistics(tmp_path: Path) -> None:
    one = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
    two = penstock.from_arrays({"rewards": np.ones(4), "cost": np.full(4, 3.0)}, lengths=[4])
    with pytest.raises(SpecError, match="lab lacks cost"):
        penstock.merge({"lab": one, "field": two}, tmp_path / "both")
    report = penstock.merge({"lab": one, "field": two}, tmp_path / "both", missing="fill", fill={"cost": -1})
    data = penstock.open(tmp_path / "both")
    assert [data[e].metadata["source"] for e in range(3)] == ["lab", "lab", "field"]
    assert [part["name"] for part in data.metadata["parts"]] == ["lab", "field"]
    assert [np.asarray(data[e].columns["cost"]).tolist() for e in (0, 2)] == [[-1, -1], [3, 3, 3, 3]]
    assert np.asarray(data[1].columns["rewards"]).tolist() == [2, 3, 4]
    assert report.certificate is not None
    assert report.certificate.lossless
    parts = data.split({"a": 2, "b": 1}, by="source")
    assert [index(part) for part in parts.values()] == [{0, 1}, {2}]
    with pytest.raises(ArgumentError, match="fill for missing columns"):
        penstock.merge({"a": one, "b": two}, tmp_path / "x", missing="fill", fill={"rewards": 1})
    with pytest.raises(ArgumentError, match="two datasets"):
        penstock.merge({"a": one}, tmp_path / "x")
    other = penstock.from_arrays({"rewards": np.ones(4, "f4")}, lengths=[4])
    with pytest.raises(SpecError, match="expected rewards as in a"):
        penstock.merge({"a": one, "b": other}, tmp_path / "x")


def test_a_part_has_no_statistics_of_all_episodes(tmp_path: Path) -> None:
    spec = penstock.Spec({"rewards": penstock.Field(np.dtype("f8"))})
    rewards = np.arange(6.0)
    figures = {"min": [0.0], "max": [5.0], "mean": [2.5], "count": [6]}
    source = MemorySource(spec, {"rewards": rewards}, np.array([0, 3, 6]), {"statistics": {"rewards": figures}})
    data = penstock.EpisodeDataset(source)
    for name, chosen in (("all", data), ("part", data[[1]])):
        penstock.convert(chosen, tmp_path / name)
        with penstock.open(tmp_path / name) as stored:
            assert ("statistics" in stored.metadata) == (name == "all")
        assert penstock.check(tmp_path / name, deep=True).findings == ()


def test_a_merged_source_keeps_its_statistics_in_another_process() -> None:
    parts: list[Source] = []
    for value in (0.0, 2.0):
        figures = {"rewards": {"count": [1], "min": [value], "max": [value], "mean": [value], "std": [0.0]}}
        spec = penstock.Spec({"rewards": penstock.Field(np.dtype("f8"))})
        parts.append(MemorySource(spec, {"rewards": np.array([value])}, np.array([0, 1]), {"statistics": figures}))
    again = pickle.loads(pickle.dumps(MergedSource(parts, ["a", "b"])))
    assert again.metadata["statistics"]["rewards"]["mean"] == [1.0]


@pytest.mark.parametrize("seed", range(3))
def test_statistics_are_those_of_all_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(rng.normal(), 2, (int(n), 3)) for n in rng.integers(1, 50, 4)]
    parts = [
        {"x": {"count": [len(r)], "min": r.min(0), "max": r.max(0), "mean": r.mean(0), "std": r.std(0), "q50": r[0]}}
        for r in rows
    ]
    many = {"x": {**parts[0]["x"], "count": [1, 1, 1]}}
    assert merged_statistics([parts[0], many]) == {}  # one number of rows is needed
    empty = {"x": {**parts[0]["x"], "count": [0], "min": np.full(3, 9.0)}}
    found = merged_statistics([empty, *parts])["x"]
    whole = np.concatenate(rows)
    for name, expected in {"mean": whole.mean(0), "std": whole.std(0), "min": whole.min(0)}.items():
        np.testing.assert_allclose(found[name], expected)
    assert found["count"] == [len(whole)]
    assert merged_statistics([parts[0], {}]) == {}
    assert merged_statistics([parts[0], None]) == {}
