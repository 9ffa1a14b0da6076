"""Names of datasets: few public members, and an answer for names of other libraries and for earlier ones."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.other_names import EPISODES, SAMPLES

MOST = 19


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    return penstock.from_arrays({"observations": np.arange(7), "rewards": np.arange(5.0)}, lengths=[2, 3])


@pytest.mark.parametrize("name", EPISODES)
def test_other_names_of_episode_datasets_are_answered(data: penstock.EpisodeDataset, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^EpisodeDataset has no '{name}'; use "):
        getattr(data, name)


@pytest.mark.parametrize("name", SAMPLES)
def test_other_names_of_samples_are_answered(data: penstock.EpisodeDataset, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"^MapDataset has no '{name}'; use "):
        getattr(data.windows(2), name)


METHODS_OF_EPISODES = {
    "apply", "cached", "close", "delta_timestamps", "filter", "map_episodes", "metadata", "pairs", "refresh",
    "sequences", "show", "spec", "split", "steps", "table", "total_steps", "transitions", "windows", "with_column",
}  # fmt: skip
METHODS_OF_SAMPLES = {
    "apply", "filter", "fingerprint", "goals", "loader", "map", "pack", "relabel", "repeat", "select_columns", "shard",
    "show", "shuffle", "weighted", "with_epoch_length", "with_row_numbers", "without",
}  # fmt: skip


def test_datasets_have_few_public_members(data: penstock.EpisodeDataset) -> None:
    for dataset, methods, attributes in (
        (data, METHODS_OF_EPISODES, {"source", "episodes"}),
        (data.windows(2), METHODS_OF_SAMPLES, {"sources", "plan"}),
    ):
        assert {name for name in dir(type(dataset)) if not name.startswith("_")} == methods
        assert {name for name in vars(dataset) if not name.startswith("_")} == attributes
        assert len(methods) <= MOST


def test_unknown_names_are_answered_as_python_does(data: penstock.EpisodeDataset) -> None:
    for dataset in (data, data.windows(2)):
        with pytest.raises(AttributeError, match=f"^'{type(dataset).__name__}' object has no attribute 'nothing'$"):
            _ = getattr(dataset, "nothing")  # noqa: B009 - a type checker knows that it is missing
        assert not hasattr(dataset, "__array__")


def test_an_error_in_a_property_is_not_hidden() -> None:
    class Broken(penstock.EpisodeDataset):
        @property
        def spec(self) -> Any:
            raise AttributeError("of its own")

    data = Broken.__new__(Broken)
    with pytest.raises(AttributeError, match="of its own"):
        _ = data.spec


def test_datasets_are_copied_and_pickled(data: penstock.EpisodeDataset) -> None:
    for dataset in (data, data.windows(2)):
        for again in (copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
            assert len(again) == len(dataset)
