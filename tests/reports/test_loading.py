"""Reports about loaders: epochs, restored positions, processes and workers."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError
from tests.reports.reported import report

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own use of PyTorch
N = 60


def dataset() -> MapDataset:
    return from_arrays({"x": np.arange(N)}, lengths=[N]).steps().shuffle(seed=0)


def epoch(number: int) -> list[int]:
    return planned_samples(dataset()).at(np.arange(number * N, (number + 1) * N))["x"].tolist()


def rows(batches: Any) -> list[int]:
    return [int(x) for batch in batches for x in batch["x"]]


def saved(loader: Any) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


@report("huggingface/datasets#6673", "`set_epoch` reaches workers that are kept between epochs")
@report("starVLA/starVLA#470", "kept workers do not repeat the samples of the first epoch")
@report("pytorch/pytorch#30599", "the number of workers does not change the batches of an epoch")
def test_kept_workers_have_the_epochs_of_the_main_process():
    kept = dataset().loader(10, output="torch").data_loader(num_workers=2, persistent_workers=True)
    found = [rows(kept), rows(kept)]
    kept.sampler.set_epoch(4)
    assert [*found, rows(kept)] == [epoch(0), epoch(1), epoch(4)]


@report("huggingface/datasets#7447", "epochs after a restored one are whole, also with kept workers")
def test_epochs_after_a_restored_one_are_whole():
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        whole = dataset().loader(10, output="torch")
        return whole.data_loader(StatefulDataLoader, num_workers=2, persistent_workers=True)

    first = loader()
    seen = rows(first)
    iterator = iter(first)
    seen += rows(islice(iterator, 4))
    again = loader()
    again.load_state_dict(first.state_dict())
    seen += rows(again)
    assert [seen, rows(again)] == [epoch(0) + epoch(1), epoch(2)]


@report("huggingface/accelerate#4199", "a loader that has the share of a rank is not split again in silence")
@report("huggingface/accelerate#4195", "a trainer that counts from 0 does not replace the epoch of a restored state")
def test_accelerate_meets_shares_and_restored_states():
    first = dataset().loader(10, output="torch")
    rows(first)
    rows(islice(first, 2))
    again = dataset().loader(10, output="torch")
    again.load_state_dict(first.state_dict())
    prepared = again.data_loader()
    with pytest.raises(StateError, match=r"expected set_epoch\(1\)"):
        prepared.sampler.set_epoch(0)
    prepared.sampler.set_epoch(1)
    assert rows(prepared) == epoch(1)[20:]
    with pytest.raises(PlanError, match="share of rank 0 of 2; give the loader rank=0, world=1"):
        dataset().loader(10, output="torch", rank=0, world=2).data_loader()


@report(
    "PrimeIntellect-ai/prime-rl#3332", "an iterator that was made before a state was loaded continues from the state"
)
@report("meta-pytorch/data#1548", "asking for the state before loading another one does not fix the position")
@report("mosaicml/streaming#437", "a state in mid-epoch is continued, and not the epoch from its start")
@report("KempnerInstitute/KempnerForge#57", "a second resume within an epoch keeps the order")
def test_states_are_continued_as_often_as_they_are_loaded():
    seen: list[int] = []
    loader = dataset().loader(10)
    for batches in (1, 2, 1, 2):
        seen += rows(islice(loader, batches))
        state = saved(loader)
        loader = dataset().loader(10)
        iterator = iter(loader)
        assert saved(loader)["position"] == 0
        loader.load_state_dict(state)
        assert saved(loader) == state
        assert next(iterator)["x"].tolist() == (epoch(0) + epoch(1))[len(seen) : len(seen) + 10]
        loader.load_state_dict(state)
    assert seen == epoch(0)


@report("verl-project/verl#7401", "a state at the end of an epoch is followed by the whole next epoch")
@report("meta-pytorch/data#1437", "a state that is loaded and saved again is the same state, and drops no epoch")
@report("mosaicml/streaming#869", "a state of a later epoch is continued")
@pytest.mark.parametrize("end_seen", [False, True])
def test_a_state_at_the_end_of_an_epoch_is_followed_by_a_whole_one(end_seen):
    first = dataset().loader(10)
    rows(first)
    rows(first if end_seen else islice(first, len(first)))
    again = dataset().loader(10)
    again.load_state_dict(saved(first))
    assert saved(again) == saved(first)
    steps = saved(again)["position"] // 10
    again.set_epoch(steps // len(again))
    assert [rows(again), rows(again)] == [epoch(2), epoch(3)]


@report("Lightning-AI/litData#760", "epochs that are left early do not give the same samples again")
def test_limited_epochs_differ():
    loader = dataset().loader(10)
    assert [rows(islice(loader, 2)) for _ in range(3)] == [epoch(e)[:20] for e in range(3)]


@report("NVIDIA-Merlin/dataloader#77", "a look at the first batch does not advance the loader")
def test_a_look_does_not_advance():
    loader = dataset().loader(10, output="torch")
    assert rows([loader.peek()]) + rows(loader) == epoch(0)[:10] + epoch(0)


@report("AI-Hypercomputer/maxtext#1760", "a run continues with another number of processes")
@report("huggingface/transformers#608", "means of shares of different size average to the mean of the batch")
@report("pytorch/pytorch#67253", "a process knows the weight of its share")
@report("huggingface/accelerate#961", "a last batch smaller than the number of processes repeats and loses no sample")
@pytest.mark.parametrize("world", [1, 2, 5])
def test_shares_of_any_number_of_processes_are_the_batch(world):
    first = dataset().loader(7, rank=0, world=1)
    seen = rows(islice(first, 3))
    ranks = [dataset().loader(7, rank=rank, world=world) for rank in range(world)]
    for loader in ranks:
        loader.load_state_dict(saved(first))
    for shares in zip(*ranks, strict=True):
        batch = rows(shares)
        seen += batch
        means = [share.weight * share["x"].mean() for share in shares if len(share["x"])]
        assert np.isclose(sum(means) / world, np.mean(batch))
    assert seen == epoch(0)
