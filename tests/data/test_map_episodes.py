"""`map_episodes` in memory: lazy columns, replaced and added; what a function may return, and what is refused."""

# pyright: basic

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged
from penstock.errors import ArgumentError, DataError, FingerprintWarning, SpecError
from tests.jobs import mapping


@pytest.fixture(params=[1, 2])
def data(request: pytest.FixtureRequest) -> penstock.EpisodeDataset:
    rng = np.random.default_rng(request.param)
    lengths = rng.integers(1, 9, 12)
    n = int(lengths.sum())
    columns = {
        "observations": rng.standard_normal((n + 12, 3)),
        "rewards": rng.standard_normal(n),
        "text": Ragged.from_strings(["go" * k for k in range(12)]),
        "task": rng.integers(0, 3, 12),
    }
    return penstock.from_arrays(columns, lengths=lengths.tolist())


def changed(episode: penstock.Episode) -> dict[str, Any]:
    return {
        "rewards": episode.rewards.astype("f4"),
        "deep": {"sum": np.cumsum(episode.rewards)[:, None], "last": episode.columns["observations"][-1:].sum()},
        "after": np.asarray(episode.columns["observations"])[:, :1],
        "words": [f"{r:.3f}" for r in episode.rewards],
        "name": f"episode {episode.id}",
        "few": Ragged.from_rows([np.arange(i % 3) for i in range(len(episode))], "int64"),
    }


def rows(data: penstock.EpisodeDataset) -> list[dict[str, Any]]:
    return [
        {name: c.blobs() if isinstance(c, Ragged) else c.tolist() for name, c in each.columns.items()} for each in data
    ]


def test_columns_are_added_and_replaced(data: penstock.EpisodeDataset) -> None:
    mapped = data.map_episodes(changed)
    made = {path: (field.kind, field.align, str(field.dtype)) for path, field in mapped.spec.items()}
    assert made["rewards"] == ("array", "step", "float32")
    assert made["deep/sum"][:2] == ("array", "step")
    assert made["deep/last"][:2] == ("array", "episode")
    assert made["after"][:2] == ("array", "boundary")
    assert (made["words"], made["name"]) == (("text", "step", "uint8"), ("text", "episode", "uint8"))
    assert made["few"] == ("ragged", "step", "int64")
    assert list(mapped.spec)[:4] == list(data.spec)
    for before, after in zip(data, mapped, strict=True):
        np.testing.assert_array_equal(after.rewards, before.rewards.astype("f4"))
        np.testing.assert_array_equal(after.columns["deep/sum"][:, 0], np.cumsum(before.rewards))
        np.testing.assert_array_equal(after.observations, before.observations)
        assert after.columns["name"].strings() == [f"episode {before.id}"]
        assert after.columns["words"].strings() == [f"{r:.3f}" for r in before.rewards]


@pytest.mark.parametrize("seed", range(2))
def test_samples_are_those_of_the_written_dataset(data: penstock.EpisodeDataset, tmp_path: Any, seed: int) -> None:
    """Windows, packs, statistics and single rows, in a random order, read by threads."""
    mapped = data.map_episodes(changed)
    mapped.write(tmp_path / "out")
    written = penstock.open(tmp_path / "out")
    assert rows(mapped) == rows(written)
    for cut in (lambda d: d.windows(3, pad="zero"), lambda d: d.steps(), lambda d: d.sequences().pack(64)):
        batches = [list(cut(d).shuffle(seed=seed).loader(5, threads=2)) for d in (mapped, written)]
        for ours, theirs in zip(*batches, strict=True):
            for path, array in ours.flat.items():
                other = theirs.flat[path]
                same = array.blobs() == other.blobs() if isinstance(array, Ragged) else np.array_equal(array, other)
                assert same, path
    assert penstock.statistics(mapped)["deep/sum"] == penstock.statistics(written)["deep/sum"]


def test_the_fingerprint_is_of_the_data_the_function_and_its_seed(data: penstock.EpisodeDataset) -> None:
    def fingerprint(mapped: penstock.EpisodeDataset) -> str:
        return mapped.windows(2).fingerprint

    def scaled(scale: float) -> Callable[[penstock.Episode], Any]:
        return lambda episode: {"x": episode.rewards * scale}

    one = data.map_episodes(scaled(2.0))
    assert fingerprint(one) == fingerprint(data.map_episodes(scaled(2.0))) != fingerprint(data)
    others = [
        data.map_episodes(scaled(3.0)),
        data.map_episodes(scaled(2.0), seed=1),
        data[1:].map_episodes(scaled(2.0)),
    ]
    assert len({fingerprint(each) for each in (one, *others)}) == 4
    assert fingerprint(data.map_episodes(scaled(2.0), version="a")) == fingerprint(
        data.map_episodes(scaled(3.0), version="a")
    )


