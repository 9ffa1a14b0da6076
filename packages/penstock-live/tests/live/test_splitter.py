"""The same split in every process, for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from live.files import Opener, named, write
from penstock.errors import PlanError
from penstock_live.splitter import ChunkSourceSplitter

GOLDEN = [*map(int, "1110220000010000002000202000100000020000")]


def test_parts_are_those_they_have_always_been() -> None:
    assert ChunkSourceSplitter([7, 2, 1]).parts("training.tar", 40).tolist() == GOLDEN


def test_another_process_splits_alike() -> None:
    code = "from penstock_live.splitter import ChunkSourceSplitter as S"
    code += "; print(S([7, 2, 1]).parts('training.tar', 40).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(GOLDEN)


def test_weights_are_kept_salts_differ_and_a_part_keeps_its_chunks_where_others_are_split() -> None:
    parts = ChunkSourceSplitter([9, 1]).parts("k", 20_000)
    assert abs(int((parts == 1).sum()) - 2000) < 200
    other = ChunkSourceSplitter([9, 1], salt="x").parts("k", 20_000)
    assert (parts != other).any()
    finer = ChunkSourceSplitter([9, "1/2", "1/2"]).parts("k", 20_000)
    np.testing.assert_array_equal(parts == 0, finer == 0)


def test_views_share_out_the_chunks_of_a_source(tmp_path: Path) -> None:
    path, splitter = write(tmp_path / "a.chk", range(40)), ChunkSourceSplitter([1, 1])
    views = [splitter.opener(Opener(), part)(path) for part in range(2)]
    games = [[named(view.load(i))[0][0] for i in range(len(view))] for view in views if view is not None]
    assert sorted(games[0] + games[1]) == list(range(40))
    assert all(games)
    assert all(view.key == "a.chk" for view in views if view is not None)


def test_bad_weights_and_parts_are_refused() -> None:
    with pytest.raises(PlanError):
        ChunkSourceSplitter([0, 0])
    with pytest.raises(PlanError, match="a part within 0:2"):
        ChunkSourceSplitter([1, 1]).opener(Opener(), 2)
