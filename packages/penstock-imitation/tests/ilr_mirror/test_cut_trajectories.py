"""Trajectories that archives cut: one rule for plans and for frames one by one, and joining on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, FormatError
from penstock.formats.webdataset.source import ShardSource
from penstock_imitation.il_representations import (
    IdentityPairConstructor,
    ILRDataset,
    SubdatasetExtractor,
    TemporalOffsetPairConstructor,
    write_frames,
)

CONSTRUCTORS = [IdentityPairConstructor(), *(TemporalOffsetPairConstructor("dynamics", k) for k in (1, 2, 3))]


def frame(t: int, *, done: bool = False, after: int | None = None) -> dict[str, Any]:
    """A frame of dict observations that say their time."""
    obs, later = ({"x": np.full(3, u, np.float32), "y": np.array([u])} for u in (t, t + 1 if after is None else after))
    return {"obs": obs, "next_obs": later, "acts": t, "dones": done}


def plain(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**f, "obs": f["obs"]["x"], "next_obs": f["next_obs"]["x"]} for f in frames]


@pytest.fixture
def archives(tmp_path: Path) -> list[Path]:
    """Trajectories 0-4 and 5-8 are cut, the second with a frame missing; 20-22 ends in the middle of the third."""
    parts = [
        [frame(t) for t in (0, 1, 2)],
        [frame(3), frame(4, done=True), frame(5)],
        [frame(7), frame(8, done=True), *(frame(t, done=t == 22) for t in (20, 21, 22)), frame(30)],
    ]
    paths = [tmp_path / f"{i}.tar" for i in range(3)]
    for path, frames in zip(paths, parts, strict=True):
        write_frames(path, {}, plain(frames))
    return paths


def actions(pairs: Any) -> list[tuple[list[int], float]]:
    return [(pair["traj_ts_ids"], float(pair["target"].ravel()[0])) for pair in pairs]


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_plans_and_frames_make_the_same_pairs(archives: list[Path], constructor: Any, join: bool) -> None:
    dataset = ILRDataset(archives, join=join)
    planned = actions(dataset.pipe(constructor))
    assert actions(constructor(iter(dataset))) == planned
    assert actions(dataset.pipe(lambda frames: frames).pipe(constructor)) == planned
    if constructor == TemporalOffsetPairConstructor("dynamics", 1):
        told = [[0, 1, 2, 3, 4], [5], [7, 8]] if join else [[0, 1, 2], [3, 4], [5], [7, 8]]
        told += [[20, 21, 22], [30]]
        assert planned == [([i, t], float(x)) for i, xs in enumerate(told) for t, x in enumerate(xs[1:], 1)]


@pytest.mark.parametrize("join", [False, True])
@pytest.mark.parametrize("n", range(1, 6))
def test_extractors_count_the_same_trajectories(archives: list[Path], n: int, join: bool) -> None:
    dataset = ILRDataset(archives, join=join)
    extractor = SubdatasetExtractor(n_trajs=n)
    planned = [f["acts"] for f in dataset.pipe(extractor)]
    assert [f["acts"] for f in extractor(iter(dataset))] == planned


def test_a_joined_episode_has_its_observations_once(archives: list[Path]) -> None:
    with ShardSource(archives[0].parent, join=True) as source:
        assert np.diff(source.offsets).tolist() == [5, 1, 2, 3, 1]
        first, second, *_ = source.episodes()
        np.testing.assert_array_equal(first.observations[:, 0], np.arange(6))
        assert first.terminations.tolist() == [False] * 4 + [True]
        assert second.truncations.tolist() == [True]
        np.testing.assert_array_equal(second.observations[:, 0], [5, 6])


def test_dict_observations_are_joined_where_all_are_equal(tmp_path: Path) -> None:
    for i, first in enumerate((0, 2, 4)):
        frames = [frame(first), frame(first + 1, done=first == 4)]
        if i == 1:
            frames[1]["next_obs"]["y"] = np.array([9])
        write_frames(tmp_path / f"{i}.tar", {}, frames)
    with ShardSource(tmp_path, join=True) as source:
        assert np.diff(source.offsets).tolist() == [4, 2]


def test_joining_needs_the_next_observations(tmp_path: Path) -> None:
    for i in range(2):
        write_frames(tmp_path / f"{i}.tar", {}, [{"obs": np.zeros(3), "acts": 0, "dones": False}])
    with pytest.raises(FormatError, match="expected next_obs in every step"):
        ILRDataset(tmp_path, join=True)
    ILRDataset(tmp_path)


def test_frames_written_again_leave_out_what_is_not_stored(archives: list[Path], tmp_path: Path) -> None:
    write_frames(tmp_path / "again" / "a.tar", {}, ILRDataset(archives[0]))
    (first, *_) = ILRDataset(tmp_path / "again" / "a.tar")
    assert set(first) == {"__key__", "__trajectory__", "obs", "next_obs", "acts", "dones", "frame"}


def test_writing_does_not_join_what_archives_cut(archives: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "all" / "a.tar"
    with pytest.raises(DataError, match="expected a done before frame 3, with which trajectory 1 begins"):
        write_frames(target, {}, ILRDataset(archives))
    assert not target.exists()
    for i, path in enumerate(archives):  # as the message says
        write_frames(tmp_path / "each" / f"{i}.tar", {}, ILRDataset(path))
    again, dataset = ILRDataset(tmp_path / "each"), ILRDataset(archives)
    assert [(f["__trajectory__"], f["acts"]) for f in again] == [(f["__trajectory__"], f["acts"]) for f in dataset]
    write_frames(target, {}, ILRDataset(archives[1:], join=True).first(n_trans=2))  # ends with a done
    assert [f["acts"] for f in ILRDataset(target)] == [3, 4]