def test_episodes_that_were_chosen_stay_chosen(data: penstock.EpisodeDataset) -> None:
    """Also where the function changes what they were chosen by; and others can be chosen by the new columns."""
    few = data.filter("task == 1").map_episodes(lambda episode: {"task": 5, "long": len(episode) > 3})
    assert few.episodes.index.tolist() == data.filter("task == 1").episodes.index.tolist()
    assert few.spec["task"].align == "episode"
    assert [int(each.columns["task"][0]) for each in few] == [5] * len(few)
    assert few.filter("long").episodes.index.tolist() == [each.id for each in few if len(each) > 3]
    curation = penstock.curation.Curation.of(data.source)
    curation[2] = penstock.curation.EpisodeMarks(excluded=True, tags=["bad"])
    curated = data.apply(curation).filter("total_steps > 1").map_episodes(lambda episode: {"n": len(episode)})
    assert curated.table()["id"].tolist() == data.apply(curation).filter("total_steps > 1").table()["id"].tolist()


def test_parts_of_episodes_have_the_values_of_whole_episodes() -> None:
    data = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[4, 5])
    curation = penstock.curation.Curation.of(data.source)
    curation[1] = penstock.curation.EpisodeMarks(excluded_spans=[(1, 2)])
    mapped = data.apply(curation).map_episodes(lambda episode: {"sum": episode.rewards.cumsum()})
    assert [each.columns["sum"].tolist() for each in mapped] == [[0, 1, 3, 6], [4], [22, 30]]


def test_functions_of_functions_and_derived_columns(data: penstock.EpisodeDataset) -> None:
    twice = data.map_episodes(lambda episode: {"a": episode.rewards * 2}).map_episodes(
        lambda episode: {"a": episode.columns["a"] + 1, "b": episode.columns["a"]}
    )
    more = twice.with_column("c", lambda episode: episode.columns["a"] * 10)
    for before, after in zip(data, more, strict=True):
        np.testing.assert_array_equal(after.columns["c"], (before.rewards * 2 + 1) * 10)
        np.testing.assert_array_equal(after.columns["b"], before.rewards * 2)


def test_episodes_that_are_left_out_cannot_be_read(data: penstock.EpisodeDataset) -> None:
    mapped = data.map_episodes(lambda episode: {"x": episode.rewards} if episode.id != 3 else None)
    kept = mapped[[e for e in range(12) if e != 3]]
    assert len(list(kept)) == 11
    for read in (lambda: mapped[3], lambda: list(mapped), lambda: mapped.steps()[:]["x"]):
        with pytest.raises(DataError, match=r"columns of episode 3, and .* leaves it out; choose the others first"):
            read()
    with pytest.raises(SpecError, match=r"expected an episode that .* keeps, got none"):
        data.map_episodes(lambda episode: None)


