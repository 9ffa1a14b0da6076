"""The toy benchmark: seeded, correct, solvable by looking, and as pictures what it says."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from penstock.errors import DataError, SpecError
from penstock.recording.rollout import rollout
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs import EnvConfig, expert, named, spaces_of
from penstock_imitation.envs.toy import TASKS
from penstock_imitation.envs.toy_env import ToyEnv
from penstock_imitation.envs.toy_scene import CORAL, FLOORS, GOLD, TEAL, WHITE, Shape, draw, find
from penstock_imitation.envs.wrappers import ChannelsFirst, FrameStack


def trace(task, seed, steps=60):
    env = ToyEnv(task)
    env.action_space.seed(seed)
    seen = [env.reset(seed=seed)]
    for _ in range(steps):
        *step, over, cut, info = env.step(env.action_space.sample())
        seen.append((*step, over, cut, info))
        if over or cut:
            seen.append(env.reset())
    return [item for entry in seen for item in entry]


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(map(np.array_equal, a.values(), b.values()))
    return np.array_equal(a, b)


@pytest.mark.parametrize("task", TASKS)
def test_a_seed_decides_everything(task) -> None:
    for seed in (3, 4):
        assert all(map(same, trace(task, seed), trace(task, seed)))
    first = [ToyEnv(task).reset(seed=seed)[0] for seed in range(8)]
    assert len({frame.tobytes() for frame in first}) == 8


@pytest.mark.parametrize("task", TASKS)
def test_the_environments_keep_gymnasiums_rules(task) -> None:
    check_env(ToyEnv(task), skip_render_check=True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stack", [1, 3])
def test_spaces_are_known_before(task, stack) -> None:
    config = EnvConfig(benchmark_name="toy", task_name=task, toy_frame_stack=stack)
    env = named("toy").factory(config)()
    assert spaces_of(config) == (from_gymnasium(env.observation_space), from_gymnasium(env.action_space))
    assert env.reset(seed=0)[0].shape == (3 * stack, 32, 32)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_experts_solve_what_chance_does_not(task, seed) -> None:
    solved = [total > 0 for total in rollout(ToyEnv(task), expert(task), episodes=40, seed=seed).returns]
    lucky = [total > 0 for total in rollout(ToyEnv(task), episodes=20, seed=seed).returns]
    assert np.mean(solved) > 0.9
    assert np.mean(lucky) < 0.5


@pytest.mark.parametrize("task", TASKS)
def test_experts_act_on_batches_as_on_single_observations(task) -> None:
    frames = np.stack([ToyEnv(task).reset(seed=seed)[0] for seed in range(6)])
    each = np.stack([expert(task)(frame) for frame in frames])
    np.testing.assert_array_equal(expert(task)(frames), each)
    stacked = np.concatenate([np.zeros_like(frames), frames], axis=1)
    np.testing.assert_array_equal(expert(task)(stacked), each)
    assert all(TASKS[task].actions.contains(each))


@pytest.mark.parametrize("task", TASKS)
def test_episodes_end_by_success_or_by_the_limit(task) -> None:
    env, limit = ToyEnv(task), TASKS[task].limit
    still = np.zeros(2, np.float32) if task == "push" else 0
    ends = []
    for seed in range(4):
        env.reset(seed=seed)
        for step in range(1, limit + 1):
            _, reward, over, cut, _ = env.step(still)
            assert (over, cut) == (False, step == limit)
            assert reward == -0.01
        observation, _ = env.reset(seed=seed)
        over = cut = False
        while not (over or cut):
            observation, reward, over, cut, info = env.step(expert(task)(observation))
        ends.append((over, cut, reward))
    assert ends == [(True, False, 1.0)] * 4
    mover = info["box" if task == "push" else "agent"]
    assert np.hypot(*(mover - info["target"])) < 0.16


@pytest.mark.parametrize(
    ("task", "colors"), [("reach", (WHITE, GOLD)), ("push", (WHITE, GOLD, CORAL)), ("chase", (WHITE, TEAL))]
)
def test_pictures_show_the_true_positions(task, colors) -> None:
    names = {WHITE: "agent", GOLD: "target", TEAL: "target", CORAL: "box"}
    for seed in range(20):
        frame, info = ToyEnv(task).reset(seed=seed)
        for color in colors:
            np.testing.assert_allclose(find(frame, color), info[names[color]], atol=0.03)


def test_nothing_leaves_the_plane_and_the_box_is_moved_by_touch_alone() -> None:
    env = ToyEnv("push")
    env.action_space.seed(0)
    env.reset(seed=0)
    moved = 0
    for k in range(600):
        before = env._box.copy()
        towards = np.sign(before - env._agent).astype(np.float32)  # so that the box is pushed, into the walls too
        *_, over, cut, info = env.step(env.action_space.sample() if k % 3 == 0 else towards)
        assert all(0 < x < 1 for name in ("agent", "box", "target") for x in info[name])
        touched = np.hypot(*(env._box - env._agent)) < 0.18
        assert touched or np.array_equal(before, env._box)
        moved += not np.array_equal(before, env._box)
        if over or cut:
            env.reset()
    assert moved > 50


def test_drawing() -> None:
    small = draw([Shape("disc", np.array([0.3, 0.6]), 0.1, CORAL)], 0, 32)
    large = draw([Shape("disc", np.array([0.3, 0.6]), 0.1, CORAL)], 0, 256)
    assert (small.shape, small.dtype, large.shape) == ((3, 32, 32), np.uint8, (3, 256, 256))
    np.testing.assert_allclose(large.reshape(3, 32, 8, 32, 8).mean(axis=(2, 4)), small, atol=40)
    assert len({draw([], floor, 32).tobytes() for floor in range(len(FLOORS))}) == len(FLOORS)
    assert np.isnan(find(draw([], 0, 32), WHITE)).all()
    view = ToyEnv("push", render_mode="rgb_array")
    view.reset(seed=0)
    assert view.render().shape == (256, 256, 3)


def test_unknown_tasks() -> None:
    for ask in (expert, ToyEnv, lambda name: spaces_of({"benchmark_name": "toy", "task_name": name})):
        with pytest.raises(DataError, match="unknown task 'pusch' of the benchmark 'toy'; did you mean 'push'"):
            ask("pusch")


@pytest.mark.parametrize("start", ["zero", "repeat"])
def test_frame_stacks_are_oldest_first(start) -> None:
    env, plain = FrameStack(ToyEnv("reach"), 3, start=start), ToyEnv("reach")
    for seed in (0, 1):
        first = plain.reset(seed=seed)[0]
        frames = [np.zeros_like(first) if start == "zero" else first] * 2 + [first]
        stacks = [env.reset(seed=seed)[0]]
        for action in (1, 2, 3, 4):
            frames.append(plain.step(action)[0])
            stacks.append(env.step(action)[0])
        for t, stack in enumerate(stacks):  # each an array of its own, so that the early ones are still what they were
            np.testing.assert_array_equal(stack, np.concatenate(frames[t : t + 3]))


def test_channels_first() -> None:
    class Rows(gymnasium.ObservationWrapper):
        def __init__(self):
            super().__init__(ToyEnv("reach"))
            self.observation_space = gymnasium.spaces.Box(0, 255, (32, 32, 3), np.uint8)

        def observation(self, observation):
            return observation.transpose(1, 2, 0)

    frame = ChannelsFirst(Rows()).reset(seed=0)[0]
    np.testing.assert_array_equal(frame, ToyEnv("reach").reset(seed=0)[0])
    assert frame.flags["C_CONTIGUOUS"]
    assert ChannelsFirst(Rows()).observation_space == ToyEnv("reach").observation_space


@pytest.mark.parametrize(
    "wrap",
    [
        ChannelsFirst,
        lambda env: FrameStack(env, 2, start="zero"),
        lambda _: FrameStack(ToyEnv("reach"), 0, start="zero"),
        lambda _: FrameStack(ToyEnv("reach"), 2, start="none"),  # type: ignore[arg-type]
    ],
)
def test_wrappers_say_what_they_take(wrap) -> None:
    with pytest.raises(SpecError, match="expected"):
        wrap(gymnasium.make("CartPole-v1"))
