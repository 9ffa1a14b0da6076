"""`Trainer` of Transformers splits, counts and skips batches itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import hf_trainer
import pytest
import torch
from toy import BATCH, Policy, samples
from transformers import TrainingArguments

from tests.trainers.orders import check_epochs, check_equal, global_order, joined
from tests.trainers.ranks import on_two_ranks, trained

N = len(samples())


def test_one_process_trains_as_the_plain_loop_does(tmp_path: Path) -> None:
    plain, order = trained("plain")
    model, seen = trained("hf_trainer", tmp_path)
    assert seen == order
    check_equal(model, plain)


@pytest.mark.parametrize(("steps", "accumulated"), [(5, 1), (9, 1), (13, 1), (3, 2), (7, 2)])
def test_two_processes_have_each_sample_and_resume_bit_for_bit(tmp_path: Path, steps: int, accumulated: int) -> None:
    """9 batches are an epoch of two processes, or 5 updates of 2 batches, of which the last has one."""
    train = partial(on_two_ranks, "hf_trainer", tmp_path, gradient_accumulation_steps=accumulated)
    whole = train(save_steps=steps)
    order = global_order([seen for _, seen in whole])
    epochs = order[: len(order) // 2], order[len(order) // 2 :]
    assert [set(epoch) for epoch in epochs] == [set(range(N))] * 2
    assert epochs[0] != epochs[1]
    assert epochs[0][:N] == joined(trained("plain")[1])[:N]
    for checkpoint in tmp_path.glob("checkpoint-*"):
        if checkpoint.name != f"checkpoint-{steps}":
            checkpoint.rename(tmp_path / f"later {checkpoint.name}")
    after = train(resume=True, save_strategy="no")
    epoch, within = divmod(steps, -(-9 // accumulated))
    for (model, seen), (resumed, rest) in zip(whole, after, strict=True):
        assert rest == seen[9 * epoch + accumulated * within :]
        check_equal(model, resumed)


def test_a_dataset_of_samples_is_a_train_dataset(tmp_path: Path) -> None:
    """The order is that of `Trainer`'s own sampler."""
    torch.manual_seed(0)
    arguments = TrainingArguments(
        str(tmp_path), per_device_train_batch_size=BATCH, num_train_epochs=2, remove_unused_columns=False,
        use_cpu=True, report_to="none", disable_tqdm=True, dataloader_num_workers=1,
    )  # fmt: skip
    trainer = hf_trainer.Recorded(Policy(), arguments, train_dataset=samples())
    trainer.train()
    check_epochs(joined(trainer.seen), N)
