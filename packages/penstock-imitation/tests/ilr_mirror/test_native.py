"""Native demonstrations by configuration: equal to what the originals load, but for their defects, each named here."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilr_mirror.conftest import NATIVE
from penstock_imitation.il_representations import ColorSpace, auto, configured, current

TASKS = {
    "magical": "MoveToRegion-Demo-v0",
    "dm_control": "reacher-easy",
    "atari": "PongNoFrameskip-v4",
    "procgen": "coinrun",
}


def loaded(benchmark: str, env_data: dict[str, Any], env_cfg: dict[str, Any] | None = None, **options: Any) -> Any:
    config = {"benchmark_name": benchmark, "task_name": TASKS[benchmark]} | (env_cfg or {})
    with configured(config, env_data=env_data):
        return auto.load_dict_dataset(**options)


def digests(images: Any) -> list[str]:
    return [hashlib.sha256(image.tobytes()).hexdigest()[:16] for image in images]


def differing(found: list[str], expected: list[str]) -> list[int]:
    return [t for t, (ours, theirs) in enumerate(zip(found, expected, strict=True)) if ours != theirs]


@pytest.mark.parametrize("benchmark", TASKS)
def test_the_same_keys_for_every_benchmark(benchmark: str, env_data: dict[str, Any]) -> None:
    data = loaded(benchmark, env_data)
    assert {"obs", "next_obs", "acts", "dones"} <= set(data) <= {"obs", "next_obs", "acts", "dones", "rews", "infos"}
    steps = len(data["dones"])
    assert all(len(column) == steps for column in data.values())
    assert data["dones"].dtype == bool
    assert data["dones"][-1]
    assert data["obs"].shape == data["next_obs"].shape
    assert data["obs"].ndim == 4
    inside = ~data["dones"][:-1]
    np.testing.assert_array_equal(data["next_obs"][:-1][inside], data["obs"][1:][inside])


def test_both_names_are_one() -> None:
    assert auto.load_dataset_dict is auto.load_dict_dataset


@pytest.mark.parametrize("name", ["LoResCHW4E", "LoRes4E", "LoRes4A", "LoRes3EA"])
def test_magical(name: str, env_data: dict[str, Any]) -> None:
    """Equal; rewards and infos, which the original drops, are there."""
    expected = np.load(NATIVE / "expected" / f"magical_{name}.npz")
    data = loaded("magical", env_data, {"magical_preproc": name})
    for key in ("acts", "dones"):
        np.testing.assert_array_equal(data[key], expected[key])
    assert digests(data["obs"]) == expected["obs_sha"].tolist()
    assert digests(data["next_obs"]) == expected["next_obs_sha"].tolist()
    assert data["rews"].shape == (18,)
    assert "eval_score" in data["infos"][6]


def test_magical_without_preprocessing_has_the_same_keys(env_data: dict[str, Any]) -> None:
    """The original gives obs_ego and obs_allo then."""
    data = loaded("magical", env_data, {"magical_preproc": None}, n_traj=1)
    assert {"obs", "next_obs", "acts", "dones"} <= set(data)
    assert {view: images.shape for view, images in data["obs"].items()} == {
        "allo": (7, 384, 384, 3),
        "ego": (7, 384, 384, 3),
    }


def test_magical_without_null_actions(env_data: dict[str, Any]) -> None:
    """The original's next observations are those of steps that were dropped."""
    expected = np.load(NATIVE / "expected" / "magical_nonull.npz")
    data = loaded("magical", env_data, {"magical_remove_null_actions": True})
    np.testing.assert_array_equal(data["acts"], expected["acts"])
    assert digests(data["obs"]) == expected["obs_sha"].tolist()
    assert len(differing(digests(data["next_obs"]), expected["next_obs_sha"].tolist())) == 3


def test_atari(env_data: dict[str, Any]) -> None:
    """The original loses the last done of every trajectory, so that all of them merge."""
    expected = np.load(NATIVE / "expected" / "atari.npz")
    data = loaded("atari", env_data)
    np.testing.assert_array_equal(data["acts"], expected["acts"])
    assert digests(data["obs"]) == expected["obs_sha"].tolist()
    assert digests(data["next_obs"]) == expected["next_obs_sha"].tolist()
    assert np.flatnonzero(expected["dones"]).tolist() == []
    assert np.flatnonzero(data["dones"]).tolist() == [18, 29, 43]


def test_dm_control(env_data: dict[str, Any]) -> None:
    """The original stacks next observations by themselves, so that the first ones of a trajectory are others."""
    expected = np.load(NATIVE / "expected" / "dmc.npz")
    data = loaded("dm_control", env_data)
    for key in ("acts", "dones", "rews"):
        np.testing.assert_array_equal(data[key], expected[key])
    assert digests(data["obs"]) == expected["obs_sha"].tolist()
    assert differing(digests(data["next_obs"]), expected["next_obs_sha"].tolist()) == [0, 1, 9, 10]
    assert {"internal_state", "discount"} <= set(data["infos"][0])


def test_procgen(env_data: dict[str, Any]) -> None:
    """Cut within trajectories, which the original does not."""
    data = loaded("procgen", env_data)
    assert (data["obs"].shape, np.flatnonzero(data["dones"]).tolist()) == ((8, 12, 64, 64), [4, 7])


