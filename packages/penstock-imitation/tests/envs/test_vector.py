"""Vectorised environments: seeds, processes, resets, and what is recorded from them."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from penstock.core.spaces import Discrete
from penstock.errors import DataError, MissingExtraError, SpecError
from penstock.recording.memory import MemoryWriter
from penstock.recording.rollout import rollout_vector
from penstock.recording.spaces import from_gymnasium
from penstock.recording.vector import VectorCollector
from penstock_imitation.envs import (
    EnvConfig,
    VecEnvOptions,
    env_seed,
    expert,
    final_observations,
    load_vec_env,
    named,
    spaces_of,
)
from penstock_imitation.envs.registry import register, unregister
from penstock_imitation.envs.toy import Toy
from penstock_imitation.envs.toy_env import ToyEnv
from penstock_imitation.envs.vector import Monitored, Seeded

MODES = ("next_step", "same_step", "disabled")
HERE = VecEnvOptions(venv_parallel=False, n_envs=3)


def toy(task="chase", **keys):
    return EnvConfig(benchmark_name="toy", task_name=task, **keys)


def actions_of(envs, seed, steps):
    """The same random actions for every kind of vectorised environment."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 9, envs.num_envs) for _ in range(steps)]


def trace(envs, seed, steps=100):
    """All that `envs` return over many steps, with resets by mask where they do not reset themselves."""
    disabled = envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    seen = [envs.reset()]
    for actions in actions_of(envs, seed, steps):
        seen.append(envs.step(actions))
        over = seen[-1][2] | seen[-1][3]
        if disabled and over.any():
            seen.append(envs.reset(options={"reset_mask": over}))
    envs.close()
    return seen


def equal(a, b):
    """Whether trees of dicts, sequences, object arrays and arrays are equal in structure and value."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) or (isinstance(a, np.ndarray) and a.dtype == object):
        return len(a) == len(b) and all(map(equal, a, b))
    return np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)


@pytest.mark.parametrize("mode", MODES)
def test_processes_give_bit_for_bit_what_one_process_gives(mode) -> None:
    kinds = {}
    for kind, options in ((SyncVectorEnv, HERE), (AsyncVectorEnv, VecEnvOptions(n_envs=3))):
        envs = load_vec_env(toy(), options, seed=5, autoreset=mode)
        assert isinstance(envs, kind)
        assert envs.num_envs == 3
        kinds[kind] = trace(envs, 0)
    here, there = kinds.values()
    assert len(here) == len(there) > 100
    for ours, theirs in zip(here, there, strict=True):
        assert equal(ours, theirs)
    assert any((step[2] | step[3]).any() for step in here if len(step) == 5)


def test_a_seed_decides_everything_and_seeds_differ() -> None:
    def first(seed):
        envs = load_vec_env(toy(), HERE, seed=seed)
        return trace(envs, 0, 20)

    one, again, other = first(1), first(1), first(2)
    assert all(map(equal, one, again))
    assert not equal(one[0], other[0])
    frames = load_vec_env(toy(), HERE, seed=1).reset()[0]
    assert len({frame.tobytes() for frame in frames}) == 3


def test_seeds_of_environments() -> None:
    seeds = [env_seed(seed, k) for seed in range(20) for k in range(50)]
    assert len(set(seeds)) == 1000
    assert min(seeds) >= 0
    assert max(seeds) < 2**31
    assert min(abs(np.diff(np.sort(seeds)))) > 1
    with pytest.raises(DataError, match="at least 0"):
        env_seed(-1, 0)


def test_each_environment_starts_from_its_own_seed_whatever_their_number() -> None:
    for n in (1, 4):
        envs = load_vec_env(toy("reach"), VecEnvOptions(False, n), seed=9)
        observations, _ = envs.reset()
        for k in range(n):
            np.testing.assert_array_equal(observations[k], ToyEnv("reach").reset(seed=env_seed(9, k))[0])
        later, _ = envs.reset()
        assert not np.array_equal(observations, later)
        explicit, _ = envs.reset(seed=[3] * n)
        np.testing.assert_array_equal(explicit[-1], ToyEnv("reach").reset(seed=3)[0])


def test_an_explicit_seed_at_the_first_reset_wins() -> None:
    envs = load_vec_env(toy("reach"), VecEnvOptions(False, 2), seed=9)
    observations, _ = envs.reset(seed=[4, 5])
    for k in range(2):
        np.testing.assert_array_equal(observations[k], ToyEnv("reach").reset(seed=4 + k)[0])


def test_without_a_seed_nothing_is_fixed() -> None:
    frames = [load_vec_env(toy(), VecEnvOptions(False, 1)).reset()[0].tobytes() for _ in range(3)]
    assert len(set(frames)) == 3


@pytest.mark.parametrize("task", ["reach", "push", "chase"])
def test_spaces_are_those_known_before(task) -> None:
    config = toy(task, toy_frame_stack=2)
    envs = load_vec_env(config, HERE)
    assert (from_gymnasium(envs.single_observation_space), from_gymnasium(envs.single_action_space)) == spaces_of(
        config
    )


def replayed(episodes, task, n):
    """Each environment's episodes, in order, are what one environment alone gives for their seeds and actions."""
    for k in range(n):
        env = ToyEnv(task)
        mine = [episode for episode in episodes if episode.metadata["env"] == k]
        assert mine
        for episode in mine:
            first = episode.metadata["stream_episode"] == 0
            frames = [env.reset(seed=episode.metadata["stream_seed"] if first else None)[0]]
            rewards, overs, cuts = [], [], []
            for action in episode.actions:
                frame, reward, over, cut, _ = env.step(action)
                frames.append(frame)
                rewards.append(reward)
                overs.append(over)
                cuts.append(cut)
            np.testing.assert_array_equal(episode.observations, frames)
            np.testing.assert_array_equal(episode.rewards, rewards)
            np.testing.assert_array_equal(episode.terminations, overs)
            np.testing.assert_array_equal(episode.truncations[:-1], cuts[:-1])
            assert overs[-1] or episode.truncations[-1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["push", "chase"])
