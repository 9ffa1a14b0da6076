"""Accelerate splits a `DataLoader` of all samples, and leaves a loader, which is split, as it is."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from toy import BATCH, Policy, samples

from penstock.errors import PlanError, StateError
from tests.trainers.orders import check_epochs, check_equal, global_order, joined
from tests.trainers.ranks import on_ranks, on_two_ranks, trained

N = len(samples())


def test_one_process_trains_as_the_plain_loop_does() -> None:
    plain, order = trained("plain")
    for workers in (0, 2):
        model, seen = trained("accelerated", workers=workers)
        assert seen == order
        check_equal(model, plain)


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_each_way_to_split_has_each_sample_and_resumes_bit_for_bit(tmp_path: Path, dispatch: bool, split: bool) -> None:
    """`even_batches` repeats samples from the start of an epoch at its end."""
    options = {"dispatch_batches": dispatch, "split_batches": split}
    whole = on_two_ranks("accelerated", **options)
    steps = len(whole[0][1]) // 2
    epochs = [global_order([seen[e * steps : (e + 1) * steps] for _, seen in whole]) for e in range(2)]
    for epoch, wanted in zip(epochs, plain_epochs(), strict=True):
        assert set(epoch) == set(range(N))
        assert epoch[:96] == wanted[:96]  # the order of the dataset
        assert len(epoch) - N < 2 * BATCH
    assert epochs[0] != epochs[1]
    if dispatch:  # Accelerate 1.15 skips batches of one process then, and completes the last batch with other samples
        return
    before = on_two_ranks("accelerated", checkpoint=tmp_path / "run", stop=steps + 3, **options)
    after = on_two_ranks("accelerated", checkpoint=tmp_path / "run", **options)
    for (model, seen), (_, first), (resumed, rest) in zip(whole, before, after, strict=True):
        assert first + rest == seen
        check_equal(model, resumed)


def plain_epochs() -> list[list[int]]:
    order = joined(trained("plain")[1])
    return [order[:N], order[N:]]


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


@pytest.mark.parametrize("stop", [4, 21])
def test_a_stateful_data_loader_is_saved_and_loaded_with_the_state(tmp_path: Path, stop: int) -> None:
    """Accelerate 1.15 counts epochs from 0 in a new process, so the program says which one it is in."""
    order = trained("plain")[1]
    epoch = stop // 17
    seen: list[list[int]] = []
    for resumed in (False, True):
        stateful = DataLoaderConfiguration(use_stateful_dataloader=True)
        accelerator = Accelerator(cpu=True, dataloader_config=stateful)
        loader = accelerator.prepare(samples().loader(BATCH, output="torch").data_loader(num_workers=1))
        if resumed:
            accelerator.load_state(str(tmp_path))
            loader.set_epoch(epoch)
        for batch in loader if resumed else (batch for _ in range(2) for batch in loader):
            seen.append(batch["id"].tolist())
            if len(seen) == stop and not resumed:
                accelerator.save_state(str(tmp_path))
                break
    assert seen == order[: 17 * (epoch + 1)]


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
