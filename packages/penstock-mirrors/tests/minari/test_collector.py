"""Recording by the compatible API: stored values, refused values, and recordings that survive a kill."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from penstock.errors import DataError
from penstock_mirrors import minari
from penstock_mirrors.minari import DataCollector, EpisodeMetadataCallback, MinariDataset, StepDataCallback
from penstock_mirrors.minari.data_collector import recover_collection, unfinished

Collect = Callable[..., MinariDataset]
Play = Callable[..., None]
FORMATS = ("hdf5", "arrow", "parquet")


@pytest.mark.parametrize("data_format", FORMATS)
def test_a_reused_array_is_recorded_as_it_was(collect: Collect, data_format: str) -> None:
    dataset = collect("box/test-v0", data_format=data_format)
    assert dataset[0].observations.tolist() == [[5, 5], [6, 6], [7, 7], [8, 8]]
    assert dataset[1].observations[0].tolist() == [6, 6]
    assert dataset[0].actions.tolist() == [0, 1, 2]
    assert dataset[0].rewards.tolist() == [0, 1, 2]
    assert dataset[0].terminations.tolist() == [False, False, True]
    assert dataset[0].infos == {}


@pytest.mark.parametrize("data_format", FORMATS)
def test_seed_options_and_statistics_are_stored(collect: Collect, data_format: str) -> None:
    dataset = collect("box/test-v0", seed=2**64 - 2, options={"a": {"b": 1}}, data_format=data_format)
    first, second = dataset.storage.get_episode_metadata([0, 1])
    assert (first["seed"], second["seed"]) == (2**64 - 2, 2**64 - 1)
    assert first["options"] == {"a": {"b": 1}}
    assert (first["rewards_sum"], first["rewards_max"], first["total_steps"]) == (3, 2, 3)


def test_a_seed_is_drawn_unless_told_otherwise(play: Play, about: dict[str, Any]) -> None:
    env = DataCollector(gymnasium.make("Counting-v0", length=1))
    for options in (None, {"minari_autoseed": False}):
        env.reset(options=options)
        env.step(0)
    drawn, none = env.create_dataset("box/test-v0", **about).storage.get_episode_metadata([0, 1])
    assert 0 <= drawn["seed"] < 2**31
    assert "seed" not in none


@pytest.mark.parametrize("data_format", FORMATS)
def test_infos_are_recorded_with_their_types(collect: Collect, data_format: str) -> None:
    infos = collect("box/test-v0", record_infos=True, data_format=data_format)[0].infos
    assert infos["t"].tolist() == [0, 1, 2, 3]
    assert infos["name"].tolist() == ["step 0", "step 1", "step 2", "step 3"]


def test_infos_that_differ_are_an_error(collect: Collect) -> None:
    with pytest.raises(ValueError, match="speed"):
        collect("box/test-v0", record_infos=True, infos="more")


@pytest.mark.parametrize("data_format", FORMATS)
def test_infos_that_differ_are_united_on_request(collect: Collect, data_format: str) -> None:
    episode = collect("box/test-v0", record_infos="union", infos="more", data_format=data_format)[0]
    np.testing.assert_array_equal(episode.infos["speed"], [np.nan, 0.5, 1.0, 1.5])
    assert episode.extras["infos_mask"]["speed"].tolist() == [False, True, True, True]


class WithState(StepDataCallback):
    def __call__(self, env: Any, **kwargs: Any) -> Any:
        step: Any = super().__call__(env, **kwargs)
        step["state"] = {"t": env.unwrapped.t, "pose": {"x": np.array([env.unwrapped.t, 1.0])}}
        if kwargs.get("action") is not None:
            step["effort"] = {"used": float(kwargs["action"])}
        return step


class OldNames(StepDataCallback):
    def __call__(self, env: Any, **kwargs: Any) -> Any:
        step = super().__call__(env, **kwargs)
        plural = {"observation": "observations", "action": "actions", "reward": "rewards", "info": "infos"}
        return {plural.get(k, k): v for k, v in step.items()}


@pytest.mark.parametrize("data_format", FORMATS)
def test_groups_that_a_callback_adds_are_written_and_read(play: Play, about: dict[str, Any], data_format: str) -> None:
    env = DataCollector(gymnasium.make("Counting-v0"), step_data_callback=WithState, data_format=data_format)
    play(env)
    extras = env.create_dataset("box/test-v0", **about)[1].extras
    assert extras["state"]["t"].tolist() == [0, 1, 2, 3]
    assert extras["state"]["pose"]["x"].shape == (4, 2)
    assert extras["effort"]["used"].tolist() == [0, 1, 2]


def test_callbacks_may_use_the_names_of_older_releases(play: Play, about: dict[str, Any]) -> None:
    env = DataCollector(gymnasium.make("Counting-v0"), step_data_callback=OldNames, record_infos=True)
    play(env)
    episode = env.create_dataset("box/test-v0", **about)[0]
    assert (len(episode), set(episode.infos)) == (3, {"t", "name"})


class CutAtTwo(StepDataCallback):
    def __call__(self, env: Any, **kwargs: Any) -> Any:
        step = super().__call__(env, **kwargs)
        if kwargs.get("action") is not None:
            step["terminated"], step["truncated"] = False, env.unwrapped.t % 2 == 0
        return step


def test_an_episode_that_a_callback_cuts_goes_on_as_the_next(about: dict[str, Any]) -> None:
    env = DataCollector(gymnasium.make("Counting-v0", length=5), step_data_callback=CutAtTwo)
    env.reset(seed=0)
    for _ in range(4):
        env.step(1)
    first, second = env.create_dataset("box/test-v0", **about)
    assert first.observations[-1].tolist() == second.observations[0].tolist() == [2, 2]
    assert (first.truncations.tolist(), second.terminations.tolist()) == ([False, True], [False, False])


class Longest(EpisodeMetadataCallback):
    def __call__(self, episode: dict[str, Any]) -> dict[str, Any]:
        return {**super().__call__(episode), "longest": len(episode["actions"]), "note": "as it was"}


def test_an_episode_callback_is_asked_for_every_episode_appended_ones_too(collect: Collect, play: Play) -> None:
    dataset = collect("box/test-v0")
    env = DataCollector(gymnasium.make("Counting-v0"), episode_metadata_callback=Longest)
    play(env, seed=9)
    env.add_to_dataset(dataset)
    found = dataset.storage.get_episode_metadata([3])[0]
    assert (found["longest"], found["note"], found["seed"], found["rewards_mean"]) == (3, "as it was", 10, 1.0)
    assert (dataset.total_episodes, dataset.total_steps) == (4, 12)


def test_an_unfinished_episode_is_recorded_as_truncated(about: dict[str, Any]) -> None:
    env = DataCollector(gymnasium.make("Counting-v0"))
    env.reset()
    env.step(0)
    episode = env.create_dataset("box/test-v0", **about)[0]
    assert (episode.terminations.tolist(), episode.truncations.tolist()) == ([False], [True])


def test_stepping_without_a_reset_is_an_error() -> None:
    with pytest.raises(DataError, match="reset"):
        DataCollector(gymnasium.make("Counting-v0")).step(0)


def test_values_outside_their_space_warn(about: dict[str, Any]) -> None:
    space = spaces.Box(0, 5.5, (2,), np.float32)
    env = DataCollector(gymnasium.make("Counting-v0"), observation_space=space)
    env.reset(seed=5)
    env.step(0)
    env.step(0)
    with pytest.warns(UserWarning, match="observations"):
        env.step(0)
    assert env.create_dataset("box/test-v0", **about)[0].observations[-1].tolist() == [8, 8]


def test_a_class_as_entry_point_is_recorded_and_recovered(collect: Collect) -> None:
    dataset = collect("box/test-v0", length=4)
    for env in (dataset.recover_environment(trust=True), dataset.recover_environment(length=4, infos="same")):
        assert (type(env.unwrapped).__name__, env.unwrapped.length) == ("Counting", 4)  # type: ignore[attr-defined]


def test_a_lambda_as_entry_point_is_recorded_without_its_spec(about: dict[str, Any], play: Play) -> None:
    made = gymnasium.make("Counting-v0").unwrapped
    gymnasium.register("Nameless-v0", lambda: made, disable_env_checker=True)
    env = DataCollector(gymnasium.make("Nameless-v0"))
    play(env)
    with pytest.warns(UserWarning, match="not serializable"):
        dataset = env.create_dataset("box/test-v0", **about)
    gymnasium.registry.pop("Nameless-v0")
    assert dataset.env_spec is None
    with pytest.raises(ValueError, match="env_spec is None"):
        dataset.recover_environment()


def test_closing_keeps_what_was_recorded(play: Play, about: dict[str, Any], root: Path) -> None:
    env = DataCollector(gymnasium.make("Counting-v0"))
    play(env)
    with pytest.warns(UserWarning, match="2 recorded episodes are not a dataset yet"):
        env.close()
    assert minari.list_local_datasets() == {}
    assert len(env.create_dataset("box/test-v0", **about)) == 2
    assert sorted(path.name for path in root.iterdir()) == ["box"]


def test_a_taken_id_loses_nothing(collect: Collect, play: Play, about: dict[str, Any]) -> None:
    collect("box/test-v0")
    env = DataCollector(gymnasium.make("Counting-v0"))
    play(env, 3)
    with pytest.raises(ValueError, match="already exists"):
        env.create_dataset("box/test-v0", **about)
    assert len(env.create_dataset("box/test-v1", **about)) == 3


KILLED = """
import os, signal, warnings
import gymnasium
from penstock_mirrors.minari import DataCollector
from penstock_mirrors.minari.data_collector import collection
collection.PATIENCE = 0.0
env = DataCollector(gymnasium.make("CartPole-v1"))
for seed in range(3):
    env.reset(seed=seed)
    while not any(env.step(0)[2:4]):
        pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_recording_is_reported_and_recovered(root: Path, about: dict[str, Any]) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    (path,) = unfinished()
    with pytest.warns(UserWarning, match="recover_collection"):
        DataCollector(gymnasium.make("CartPole-v1"))
    eval_env = about.pop("eval_env")
    with pytest.warns(UserWarning, match="`eval_env`"):
        dataset = recover_collection(path, "cartpole/rescued-v0", **about)
    assert eval_env == "CartPole-v1"
    assert [m["seed"] for m in dataset.storage.get_episode_metadata(range(3))] == [0, 1, 2]
    assert dataset.env_spec is not None
    assert unfinished() == []
    assert list(minari.list_local_datasets()) == ["cartpole/rescued-v0"]


def test_a_recording_in_progress_is_nobody_elses(play: Play) -> None:
    env = DataCollector(gymnasium.make("Counting-v0"))
    play(env)
    env._collection.flush()
    path = env._collection.path
    assert path is not None
    assert path.name.startswith(".")
    assert unfinished() == []
    with pytest.raises(DataError, match="unfinished"):
        minari.data_collector.collection.finish(path, path.with_name("x-v0"))


def test_what_waits_is_saved_when_the_collector_goes(play: Play, root: Path) -> None:
    env = DataCollector(gymnasium.make("Counting-v0"))
    play(env)
    assert list(root.glob(".collecting-*")) == []
    del env
    gc.collect()
    assert len(list(root.glob(".collecting-*"))) == 1


def test_an_unwritable_root_is_noticed_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").write_text("")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root / "file"))
    with pytest.raises(OSError, match="file"):
        DataCollector(gymnasium.make("Counting-v0"))
