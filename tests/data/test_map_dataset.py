from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.core.selection import Selection
from penstock.data.dataset import EpisodeDataset
from penstock.data.fetch import Fetch
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import PlanError, SpecError
from penstock.plan.base import Plan
from penstock.plan.outputs import DerivedOutput, Read, View

LENGTHS = [3, 1, 5, 2]
STEPS = sum(LENGTHS)


def data() -> EpisodeDataset:
    boundary = np.concatenate([e * 100 + np.arange(n + 1) for e, n in enumerate(LENGTHS)])
    return from_arrays(
        {
            "observations": {"x": boundary.astype("f4")[:, None], "text": Ragged.from_strings(map(str, boundary))},
            "actions": np.concatenate([e * 100 + np.arange(n) for e, n in enumerate(LENGTHS)]),
        },
        lengths=LENGTHS,
    )


def test_samples_are_the_steps_in_order():
    samples = data().transitions()
    assert len(samples) == STEPS
    batch = planned_samples(samples).at(np.arange(STEPS))
    assert np.array_equal(batch["observations/x"][:, 0], batch["actions"])
    assert np.array_equal(batch["next_observations/x"], batch["observations/x"] + 1)
    assert batch["observations/text"].strings() == [str(a) for a in batch["actions"]]


def test_a_single_record_is_a_nested_dict():
    record = data().steps()[4]
    assert record["actions"] == 200
    assert record["observations"]["x"].tolist() == [200.0]
    assert record["observations"]["text"].tobytes() == b"200"


def test_indexing_like_a_sequence():
    samples = data().steps()
    assert samples[-1]["actions"] == samples[STEPS - 1]["actions"] == 301
    assert samples[[3, 1, 3]]["actions"].tolist() == [100, 1, 100]
    assert samples[2:9:3]["actions"].tolist() == planned_samples(samples).at(np.array([2, 5, 8]))["actions"].tolist()
    assert samples[np.array([], np.int64)].n == 0
    for wrong in (STEPS, -STEPS - 1, [0, STEPS]):
        with pytest.raises(IndexError, match="expected positions within 0:11"):
            samples[wrong]
    with pytest.raises(TypeError, match="expected integers"):
        samples[[0.5]]


def test_windows_carry_text_and_masks():
    batch = planned_samples(data().windows(4, pad="zero")).at(np.array([0, 3]))
    assert batch["actions"].tolist() == [[0, 1, 2, 0], [100, 0, 0, 0]]
    assert batch["mask"].tolist() == [[True, True, True, False], [True, False, False, False]]
    assert batch["observations/text"][1].strings() == ["100", "", "", ""]


def test_positions_beyond_an_epoch_count_on():
    samples = data().steps()
    assert planned_samples(samples).at(np.array([STEPS + 2]))["actions"].tolist() == [2]
    shuffled = samples.shuffle(seed=3)
    first, second = (planned_samples(shuffled).at(np.arange(STEPS) + epoch * STEPS)["actions"] for epoch in (0, 1))
    assert sorted(first) == sorted(second) == sorted(samples[:]["actions"])
    assert first.tolist() != second.tolist()
    assert first.tolist() != samples.shuffle(seed=4)[:]["actions"].tolist()


def test_chains_change_the_order_and_the_fingerprint():
    samples = data().steps()
    assert len(samples.repeat(3)) == 3 * STEPS
    shards = [samples.shuffle(seed=1).shard(i, 3) for i in range(3)]
    together = np.concatenate([s[:]["actions"] for s in shards])
    assert sorted(together) == sorted(samples[:]["actions"])
    prints = {d.fingerprint for d in (samples, samples.shuffle(0), samples.shuffle(1), samples.repeat(3), *shards)}
    assert len(prints) == 7
    assert samples.shuffle(0).fingerprint == data().steps().shuffle(0).fingerprint


def test_select_reads_only_what_is_asked():
    chosen = data().steps().select_columns("actions")
    assert list(chosen[:2]) == ["actions"]
    assert list(data().steps().select_columns("observations")[:2]) == ["observations/x", "observations/text"]
    with pytest.raises(SpecError, match="'reward'"):
        data().steps().select_columns("reward")


def test_map_gets_columns_and_keeps_rows():
    doubled = data().steps().map(lambda c: c.merged({"actions": c["actions"] * 2}))
    assert doubled[[1]]["actions"].tolist() == [2]
    with pytest.raises(SpecError, match="flat_map"):
        data().steps().map(lambda c: c.take(slice(0, 1)))[:4]


def test_map_keys_are_of_the_order_that_is_read():
    """Mapped before a shuffle or a mix, a sample has the key of its place after it."""

    def with_key(columns: Columns, keys: np.ndarray) -> dict:
        return {"x": columns["x"], "key": keys}

    data = penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps().map(with_key, seed=1)
    keys = planned_samples(data).at(np.arange(12))["key"].tolist()
    assert len(set(keys)) == 12  # other ones in the next epoch
    assert data.shuffle(seed=3)[:]["key"].tolist() == keys[:6]
    assert penstock.mix([data, data], [1, 1])[:]["key"].tolist() == keys


def test_map_keys_depend_on_seed_and_position_alone():
    def noisy(columns: Columns, keys: np.ndarray) -> dict:
        return {"key": keys}

    samples = data().steps().shuffle(seed=1)
    whole = samples.map(noisy, seed=5)[:]["key"]
    assert whole.dtype == np.uint64
    assert len(set(whole.tolist())) == STEPS
    assert np.array_equal(samples.map(noisy, seed=5)[[7, 2]]["key"], whole[[7, 2]])
    assert not np.array_equal(samples.map(noisy, seed=6)[:]["key"], whole)