def test_recorded_episodes_have_no_step_across_a_reset(task, mode) -> None:
    writer = MemoryWriter()
    with VectorCollector(load_vec_env(toy(task), HERE, autoreset=mode), writer, seed=3, record_infos=True) as envs:
        done = rollout_vector(envs, expert(task), episodes=12)
    finished = [episode for episode in writer.episodes if episode.terminations[-1]]
    assert len(finished) == done.episodes >= 12
    replayed(writer.episodes, task, 3)
    assert {float(episode.rewards[-1]) for episode in finished} == {1.0}
    assert all(len(episode.infos["agent"]) == len(episode) + 1 for episode in writer.episodes)


def test_recording_from_processes() -> None:
    writer = MemoryWriter()
    with VectorCollector(load_vec_env(toy(), VecEnvOptions(n_envs=2)), writer, seed=3) as envs:
        rollout_vector(envs, expert("chase"), episodes=6)
    replayed(writer.episodes, "chase", 2)


def test_final_observations_are_the_same_in_every_mode() -> None:
    ends = {}
    for mode in MODES:
        envs = load_vec_env(toy(), HERE, seed=2, autoreset=mode)
        envs.reset()
        step = envs.step(np.zeros(3, np.int64))
        finals = {}
        for _ in range(120):
            observations, _, over, cut, infos = step
            final = final_observations(observations, infos)
            for k in np.flatnonzero(over | cut):
                finals.setdefault(int(k), final[k].copy())
            if mode == "disabled" and (over | cut).any():
                envs.reset(options={"reset_mask": over | cut})
            step = envs.step(np.zeros(3, np.int64))
        ends[mode] = finals
    assert set(ends["next_step"]) == {0, 1, 2}
    for mode in MODES[1:]:
        for k in range(3):
            np.testing.assert_array_equal(ends[mode][k], ends["next_step"][k])


def sb3_trace(options, seed, steps=100):
    venv = load_vec_env(toy(), options, seed=seed, api="stable_baselines3")
    seen = [(venv.reset(),)]
    for actions in actions_of(venv, 0, steps):
        observations, rewards, dones, infos = venv.step(actions)
        for info in infos:
            info.get("episode", {}).pop("t", None)  # seconds since the start
        seen.append((observations, rewards.astype(np.float32), dones, infos))  # processes give their float64
    spaces = venv.observation_space, venv.action_space
    venv.close()
    return seen, spaces


@pytest.fixture(scope="module")
def dummy():
    return sb3_trace(HERE, 5)


