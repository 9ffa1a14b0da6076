"""`Loader.coverage` by examples, one for each reason. Random programs compare it with the batches themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.curation import Curation
from penstock.data.episode_marks import EpisodeMarks
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.plan.batched import Batches

LENGTHS = [6, 1, 0, 9, 4]


def episodes() -> Any:
    return penstock.from_arrays({"x": np.arange(20), "observations": np.arange(25)}, LENGTHS)


def cut_out() -> Any:
    data = episodes()
    curation = Curation.of(data.source)
    curation[3] = EpisodeMarks(excluded_spans=[(2, 4)])
    return data.apply(curation)


CASES: dict[str, tuple[Callable[[], MapDataset], dict[str, int]]] = {
    "all": (lambda: episodes().steps().shuffle(1), {}),
    "windows": (lambda: episodes().windows(2).shuffle(1), {"episode shorter than a sample": 1}),
    "stride": (
        lambda: episodes().windows(3, stride=4),
        {"episode shorter than a sample": 1, "between or beside the samples of its episode": 7},
    ),
    "chosen": (lambda: episodes()[[0, 4]].steps().shuffle(2), {"episode not chosen": 10}),
    "excluded": (lambda: cut_out().steps(), {"excluded span": 3}),
    "filter": (lambda: episodes().steps().filter("x >= 5"), {"left out by filter": 5}),
    "weights": (lambda: episodes().steps().weighted(np.arange(20) % 2), {"weight 0": 10}),
    "few draws": (
        lambda: episodes().steps().weighted(np.minimum(np.arange(20) % 4, 1), epoch_length=6).shuffle(3),
        {"not drawn by weight in this epoch": 9, "weight 0": 5},
    ),
    "shard": (lambda: episodes().steps().shuffle(1).shard(0, 4), {"in another shard": 15}),
    "epoch": (
        lambda: episodes().steps().shuffle(1).with_epoch_length(8),
        {"not in this epoch of with_epoch_length": 12},
    ),
    "two epochs": (
        lambda: episodes().steps().shuffle(1).with_epoch_length(8).repeat(2),
        {"not in this epoch of with_epoch_length": 4},
    ),
    "without": (lambda: episodes().steps().shuffle(1).without([0, 4]), {"left out by without": 10}),
    "packs": (
        lambda: episodes().sequences().select_columns("x").pack(6, overlong="drop"),
        {"dropped or cut by pack because of its length": 9},
    ),
    "packs without": (
        lambda: episodes().sequences().select_columns("x").pack(9).shuffle(2).without(3),
        {"left out by without": 9},
    ),
    "mix": (
        lambda: penstock.mix({"a": episodes().steps(), "b": episodes().steps()}, [1, 1], stop=20),
        {"not reached by the mix in this epoch": 20},
    ),
    "no share": (
        lambda: penstock.mix({"a": episodes().steps(), "b": episodes().steps()}, [1, 0]),
        {"weight 0": 20},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_reason_has_its_rows(name: str) -> None:
    make, lost = CASES[name]
    data = make()
    told = data.loader(batch_size=3, threads=0).coverage("x")
    assert dict(zip(told.reasons, told.counts.sum(axis=0)[1:].tolist(), strict=True)) == lost
    assert told.covered + sum(lost.values()) == told.rows == 20 * len(data.sources)
    assert np.array_equal(told.bins.sum(axis=1), told.counts)
    assert int(np.sum(told.table["rows"])) == sum(lost.values())


def test_a_dropped_batch_and_skipped_samples_are_told_apart() -> None:
    loader = episodes().steps().shuffle(1).loader(batch_size=6, drop_last=True, threads=0)
    loader.skip((2, 5))
    given = {x for batch in loader for x in batch["x"].tolist()}
    told = loader.coverage(epoch=0)
    assert dict(zip(told.reasons, told.counts[0, 1:].tolist(), strict=True)) == {
        "in a short last batch, which is dropped": 5,
        "skipped": 3,
    }
    lost = [
        int(row)
        for episode, step, many in zip(
            *(told.table[name].tolist() for name in ("episode", "step", "rows")), strict=True
        )
        for row in np.arange(many) + step + sum(LENGTHS[:episode])
    ]
    assert sorted(lost) == sorted(set(range(20)) - given)
    assert loader.coverage().epoch == 1  # the one under way


def test_boundary_rows_and_planned_batches_are_covered_too() -> None:
    data = episodes().windows(2, columns={"observations": (0, 3)})
    told = data.loader(batch_size=Batches(4), threads=0).coverage("observations")
    assert told.unit == "boundary row"
    assert (told.covered, told.rows) == (7 + 10 + 5, 25)
    final = episodes().steps().loader(batch_size=4).coverage("observations")
    assert final.counts.tolist() == [[20, 1, 4]]  # the empty episode has a row, and others one after the last step


def test_it_prints_and_draws_itself() -> None:
    told = episodes()[:4].windows(2).loader(batch_size=3).coverage()
    text = str(told)
    assert text.splitlines()[0] == "15 of 20 steps (75.000%) are in a sample of epoch 0"
    assert ["episode", "not", "chosen", "4", "20.00%", "1", "1"] in [line.split() for line in text.splitlines()]
    page = told._repr_html_()
    assert "<svg" in page
    assert "episode shorter than a sample" in page


def test_what_has_no_coverage_is_refused() -> None:
    data = episodes().steps()
    with pytest.raises(PlanError, match="with_epoch_length"):
        penstock.mix({"a": data}, stop="never").loader(batch_size=2).coverage()
    with pytest.raises(PlanError, match="got one of a stream"):
        penstock.IterDataset.of(data, 4).loader().coverage()
    with pytest.raises(PlanError, match="goals, which are drawn"):
        data.goals("final").loader(batch_size=2).coverage("goal")
    with pytest.raises(PlanError, match="expected an epoch of 0 or more"):
        data.loader(batch_size=2).coverage(epoch=-1)
    with pytest.raises(PlanError, match="expected an output among"):
        data.loader(batch_size=2).coverage("z")
