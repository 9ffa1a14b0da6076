from __future__ import annotations

import gc
import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError, WorkerError
from penstock.loading import Loader
from penstock.plan.batched import Batches
from tests.threads import threads_before, wait_for_others

N = 10_000


def dataset(seed: int = 0, n: int = N) -> MapDataset:
    return from_arrays({"x": np.arange(n)}, lengths=[n]).steps().shuffle(seed=seed)


def taken(loader: Loader, batches: int | None = None) -> list[int]:
    out: list[int] = []
    for number, batch in enumerate(loader, start=1):
        out += batch["x"].tolist()
        if number == batches:
            break
    return out


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_is_the_datasets_order(threads, drop_last):
    loader = dataset().loader(96, threads=threads, drop_last=drop_last)
    expected = dataset()[:]["x"].tolist()[: N - N % 96 if drop_last else N]
    sizes = [batch.n for batch in loader]
    assert len(sizes) == len(loader)
    assert set(sizes[:-1]) == {96}
    assert taken(dataset().loader(96, threads=threads, drop_last=drop_last)) == expected


def test_epochs_follow_one_another_in_new_orders():
    loader = dataset().loader(1000)
    first, second = taken(loader), taken(loader)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(N))
    assert second == planned_samples(dataset()).at(np.arange(N, 2 * N))["x"].tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 700), st.integers(0, 30), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3))
def test_resume_equals_the_uninterrupted_run(batch_size, stop, threads, prefetch, seed):
    whole = taken(dataset(seed, 3000).loader(batch_size, threads=0))
    first = dataset(seed, 3000).loader(batch_size, threads=threads, prefetch=prefetch)
    before = taken(first, min(stop, len(first))) if stop else []
    state = json.loads(json.dumps(first.state_dict()))
    second = dataset(seed, 3000).loader(batch_size, threads=2)
    second.load_state_dict(state)
    if len(before) < 3000:
        assert before + taken(second) == whole


def test_resume_with_another_batch_size_and_drop_last():
    first = dataset().loader(300, threads=1)
    before = taken(first, 7)
    second = dataset().loader(77, threads=0, drop_last=True)
    second.load_state_dict(first.state_dict())
    after = taken(second)
    rest = dataset()[:]["x"].tolist()
    assert before + after == rest[: len(before) + len(after)]
    assert N - len(before) - len(after) < 77
    assert taken(second)[:5] == planned_samples(dataset()).at(np.arange(N, N + 5))["x"].tolist()


def test_a_rest_smaller_than_a_batch_is_dropped_and_the_next_epoch_begins():
    first = dataset(n=100).loader(30, threads=1)
    taken(first, 3)
    second = dataset(n=100).loader(40, threads=1, drop_last=True)
    second.load_state_dict(first.state_dict())
    assert taken(second) == planned_samples(dataset(n=100)).at(np.arange(100, 180))["x"].tolist()
    assert taken(second) == planned_samples(dataset(n=100)).at(np.arange(200, 280))["x"].tolist()
    small = dataset(n=100).loader(400, drop_last=True, allow_empty=True)
    assert taken(small) == taken(small) == []


def test_the_state_is_what_was_consumed_not_what_was_prefetched():
    loader = dataset().loader(10, threads=2, prefetch=5)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    assert loader.state_dict()["position"] == 20
    assert len(json.dumps(loader.state_dict())) < 1000
    iterator.close()


@pytest.mark.parametrize(
    ("saved", "given", "words"),
    [
        (lambda d: d.windows(4), lambda d: d.windows(5), "Windows(length=4) there, where it is Windows(length=5) here"),
        (lambda d: d.steps().shuffle(seed=3), lambda d: d.steps(), "Shuffle(seed=3) there, where it is nothing here"),
        (
            lambda d: d.filter("total_steps > 2").steps().shuffle(seed=1),
            lambda d: d.steps().shuffle(seed=2),
            "Where(condition='total_steps > 2') there, where it is nothing here, and Shuffle(seed=1) there, where it "
            "is Shuffle(seed=2) here",
        ),
    ],
)
def test_a_refused_state_says_what_differs(saved: Any, given: Any, words: str) -> None:
    data = penstock.from_arrays({"x": np.arange(12)}, lengths=[2, 6, 4])
    state = json.loads(json.dumps(saved(data).loader(2).state_dict()))
    with pytest.raises(StateError) as error:
        given(data).loader(2).load_state_dict(state)
    assert words in str(error.value)
    other = penstock.from_arrays({"x": np.arange(1, 13)}, lengths=[2, 6, 4])
    with pytest.raises(StateError, match="the data or a function differ"):
        saved(other).loader(2).load_state_dict(state)
    del state["plan"]  # of an earlier release
    with pytest.raises(StateError, match="the state does not say which"):
        given(data).loader(2).load_state_dict(state)


