"""Reports from the field about damaged and compressed games of Leela."""

# pyright: basic

from __future__ import annotations

import bz2
import gzip
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import penstock
from lc0.conftest import GOLDEN
from penstock.errors import DamageWarning, FormatError
from penstock_chess.formats.lc0 import FRAME, open_chunks, packed_chunk
from tests.reports.reported import report

GAME = GOLDEN / "gz/training.700001.gz"


@report("leela-zero/leela-zero#167", "damaged games of one client do not end the reading of all others")
@report("leela-zero/leela-zero#1303", "a damaged game is left out with a warning that names it")
@pytest.mark.parametrize("sorts", ["first", "last"])
def test_damaged_games_are_left_out_by_name(sorts: str, tmp_path: Path) -> None:
    name = f"training.{0 if sorts == 'first' else 9}.gz"
    for i in (1, 2, 3):
        shutil.copy(GAME, tmp_path / f"training.{i}.gz")
    for damage in (b"", GAME.read_bytes()[:100], gzip.compress(b"\x09" + gzip.decompress(GAME.read_bytes())[1:])):
        (tmp_path / name).write_bytes(damage)
        with pytest.warns(DamageWarning, match=name):
            assert len(penstock.open(tmp_path)) == 3
        assert not penstock.check(tmp_path, progress=False).sound


@report("glinscott/leela-chess#471", "policies of NaN, which end a training, are found by the check")
def test_policies_of_nan_are_found(tmp_path: Path) -> None:
    file = open_chunks(str(GAME))
    assert file is not None
    frames = file.load(0)
    policy = frames.view(FRAME)[:, 0]["probabilities"]
    policy[5, policy[5] >= 0] = np.nan
    (tmp_path / "training.1.gz").write_bytes(packed_chunk(frames))
    checked = penstock.check(tmp_path, deep=True, progress=False)
    (finding,) = [finding for finding in checked.findings if finding.name == "nan"]
    assert finding.message.startswith("probabilities")
    assert finding.message.endswith("first frame 5")


@report("LeelaChessZero/lczero-training#135", "a tar.gz of games is read as games or refused, never as other samples")
@report("LeelaChessZero/lczero-training#26", "games that were packed again with bzip2 are refused by name")
@pytest.mark.parametrize("mode", ["gz", "bz2"])
def test_archives_that_are_compressed_as_a_whole(mode: str, tmp_path: Path) -> None:
    path = tmp_path / f"games.tar.{mode}"
    with tarfile.open(tmp_path / "games.tar", "w") as archive:
        archive.add(GAME, "training.0")
        archive.add(GAME, "training.1")
    compress = {"gz": gzip.compress, "bz2": bz2.compress}[mode]
    path.write_bytes(compress((tmp_path / "games.tar").read_bytes()))
    (tmp_path / "games.tar").unlink()
    for place in (path, tmp_path):
        with pytest.raises(FormatError, match=f"compressed as a whole.*{path.name}"):
            penstock.open(place)
