"""`OpenSource`: checks its file after each read, and knows the chunks of its parts."""

# pyright: basic

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from live.files import Games, frames_of, named, write
from penstock_live.account import SourceGone
from penstock_live.journal import Arrival
from penstock_live.open_source import OpenSource
from penstock_live.source_chunks import EpisodeInlet
from penstock_live.splitter import ChunkSourceSplitter, SplitPart


def opened(path: Path, check: Any) -> OpenSource:
    return OpenSource(Arrival(path.name, path.name, 3), Games(path), path, check)


def test_a_file_is_checked_when_its_size_or_time_is_new(tmp_path: Path) -> None:
    path, seen = write(tmp_path / "a.chk", [1, 2, 3]), list[int]()
    source = opened(path, lambda stat: seen.append(stat.st_mtime_ns))
    for _ in range(3):
        assert named(source.load(1)) == frames_of([2])
    source.load_some([0, 2], lambda k, n: np.array([0]))
    assert seen == [1000 * 10**9]
    os.utime(path, (2000, 2000))
    source.load(0)
    assert seen == [1000 * 10**9, 2000 * 10**9]


@pytest.mark.parametrize("way", ["load", "load_some"])
def test_frames_of_a_file_that_changed_while_it_was_read_are_not_returned(tmp_path: Path, way: str) -> None:
    path = write(tmp_path / "a.chk", [1, 2, 3])

    def gone(stat: os.stat_result) -> None:
        raise SourceGone("expected a file as it was before, got one that changed", path=path)

    source = opened(path, gone)
    with pytest.raises(SourceGone, match="one that changed"):
        source.load(0) if way == "load" else source.load_some([0], lambda k, n: np.array([0]))


def test_a_pipe_in_place_of_the_file_is_not_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "a.chk", [1, 2, 3])
    source = opened(path, lambda _: None)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SourceGone, match="something else"):
        source.load(0)


@pytest.mark.parametrize("weights", [[1, 1], [5, 2, 1]])
def test_each_chunk_is_in_one_part(tmp_path: Path, weights: list[int]) -> None:
    source = opened(write(tmp_path / "a.chk", range(40)), lambda _: None)
    splitter = ChunkSourceSplitter(weights)
    inlet: Any = EpisodeInlet.__new__(EpisodeInlet)
    parts = [SplitPart(inlet, splitter, i) for i in range(len(weights))]
    found = [source.chunks(part) for part in parts]
    assert sorted(np.concatenate([chunks for chunks in found if chunks is not None]).tolist()) == list(range(40))
    assert [source.count(part) for part in parts] == [len(chunks) for chunks in found if chunks is not None]
    assert (source.count(None), source.chunks(None), source.lost(None)) == (40, None, 0)
