"""Logs as the target of conversions: begun anew, gone on with after a kill, and nothing else deleted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from l5kit_format.conftest import GOLDEN
from penstock.errors import DataError, StateError
from penstock_driving.formats.l5kit import L5KitSource, concat
from tests.conversion.test_kill import CONVERT

LAYOUTS: list[dict[str, Any]] = [{"compressor": "zlib", "chunk_rows": 9000}, {"layout": "npy"}]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "four.zarr"
    concat([GOLDEN / "single.zarr"] * 4, path)
    return path


def same(log: Path, out: Path) -> None:
    with L5KitSource(log) as left, L5KitSource(out) as right:
        for name in ("scenes", "frames", "agents", "tl_faces"):
            assert getattr(left, name)[:].tobytes() == getattr(right, name)[:].tobytes(), name


@pytest.mark.parametrize("options", LAYOUTS)
def test_again_and_anew(log: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    out = tmp_path / "out"
    assert penstock.convert(log, out, format="l5kit", options=options).status == "converted"
    assert penstock.convert(log, out, format="l5kit", options=options).status == "complete"
    other = LAYOUTS[options == LAYOUTS[0]]
    with pytest.raises(StateError, match="other options"):
        penstock.convert(log, out, format="l5kit", options=other)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"notes\.txt"):
        penstock.convert(log, out, format="l5kit", options=other, overwrite=True)
    (out / "notes.txt").unlink()
    assert penstock.convert(log, out, format="l5kit", options=other, overwrite=True).status == "converted"
    same(log, out)
    with pytest.raises(DataError, match="chunk_rows"):
        penstock.convert(log, tmp_path / "new", format="l5kit", options={"chunks": 3})


@pytest.mark.parametrize("options", LAYOUTS)
def test_killed_anywhere(log: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    rng = random.Random(repr(options))

    def run(out: Path, at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CONVERT, str(log), str(out), "l5kit", repr(options), str(at)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    whole = run(tmp_path / "whole", -1)
    assert whole.returncode == 0, whole.stderr
    calls = -1 - int(whole.stdout)
    out, kills = tmp_path / "out", 0
    for at in (rng.randrange(1, 6), rng.randrange(1, calls + 1), rng.randrange(1, calls + 1)):
        done = run(out, at)
        kills += done.returncode == -signal.SIGKILL
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert kills
    assert penstock.convert(log, out, format="l5kit", options=options).episodes == 4
    same(log, out)
