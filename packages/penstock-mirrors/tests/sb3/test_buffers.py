"""Buffers against those of Stable-Baselines3: the same steps in, and the same samples out, bit for bit."""

# pyright: basic

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as theirs
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer as TheirHerReplayBuffer

import penstock
from penstock.errors import ArgumentError
from penstock_mirrors import sb3 as ours

FLAT = spaces.Box(-9, 9, (3,), np.float32)
GOALS = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), FLAT))
KINDS = {
    "flat": ("ReplayBuffer", FLAT, spaces.Box(-1, 1, (2,), np.float32), {}),
    "float64": ("ReplayBuffer", spaces.Box(-9, 9, (3, 2), np.float64), spaces.Box(-1, 1, (2,), np.float64), {}),
    "images": ("ReplayBuffer", spaces.Box(0, 255, (1, 4, 4), np.uint8), spaces.Discrete(4), {}),
    "discrete": ("ReplayBuffer", spaces.Discrete(7), spaces.MultiDiscrete([3, 4]), {}),
    "binary": ("ReplayBuffer", spaces.MultiBinary(4), spaces.MultiBinary(2), {}),
    "timeouts are ends": ("ReplayBuffer", FLAT, spaces.Discrete(4), {"handle_timeout_termination": False}),
    "dicts": ("DictReplayBuffer", spaces.Dict(x=FLAT, y=spaces.Discrete(5)), spaces.Discrete(4), {}),
    "n steps": ("NStepReplayBuffer", FLAT, spaces.Discrete(4), {"n_steps": 3, "gamma": 0.9}),
}


