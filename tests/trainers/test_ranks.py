"""DDP, FSDP2, and loops in the form of torchtitan's and nanoGPT's, on two ranks that gloo connects."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from titan import tokens
from toy import samples

from tests.trainers.orders import check_epochs, check_equal, global_order, joined
from tests.trainers.ranks import on_two_ranks, trained


@functools.cache
def not_stopped(module: str) -> list[tuple[dict[str, Any], list[list[int]]]]:
    """The model and the samples of each rank."""
    return on_two_ranks(module)


@pytest.mark.parametrize("module", ["ddp", "fsdp"])
@pytest.mark.parametrize("stop", [5, 17, 20])  # in the first epoch, at its end, in the second
def test_ranks_train_as_one_process_does_and_resume_bit_for_bit(tmp_path: Path, module: str, stop: int) -> None:
    """The last batch of an epoch has 5 samples, so the ranks have unequal shares."""
    plain, order = trained("plain")
    whole = not_stopped(module)
    check_epochs(global_order([seen for _, seen in whole]), len(samples()))
    assert global_order([seen for _, seen in whole]) == joined(order)
    check_equal(plain, whole[0][0], exact=False)
    before = on_two_ranks(module, checkpoint=tmp_path / "run", stop=stop)
    after = on_two_ranks(module, checkpoint=tmp_path / "run")
    for (model, seen), (_, first), (resumed, rest) in zip(whole, before, after, strict=True):
        assert first + rest == seen
        check_equal(model, resumed)


@pytest.mark.parametrize("module", ["titan", "nanogpt"])
def test_endless_loops_have_one_epoch_after_another(tmp_path: Path, module: str) -> None:
    n = len(tokens()) if module == "nanogpt" else len(tokens()) // 8 * 8  # all samples, or batches without the last
    whole = on_two_ranks(module, 24)
    order = global_order([seen for _, seen in whole])
    assert len(order) > 2 * n
    assert len(set(order[:n])) == len(set(order[n : 2 * n])) == n
    assert order[:n] != order[n : 2 * n]
    before = on_two_ranks(module, 24, checkpoint=tmp_path / "run", stop=11)
    after = on_two_ranks(module, 24, checkpoint=tmp_path / "run")
    for (model, seen), (_, first), (resumed, rest) in zip(whole, before, after, strict=True):
        assert first + rest == seen
        check_equal(model, resumed)
