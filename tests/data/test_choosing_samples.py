"""Filters on values, chosen columns, and datasets as they were before they grew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError, SpecError, StateError
from penstock.formats.columns.writer import ColumnsWriter
from penstock.formats.memory import MemorySource
from penstock.plan import Shuffle, Take, Where


def samples(n: int = 10) -> MapDataset:
    return penstock.from_arrays({"x": np.arange(n), "y": np.arange(n) * 2}, lengths=[n]).steps()


def test_a_filter_on_values_is_dense():
    odd = samples().filter(lambda c: c["x"] % 2 == 1)
    assert len(odd) == 5
    assert odd[:]["x"].tolist() == [1, 3, 5, 7, 9]
    assert sorted(odd.shuffle(3)[:]["x"].tolist()) == [1, 3, 5, 7, 9]
    assert len(samples().filter(lambda c: c["x"] < 0)) == 0


def test_a_filter_sees_mapped_values_and_keeps_the_first_epochs_order():
    shuffled = samples().shuffle(1).map(lambda c: c.merged({"z": -c["x"]}))
    kept = shuffled.filter(lambda c: c["z"] > -5)
    assert sorted(kept[:]["z"].tolist()) == [-4, -3, -2, -1, 0]
    assert (
        planned_samples(kept).at(np.arange(5))["x"].tolist() == planned_samples(kept).at(np.arange(5, 10))["x"].tolist()
    )
    with pytest.raises(SpecError, match="expected a condition of 10 bools, got int64"):
        samples().filter(lambda c: c["x"])


def test_two_filters_are_two_datasets():
    one, other = (samples().filter(lambda c, n=n: c["x"] > n) for n in (3, 4))
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == samples().filter(lambda c: c["x"] > 3).fingerprint


def test_taken_rows_are_checked():
    with pytest.raises(PlanError, match="expected rows within 0:10, got 3:11"):
        samples().apply(Take(np.array([3, 10])))


def test_chosen_columns_are_part_of_the_fingerprint():
    assert list(samples().select_columns("y")[:2]) == ["y"]
    assert samples().select_columns("y").fingerprint != samples().fingerprint
    with pytest.raises(SpecError, match=r"among \['x', 'y'\], got 'z'"):
        samples().select_columns("z")
    assert (
        samples().shuffle(1).select_columns("y")[:]["y"].tolist()
        == samples().select_columns("y").shuffle(1)[:]["y"].tolist()
    )


def store(path, lengths: list[int]) -> EpisodeDataset:
    spec = Spec({"rewards": Field(np.dtype("f8"))})
    writer = ColumnsWriter(path) if path.exists() else ColumnsWriter.create(path, spec)
    with writer:
        for n in lengths:
            writer.write(Episode(spec, {"rewards": np.arange(float(n))}))
    return penstock.open(path)


def chain(data: EpisodeDataset) -> MapDataset:
    return (
        data.filter("total_steps > 1")
        .windows(2)
        .shuffle(3)
        .select_columns("rewards")
        .map(lambda c: {"r": c["rewards"]})
    )


def test_a_grown_dataset_knows_what_it_was(tmp_path):
    before = chain(store(tmp_path / "s", [3, 1, 5]))
    expected, fingerprint = before[:]["r"].tolist(), before.fingerprint
    grown = chain(store(tmp_path / "s", [4]))
    assert grown.fingerprint != fingerprint
    earlier = planned_samples(grown).as_of([3])
    assert earlier is not None
    assert earlier.fingerprint == fingerprint
    assert earlier.at(np.arange(len(earlier)))["r"].tolist() == expected
    assert planned_samples(grown).as_of([2]).fingerprint != fingerprint
    with pytest.raises(StateError, match="at least 9 episodes, got 4"):
        planned_samples(grown).as_of([9])


def test_what_cannot_tell_says_none(tmp_path):
    data = penstock.from_arrays({"x": np.arange(4)}, lengths=[2, 2])
    assert selection_of(data).as_of(1) is None
    assert planned_samples(data.steps()).as_of([1]) is None
    assert planned_samples(data.steps()).as_of([2]).fingerprint == data.steps().fingerprint
    grown = store(tmp_path / "s", [3, 2]).steps()
    assert planned_samples(grown.filter(lambda c: c["rewards"] > 0)).as_of([1]) is None
    assert PlannedSamples(grown.sources, grown.plan).as_of([1]) is None
    assert planned_samples(data.apply(Where("id == 1")).steps().apply(Shuffle(1))).as_of([2]) is not None


@pytest.fixture
def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Columns of sources in memory, in the order in which they are read."""
    names: list[str] = []
    for method in ("read_array", "read_ragged"):
        read = getattr(MemorySource, method)

        def noted(self: MemorySource, column: str, *rest: Any, read: Any = read) -> Any:
            names.append(column)
            return read(self, column, *rest)

        monkeypatch.setattr(MemorySource, method, noted)
    return names


