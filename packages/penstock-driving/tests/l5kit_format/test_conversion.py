"""Logs as the target of conversions: begun anew, gone on with after a kill, and nothing else deleted."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import penstock
from l5kit_format.conftest import GOLDEN
from penstock.errors import DataError, StateError
from penstock_driving.formats.l5kit import L5KitSource, concat
from tests.conversion.killed import Conversions

LAYOUTS: list[dict[str, Any]] = [{"compressor": "zlib", "chunk_rows": 9000}, {"layout": "npy"}]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "four.zarr"
    concat([GOLDEN / "single.zarr"] * 4, path)
    return path


@pytest.fixture(scope="module")
def conversions() -> Generator[Conversions]:
    conversions = Conversions()
    yield conversions
    conversions.close()


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
def test_killed_anywhere(log: Path, conversions: Conversions, tmp_path: Path, options: dict[str, Any]) -> None:
    rng = random.Random(repr(options))
    calls = conversions.convert(log, tmp_path / "whole", "l5kit", options)
    out, places = tmp_path / "out", (rng.randrange(1, 6), rng.randrange(1, calls + 1), rng.randrange(1, calls + 1))
    assert 0 in [conversions.convert(log, out, "l5kit", options, at) for at in places]
    assert penstock.convert(log, out, format="l5kit", options=options).episodes == 4
    same(log, out)
