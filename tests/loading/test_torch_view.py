"""Views of a loader for trainers of PyTorch, and answers to loaders, datasets and iterators in the wrong place."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler

import penstock
from penstock.data.map_dataset import planned_samples
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.loading.torch import Tensors

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own use of PyTorch
N = 1000


def samples(seed: int = 0) -> penstock.MapDataset:
    columns = {"observations": {"x": np.arange(N + 1.0)}, "a": np.arange(N)}
    return penstock.from_arrays(columns, [N]).steps().shuffle(seed=seed)


def loader(batch_size: int = 64, **options: Any) -> penstock.Loader[Any]:
    return samples().loader(batch_size, output="torch", **options)


def epoch(number: int) -> list[int]:
    return planned_samples(samples()).at(np.arange(number * N, (number + 1) * N))["a"].tolist()


def rows(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["a"].tolist()]


def stateful(workers: int, kept: bool = False) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return loader().data_loader(StatefulDataLoader, num_workers=workers, persistent_workers=kept)


@pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
def test_a_data_loader_has_the_batches_of_the_loader_in_every_epoch(workers, kept):
    batches = loader().data_loader(num_workers=workers, persistent_workers=kept)
    own = loader()
    for _ in range(2):
        for found, wanted in zip(batches, own, strict=True):
            assert isinstance(found, Tensors)
            assert found.ticket == wanted.ticket
            torch.testing.assert_close(dict(found), dict(wanted), rtol=0, atol=0)
    assert rows(islice(batches, 1)) == epoch(2)[:64]
    assert rows(batches) == epoch(3)
    batches.sampler.set_epoch(5)
    assert rows(batches) == epoch(5)
    assert len(batches) == len(own) == 16
    assert len(loader(drop_last=True).data_loader()) == 15


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 7, 15, 16])
def test_stateful_data_loader_resumes_bit_for_bit(workers, stop):
    first = stateful(workers)
    rows(first)
    seen = rows(islice(first, stop))
    state = first.state_dict()
    again = stateful(workers)
    again.load_state_dict(state)
    seen += rows(again) + rows(again)
    assert seen == epoch(1) + epoch(2) + (epoch(3) if stop == 16 else [])  # after all batches, the next epoch is next


def test_a_view_begins_where_the_loader_would_and_leaves_it_there():
    first = loader()
    first.skip((70, 90))
    seen = rows(islice(first, 5))
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    view = second.data_loader(num_workers=1)
    assert seen + rows(view) == [*epoch(0)[:70], *epoch(0)[90:]]
    assert rows(view) == epoch(1)
    assert second.state_dict() == state
    assert len(view.sampler) == N
    resumed = loader()
    resumed.load_state_dict(state)
    with pytest.raises(StateError, match=r"expected set_epoch\(0\).*got set_epoch\(1\)"):
        resumed.data_loader().sampler.set_epoch(1)


def test_a_view_arranges_batches_as_the_loader_does():
    options: dict[str, Any] = {"float32": True, "rename": {"a": "id"}, "device": "cpu"}
    view, own = loader(**options).data_loader(num_workers=1), loader(**options)
    for found, wanted in zip(view, own, strict=True):
        assert list(found) == list(wanted) == ["observations", "id"]
        torch.testing.assert_close(dict(found), dict(wanted), rtol=0, atol=0)


def test_pages_are_locked_for_gpus_and_copies_are_begun_a_batch_ahead():
    """The copies themselves need a device: here the calls are counted, and where a batch would go."""
    assert [loader(device=device).pin_memory for device in (None, "cpu", "cuda")] == [False, False, True]
    assert loader(device="cuda", pin=False).pin_memory is False
    begun: list[int] = []
    own = samples().loader(64, output=lambda batch: begun.append(batch.ticket.position))
    for number, _ in enumerate(own, start=1):
        assert len(begun) == min(number + 1, 16)


class Noted:
    """A function of batches that notes which threads read which samples."""

    def __init__(self) -> None:
        self.direct: list[int] = []
        self.ahead: list[int] = []

    def __call__(self, batch: Any) -> Any:
        here = threading.current_thread() is threading.main_thread()
        (self.direct if here else self.ahead).extend(batch["a"].tolist())
        return batch


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("skipped", [[], [(130, 131), (400, 555), (2100, 2190)]])
def test_threads_read_ahead_for_a_trainer_that_splits_batches(world, split, skipped):
    """As Accelerate does: each process takes whole batches in turn, or a part of each batch."""
    own = loader(60)
    for ranges in skipped:
        own.skip(ranges)
    for rank in range(world):
        noted = Noted()
        mine = samples().map(noted).loader(60, output="torch")
        for ranges in skipped:
            mine.skip(ranges)
        view = mine.data_loader()
        part = slice(60 * rank // world, 60 * (rank + 1) // world) if split else slice(None)
        for number in range(3):
            own.set_epoch(number)
            view.sampler.set_epoch(number)
            batches = list(view.batch_sampler)
            batches = batches if split else batches[rank::world]
            wanted = [batch["a"].tolist() for batch in own]
            wanted = wanted if split else wanted[rank::world]
            noted.direct.clear()
            found = [view.dataset.__getitems__(batch[part]) for batch in batches if batch[part]]
            assert [batch["a"].tolist() for batch in found] == [rows[part] for rows in wanted if rows[part]]
            assert len(noted.direct) <= (60 if number else 180)
            del found
        assert noted.ahead


def test_requests_that_cannot_be_guessed_are_read_when_they_come():
    noted = Noted()
    view = samples().map(noted).loader(64, output="torch").data_loader()
    rng = np.random.default_rng(0)
    at = 0
    for _ in range(200):  # forwards, backwards, to other epochs, of other lengths
        at = max(0, at + int(rng.choice([64, 64, 64, -64, 7, 900])))
        wanted = np.arange(at, at + int(rng.choice([64, 64, 64, 3])))
        if rng.random() < 0.1:
            wanted = wanted[::-1]
        assert view.dataset.__getitems__(wanted)["a"].tolist() == planned_samples(samples()).at(wanted)["a"].tolist()
    assert noted.ahead
    noted = Noted()  # another: threads of the first may still read ahead
    alone = samples().map(noted).loader(64, output="torch", threads=0).data_loader()
    assert rows(alone) == epoch(0)
    assert not noted.ahead


def test_an_error_of_a_sample_comes_with_its_batch_though_it_was_met_ahead():
    def picky(batch: Any) -> Any:
        if epoch(0)[300] in batch["a"]:
            raise ValueError("this sample is broken")
        return batch

    batches = iter(samples().map(picky).loader(64, output="torch").data_loader())
    assert rows(islice(batches, 4)) == epoch(0)[:256]
    with pytest.raises(ValueError, match="this sample is broken"):
        next(batches)


def test_a_forked_process_reads_on_with_threads_of_its_own():
    view = samples().loader(64, output="torch").data_loader()
    batches = iter(view)
    first = rows(islice(batches, 3))
    with multiprocessing.get_context("fork").Pool(
        1, initializer=globals().update, initargs=({"forked": batches},)
    ) as pool:
        assert pool.apply(_rest_of_forked) == epoch(0)[192:]
        pool.close()  # ends by itself: a handler of SIGTERM, as Ray's in this process, may wait forever in a fork
        pool.join()
    assert first + rows(batches) == epoch(0)


def _rest_of_forked() -> list[int]:
    return rows(globals()["forked"])


def test_samples_may_be_taken_in_any_order():
    view = loader().data_loader()
    batch = view.dataset.__getitems__([5, 3, N + 2])
    assert batch["a"].tolist() == [epoch(0)[5], epoch(0)[3], epoch(1)[2]]
    assert batch.ticket is None
    assert view.dataset[N + 2]["a"] == epoch(1)[2]
    spawned = pickle.loads(pickle.dumps(view.dataset))
    assert spawned.__getitems__([7])["a"].tolist() == [epoch(0)[7]]
    split = DataLoader(view.dataset, 10, sampler=range(N - 1, -1, -1), collate_fn=view.collate_fn)
    assert rows(split) == epoch(0)[::-1]


def test_a_dataset_of_samples_is_a_map_style_dataset_as_it_is():
    found = DataLoader(samples(), 100, shuffle=True, num_workers=2)
    assert sorted(rows(found)) == list(range(N))
    parts = torch.utils.data.random_split(samples(), [900, 100])
    assert sorted(rows(DataLoader(parts[0], 64)) + rows(DataLoader(parts[1], 64))) == list(range(N))


def test_what_trainers_look_for():
    own = loader(drop_last=True)
    assert (own.batch_size, own.drop_last, own.num_workers, own.pin_memory) == (64, True, 0, False)
    assert isinstance(own.sampler, SequentialSampler)  # nothing is left to shuffle
    assert (len(own.sampler), len(own.batch_sampler), own.batch_sampler.batch_size) == (N, 15, 64)
    own.batch_sampler.sampler.set_epoch(3)
    own.sampler.set_epoch(3)
    assert rows(own) == epoch(3)[: 15 * 64]
    assert samples().loader(penstock.transforms.Batches(5)).batch_sampler is None


@pytest.mark.parametrize("batch_size", [64, None])
def test_a_loader_in_a_data_loader_names_the_right_call(batch_size):
    with pytest.raises(ArgumentError, match=r"use the loader itself, or loader\.data_loader\(\)"):
        next(iter(DataLoader(loader(), batch_size=batch_size)))


def test_other_wrong_uses_name_the_right_call():
    data = penstock.from_arrays({"x": np.arange(5)}, [2, 3])
    with pytest.raises(ArgumentError, match=r"call steps\(\), windows\(length\) or sequences\(\) first"):
        next(iter(DataLoader(data, 2)))
    with pytest.raises(ArgumentError, match=r"save loader\.state_dict\(\)"):
        pickle.dumps(iter(loader()))
    with pytest.raises(PlanError, match=r"give the trainer loader\.data_loader\(\)"):
        next(iter(loader().batch_sampler))
    with pytest.raises(PlanError, match="share of rank 1 of 2; give the loader rank=0, world=1"):
        loader(rank=1, world=2).data_loader()
    with pytest.raises(PlanError, match="which cannot use one, got meta"):
        loader(device="meta").data_loader(num_workers=1)
    with pytest.raises(PlanError, match="which cannot use one, got meta"):
        loader(device="meta", float32=True).data_loader(num_workers=1)
    with pytest.raises(PlanError, match="use the loader itself"):
        penstock.IterDataset.of(samples(), 64).loader(output="torch").data_loader()
    for options in ({}, {"float32": True}):
        with pytest.raises(PlanError, match='output="torch"'):
            samples().loader(64, **options).data_loader()
