"""Datasets of others: equal to what the original makes, whole or not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, FormatError
from penstock_driving.formats.l5kit import (
    SCENE_DTYPE,
    L5KitSource,
    L5KitWriter,
    Scene,
    chop,
    combined_scenes,
    concat,
    cut,
    get_scene,
    rebased,
    split,
)

Make = Callable[..., Scene]


def assert_expected(path: Path, file: Path) -> None:
    with L5KitSource(path) as source, np.load(file) as expected:
        for name in ("scenes", "frames", "tl_faces"):
            found = getattr(source, name)[:]
            assert (found.dtype, found.shape) == (expected[name].dtype, expected[name].shape)
            assert found.tobytes() == expected[name].tobytes()
        assert source.agents[:64].tobytes() == expected["agents_head"].tobytes()
        assert len(source.agents) == expected["frames"]["agent_index_interval"][-1, 1]


def test_concat_and_chop_make_what_the_original_makes(golden: Path, tmp_path: Path) -> None:
    concat([golden / "single.zarr"] * 3, tmp_path / "three.zarr")
    assert_expected(tmp_path / "three.zarr", golden / "zu_concat3.npz")
    with L5KitSource(tmp_path / "three.zarr") as found, L5KitSource(golden / "single.zarr") as one:
        assert found.agents[:].tobytes() == one.agents[:].tobytes() * 3
        for e in range(3):
            for a, b in zip(get_scene(found, e), get_scene(one, 0), strict=True):
                assert a.tobytes() == b.tobytes()
    chop(tmp_path / "three.zarr", tmp_path / "short.zarr", 50, layout="npy")
    assert_expected(tmp_path / "short.zarr", golden / "zu_chop50.npz")
    assert split(tmp_path / "three.zarr", tmp_path / "parts", {"train": 2, "validate": -1}) == [(0, 2), (2, 3)]
    concat([tmp_path / "parts" / name for name in ("train", "validate")], tmp_path / "again.zarr")
    assert_expected(tmp_path / "again.zarr", golden / "zu_concat3.npz")


def test_scenes_as_datasets_of_their_own(tmp_path: Path, make: Make) -> None:
    scenes = [make(seed, counts) for seed, counts in enumerate(((2, 0, 3), (), (1,), (0, 4)))]
    with L5KitWriter.create(tmp_path / "a") as writer:
        writer.write_scenes(scenes)
    with L5KitSource(tmp_path / "a") as source:
        for e, scene in enumerate(scenes):
            for i in (e, e - 4):
                found = get_scene(source, i)
                assert found.scene["frame_index_interval"].tolist() == [[0, len(scene.frames)]]
                assert [part.tobytes() for part in found] == [part.tobytes() for part in rebased(scene)]
        assert source.scene(2).frames["agent_index_interval"].tolist() == [[5, 6]]
        for wrong in (4, -5):
            with pytest.raises(IndexError):
                source.scene(wrong)
        middle = cut(source.scene(0), 1, 3)
        assert (len(middle.frames), middle.agents.tobytes()) == (2, scenes[0].agents[2:].tobytes())


def test_scenes_that_go_on_are_combined() -> None:
    table = [((0, 5), "a", 0, 10), ((5, 9), "a", 10, 20), ((9, 12), "b", 20, 30), ((12, 13), "b", 31, 40)]
    scenes = np.array([(np.array(i), *rest) for i, *rest in table], SCENE_DTYPE)
    found = combined_scenes(scenes)
    assert found["frame_index_interval"].tolist() == [[0, 9], [9, 12], [12, 13]]
    assert (found["start_time"].tolist(), found["end_time"].tolist()) == ([0, 20, 31], [20, 30, 40])
    assert found["host"].tolist() == ["a", "b", "b"]
    assert combined_scenes(scenes[:0]).shape == (0,)
    assert combined_scenes(scenes[:1]).tobytes() == scenes[:1].tobytes()


def test_what_cannot_be_made_leaves_nothing(golden: Path, tmp_path: Path) -> None:
    one = golden / "single.zarr"
    (tmp_path / "bad").mkdir()
    out = tmp_path / "out"
    fails: list[tuple[type[Exception], Callable[[], Any]]] = [
        (FileNotFoundError, lambda: concat([one, tmp_path / "nothing"], out)),
        (FormatError, lambda: concat([one, tmp_path / "bad"], out)),
        (DataError, lambda: chop(one, out, 249)),
        (DataError, lambda: chop(one, out, -1)),
        (DataError, lambda: split(one, out, {"a": 2})),
        (DataError, lambda: split(one, out, {"../a": 1})),
        (DataError, lambda: split(one, out, {})),
        (DataError, lambda: split(one, out, {"a": -1, "b": 1})),
        (DataError, lambda: concat([one], out, layout="?")),
        (FileExistsError, lambda: concat([one], tmp_path / "bad")),
        (FileExistsError, lambda: split(one, tmp_path / "bad", {"a": 1})),
    ]
    for kind, fail in fails:
        with pytest.raises(kind):
            fail()
        assert [file.name for file in tmp_path.iterdir()] == ["bad"]
