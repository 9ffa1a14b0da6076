"""A plain loop, which the programs of frameworks are compared with."""

from __future__ import annotations

from pathlib import Path

import plain
import pytest
import torch
from toy import BATCH, samples


@pytest.mark.parametrize("stop", [3, 20])
def test_a_plain_loop_has_each_sample_once_and_resumes_bit_for_bit(tmp_path: Path, stop: int) -> None:
    model, seen = plain.train()
    n = len(samples())
    epochs = [x for batch in seen for x in batch]
    assert sorted(epochs[:n]) == sorted(epochs[n:]) == list(range(n))
    assert epochs[:n] != epochs[n:]
    _, before = plain.train(checkpoint=tmp_path / "run.pt", stop=stop)
    resumed, after = plain.train(checkpoint=tmp_path / "run.pt")
    assert before + after == seen
    assert len(seen) == 2 * -(-n // BATCH)
    for name, value in model.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name])
