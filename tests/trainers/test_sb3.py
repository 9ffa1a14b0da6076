"""The programs of Stable-Baselines3, in small form."""

from __future__ import annotations

import pytest
import sb3_replay
import torch


@pytest.mark.parametrize("name", sb3_replay.PROGRAMS)
def test_both_buffers_learn_the_same(name: str) -> None:
    (theirs, one), (ours, other) = (sb3_replay.train(name, ours, steps=400) for ours in (False, True))
    assert theirs == ours
    assert len(theirs) > 1
    for (path, x), (_, y) in zip(one.policy.state_dict().items(), other.policy.state_dict().items(), strict=True):
        assert torch.equal(x, y), path
