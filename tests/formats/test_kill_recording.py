"""The benchmark that kills recordings, with few kills, and proof that it would notice a loss."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.formats.columns import FORMAT

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kill_recording.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("kill_recording", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(SCRIPT.parent))  # for its own import of figures
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module


@pytest.mark.parametrize("name", ["columns", "minari"])
def test_nothing_that_was_saved_is_lost(
    script: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / ".cache"))
    tally = script.run(name, tmp_path, 4, seed=1)
    assert tally.sound
    assert tally.kills == 4
    assert tally.reported > 4


def test_a_loss_would_be_noticed(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = FORMAT.open

    def forgetful(path: Path) -> Any:
        with open(path / "episodes", "r+b") as file:
            file.truncate(48)
        return real(path)

    monkeypatch.setattr(FORMAT, "open", forgetful)
    tally = script.run("columns", tmp_path, 2, seed=1)
    assert not tally.sound
    assert tally.lost == tally.reported
