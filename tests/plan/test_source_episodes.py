"""Many episodes of a source need no table: plans over offsets equal plans over tables, and are small when sent."""

# pyright: basic

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import StateError
from penstock.plan import Episodes, Pairs, Plan, Sequences, Steps, Windows, episodes
from penstock.plan.episodes import SourceEpisodes
from penstock.plan.transform import SampleTransform

TRANSFORMS = [
    *(Steps(), Pairs(), Windows(3), Windows(4, past=2, stride=3, pad="zero"), Windows(5, pad="repeat")),
    *(Sequences(), Sequences(final=True)),
]


def stored(lengths: list[int]) -> penstock.EpisodeDataset:
    steps = int(np.sum(lengths))
    words = penstock.columns.Ragged(np.arange(2 * len(lengths)), 2 * np.arange(len(lengths) + 1))
    columns = {"observations": np.arange(steps + len(lengths)), "actions": np.arange(steps), "words": words}
    return penstock.from_arrays(columns, lengths, align={"words": "episode"})


def with_table(episodes: Episodes) -> Episodes:
    """The same episodes, with all arrays in memory."""
    return episodes.with_table(episodes.table)


def assert_equal(one: Plan, other: Plan, positions: np.ndarray) -> None:
    assert (len(one), one.fingerprint, one.views) == (len(other), other.fingerprint, other.views)
    for mine, theirs in zip(one.lengths(positions), other.lengths(positions), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip(one.resolve(positions), other.resolve(positions), strict=True):
        for name in ("source", "start", "length", "destination", "shape"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_plans_over_offsets_equal_plans_over_tables(
    transform: SampleTransform, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episodes, "FEW", few)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, 12, 150).tolist()
        plan, table = transform.plan(stored(lengths).episodes), transform.plan(with_table(stored(lengths).episodes))
        assert isinstance(plan.episodes, SourceEpisodes)
        assert not isinstance(table.episodes, SourceEpisodes)
        positions = rng.integers(0, len(plan), 400)
        assert_equal(plan, table, positions)
        np.testing.assert_array_equal(plan.owners(positions), table.owners(positions))
        assert_equal(pickle.loads(pickle.dumps(plan)), table, positions)
        made = vars(plan.episodes).keys() & {"source", "index", "start", "length"}
        assert few or not made, "plans of many episodes need no table"


def test_a_plan_of_a_stored_dataset_is_small_when_sent(tmp_path: Path) -> None:
    data = penstock.open(penstock.convert(stored([3] * 4000), tmp_path / "data").out)
    plan = data.windows(2).shuffle(seed=1).plan
    assert len(pickle.dumps(plan)) < 10_000
    assert_equal(pickle.loads(pickle.dumps(plan)), plan, np.arange(0, len(plan), 77))


def test_a_plan_for_data_that_changed_is_refused(tmp_path: Path) -> None:
    data = penstock.open(penstock.convert(stored([3] * 20), tmp_path / "data").out)
    sent = pickle.dumps(data.windows(2).plan)
    data.close()
    penstock.convert(stored([3] * 19), tmp_path / "data", overwrite=True)
    with pytest.raises((StateError, penstock.errors.FormatError), match="expected"):
        pickle.loads(sent)
