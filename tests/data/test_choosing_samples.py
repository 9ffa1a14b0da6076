"""Filters on values, chosen columns, and datasets as they were before they grew."""

from __future__ import annotations

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, SpecError, StateError
from penstock.formats.columns.writer import ColumnsWriter
from penstock.plan import Shuffle, Take, Where


def samples(n: int = 10) -> MapDataset:
    return penstock.from_arrays({"x": np.arange(n), "y": np.arange(n) * 2}, lengths=[n]).samples()


def test_a_filter_on_values_is_dense():
    odd = samples().where(lambda c: c["x"] % 2 == 1)
    assert len(odd) == 5
    assert odd[:]["x"].tolist() == [1, 3, 5, 7, 9]
    assert sorted(odd.shuffle(3)[:]["x"].tolist()) == [1, 3, 5, 7, 9]
    assert len(samples().where(lambda c: c["x"] < 0)) == 0


def test_a_filter_sees_mapped_values_and_keeps_the_first_epochs_order():
    shuffled = samples().shuffle(1).map(lambda c: c.merged({"z": -c["x"]}))
    kept = shuffled.where(lambda c: c["z"] > -5)
    assert sorted(kept[:]["z"].tolist()) == [-4, -3, -2, -1, 0]
    assert kept.batch(np.arange(5))["x"].tolist() == kept.batch(np.arange(5, 10))["x"].tolist()
    with pytest.raises(SpecError, match="expected a condition of 10 bools, got int64"):
        samples().where(lambda c: c["x"])


def test_two_filters_are_two_datasets():
    one, other = (samples().where(lambda c, n=n: c["x"] > n) for n in (3, 4))
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == samples().where(lambda c: c["x"] > 3).fingerprint


def test_taken_rows_are_checked():
    with pytest.raises(PlanError, match="expected rows within 0:10, got 3:11"):
        samples().apply(Take(np.array([3, 10])))


def test_chosen_columns_are_part_of_the_fingerprint():
    assert list(samples().select("y")[:2]) == ["y"]
    assert samples().select("y").fingerprint != samples().fingerprint
    with pytest.raises(SpecError, match=r"among \['x', 'y'\], got 'z'"):
        samples().select("z")
    assert samples().shuffle(1).select("y")[:]["y"].tolist() == samples().select("y").shuffle(1)[:]["y"].tolist()


def store(path, lengths: list[int]) -> EpisodeDataset:
    spec = Spec({"rewards": Field(np.dtype("f8"))})
    writer = ColumnsWriter(path) if path.exists() else ColumnsWriter.create(path, spec)
    with writer:
        for n in lengths:
            writer.write(Episode(spec, {"rewards": np.arange(float(n))}))
    return penstock.open(path)


def chain(data: EpisodeDataset) -> MapDataset:
    return data.where("total_steps > 1").windows(2).shuffle(3).select("rewards").map(lambda c: {"r": c["rewards"]})


def test_a_grown_dataset_knows_what_it_was(tmp_path):
    before = chain(store(tmp_path / "s", [3, 1, 5]))
    expected, fingerprint = before[:]["r"].tolist(), before.fingerprint
    grown = chain(store(tmp_path / "s", [4]))
    assert grown.fingerprint != fingerprint
    earlier = grown.as_of([3])
    assert earlier is not None
    assert earlier.fingerprint == fingerprint
    assert earlier[:]["r"].tolist() == expected
    assert grown.as_of([2]).fingerprint != fingerprint
    with pytest.raises(StateError, match="at least 9 episodes, got 4"):
        grown.as_of([9])


def test_what_cannot_tell_says_none(tmp_path):
    data = penstock.from_arrays({"x": np.arange(4)}, lengths=[2, 2])
    assert data.as_of(1) is None
    assert data.samples().as_of([1]) is None
    assert data.samples().as_of([2]).fingerprint == data.samples().fingerprint
    grown = store(tmp_path / "s", [3, 2]).samples()
    assert grown.where(lambda c: c["rewards"] > 0).as_of([1]) is None
    assert MapDataset(grown.sources, grown.plan).as_of([1]) is None
    assert data.choose(Where("id == 1")).samples().apply(Shuffle(1)).as_of([2]) is not None
