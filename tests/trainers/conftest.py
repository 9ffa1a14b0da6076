"""Settings of the tests that `make trainers` runs: they need frameworks that the other tests do not have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "trainers"))


def pytest_configure(config: pytest.Config) -> None:
    """Warnings of the frameworks are no errors."""
    config.addinivalue_line("filterwarnings", "ignore")
