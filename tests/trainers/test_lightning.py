"""Lightning takes a loader as it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lightning_fit
import numpy as np
import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from toy import samples

from tests.trainers.orders import check_epochs, check_equal, global_order
from tests.trainers.ranks import on_ranks, trained


def fit(*args: Any, **options: Any) -> tuple[dict[str, Any], list[list[int]], list[list[int]]]:
    _, module = lightning_fit.train(*args, **options)
    return {k: v.numpy().copy() for k, v in module.policy.state_dict().items()}, module.seen, module.validated


def test_fit_is_the_plain_loop() -> None:
    plain, order = trained("plain")
    model, seen, validated = fit(num_sanity_val_steps=0)
    assert seen == order
    check_equal(model, plain)
    check_epochs([x for batch in validated for x in batch], len(samples(4)))


def test_limits_validation_and_overfitting_begin_each_epoch_at_its_start() -> None:
    _, order = trained("plain")
    _, seen, _ = fit(limit_train_batches=5, num_sanity_val_steps=2)
    assert seen == order[:5] + order[17:22]
    _, seen, validated = fit(val_check_interval=6, num_sanity_val_steps=0)
    assert seen == order
    held_out = len(samples(4))
    times = np.array([x for batch in validated for x in batch]).reshape(4, held_out)
    assert np.sort(times).tolist() == [list(range(held_out))] * 4
    _, seen, _ = fit(overfit_batches=3)
    assert [len(seen), seen[:3]] == [6, order[:3]]


@pytest.mark.parametrize("step", [7, 17, 24])  # 17 is the last batch of the first epoch
@pytest.mark.parametrize("limit", [{"max_epochs": 3}, {"max_steps": 40, "max_epochs": -1}])
def test_fit_resumes_from_a_checkpoint_bit_for_bit(tmp_path: Path, step: int, limit: dict[str, int]) -> None:
    saving = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=step, save_top_k=-1)
    model, seen, _ = fit(**limit, enable_checkpointing=True, callbacks=[saving])
    resumed, rest, _ = fit(**limit, checkpoint=tmp_path / f"step={step}.ckpt")
    assert rest == seen[step:]
    check_equal(model, resumed)


def test_an_epoch_that_ended_is_not_repeated(tmp_path: Path) -> None:
    """Lightning saves the state of the loader at the end of an epoch and does not load it: it sets the epoch."""
    saving = ModelCheckpoint(tmp_path, "{epoch}", every_n_epochs=1, save_top_k=-1, save_on_train_epoch_end=True)
    model, seen, _ = fit(epochs=3, enable_checkpointing=True, callbacks=[saving])
    resumed, rest, _ = fit(epochs=3, checkpoint=tmp_path / "epoch=1.ckpt")
    assert rest == seen[34:]
    check_equal(model, resumed)


def test_ranks_share_the_batches_and_resume_bit_for_bit(tmp_path: Path) -> None:
    plain, order = trained("plain")
    on = {"devices": 2, "strategy": "ddp", "num_sanity_val_steps": 0}
    saving = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=21, save_top_k=-1)
    whole = on_ranks(2, partial(fit, enable_checkpointing=True, callbacks=[saving], **on))
    assert global_order([seen for _, seen, _ in whole]) == [x for batch in order for x in batch]
    check_equal(plain, whole[0][0], exact=False)
    resumed = on_ranks(2, partial(fit, checkpoint=tmp_path / "step=21.ckpt", **on))
    for (model, seen, _), (again, rest, _) in zip(whole, resumed, strict=True):
        assert rest == seen[21:]
        check_equal(model, again)