def test_random_numbers_are_of_the_seed_and_the_episode(data: penstock.EpisodeDataset) -> None:
    def drawn(episode: penstock.Episode, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal(len(episode))

    whole = data.map_episodes(drawn, column="x", seed=4)
    part = data[[7, 2]].map_episodes(drawn, column="x", seed=4)
    np.testing.assert_array_equal(part[0].columns["x"], whole[7].columns["x"])
    assert whole[7].columns["x"][0] != data.map_episodes(drawn, column="x", seed=5)[7].columns["x"][0]
    state = np.random.RandomState(0)
    with pytest.warns(FingerprintWarning, match="gave other values when it was called again .* `rng`"):
        data.map_episodes(lambda episode: {"x": state.rand(len(episode))}, version=1)


def test_a_class_or_a_factory_is_called_once(
    data: penstock.EpisodeDataset, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Mean:
        def __init__(self, scale: float = 1.0) -> None:
            made.append("mean")
            self.scale = scale

        def __call__(self, episode: penstock.Episode) -> float:
            return float(episode.rewards.mean() * self.scale)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FingerprintWarning)
        by_class = data.map_episodes(Mean, column="mean", version=1)
        by_factory = data.map_episodes(lambda: Mean(2.0), column="mean", version=2)
        by_object = data.map_episodes(Mean(3.0), column="mean", version=3)
    values = [[each.columns["mean"][0] for each in mapped] for mapped in (by_class, by_factory, by_object)]
    assert made == ["mean"] * 3
    np.testing.assert_allclose(np.array(values[1:]), np.array([2.0, 3.0])[:, None] * values[0])
    with pytest.raises(DataError, match=r"expected a function from .*\(\), got RuntimeError: no model; a class is"):
        data.map_episodes(mapping.Broken)


WRONG: dict[str, tuple[Callable[[penstock.Episode], Any], str]] = {
    "raises": (lambda e: {"x": 1 // (e.id - 3)}, "got ZeroDivisionError: .* - at episode 3"),
    "other columns": (
        lambda e: {"x": e.rewards} | ({"y": 1} if e.id == 3 else {}),
        r"\['x'\].*\['x', 'y'\] - at episode 3",
    ),
    "another length": (lambda e: {"x": e.rewards[: len(e) - (e.id == 3)]}, "rows of 'x' .* - at episode 3"),
    "another dtype": (lambda e: {"x": e.rewards.astype("f4" if e.id == 3 else "f8")}, "got float32.* - at episode 3"),
    "another shape": (lambda e: {"x": np.zeros((len(e), 2 + (e.id == 3)))}, r"got float64\[3\] - at episode 3"),
    "a number for rows": (lambda e: {"x": e.rewards if e.id != 3 else 1.0}, "a single number - at episode 3"),
    "text for numbers": (lambda e: {"x": "a" if e.id == 3 else 1.0}, "'x' .* as array, got rows of .* - at episode 3"),
    "objects": (lambda e: {"x": [None] * len(e) if e.id == 3 else e.rewards}, "numbers or text .* at\\s+episode 3"),
    "unequal rows": (
        lambda e: {"x": [[1], [1, 2]] if e.id == 3 else e.rewards},
        "numbers or text .* episode 3; return",
    ),
    "no dict": (lambda e: e.rewards if e.id == 3 else {"x": 1}, "got ndarray - at episode 3; column= names"),
    "changes its input": (lambda e: e.rewards.sort() if e.id == 3 else {"x": 1}, "read-only.* - at episode 3; arrays"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_with_its_episode(data: penstock.EpisodeDataset, name: str, tmp_path: Any) -> None:
    fn, message = WRONG[name]
    mapped = data.map_episodes(fn)
    assert mapped[2].columns.keys() >= {"x"}
    with pytest.raises((DataError, SpecError), match=message):
        mapped[3]
    with pytest.raises((DataError, SpecError), match=message):
        mapped.write(tmp_path / "out")


def test_wrong_arguments_are_refused(data: penstock.EpisodeDataset) -> None:
    with pytest.raises(ArgumentError, match="expected a function of an episode"):
        data.map_episodes("norm")
    with pytest.raises(ArgumentError, match="expected align to be of"):
        data.map_episodes(changed, align={"x": "steps"})
    with pytest.raises(ArgumentError, match="a seed of 0 or more, got -1"):
        data.map_episodes(changed, seed=-1)
    with pytest.raises(SpecError, match=r"one number or text, got 20 rows - at episode 0; align=.episode. says"):
        data.map_episodes(lambda episode: {"x": np.zeros(20)})
    with pytest.raises(SpecError, match="'observations/x', and 'observations' exists"):
        data.map_episodes(lambda episode: {"observations/x": 1})
    row = data.map_episodes(lambda episode: {"x": np.arange(5.0)}, align="episode")
    assert row[1].columns["x"].tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]


def test_arrays_that_a_function_uses_again_are_copied(data: penstock.EpisodeDataset) -> None:
    buffer = np.zeros(9)

    def reused(episode: penstock.Episode) -> np.ndarray:
        buffer[: len(episode)] = episode.rewards
        return buffer[: len(episode)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FingerprintWarning)
        mapped = data.map_episodes(reused, column="x")
    first = mapped[0].columns["x"]
    _ = mapped[1]
    np.testing.assert_array_equal(first, data[0].rewards)
    assert not first.flags.writeable


def test_mapped_datasets_are_copied_and_pickled(data: penstock.EpisodeDataset) -> None:
    mapped = data.map_episodes(mapping.doubled, column="x")
    for again in (copy.copy(mapped), pickle.loads(pickle.dumps(mapped))):
        assert rows(again) == rows(mapped)
        assert again.episodes.fingerprint == mapped.episodes.fingerprint
    assert "map_episodes(tests.jobs.mapping.doubled)" in repr(mapped)
