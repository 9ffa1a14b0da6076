"""Settings of the tests that `make trainers` runs: they need frameworks that the other tests do not have."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "trainers"))

# torchrl 0.14.1 is compiled for another PyTorch than 2.13, and lacks a function that no sampler of it calls: functions
# are looked for when they are called, or its prioritized sampler would be missing.
sys.setdlopenflags(os.RTLD_LAZY)


def pytest_configure(config: pytest.Config) -> None:
    """Warnings of the frameworks are no errors."""
    config.addinivalue_line("filterwarnings", "ignore")
