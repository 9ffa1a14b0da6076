"""Nothing to train on is an error that names the cause, wherever batches are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.core.ragged import Ragged
from penstock.data.dataset import EpisodeDataset
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.mix import mix
from penstock.errors import DataError, PlanError


def data() -> EpisodeDataset:
    return from_arrays({"x": np.arange(12)}, lengths=[3, 0, 4, 5])


def no_episodes() -> EpisodeDataset:
    return from_arrays({"x": np.arange(0)}, lengths=[])


SHORT = r"no episode is as long as 5,000 steps; the longest has 5"
EMPTY: dict[str, tuple[Callable[[], MapDataset], str]] = {
    "no episodes": (lambda: no_episodes().steps(), "the dataset has no episodes"),
    "long windows": (lambda: data().windows(5000), SHORT),
    "far ahead": (lambda: data().windows(2, columns={"x": (0, 30)}), "as long as 30 steps; the longest has 5"),
    "pairs": (lambda: data().pairs(9), "no episode is as long as 10 steps; the longest has 5"),
    "padded": (lambda: data()[[1]].windows(2, pad="zero"), "as long as 1 step; the longest has 0"),
    "where": (lambda: data().filter("total_steps > 9").windows(2), r"Where\(.*> 9.* keeps none of 4 episodes"),
    "where twice": (
        lambda: data().filter("id > 1").filter("id < 1").filter("id == 0").steps(),
        r"Where\(.*id < 1.* keeps none of 2 episodes",
    ),
    "split": (data().split(1.0, 0.0)[1].sequences, r"Split\(.* keeps none of 4 episodes"),
    "shard": (
        lambda: data().steps().shuffle().shard(20, 24),
        r"Shard\(index=20, count=24\) keeps none of 12 samples",
    ),
    "condition": (
        lambda: data().steps().filter(lambda c: c["x"] > 99).shuffle(),
        "filter.* keeps none of 12 samples",
    ),
    "far below": (
        lambda: data().windows(5000).shuffle().repeat(3).with_epoch_length(7).select_columns("x").shard(0, 2),
        SHORT,
    ),
    "packs of nothing": (lambda: data().filter("id > 7").sequences().pack(6), "keeps none of 4 episodes"),
    "packs of empties": (lambda: data()[[1, 1]].sequences().pack(6), "packs none of 2 samples: each is empty"),
    "packs that drop": (
        lambda: data()[[0, 2]].sequences().pack(2, overlong="drop").shuffle(),
        "packs none of 2 samples: .* too long",
    ),
}
MAKERS: dict[str, Callable[..., Any]] = {
    "Loader": lambda d, **options: d.loader(4, threads=0, **options),
    "torch": lambda d, **options: d.loader(4, threads=0, **options, output="torch"),
    "jax": lambda d, **options: d.loader(4, threads=0, **options, output="jax"),
    "DataLoader": lambda d, **options: d.loader(4, **options, output="torch").data_loader(),
    "iterate": lambda d, **options: penstock.IterDataset.of(d, 4, **options),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_plan_says_why(name: str) -> None:
    make, why = EMPTY[name]
    dataset = make()
    assert len(dataset) == 0
    with pytest.raises(PlanError, match=rf"expected at least one batch, got none: .*{why}.*; allow_empty=True"):
        dataset.loader(4)
    with pytest.raises(PlanError, match=why):
        planned_samples(dataset).at(np.arange(2))
    with pytest.raises(PlanError, match=why):
        dataset.plan.resolve(np.arange(2))


@pytest.mark.parametrize("name", MAKERS)
def test_everything_that_makes_batches_refuses_an_empty_plan_unless_told(name: str) -> None:
    make = MAKERS[name]
    with pytest.raises(PlanError, match=SHORT):
        make(data().windows(5000))
    allowed = make(data().windows(5000), allow_empty=True)
    assert list(allowed) == []
    assert make(data().windows(4)) is not None


@pytest.mark.parametrize("name", MAKERS)
def test_fewer_samples_than_a_batch_that_must_be_whole(name: str) -> None:
    options: dict[str, Any] = {"drop_last": True}
    few = data().windows(4)
    assert len(few) == 3
    with pytest.raises(PlanError, match="an epoch has 3 samples, fewer than one batch of 4, and drop_last is set"):
        MAKERS[name](few, **options)
    assert list(MAKERS[name](few, **options, allow_empty=True)) == []
    assert len(list(MAKERS[name](few.repeat(2), **options))) == 1


def test_an_empty_dataset_in_a_mix_is_named() -> None:
    with pytest.raises(PlanError, match=rf"none in 'long': {SHORT}; give it weight 0"):
        mix({"all": data().windows(1), "long": data().windows(5000)}, {"all": 1, "long": 2})
    assert len(mix({"all": data().windows(1), "long": data().windows(5000)}, {"all": 1, "long": 0}, union=True)) == 12


@pytest.mark.parametrize("threads", [0, 1])
def test_a_stream_that_ends_without_a_sample(threads: int) -> None:
    def filtered(least: int) -> Any:
        return penstock.IterDataset.of(data().steps(), 4).filter(lambda c: c["x"] > least)

    for stream in (filtered(99), filtered(99).rebatch(2)):
        with pytest.raises(PlanError, match="a stream that ended without one; check its filters"):
            list(stream.loader(threads=threads))
        assert sum(batch.n for batch in stream.loader(threads=threads, allow_empty=True)) == 0
    loader = filtered(7).rebatch(2).loader(threads=threads)
    first = [next(iter(loader))["x"].tolist()]
    loader.load_state_dict(loader.state_dict())
    assert first + [batch["x"].tolist() for batch in loader] == [[8, 9], [10, 11]]
    ended = filtered(7).rebatch(2).loader(threads=threads)
    ended.load_state_dict({**loader.state_dict(), **_end_of(filtered(7).rebatch(2))})
    assert list(ended) == []  # the rest of an epoch may have none


def _end_of(stream: Any) -> dict[str, Any]:
    iterator = iter(stream)
    for _ in iterator:
        pass
    return iterator.state_dict()


def test_nothing_is_converted_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected episodes to convert, got none: Where\(.* keeps none of 4 episodes"):
        penstock.convert(data().filter("total_steps > 9"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert penstock.convert(no_episodes(), tmp_path / "out", allow_empty=True).episodes == 0
    with penstock.open(tmp_path / "out") as empty:
        assert len(empty) == 0


def test_commands_over_no_episodes_do_not_succeed(tmp_path: Path) -> None:
    run = CliRunner().invoke
    penstock.convert(no_episodes(), tmp_path / "empty", allow_empty=True)
    for options in ([], ["--json"]):
        result = run(app, ["info", str(tmp_path / "empty"), *options])
        assert result.exit_code == 1
        assert "has no episodes" in result.stderr
    result = run(app, ["convert", str(tmp_path / "empty"), str(tmp_path / "again")])
    assert result.exit_code == 2
    assert "the dataset has no episodes" in result.stderr
    assert run(app, ["convert", str(tmp_path / "empty"), str(tmp_path / "again"), "--allow-empty"]).exit_code == 0


def test_ragged_episodes_without_values_are_samples() -> None:
    rows = Ragged.from_rows([np.zeros(0, np.int64)] * 3)
    assert len(list(from_arrays({"tokens": rows}, lengths=[3]).steps().loader(2))) == 2