def test_states_of_others_are_refused_naming_both_fingerprints():
    loader = dataset().loader(10)
    state = dataset(seed=1).loader(10).state_dict()
    with pytest.raises(StateError) as error:
        loader.load_state_dict(state)
    assert state["fingerprint"] in str(error.value)
    assert loader.state_dict()["fingerprint"] in str(error.value)
    good = loader.state_dict()
    for change in ({"version": 99}, {"position": -1}, {"position": True}, {"extra": 1}):
        with pytest.raises(StateError):
            loader.load_state_dict({**good, **change})
    assert loader.state_dict() == good


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_in_a_worker_reaches_the_caller_and_the_state_stays(threads):
    def fail(columns):
        if 5000 in columns["x"]:
            raise ValueError("a bad row")
        return columns

    data = from_arrays({"x": np.arange(N)}, lengths=[N]).steps().map(fail)
    loader = data.loader(100, threads=threads)
    gc.collect()  # pipelines in cycles end in threads of their own
    before = threading.active_count()
    seen = []
    with pytest.raises(WorkerError, match=r"positions .* could not be loaded: ValueError: a bad row") as error:
        seen.extend(x for batch in loader for x in batch["x"].tolist())
    assert isinstance(error.value.__cause__, ValueError)
    assert seen == list(range(len(seen)))
    assert loader.state_dict()["position"] == len(seen)
    assert threading.active_count() <= before + threads


def test_leaving_the_loop_ends_the_threads():
    before = threads_before()
    loader = dataset().loader(10, threads=3)
    for _ in loader:
        break
    iterator = iter(loader)
    next(iterator)
    del iterator
    wait_for_others(before)


def test_batches_that_are_larger_than_the_job_bound():
    wide = from_arrays({"x": np.zeros((600, 60_000))}, lengths=[600]).steps()
    assert [b.n for b in wide.loader(500, threads=1)] == [500, 100]


def test_stats_count_what_was_given():
    loader = dataset().loader(100, threads=1)
    taken(loader, 7)
    assert (loader.stats.batches, loader.stats.samples) == (7, 700)
    assert 0 <= loader.stats.waiting_share <= 1
    assert loader.stats.rate > 0


def test_an_iter_dataset_is_loaded_in_order_and_resumed():
    def stream():
        blocks = penstock.IterDataset.of(dataset(), 64, epochs=1).filter(lambda c: c["x"] % 5 == 0)
        return blocks.rebatch(50)

    whole = taken(stream().loader(threads=0))
    assert whole == [x for x in dataset()[:]["x"].tolist() if x % 5 == 0]
    first = stream().loader(threads=1)
    before = taken(first, 9)
    second = stream().loader(threads=3)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + taken(second) == whole
    assert taken(second) == whole


def test_impossible_arguments():
    for arguments in ({"batch_size": 0}, {"batch_size": None}, {"batch_size": 4, "threads": -1}):
        with pytest.raises(PlanError):
            dataset().loader(**arguments)
    with pytest.raises(PlanError):
        dataset().loader(4, prefetch=0)
    with pytest.raises(PlanError, match="rebatch"):
        penstock.IterDataset.of(dataset(), 4).loader(4)
    with pytest.raises(TypeError, match="no length"):
        len(penstock.IterDataset.of(dataset(), 4).loader())


def test_an_empty_dataset_that_is_allowed_is_an_empty_loop():
    empty = from_arrays({"x": np.arange(3)}, lengths=[3]).windows(9)
    loader = empty.loader(4, allow_empty=True)
    assert len(loader) == 0
    assert list(loader) == []


def test_a_loader_has_few_methods_and_the_attributes_of_pytorch():
    loader = dataset().loader(96, output="torch", drop_last=True, rank=1, world=2)
    methods = {name for name in dir(type(loader)) if not name.startswith("_")}
    own = {"coverage", "load_state_dict", "peek", "set_epoch", "show", "skip", "state_dict", "stats", "uses", "why"}
    assert methods == {*own, "batch_sampler", "data_loader", "sampler"}
    values = {name: value for name, value in vars(loader).items() if not name.startswith("_") and name != "dataset"}
    of_pytorch = {"batch_size": 96, "drop_last": True, "num_workers": 0, "pin_memory": False, "prefetch_factor": None}
    assert values == {**of_pytorch, "rank": 1, "world": 2}


def test_batches_go_through_a_function_or_a_plan():
    sums = list(dataset().loader(300, output=lambda batch: batch.n, threads=1))
    assert sums == [batch.n for batch in dataset().loader(300, threads=0)]
    planned = dataset().loader(Batches(7), threads=0)
    assert planned.batch_size is None
    assert taken(planned) == taken(dataset().apply(Batches(7)).loader(threads=0))


@pytest.mark.parametrize(
    "options", [{"output": "numpy", "device": "cpu"}, {"output": "jax", "pin": True}, {"output": "rows"}]
)
def test_an_impossible_output_is_refused(options):
    with pytest.raises(PlanError, match="output"):
        dataset().loader(4, **options)