def stored() -> EpisodeDataset:
    return penstock.from_arrays(
        {
            "x": np.arange(10.0),
            "image": np.zeros((10, 8), "u1"),
            "success": np.array([True, False, True]),
            "goal": np.arange(6.0).reshape(3, 2),
            "task": penstock.columns.Ragged.from_strings(["pick", "place", "pick"]),
            "score": np.array([1.0, np.nan, 3.0]),
        },
        lengths=[2, 3, 5],
        align=dict.fromkeys(("success", "goal", "task", "score"), "episode"),
    )


@pytest.mark.parametrize(
    ("condition", "chosen", "read"),
    [
        ("success", [0, 2], {"success"}),
        ("success and total_steps > 2", [2], {"success"}),
        ("success == 0 or score >= 3", [1, 2], {"success", "score"}),
        ("task == 'pick'", [0, 2], {"task"}),
        ("not 'pick' == task", [1], {"task"}),
        ("task != 'pick' and total_steps == 3", [1], {"task"}),
        (lambda episodes: episodes["goal"][:, 1] > 1, [1, 2], {"goal"}),
        (lambda episodes: np.array([t == "place" for t in episodes.ragged("task").strings()]), [1], {"task"}),
        ("total_steps > 2", [1, 2], set()),
    ],
)
def test_stored_columns_of_episodes_choose_episodes(columns_read, condition, chosen, read):
    data = stored()
    assert data.filter(condition).table()["id"].tolist() == chosen
    assert set(columns_read) == read
    kept = data.filter("total_steps > 2").filter(condition)
    assert kept.table()["id"].tolist() == [e for e in chosen if e]
    whole = data.apply(penstock.curation.Curation.of(data.source))
    assert whole.filter(condition).table()["id"].tolist() == chosen


@pytest.mark.parametrize("seed", [0, 1])
def test_return_is_the_sum_of_rewards(seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 9, 20)
    rewards = random.normal(size=int(lengths.sum()))
    data = penstock.from_arrays({"rewards": rewards}, lengths=lengths.tolist())
    returns = [episode.total_reward for episode in data]
    chosen = data.filter("return > 0.5 and total_steps > 2").table()["id"].tolist()
    assert chosen == [
        e for e, (total, steps) in enumerate(zip(returns, lengths, strict=True)) if total > 0.5 < steps - 2
    ]
    later = data[10:].filter("return > 0.5").table()["id"].tolist()
    assert later == [e for e in range(10, 20) if returns[e] > 0.5]


def test_return_in_the_metadata_stays_and_rewards_of_several_numbers_have_none() -> None:
    stored = penstock.from_arrays(
        {"rewards": np.ones(3), "return": np.zeros(1)}, lengths=[3], align={"return": "episode"}
    )
    assert len(stored.filter("return > 0")) == 0
    with pytest.raises(PlanError, match="one reward a step"):
        penstock.from_arrays({"rewards": np.ones((3, 2))}, lengths=[3]).filter("return > 0")


def test_conditions_on_stored_columns_that_cannot_be(columns_read):
    data = stored()
    for condition, message in {
        "task": "compare text with ==",
        "success == 'pick'": "a column of text to compare with 'pick', got 'success'",
        "tusk == 'pick'": "a column among .*'task'.*got 'tusk'",
        "x > 3": "a column among",
        "goal > 1": r"one boolean an episode \(3\), got bool\[3, 2\]",
    }.items():
        with pytest.raises(PlanError, match=message):
            data.filter(condition)


def test_weights_of_episodes_may_be_a_stored_column():
    drawn = stored().steps().weighted("success", by="episode", epoch_length=14)[:]["x"]
    assert sorted(set(drawn.tolist())) == [0, 1, 5, 6, 7, 8, 9]


def test_a_filter_of_samples_reads_the_columns_that_it_uses(columns_read):
    windows = stored().windows(3, pad="zero").select_columns("x", "image", "success")
    whole = windows.filter(lambda c: c["mask"].all(axis=1))
    assert columns_read == []
    assert len(whole) == 4
    assert len(windows.filter(lambda c: c["x"].sum(axis=1) > 20)) == 2
    assert set(columns_read) == {"x"}
    columns_read.clear()
    mapped = windows.map(lambda c: {"y": c["x"][:, 0]}).filter(lambda c: c["y"] > 8)
    assert set(columns_read) == {"x", "image", "success"}  # a function may need them all
    assert mapped[:]["y"].tolist() == [9.0]
    with pytest.raises(KeyError, match="did you mean 'image'"):
        windows.filter(lambda c: c["imag"])


def test_derived_outputs_may_be_selected():
    windows = stored().windows(2, pad="zero")
    for names in (("mask",), ("x", "mask"), ("mask", "image")):
        assert set(windows.select_columns(*names)[:3]) == {*names, "mask"}
    assert windows.select_columns("mask")[:3]["mask"].tolist() == windows[:3]["mask"].tolist()
    assert sum(batch.n for batch in windows.select_columns("mask").loader(3)) == 10
    packs = stored().sequences().select_columns("x").pack(6)
    assert set(packs.select_columns("segment_ids")[:]) == {"segment_ids", "positions"}