def test_stable_baselines3_says_how_episodes_end(dummy) -> None:
    seen, spaces = dummy
    assert tuple(map(from_gymnasium, spaces)) == spaces_of(toy())
    lengths, returns, ended = np.zeros(3, int), np.zeros(3), 0
    alone = [ToyEnv("chase") for _ in range(3)]
    frames = [env.reset(seed=env_seed(5, k))[0] for k, env in enumerate(alone)]
    np.testing.assert_array_equal(seen[0][0], frames)
    venv_actions = actions_of(type("Envs", (), {"num_envs": 3}), 0, 100)
    for (observations, rewards, dones, infos), actions in zip(seen[1:], venv_actions, strict=True):
        for k in range(3):
            frame, reward, over, cut, _ = alone[k].step(actions[k])
            lengths[k] += 1
            returns[k] += reward
            assert (rewards[k], dones[k]) == (np.float32(reward), over or cut)
            if dones[k]:
                np.testing.assert_array_equal(infos[k]["terminal_observation"], frame)
                assert infos[k]["TimeLimit.truncated"] is (cut and not over)
                assert infos[k]["episode"]["l"] == lengths[k]
                assert infos[k]["episode"]["r"] == pytest.approx(returns[k])
                lengths[k], returns[k], ended = 0, 0, ended + 1
                frame = alone[k].reset()[0]
            else:
                assert "terminal_observation" not in infos[k]
            np.testing.assert_array_equal(observations[k], frame)
    assert ended >= 3


def test_stable_baselines3_in_processes_gives_the_same() -> None:
    """Two, for each imports PyTorch."""
    (here, _), (there, _) = (sb3_trace(VecEnvOptions(venv_parallel=apart, n_envs=2), 5) for apart in (False, True))
    assert all(map(equal, here, there))
    assert len(here) == len(there)


def test_stable_baselines3_other_seeds_differ(dummy) -> None:
    assert not equal(dummy[0][0], sb3_trace(HERE, 6, 0)[0][0])


def test_factories_can_be_pickled() -> None:
    make = Monitored(Seeded(named("toy").factory(toy("reach")), 7))
    copied = pickle.loads(pickle.dumps(make))
    assert copied == make
    np.testing.assert_array_equal(copied().reset()[0], ToyEnv("reach").reset(seed=7)[0])


def test_plain_mappings_do() -> None:
    envs = load_vec_env(
        {"benchmark_name": "toy", "task_name": "reach", "__doc__": "x"}, {"n_envs": 4, "venv_parallel": False}
    )
    assert envs.num_envs == 4


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"autoreset": "never"}, "expected an autoreset mode among next_step, same_step, disabled, got 'never'"),
        ({"api": "gym"}, "expected the api 'gymnasium' or 'stable_baselines3', got 'gym'"),
        ({"api": "stable_baselines3", "autoreset": "disabled"}, "has only 'same_step', got 'disabled'"),
        ({"seed": -1}, "at least 0, got -1"),
        ({"venv_opts": {"n_env": 1}}, "unknown key 'venv_opts.n_env'; did you mean 'n_envs'"),
        ({"env_cfg": {"benchmark_name": "toy", "task_name": "rech"}}, "unknown task 'rech'"),
    ],
)
def test_what_cannot_be_loaded(keywords, message) -> None:
    with pytest.raises(DataError, match=message):
        load_vec_env(**{"env_cfg": toy("reach"), "venv_opts": HERE, **keywords})


@pytest.mark.parametrize("api", ["gymnasium", "stable_baselines3"])
def test_spaces_other_than_announced_are_refused(api, monkeypatch) -> None:
    class Other(Toy):
        name = "other"

        def spaces(self, config):
            return super().spaces(config)[0], Discrete(4)

    closed = []

    def close(self):
        closed.append(self)

    monkeypatch.setattr(ToyEnv, "close", close)
    register(Other())
    try:
        with pytest.raises(SpecError, match=r"the action space Discrete\(n=4, start=0\) of other 'reach', got Disc"):
            load_vec_env(EnvConfig(benchmark_name="other", task_name="reach"), HERE, api=api)
    finally:
        unregister("other")
    assert len(closed) == 3


@pytest.mark.parametrize(
    ("module", "keywords", "extra"),
    [("stable_baselines3.common.vec_env", {"api": "stable_baselines3"}, "sb3"), ("gymnasium", {}, "gymnasium")],
)
def test_missing_extras_are_named(monkeypatch, module, keywords, extra) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"penstock\[{extra}\]"):
        load_vec_env(toy("reach"), HERE, **keywords)
