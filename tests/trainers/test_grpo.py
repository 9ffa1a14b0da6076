"""The toy of GRPO learns to call its tool. It needs PyTorch alone, and takes too long for the other tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch


def test_the_policy_learns_to_ask_the_tool() -> None:
    torch.set_num_threads(1)
    script = runpy.run_path(str(Path(__file__).parents[2] / "examples/grpo.py"))
    curve, _ = script["train"](24)
    (_, before, _), (_, after, _) = curve[0], curve[-1]
    assert before < 0.3  # at first, any of 14 tokens
    assert after > 0.7
