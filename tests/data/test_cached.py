"""Columns kept decoded in the user's cache, and `penstock cache`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.arrays import AnyArray
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.data.cached import CachedSource
from penstock.errors import SpecError
from penstock.formats.memory import MemorySource


class CountingSource(MemorySource):
    """Counts the rows of pictures that are read."""

    rows_read = 0

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        if column == "image":
            CountingSource.rows_read += int(selection.length.sum())
        super().read_array(column, selection, out)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    CountingSource.rows_read = 0
    return tmp_path / "cache"


def dataset(seed: int = 0) -> penstock.EpisodeDataset:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "image": rng.integers(0, 256, (12, 4, 6, 3), np.uint8),
        "rewards": np.arange(9.0),
        "note": Ragged.from_strings(["a", "bb", "c"] * 3),
    }
    spec = Spec(
        {
            "image": Field(np.dtype("u1"), (4, 6, 3), "boundary"),
            "rewards": Field(np.dtype("f8")),
            "note": Field(np.dtype("u1"), kind="text"),
        }
    )
    return penstock.EpisodeDataset(CountingSource(spec, columns, np.array([0, 2, 5, 9])))


def test_a_column_is_decoded_once_for_all_runs() -> None:
    plain = dataset()
    expected = plain.windows(2)[:]
    CountingSource.rows_read = 0
    for _ in range(2):
        cached = dataset().cached("image")
        batch = cached.windows(2)[:]
        np.testing.assert_array_equal(batch["image"], expected["image"])
        np.testing.assert_array_equal(batch["rewards"], expected["rewards"])
        np.testing.assert_array_equal(cached[1].columns["image"], plain[1].columns["image"])
        assert [len(episode) for episode in cached] == [2, 3, 4]
    assert CountingSource.rows_read == 12 + 2 * 4  # and episode 1 of `plain` in each round
    assert list(cached.spec) == list(plain.spec)


def test_columns_of_one_shape_are_kept_apart() -> None:
    plain = penstock.from_arrays({name: np.full((4, 2, 2, 3), i, np.uint8) for i, name in enumerate("ab")}, lengths=[4])
    for name in "ab":
        cached = plain.cached(name).windows(1)[:][name]
        np.testing.assert_array_equal(cached, plain.windows(1)[:][name])


def test_a_saved_run_continues_with_and_without_the_cache() -> None:
    plain, cached = dataset(), dataset().cached()
    assert cached.source.fingerprint == plain.source.fingerprint
    first = plain.steps().shuffle(seed=1).loader(batch_size=2)
    second = cached.steps().shuffle(seed=1).loader(batch_size=2)
    batches = [batch["image"].copy() for batch in first]
    stopped = plain.steps().shuffle(seed=1).loader(batch_size=2)
    next(iter(stopped))
    second.load_state_dict(stopped.state_dict())
    for batch, expected in zip(second, batches[1:], strict=True):
        np.testing.assert_array_equal(batch["image"], expected)


def test_other_data_are_decoded_again() -> None:
    one, other = (dataset(seed).cached("image")[0].columns["image"] for seed in range(2))
    assert (one != other).any()
    unpickled = pickle.loads(pickle.dumps(dataset(1).cached("image").source))
    np.testing.assert_array_equal(unpickled.episode(2).columns["image"], dataset(1)[2].columns["image"])


def test_chosen_episodes_stay_chosen() -> None:
    chosen = dataset().filter("total_steps > 2").cached("image")
    assert [len(episode) for episode in chosen] == [3, 4]
    np.testing.assert_array_equal(chosen[0].columns["image"], dataset()[1].columns["image"])


def test_columns_that_cannot_be_cached() -> None:
    with pytest.raises(SpecError, match="did you mean 'image'"):
        dataset().cached("imgae")
    with pytest.raises(SpecError, match="one shape"):
        dataset().cached("note")
    empty = penstock.from_arrays({"rewards": np.zeros(0)}, lengths=[])
    assert CachedSource(empty.source, "rewards").fill() == 0
