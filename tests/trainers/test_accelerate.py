"""Accelerate splits a `DataLoader` of all samples, and leaves a loader, which is split, as it is."""

from __future__ import annotations

import itertools
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DataLoaderConfiguration
from toy import BATCH, Policy, samples

from penstock.errors import PlanError, StateError
from tests.trainers.orders import check_epochs, check_equal, global_order, joined
from tests.trainers.ranks import on_ranks, trained

N = len(samples())


def test_one_process_trains_as_the_plain_loop_does() -> None:
    plain, order = trained("plain")
    for workers in (0, 2):
        model, seen = trained("accelerated", num_workers=workers)
        assert seen == order
        check_equal(model, plain)


WAYS = list(itertools.product([None, False, True], [False, True]))


def every_way(folder: Path, episodes: int) -> list[tuple[Any, Any, Any]]:
    """Runs that were not stopped, stopped in the second epoch, and resumed, for each way to split batches."""
    runs: list[tuple[Any, Any, Any]] = []
    for dispatch, split in WAYS:
        run = partial(trained, "accelerated", dispatch_batches=dispatch, split_batches=split, episodes=episodes)
        whole = run()
        checkpoint = folder / f"{dispatch} {split}"
        stopped = run(checkpoint=checkpoint, stop=len(whole[1]) // 2 + 3)
        runs.append((whole, stopped, run(checkpoint=checkpoint)))
    return runs


@pytest.mark.parametrize("episodes", [21, 22])
def test_each_way_to_split_has_each_sample_and_resumes_bit_for_bit(tmp_path: Path, episodes: int) -> None:
    """`even_batches` repeats samples from the start of an epoch at its end."""
    wanted = plain_epochs(episodes)
    n = len(wanted[0])
    for (dispatch, _), *ranks in zip(WAYS, *on_ranks(2, every_way, tmp_path, episodes), strict=True):
        steps = len(ranks[0][0][1]) // 2
        for e in range(2):
            order = global_order([whole[1][e * steps : (e + 1) * steps] for whole, _, _ in ranks])
            assert set(order) == set(range(n))
            assert order[: n // BATCH * BATCH] == wanted[e][: n // BATCH * BATCH]  # the order of the dataset
            assert len(order) - n < 2 * BATCH
        for (model, seen), (_, first), (resumed, rest) in ranks:
            if dispatch and n % 2:  # the last batch is completed with a sample of the first batch after skipping
                assert (first + rest)[:-1] == seen[:-1]
                assert (first + rest)[-1][:-1] == seen[-1][:-1]
            else:
                assert first + rest == seen
                check_equal(model, resumed)


def restarted(kept: bool, workers: int) -> list[list[list[int]]]:
    """Three epochs of a prepared loader whose worker processes are started for each, or kept."""
    loader = samples().loader(BATCH, output="torch", rank=0, world=1)
    prepared = Accelerator(cpu=True).prepare(loader.data_loader(num_workers=workers, persistent_workers=kept))
    return [[batch["id"].tolist() for batch in prepared] for _ in range(3)]


def test_worker_processes_that_restart_on_two_ranks_change_nothing() -> None:
    wanted = on_ranks(2, restarted, False, 0)
    assert len({str(epoch) for epoch in wanted[0]}) == 3
    for kept in (False, True):
        assert on_ranks(2, restarted, kept, 2) == wanted


def plain_epochs(episodes: int) -> list[list[int]]:
    loader = samples(episodes).loader(BATCH)
    return [[sample for batch in loader for sample in batch["id"].tolist()] for _ in range(2)]


def once(use: str) -> Any:
    """Two epochs of a prepared loader, without repeated samples."""
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    share = samples().loader(BATCH, output="torch", device=accelerator.device)
    if use == "split":
        with pytest.raises(PlanError, match=r"give the loader rank=0, world=1, or use it without data_loader\(\)"):
            share.data_loader()
        with pytest.raises(PlanError, match=r"give the trainer loader\.data_loader\(\), or continue"):
            list(accelerator.skip_first_batches(share, 3))
        prepared = accelerator.prepare(share)
        accelerator.register_for_checkpointing(share)
    else:
        prepared = accelerator.prepare(samples().loader(BATCH, output="torch", rank=0, world=1).data_loader())
    return [[batch["id"].tolist() for batch in prepared] for _ in range(2)]


@pytest.mark.parametrize("use", ["split", "view"])
def test_no_sample_is_lost_or_repeated_without_even_batches(use: str) -> None:
    ranks = on_ranks(2, once, use)
    for epoch in range(2):
        assert sorted(x for seen in ranks for batch in seen[epoch] for x in batch) == list(range(N))
    if use == "split":
        check_epochs(global_order([joined(seen) for seen in ranks]), N)


def test_a_loader_is_saved_and_loaded_with_the_state(tmp_path: Path) -> None:
    order = trained("plain")[1]
    seen = []
    for _ in range(2):
        accelerator = Accelerator(cpu=True)
        loader = accelerator.prepare(samples().loader(BATCH, output="torch", device=accelerator.device))
        accelerator.register_for_checkpointing(loader)
        if seen:
            accelerator.load_state(str(tmp_path))
        seen += [batch["id"].tolist() for batch in (loader if seen else islice(loader, 7))]
        accelerator.save_state(str(tmp_path))
    assert seen == order[:17]


def stateful(folder: Path, stop: int, workers: int) -> list[tuple[list[list[int]], list[list[int]]]]:
    """Batches of a run that was not stopped, and of one that was resumed by the state of its loader alone."""
    runs: list[tuple[list[list[int]], list[list[int]]]] = []
    for dispatch, split in WAYS:
        if dispatch and PartialState().num_processes > 1:
            continue  # Accelerate 1.15 saves the states of all processes into one file, and only one of them has read
        config = DataLoaderConfiguration(use_stateful_dataloader=True, dispatch_batches=dispatch, split_batches=split)

        def prepared(config: Any = config) -> tuple[Accelerator, Any]:
            accelerator = Accelerator(cpu=True, dataloader_config=config)
            loader = samples(22).loader(BATCH, output="torch", rank=0, world=1).data_loader(num_workers=workers)
            return accelerator, accelerator.prepare(loader)

        _, loader = prepared()
        whole = [batch["id"].tolist() for _ in range(2) for batch in loader]
        epoch = stop // (len(whole) // 2)
        accelerator, loader = prepared()
        seen: list[list[int]] = []
        for batch in (batch for _ in range(2) for batch in loader):
            seen.append(batch["id"].tolist())
            if len(seen) == stop:
                accelerator.save_state(str(folder / f"{dispatch} {split}"))
                break
        accelerator, loader = prepared()
        accelerator.load_state(str(folder / f"{dispatch} {split}"))
        loader.set_epoch(epoch)  # Accelerate 1.15 counts epochs from 0 in a new process
        seen += [batch["id"].tolist() for _ in range(epoch, 2) for batch in loader]
        runs.append((whole, seen))
    return runs


@pytest.mark.parametrize(("world", "stop", "workers"), [(1, 4, 1), (1, 21, 0), (2, 4, 0), (2, 13, 1)])
def test_a_stateful_data_loader_is_saved_and_loaded_with_the_state(
    tmp_path: Path, world: int, stop: int, workers: int
) -> None:
    for rank in on_ranks(world, stateful, tmp_path, stop, workers):
        assert len(rank) == (len(WAYS) if world == 1 else 4)
        for whole, seen in rank:
            assert seen == whole


def test_an_epoch_that_accelerate_counts_from_0_does_not_replace_a_loaded_one() -> None:
    first = samples().loader(BATCH, output="torch")
    list(first)
    next(iter(first))
    second = samples().loader(BATCH, output="torch")
    second.load_state_dict(first.state_dict())
    prepared = Accelerator(cpu=True).prepare(second.data_loader())
    with pytest.raises(StateError, match=r"set_epoch\(1\) of the DataLoader that Accelerate prepared"):
        next(iter(prepared))
    prepared.set_epoch(1)
    assert [batch["id"].tolist() for batch in prepared] == trained("plain")[1][18:]


def test_the_last_accumulated_gradients_of_an_epoch_are_used() -> None:
    """17 batches are 5 updates of 4 batches or less."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = Policy()
    prepared = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.1), samples().loader(BATCH, output="torch").data_loader()
    )
    updates = 0
    for batch in prepared[2]:
        with accelerator.accumulate(prepared[0]):
            accelerator.backward(prepared[0](**batch)["loss"])
            prepared[1].step()
            updates += accelerator.sync_gradients
            prepared[1].zero_grad()
    assert updates == 5