def test_an_empty_dataset_says_so():
    empty = data().windows(50)
    assert len(empty) == 0
    with pytest.raises(PlanError, match="empty"):
        planned_samples(empty).at(np.array([0]))


def test_reads_from_many_threads_agree():
    shuffled = data().windows(2, pad="repeat").shuffle(seed=2)
    wanted = [np.random.default_rng(i).integers(0, len(shuffled), 64) for i in range(40)]
    expected = [planned_samples(shuffled).at(p)["actions"] for p in wanted]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda p: planned_samples(shuffled).at(p)["actions"], wanted))
    assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True))


def read_all(dataset: MapDataset) -> tuple[list, str]:
    return dataset[:]["observations/x"].tolist(), dataset.fingerprint


def test_a_dataset_can_be_pickled_into_another_process():
    shuffled = data().windows(2).shuffle(seed=2)
    again = pickle.loads(pickle.dumps(shuffled))
    expected = read_all(shuffled)
    del shuffled
    assert read_all(again) == expected
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(read_all, again).result() == expected


SLICES = [
    (0, 3),
    (None, None, -1),
    (2, 9, 3),
    (8, 1, -3),
    (-3, None),
    (5, 5),
    (0, 10**40, 10**30),
    (None, None, -(10**30)),
]


@pytest.mark.parametrize("slicing", [slice(*edges) for edges in SLICES], ids=str)
def test_a_slice_is_that_of_a_list(slicing):
    numbers = penstock.from_arrays({"x": np.arange(10)}, lengths=[10]).steps()
    assert numbers[slicing]["x"].tolist() == list(range(10))[slicing]


def test_a_slice_costs_what_it_selects():
    """Of 10^12 windows, and of a mix that never ends, whose positions no memory holds."""
    many = penstock.from_arrays({"x": np.arange(10)}, lengths=[10]).steps().repeat(10**11)
    assert many[:3]["x"].tolist() == [0, 1, 2]
    assert many[:: -(10**11)]["x"].tolist() == [9] * 10
    endless = penstock.mix([many, many], [1, 1], stop="never")
    assert endless[:4]["source"].tolist() == endless[10**15 : 10**15 + 4]["source"].tolist() == [0, 1, 0, 1]
    assert endless[-2:].n == 2
    assert endless[:: 2**60].n == 4
    with pytest.raises(PlanError, match="a slice of at most"):
        _ = endless[:]


def test_what_goes_through_an_epoch_refuses_one_without_end():
    steps = penstock.from_arrays({"x": np.arange(10)}, lengths=[4, 6])
    endless = penstock.mix([steps.sequences(), steps.sequences()], [1, 1], stop="never")
    for call, message in (
        (lambda: endless.filter(lambda c: c["x"] > 2), "the same samples every epoch"),
        (lambda: endless.pack(8, max_sequences=4)[:2], "an end for packing it"),
        (lambda: penstock.mix([endless, endless], [1, 1], unit="steps"), "an end for counting its rows"),
        (lambda: endless.repeat(2), "at most 2\\^62 samples"),
    ):
        with pytest.raises(PlanError, match=message):
            call()


class TwoSources(Plan):
    """Sample k is the step k of source k % 2, twice, with a hole between."""

    views = (View("step", 0, 3),)
    reads = (Read("actions", "actions", 0), Read("words", "words", 0))
    marks = (DerivedOutput("mask", 0),)
    fingerprint = "two"
    steady = True

    def __len__(self) -> int:
        return 4

    def resolve(self, positions):
        n = len(positions)
        source = np.repeat(positions % 2, 2)
        at = np.repeat(np.arange(n) * 3, 2) + np.tile([0, 2], n)
        start = np.repeat(positions, 2)
        return (Selection(source, start, np.ones(2 * n, np.int64), at, (n, 3)),)


def test_fetch_lays_several_sources_over_one_another():
    def source(offset: int):
        words = Ragged.from_strings([f"{offset}-{i}" * (1 + i % 2) for i in range(4)])
        return from_arrays({"actions": np.arange(4) + offset, "words": words}, lengths=[4]).source

    batch = PlannedSamples([source(0), source(10)], TwoSources()).at(np.array([0, 1, 3]))
    assert batch["actions"].tolist() == [[0, 0, 0], [11, 0, 11], [13, 0, 13]]
    assert batch["words"][1].strings() == ["10-110-1", "", "10-110-1"]
    assert batch["mask"].astype(int).tolist() == [[1, 0, 1]] * 3


def test_fetch_refuses_sources_that_differ():
    one = from_arrays({"actions": np.arange(4), "words": np.zeros(4)}, lengths=[4]).source
    two = from_arrays({"actions": np.arange(4.0), "words": np.zeros(4)}, lengths=[4]).source
    with pytest.raises(SpecError, match=r"'actions' alike in every source, got int64 .* and float64 .* in source 1"):
        Fetch([one, two], TwoSources())


def test_episodes_are_chosen_and_split():
    held = data()
    assert [len(e) for e in held.filter("total_steps >= 3")] == [3, 5]
    assert held[[2, 0]][0].actions.tolist() == [200, 201, 202, 203, 204]
    parts = held.split(0.5, 0.5, seed=1)
    assert sorted(int(e.actions[0]) for part in parts for e in part) == [0, 100, 200, 300]
    assert held[[1]].steps()[:]["actions"].tolist() == [100]
    assert [held[[3, 1]].table()["id"].tolist()] == [[3, 1]]


def test_from_arrays_refuses_rows_that_fit_nothing():
    with pytest.raises(SpecError, match="expected a as 5 step rows"):
        penstock.from_arrays({"a": np.zeros(6)}, lengths=[2, 2, 1])