def walk(space: spaces.Space, action_space: spaces.Space, n: int, steps: int, seed: int):
    """Steps of environments: ends, time limits, resets by the caller, and terminal observations."""
    rng = np.random.default_rng(seed)
    space.seed(seed)
    action_space.seed(seed)

    def observed():
        each = [space.sample() for _ in range(n)]
        if isinstance(each[0], dict):
            return {key: np.stack([one[key] for one in each]) for key in each[0]}
        return np.stack(each)

    def mixed(one, other, where):
        if isinstance(one, dict):
            return {key: mixed(one[key], other[key], where) for key in one}
        return np.where(where.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    now = observed()
    for _ in range(steps):
        after, fresh = observed(), observed()
        done = rng.random(n) < 0.2
        infos = [{"TimeLimit.truncated": bool(end and rng.random() < 0.5)} for end in done]
        yield now, after, np.stack([action_space.sample() for _ in range(n)]), rng.normal(size=n), done, infos
        now = mixed(fresh, after, done | (rng.random(n) < 0.05))


def flat_of(sample):
    """Tensors of a sample."""
    for value in sample:
        yield from value.values() if isinstance(value, dict) else [] if value is None else [value]


def assert_same_samples(one, other, seed: int, env=None) -> None:
    for size in (1, 7, 64):
        np.random.seed(seed + size)
        a = list(flat_of(one.sample(size, env)))
        after = np.random.get_state()[1].tolist()
        np.random.seed(seed + size)
        b = list(flat_of(other.sample(size, env)))
        assert after == np.random.get_state()[1].tolist()
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            assert x.shape == y.shape
            assert torch.equal(x, y)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_of_stable_baselines3(kind: str, n: int) -> None:
    name, space, action_space, options = KINDS[kind]
    seed = 17 * n + len(kind)
    made = [
        getattr(module, name)(23 * n + 1, space, action_space, device="cpu", n_envs=n, **options)
        for module in (theirs, ours)
    ]
    assert isinstance(made[1], type(made[0]))
    for number, step in enumerate(walk(space, action_space, n, 90, seed)):
        for buffer in made:
            buffer.add(*(dict(part) if isinstance(part, dict) else part for part in step))
        assert [(b.pos, b.full, b.size()) for b in made[:1]] == [(b.pos, b.full, b.size()) for b in made[1:]]
        if number % 6 == 0:
            assert_same_samples(*made, seed + number)
    assert len(made[1].replay) == made[1].buffer_size * n


def learned(buffer, algorithm: str, folder, steps: int = 400):
    """Parameters after learning, saving with the buffer, and learning on from what was loaded."""
    make, env, options = {
        "DQN": (stable_baselines3.DQN, "CartPole-v1", {"learning_starts": 50, "train_freq": 4, "policy": "MlpPolicy"}),
        "SAC": (stable_baselines3.SAC, "Pendulum-v1", {"learning_starts": 50, "train_freq": 8, "policy": "MlpPolicy"}),
        "HER": (
            stable_baselines3.DQN,
            BitFlippingEnv(n_bits=4, continuous=False, max_steps=4),
            {"learning_starts": 50, "train_freq": 4, "policy": "MultiInputPolicy"},
        ),
    }[algorithm]
    options |= {"seed": 3, "batch_size": 32, "buffer_size": 300, "device": "cpu", "policy_kwargs": {"net_arch": [16]}}
    model = make(env=env, replay_buffer_class=buffer, **options)
    model.learn(steps)
    model.save(folder / "model")
    model.save_replay_buffer(folder / "buffer")
    loaded = make.load(folder / "model", env=model.get_env())
    loaded.load_replay_buffer(folder / "buffer")
    loaded.set_random_seed(5)
    loaded.learn(steps // 2, reset_num_timesteps=False)
    return loaded


@pytest.mark.filterwarnings("ignore:.*last trajectory:UserWarning")
@pytest.mark.parametrize(
    ("algorithm", "one", "other"),
    [
        ("DQN", theirs.ReplayBuffer, ours.ReplayBuffer),
        ("DQN", theirs.NStepReplayBuffer, ours.NStepReplayBuffer),
        ("SAC", theirs.ReplayBuffer, ours.ReplayBuffer),
        ("HER", TheirHerReplayBuffer, ours.HerReplayBuffer),
    ],
)
def test_algorithms_learn_the_same_parameters_and_go_on_from_a_saved_buffer(tmp_path, algorithm, one, other) -> None:
    models = [learned(buffer, algorithm, tmp_path) for buffer in (one, other)]
    assert type(models[1].replay_buffer) is other
    for (name, x), (_, y) in zip(*(model.policy.state_dict().items() for model in models), strict=True):
        assert torch.equal(x, y), name
    if algorithm != "HER":
        assert_same_samples(*(model.replay_buffer for model in models), seed=4)


def test_normalized_observations_and_rewards() -> None:
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    env.reset()
    made = [m.ReplayBuffer(40, env.observation_space, env.action_space, device="cpu") for m in (theirs, ours)]
    for _ in range(50):
        now = env.get_original_obs()
        action = np.array([env.action_space.sample()])
        _, _, done, infos = env.step(action)
        for buffer in made:
            buffer.add(now, env.get_original_obs(), action, env.get_original_reward(), done, infos)
    assert_same_samples(*made, seed=8, env=env)


def test_a_folder_has_the_episodes_and_a_buffer_goes_on_beside_them(tmp_path) -> None:
    made, written = [], []
    for seed in (1, 2):
        buffer = ours.ReplayBuffer(30, FLAT, spaces.Discrete(4), device="cpu", path=tmp_path / "run")
        other = theirs.ReplayBuffer(30, FLAT, spaces.Discrete(4), device="cpu")
        for step in walk(FLAT, spaces.Discrete(4), 1, 70, seed):
            buffer.add(*step)
            other.add(*step)
            written.append(step)
        assert_same_samples(other, buffer, seed)
        buffer.replay.close()
        made.append(buffer)
    data = penstock.open(tmp_path / "run")
    steps = data.steps()[:]
    np.testing.assert_array_equal(steps["observations"], np.concatenate([step[0] for step in written]))
    np.testing.assert_array_equal(steps["rewards"], np.concatenate([step[3] for step in written]).astype("f4"))
    timeouts = np.array([step[5][0]["TimeLimit.truncated"] for step in written])
    dones = np.concatenate([step[4] for step in written])
    np.testing.assert_array_equal(steps["terminations"], dones & ~timeouts)
    assert (steps["truncations"] >= timeouts).all()
    assert not (steps["truncations"] & steps["terminations"]).any()


def test_reset_forgets_all_steps_and_wrong_use_names_the_right_call() -> None:
    buffer = ours.ReplayBuffer(30, FLAT, spaces.Discrete(4), device="cpu")
    for step in walk(FLAT, spaces.Discrete(4), 1, 40, 0):
        buffer.add(*step)
    buffer.reset()
    assert (buffer.size(), len(buffer.replay)) == (0, 0)
    with pytest.raises(ArgumentError, match="leave it out"):
        ours.ReplayBuffer(30, FLAT, spaces.Discrete(4), optimize_memory_usage=True)
    with pytest.raises(ArgumentError, match="use ReplayBuffer"):
        ours.DictReplayBuffer(30, FLAT, spaces.Discrete(4))
