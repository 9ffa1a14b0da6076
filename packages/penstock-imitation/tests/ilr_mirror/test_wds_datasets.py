"""`load_wds_datasets`: the examples of the documentation of il-representations, and what they must not do silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilr_mirror.conftest import SHARDS, place
from penstock.core.spaces import Box, Discrete
from penstock_imitation.il_representations import ColorSpace, auto, configured, load_ilr_datasets, write_frames

BASE = {"benchmark_name": "dm_control", "task_name": "reacher-easy"}


def folders(configs: list[dict[str, Any]], env_data: dict[str, Any]) -> list[str]:
    """Which folders are read, as type/benchmark/task."""
    with configured(BASE, env_data=env_data):
        datasets, _ = auto.load_wds_datasets(configs)
    return ["/".join(dataset.paths[0].parts[-4:-1]) for dataset in datasets]


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([{"type": "demos"}, {"type": "random"}], ["demos/dm_control/reacher-easy", "random/dm_control/reacher-easy"]),
        (
            [{}, {"env_cfg": {"task_name": "finger-spin"}}],
            ["demos/dm_control/reacher-easy", "demos/dm_control/finger-spin"],
        ),
        (
            [{}, {"type": "random"}, {"env_cfg": {"task_name": "finger-spin"}}],
            ["demos/dm_control/reacher-easy", "random/dm_control/reacher-easy", "demos/dm_control/finger-spin"],
        ),
        ([{"type": "random", "env_cfg": {}}], ["random/dm_control/reacher-easy"]),
    ],
)
def test_the_examples(
    configs: list[dict[str, Any]], expected: list[str], processed: Path, env_data: dict[str, Any]
) -> None:
    assert folders(configs, env_data) == expected


def test_the_wrong_key_of_the_third_example_is_an_error(processed: Path, env_data: dict[str, Any]) -> None:
    with configured(BASE, env_data=env_data), pytest.raises(ValueError, match="did you mean 'task_name'"):
        auto.load_wds_datasets([{}, {"type": "random", "env_cfg": {"task": "cheetah-run"}}])


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"types": "demos"}, "did you mean 'type'"),
        ({"env_data": {"data_rot": "."}}, "did you mean 'data_root'"),
        ({"env_cfg": None}, "task_name|mapping"),
    ],
)
def test_unknown_keys(config: dict[str, Any], told: str, processed: Path, env_data: dict[str, Any]) -> None:
    with configured(BASE, env_data=env_data):
        if config == {"env_cfg": None}:  # nothing to change
            assert len(auto.load_wds_datasets([config])[0]) == 1
            return
        with pytest.raises(ValueError, match=told):
            auto.load_wds_datasets([config])


def test_env_data_changes_where_and_how_much(processed: Path, env_data: dict[str, Any]) -> None:
    with configured(BASE, env_data=env_data):
        (some, few), _ = auto.load_wds_datasets([{"env_data": {"wds_n_trajs": 3}}, {"env_data": {"wds_n_trans": 8}}])
        assert (len(some), len(few)) == (5 + 1 + 7, 8)
        with pytest.raises(ValueError, match="1 to 4 trajectories"):
            auto.load_wds_datasets([{"env_data": {"wds_n_trajs": 5}}])
    with configured(BASE), pytest.raises(FileNotFoundError):
        auto.load_wds_datasets([{}])
    assert len(folders([{"env_data": env_data}], {})) == 1


def test_either_order_of_the_path_is_found(tmp_path: Path, env_data: dict[str, Any]) -> None:
    place(tmp_path / "data" / "processed" / "demos" / "reacher-easy" / "dm_control", "A.tar.zst")
    assert folders([{}], env_data) == ["demos/reacher-easy/dm_control"]
    place(tmp_path / "data" / "processed" / "demos" / "dm_control" / "reacher-easy")
    assert folders([{}], env_data) == ["demos/dm_control/reacher-easy"]


def test_what_is_not_there_is_told_with_both_places(tmp_path: Path, env_data: dict[str, Any]) -> None:
    with configured(BASE, env_data=env_data):
        with pytest.raises(OSError, match=r"demos/dm_control/reacher-easy or .*demos/reacher-easy/dm_control"):
            auto.load_wds_datasets([{}])
        (tmp_path / "data/processed/demos/dm_control/reacher-easy").mkdir(parents=True)
        with pytest.raises(OSError, match=r"archives .* in .*reacher-easy, found none"):
            auto.load_wds_datasets([{}])


def test_one_archive_in_two_forms_is_not_read_twice(tmp_path: Path, env_data: dict[str, Any]) -> None:
    folder = tmp_path / "data/processed/demos/dm_control/reacher-easy"
    place(folder)
    (folder / "A.tar.zst").write_bytes((SHARDS / "A.tar.zst").read_bytes())
    with configured(BASE, env_data=env_data), pytest.raises(ValueError, match=r"A\.tar\.zst and A\.tgz"):
        auto.load_wds_datasets([{}])


def test_no_configurations() -> None:
    with pytest.raises(ValueError, match="at least one"):
        auto.load_wds_datasets([])


def test_the_metadata_that_all_have(processed: Path, env_data: dict[str, Any]) -> None:
    with configured(BASE, env_data=env_data):
        datasets, meta = auto.load_wds_datasets([{}, {"type": "random"}])
    assert set(meta) == {"color_space", "observation_space", "action_space"}
    assert (meta["color_space"], meta["action_space"]) == (ColorSpace.RGB, Discrete(18))
    assert meta["observation_space"].shape == (3, 8, 8)
    assert all(dataset.meta["env_cfg"]["task_name"] == "TaskA" for dataset in datasets)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("action_space", Discrete(4), r"action_space is Discrete\(n=4, start=0\), not Discrete\(n=18, start=0\)"),
        ("color_space", ColorSpace.GRAY, r"color_space is <ColorSpace.GRAY: 'GRAY'>, not <ColorSpace.RGB"),
        (
            "observation_space",
            Box(np.zeros((1, 8, 8), "u1"), np.full((1, 8, 8), 9, "u1"), np.dtype("u1")),
            r"observation_space is Box\(uint8\[1, 8, 8\] from 0 to 9\), not Box\(uint8\[3, 8, 8\] from 0 to 255\)",
        ),
    ],
)
def test_datasets_of_other_spaces(name: str, value: Any, told: str, processed: Path, env_data: dict[str, Any]) -> None:
    dataset = load_ilr_datasets([SHARDS / "A.tgz"])
    write_frames(processed / "random/dm_control/finger-spin/r.tgz", dataset.meta | {name: value}, dataset)
    with configured(BASE, env_data=env_data), pytest.raises(ValueError, match=told) as raised:
        auto.load_wds_datasets([{}, {"type": "random", "env_cfg": {"task_name": "finger-spin"}}])
    assert "dataset config 1" in str(raised.value)
