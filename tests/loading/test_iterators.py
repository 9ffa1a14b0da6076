"""The rule of iterators: `iter()` changes nothing, a loaded state is continued once, and else the next epoch begins.

The orders of calls are those of Lightning 2.6.6 (`loops/fit_loop.py`, `loops/fetchers.py`), Accelerate 1.15.0
(`data_loader.py`), torchdata 0.11.0 (`stateful_dataloader.py`) and Keras 3.15.1 (`trainers/data_adapters`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError

N = 100


def dataset() -> MapDataset:
    return from_arrays({"x": np.arange(N)}, lengths=[N]).steps().shuffle(seed=0)


def epoch(number: int) -> list[int]:
    return planned_samples(dataset()).at(np.arange(number * N, (number + 1) * N))["x"].tolist()


LOADERS: dict[str, Callable[[], Any]] = {
    "in the caller": lambda: dataset().loader(10, threads=0),
    "threads": lambda: dataset().loader(10, threads=2),
    "torch": lambda: dataset().loader(10, threads=1, output="torch"),
    "jax": lambda: dataset().loader(10, threads=1, output="jax"),
}


@pytest.fixture(params=LOADERS)
def make(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return LOADERS[request.param]


def rows(batches: Any) -> list[int]:
    return [int(x) for batch in batches for x in batch["x"]]


def saved(loader: Any) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


def test_iterators_may_be_thrown_away_and_an_epoch_that_is_left_is_not_continued(make):
    loader = make()
    before = saved(loader)
    for _ in range(3):
        iter(loader)
    assert saved(loader) == before
    assert rows(islice(loader, 1)) == epoch(0)[:10]
    assert saved(loader)["position"] == 10
    assert rows(loader) == epoch(1)
    assert rows(islice(loader, 10)) == epoch(2)  # the last batch is given, and the end is not seen
    assert saved(loader)["position"] == 3 * N
    assert rows(islice(loader, 3)) == epoch(3)[:30]
    assert [rows(islice(loader, 5)) for _ in range(2)] == [epoch(4)[:50], epoch(5)[:50]]
    assert len(loader) == 10


def test_a_state_is_continued_once_also_by_iterators_that_were_made_before(make):
    first = make()
    list(first)
    assert rows(islice(first, 4)) == epoch(1)[:40]
    state = saved(first)
    second = make()
    early = iter(second)
    second.load_state_dict(state)
    assert saved(second) == state
    assert len(second) == 10
    iter(second)
    assert rows(islice(early, 2)) == epoch(1)[40:60]
    assert len(second) == 10
    assert rows(second) == epoch(2)
    assert rows(early) == epoch(1)[60:]  # it goes on where it was
    assert rows(second) == epoch(2)


def test_an_epoch_may_be_set_before_and_after_iter_and_that_of_a_state_keeps_its_position(make):
    loader = make()
    late = iter(loader)
    loader.set_epoch(3)
    loader.set_epoch(3)
    assert rows(late) == epoch(3)
    assert rows(loader) == epoch(4)
    rows(islice(loader, 5))
    state = saved(loader)
    resumed = make()
    resumed.load_state_dict(state)
    iterator = iter(resumed)
    for _ in range(2):
        resumed.set_epoch(5)
    assert saved(resumed)["position"] == 5 * N + 50
    with pytest.raises(StateError, match=r"expected set_epoch\(5\).*got set_epoch\(0\)"):
        resumed.set_epoch(0)
    assert rows(iterator) == epoch(5)[50:]
    resumed.set_epoch(0)
    assert rows(resumed) == epoch(0)
    with pytest.raises(PlanError, match="0 or more"):
        resumed.set_epoch(-1)


@pytest.mark.parametrize("name", LOADERS)
def test_a_look_moves_nothing(name):
    loader = LOADERS[name]()
    before = saved(loader)
    assert rows([loader.peek(), loader.peek()]) == epoch(0)[:10] * 2
    assert saved(loader) == before
    assert rows(loader) == epoch(0)
    rows(islice(loader, 1))
    assert rows([loader.peek()]) == epoch(2)[:10]
    loader.load_state_dict(loader.state_dict())
    assert rows([loader.peek()]) == epoch(1)[10:20]
    assert rows(loader) == epoch(1)[10:]


def test_two_loops_at_once_are_two_epochs():
    loader = dataset().loader(10, threads=1)
    pairs = list(zip(loader, loader, strict=True))
    assert [rows([a for a, _ in pairs]), rows([b for _, b in pairs])] == [epoch(0), epoch(1)]
    assert rows(loader) == epoch(2)


def lightning(loader: Any, epochs: int, limit: int | None = None, state: Any = None) -> Iterator[list[int]]:
    """What Lightning 2.6.6 calls on a loader with a length: it never reaches the end of an iterator."""
    iter(loader)
    if state is not None:
        loader.load_state_dict(state)
    for number in range(epochs):
        iterator = iter(loader)
        ready = 0 if state is None or number else 4  # batches before the checkpoint
        most = len(loader) if limit is None else limit
        yield rows(next(iterator) for _ in range(most - ready))


def test_lightning_trains_whole_epochs_and_goes_on_in_mid_epoch(make):
    assert list(lightning(make(), 3)) == [epoch(0), epoch(1), epoch(2)]
    assert list(lightning(make(), 2, limit=5)) == [epoch(0)[:50], epoch(1)[:50]]
    stopped = make()
    rows(islice(stopped, 4))
    assert list(lightning(make(), 2, state=saved(stopped))) == [epoch(0)[40:], epoch(1)]


def test_keras_draws_one_batch_of_its_own_and_then_trains_whole_epochs():
    loader = dataset().loader(10)
    next(iter(loader))
    assert rows(loader) == epoch(1)


def test_an_error_before_the_first_batch_costs_no_epoch():
    bad = [True]

    def checked(columns: Any) -> Any:
        if bad:
            raise ValueError("a bad row")
        return columns

    loader = dataset().map(checked).loader(10, threads=1)
    for _ in range(2):
        with pytest.raises(penstock.errors.WorkerError):
            next(iter(loader))
    bad.clear()
    assert rows(loader) == epoch(0)


def test_streams_begin_again_and_endless_ones_go_on():
    blocks = penstock.IterDataset.of(dataset(), 10).loader(threads=1)
    rows(islice(blocks, 3))
    assert rows([blocks.peek()]) == epoch(0)[:10]
    assert rows(blocks) == epoch(0)
    endless = penstock.IterDataset.of(dataset(), 10, epochs=None).rebatch(20).loader(threads=1)
    assert rows(islice(endless, 6)) + rows(islice(endless, 4)) == epoch(0) + epoch(1)
    endless.set_epoch(7)
    assert rows(islice(endless, 1)) == epoch(2)[:20]
    never = penstock.mix([dataset(), dataset()], stop="never").loader(10, threads=1)
    first = rows(islice(never, 3))
    assert rows([never.peek()]) != first[:10]
    assert sorted(first + rows(islice(never, 17))) == sorted(epoch(0) + epoch(0))
    with pytest.raises(TypeError, match="without end"):
        len(never)
    with pytest.raises(PlanError, match="the only epoch"):
        never.set_epoch(1)
