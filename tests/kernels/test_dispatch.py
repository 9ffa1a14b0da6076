from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.errors import PenstockError
from penstock.kernels import compiled, reference
from penstock.kernels.dispatch import kernels


def test_the_environment_chooses(backend: str) -> None:
    assert kernels() is {"compiled": compiled, "reference": reference}[backend]


def test_another_word_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KERNELS", "fast")
    kernels.cache_clear()
    with pytest.raises(PenstockError, match="'compiled' or 'reference', got 'fast'"):
        kernels()
    monkeypatch.undo()
    kernels.cache_clear()


def test_plans_and_kernels_import_without_numba() -> None:
    code = "import penstock.plan, penstock.kernels.tiles, sys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