def test_minecraft(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "minecraft"
    folder.mkdir(parents=True)
    (folder / "MineRLNavigateVectorObf-v0").symlink_to(NATIVE / "minecraft" / "MineRLNavigateVectorObf-v0")
    with configured(
        {"benchmark_name": "minecraft", "task_name": "NavigateVectorObf"}, env_data={"data_root": str(tmp_path)}
    ):
        data = auto.load_dict_dataset()
    assert data["obs"].shape[1:] == (3, 64, 64)
    assert np.flatnonzero(data["dones"]).tolist() == [7, 12]
    assert data["acts"].shape == (13, 64)


def test_frame_stacks_and_tasks_of_the_call(env_data: dict[str, Any]) -> None:
    assert loaded("dm_control", env_data, frame_stack=1)["obs"].shape == (13, 3, 20, 20)
    assert loaded("procgen", env_data, {"procgen_frame_stack": 2})["obs"].shape == (8, 6, 64, 64)
    with configured({"benchmark_name": "procgen", "task_name": "miner"}, env_data=env_data):
        assert len(auto.load_dict_dataset(task_name="coinrun")["acts"]) == 8
    with pytest.raises(ValueError, match="atari_frame_stack"):
        loaded("atari", env_data, frame_stack=2)


def test_some_trajectories(env_data: dict[str, Any]) -> None:
    whole = loaded("magical", env_data)
    first = loaded("magical", env_data, n_traj=2)
    np.testing.assert_array_equal(first["acts"], whole["acts"][:12])
    drawn = {seed: loaded("magical", env_data, n_traj=2, seed=seed)["acts"].tolist() for seed in range(6)}
    assert drawn[3] == loaded("magical", env_data, n_traj=2, seed=3)["acts"].tolist()
    assert {len(acts) for acts in drawn.values()} == {12, 13, 11}
    for count in (0, 4):
        with pytest.raises(ValueError, match="n_traj from 1 to 3"):
            loaded("magical", env_data, n_traj=count)


def test_what_is_not_there(env_data: dict[str, Any]) -> None:
    with configured(env_data={"data_root": "/nowhere"}), pytest.raises(FileNotFoundError, match="/nowhere/data/dm_con"):
        auto.load_dict_dataset()
    with pytest.raises(ValueError, match="PongNoFrameskip-v4"):
        loaded("atari", env_data, {"task_name": "PongNoFrameskip-v5"})
    with configured({"benchmark_name": "toy", "task_name": "reach"}), pytest.raises(ValueError, match="'toy' has no"):
        auto.load_dict_dataset()
    with configured({"benchmark_name": "magic"}), pytest.raises(ValueError, match="mag"):
        auto.load_dict_dataset()


def test_colour_spaces_and_folders() -> None:
    for benchmark, task in TASKS.items():
        with configured({"benchmark_name": benchmark, "task_name": task}):
            assert auto.load_color_space() is (ColorSpace.GRAY if benchmark == "atari" else ColorSpace.RGB)
    assert auto.get_data_dir("atari", "Pong", "random", "/d") == "/d/data/processed/random/atari/Pong"
    with configured(env_data={"processed_data_root": "/p"}):
        assert auto.get_data_dir("atari", "Pong", "demos") == "/p/demos/atari/Pong"


def test_environments_are_those_of_the_configuration() -> None:
    with configured({"benchmark_name": "toy", "task_name": "push"}, {"venv_parallel": False, "n_envs": 3}):
        assert auto.benchmark_is_available() == (True, None)
        venv = auto.load_vec_env(api="gymnasium", seed=0)
        try:
            observations, _ = venv.reset()
            assert observations.shape == (3, 3, 32, 32)
            again = auto.load_vec_env(api="gymnasium", seed=1)
            assert (again.reset()[0] != observations).any()
            again.close()
        finally:
            venv.close()
    with configured({"benchmark_name": "procgen", "task_name": "coinrun"}):
        available, told = auto.benchmark_is_available()
        assert available or "procgen" in str(told)


def test_environments_of_the_originals_library() -> None:
    with configured({"benchmark_name": "toy", "task_name": "reach"}, {"venv_parallel": False}):
        venv = auto.load_vec_env(seed=0)
    try:
        assert venv.reset().shape == (2, 3, 32, 32)
        assert len(venv.step([0, 1])) == 4
    finally:
        venv.close()


def test_configurations_of_blocks() -> None:
    before = current()
    with configured({"task_name": "cheetah-run", "dm_control_full_env_names": {"x": "X"}}) as outer:
        assert outer.env_cfg.dm_control_full_env_names["x"] == "X"
        assert "finger-spin" in outer.env_cfg.dm_control_full_env_names
        with configured(venv_opts={"n_envs": 7}, env_cfg=before.env_cfg) as inner:
            assert (inner.env_cfg.task_name, inner.venv_opts.n_envs) == ("finger-spin", 7)
        assert current() == outer
    assert current() == before
    with pytest.raises(ValueError, match="did you mean 'n_envs'"), configured(venv_opts={"n_env": 1}):
        pass
    assert current() == before


def test_several_files_of_a_pattern(tmp_path: Path) -> None:
    for name in ("reacher-easy-a.pkl.gz", "reacher-easy-b.pkl.gz", "other.pkl.gz"):
        (tmp_path / name).write_bytes((NATIVE / "dm_control" / "reacher-easy-synth.pkl.gz").read_bytes())
    data = loaded("dm_control", {"dm_control_demo_patterns": {"reacher-easy": f"{tmp_path}/reacher-easy-*.pkl.gz"}})
    assert np.flatnonzero(data["dones"]).tolist() == [8, 12, 21, 25]


def test_one_file_of_a_folder(tmp_path: Path) -> None:
    name = "demo-MoveToRegion-Demo-v0-001.pkl.gz"
    (tmp_path / name).write_bytes((NATIVE / "magical" / "move-to-region" / name).read_bytes())
    data = loaded("magical", {"magical_demo_dirs": {"MoveToRegion-Demo-v0": str(tmp_path)}})
    assert np.flatnonzero(data["dones"]).tolist() == [4]
