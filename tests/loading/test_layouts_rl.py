"""Layouts of reinforcement-learning libraries against the buffers of Stable-Baselines3, and what they refuse."""

from __future__ import annotations

from itertools import cycle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

import penstock
from penstock.errors import SpecError
from penstock.transforms import FlattenObservations

RL_LAYOUTS = ["sb3", "d3rlpy", "corl", "torchrl", "tianshou"]
BOX = spaces.Box(-1, 1, (3,), np.float32)
OBSERVATIONS = {
    "vectors": BOX,
    "float64": spaces.Box(-1, 1, (2, 2), np.float64),
    "images": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "bits": spaces.MultiBinary(4),
    "dict": spaces.Dict({"z": BOX, "a": spaces.Discrete(3), "m": spaces.MultiDiscrete([2, 3])}),
}
ACTIONS = {
    "vectors": BOX,
    "float64": spaces.Box(-1, 1, (2, 2), np.float64),
    "discrete": spaces.Discrete(4),
    "multi": spaces.MultiDiscrete([2, 3]),
}


class Random(gymnasium.Env):
    """Environment of random observations, which ends by itself in half of its steps."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        rewards = float(self.np_random.normal())
        terminated, truncated = (bool(self.np_random.random() < 0.15) for _ in range(2))
        return self.observation_space.sample(), rewards, terminated, truncated, {}


def played(tmp_path, observation_space, action_space, seed, buffer_class, **options):
    """The same steps as a dataset and in a buffer of Stable-Baselines3."""
    buffer = buffer_class(200, observation_space, action_space, device="cpu", **options)
    with penstock.record(Random(observation_space, action_space), tmp_path / "data") as env:
        env.action_space.seed(seed)
        observation, _ = env.reset(seed=seed)
        for _ in range(60):
            action = env.action_space.sample()
            after, reward, terminated, truncated, _ = env.step(action)
            infos = [{"TimeLimit.truncated": truncated and not terminated}]
            batched = [_batched(each) for each in (observation, after, action)]
            buffer.add(*batched, np.array([reward]), np.array([terminated or truncated]), infos)
            observation = after
            if terminated or truncated:
                observation, _ = env.reset()
    return penstock.open(tmp_path / "data"), buffer


def _batched(value):
    return (
        {key: np.asarray(v)[None] for key, v in value.items()} if isinstance(value, dict) else np.asarray(value)[None]
    )


def equal(ours, theirs):
    if theirs is None:
        assert ours is None
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            equal(ours[key], theirs[key])
    else:
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("observations", "actions"), list(zip(OBSERVATIONS, cycle(ACTIONS), strict=False)))
def test_sb3_is_what_its_buffer_gives(tmp_path, observations, actions):
    kind = DictReplayBuffer if observations == "dict" else ReplayBuffer
    data, buffer = played(tmp_path, OBSERVATIONS[observations], ACTIONS[actions], 3, kind)
    loader = data.transitions().loader(1000, output="torch", layout="sb3")
    batch = next(iter(loader))
    theirs = buffer._get_samples(np.arange(data.total_steps))
    assert batch._fields == theirs._fields
    for name in theirs._fields:
        equal(getattr(batch, name), getattr(theirs, name))
    ends = data.steps()[:]
    assert batch.dones.sum() == ends["terminations"].sum() > 0
    assert ends["truncations"].any()
    assert loader.why(batch.ticket).table.n == data.total_steps


@pytest.mark.parametrize("seed", range(3))
def test_sb3_of_n_steps_is_what_its_buffer_gives(tmp_path, seed):
    steps = 2 + seed
    data, buffer = played(tmp_path, BOX, BOX, seed, NStepReplayBuffer, n_steps=steps, gamma=0.9)
    batch = next(iter(data.transitions(n_step=steps, gamma=0.9).loader(1000, output="torch", layout="sb3")))
    theirs = buffer._get_samples(np.arange(data.total_steps))
    for name in ("observations", "actions", "next_observations", "dones", "rewards"):
        equal(getattr(batch, name), getattr(theirs, name))
    # A terminated step has no value to discount: its factor is gamma^k there and 0 here.
    equal(batch.discounts, theirs.discounts * (1 - theirs.dones))


def transitions(seed=0, **columns):
    rng = np.random.default_rng(seed)
    data = {
        "observations": rng.random((33, 3)),
        "actions": rng.random((30, 2)),
        "rewards": rng.random(30),
        "terminations": np.arange(30) % 10 == 9,
        "truncations": np.arange(30) % 10 == 19,
    }
    return penstock.from_arrays(data | columns, [10, 10, 10])


@pytest.mark.parametrize("layout", RL_LAYOUTS)
def test_a_rank_without_rows_has_a_batch_without_rows(layout):
    columns = {"observations": {"x": np.zeros((5, 2))}, "truncations": np.zeros(4, bool)}
    space = penstock.spaces.Dict({"x": penstock.spaces.Box(np.zeros(2), np.ones(2), np.dtype("f8"))})
    rest = {"actions": np.zeros((4, 3)), "rewards": np.zeros(4), "terminations": np.zeros(4, bool)}
    data = penstock.from_arrays(columns | rest, [4]).transitions().map(FlattenObservations(space))
    for whole, part in zip(*(data.loader(3, layout=layout, rank=0, world=n) for n in (1, 3)), strict=True):
        for one, two in zip(leaves(whole), leaves(part), strict=True):
            assert (one.dtype, one.shape[1:]) == (two.dtype, two.shape[1:])
    assert {len(leaf) for leaf in leaves(part)} == {0}


def leaves(value):
    if isinstance(value, np.ndarray):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [leaf for each in inner for leaf in leaves(each)]


def test_corl_is_five_float32_arrays():
    batch = next(iter(transitions().transitions().loader(30, layout="corl")))
    observations, actions, rewards, next_observations, dones = batch
    assert {array.dtype for array in batch} == {np.dtype("f4")}
    assert observations.shape == next_observations.shape == (30, 3)
    assert actions.shape == (30, 2)
    assert rewards.shape == dones.shape == (30, 1)
    assert dones[:, 0].nonzero()[0].tolist() == [9, 19, 29]


@pytest.mark.parametrize("layout", RL_LAYOUTS)
def test_layouts_refuse_what_they_cannot_express(layout):
    data = transitions()
    with pytest.raises(SpecError, match=r"without \['next_observations'\].*transitions\(\)"):
        data.steps().loader(4, layout=layout).peek()
    stacks = {"observations": (-1, 1), "next_observations": ("observations", 0, 2)}
    with pytest.raises(SpecError, match=r"one number of|a vector of"):
        data.windows(4, columns=stacks).loader(4, layout=layout).peek()
    with pytest.raises(SpecError, match=r"one number of|a vector of"):
        data.windows(1, columns={"next_observations": ("observations", 1, 2)}).loader(4, layout=layout).peek()
    if layout != "sb3":
        with pytest.raises(SpecError, match="n-step"):
            data.transitions(n_step=2).loader(4, layout=layout).peek()
    if layout in ("sb3", "d3rlpy", "corl"):
        with pytest.raises(SpecError, match="change the loss"):
            transitions(weights=np.ones(30)).transitions().loader(4, layout=layout).peek()
        nested = {"observations": {"a": {"b": np.zeros((33, 2)), "c": np.zeros(33)}}}
        with pytest.raises(SpecError, match=r"FlattenObservations|one level"):
            transitions(**nested).transitions().loader(4, layout=layout).peek()


@pytest.mark.parametrize("seed", range(3))
def test_flat_observations_are_those_of_gymnasium(tmp_path, seed):
    rng = np.random.default_rng(seed)
    cells = spaces.MultiDiscrete([[2, 3], [1, 2]], start=[[0, 1], [2, 0]])
    numbers = spaces.Tuple([spaces.Discrete(3, start=2), cells])
    images = spaces.Dict({"rgb": spaces.Box(0, 255, (2, 2, 3), np.uint8), "bits": spaces.MultiBinary([2, 2])})
    parts = [("z", OBSERVATIONS["float64"]), ("a", numbers), ("m", images), ("x", BOX)]
    space = spaces.Dict([parts[i] for i in rng.permutation(4)[: 2 + seed]])
    seen = []
    with penstock.record(Random(space, spaces.Discrete(2)), tmp_path / "data") as env:
        observation, _ = env.reset(seed=seed)
        for _ in range(15):
            seen.append(spaces.utils.flatten(space, observation))
            observation, _, *ends, _ = env.step(0)
            if any(ends):
                observation, _ = env.reset()
    data = penstock.open(tmp_path / "data")
    flat = data.transitions().map(FlattenObservations(data.spec.observation_space))
    batch = next(iter(flat.loader(15)))
    wanted = np.stack(seen)
    assert batch["observations"].dtype == wanted.dtype == spaces.utils.flatten_space(space).dtype
    np.testing.assert_array_equal(batch["observations"], wanted)
    assert batch["next_observations"].shape == wanted.shape
    windows = data.windows(4, pad="zero").map(FlattenObservations(data.spec.observation_space))
    np.testing.assert_array_equal(windows[:15]["observations"][:, 0], wanted)
    other = data.transitions().map(FlattenObservations(data.spec.observation_space, "observations"))
    assert flat.fingerprint == other.fingerprint != data.transitions().fingerprint


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (None, "got None"),
        (penstock.spaces.Dict({"x": penstock.spaces.Text(3)}), "numbers"),
    ],
)
def test_spaces_that_have_no_flat_form_are_refused(space, words):
    with pytest.raises(SpecError, match=words):
        FlattenObservations(space)


def test_flat_observations_need_their_columns():
    space = penstock.spaces.Dict({"y": penstock.spaces.Discrete(3)})
    for words, column in (
        (r"\['observations/y'\] of the space, got \['observations'\]", "observations"),
        ("to flatten", "state"),
    ):
        with pytest.raises(SpecError, match=words):
            transitions().steps().map(FlattenObservations(space, column))[:2]
    both = {"observations": {"y": np.zeros(33, int), "z": np.zeros(33)}}
    with pytest.raises(SpecError, match=r"got \['observations/y', 'observations/z'\]"):
        transitions(**both).steps().map(FlattenObservations(space))[:2]
    wide = penstock.spaces.Box(np.zeros(4), np.ones(4), np.dtype("f8"))
    with pytest.raises(SpecError, match=r"shape \(4,\)"):
        transitions().steps().map(FlattenObservations(wide))[:2]
