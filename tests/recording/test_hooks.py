from __future__ import annotations

import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.core.spec import Field, Spec
from penstock.errors import DataError
from penstock.recording.collector import Collector
from penstock.recording.hooks import reward_statistics
from penstock.recording.memory import MemoryWriter


@pytest.fixture
def writer():
    return MemoryWriter()


def state(step):
    step.extras["state"] = {"qpos": np.full(3, step.env.t, np.float64), "name": f"t{step.env.t}"}
    if not step.is_reset:
        step.extras["log_prob"] = float(-step.env.t)
    return step


def test_extra_groups_have_as_many_rows_as_they_were_given(toy, writer):
    with Collector(toy(longest=5), writer, on_step=state, seed=0) as env:
        for _ in range(4):
            env.reset()
            while not any(env.step(0)[2:4]):
                pass
    for episode in writer.episodes:
        steps = len(episode)
        assert episode.spec["state/qpos"].align == "boundary"
        assert episode.spec["log_prob"].align == "step"
        np.testing.assert_array_equal(episode.extras["state"]["qpos"][:, 0], np.arange(steps + 1))
        assert episode.extras["state"]["name"].strings() == [f"t{t}" for t in range(steps + 1)]
        assert episode.extras["log_prob"].tolist() == [-t for t in range(1, steps + 1)]


def test_what_the_hook_changes_is_recorded_and_what_the_caller_gets_is_not_changed(toy, writer):
    def shape(step):
        step.observation = step.observation * 0 + 1
        if not step.is_reset:
            step.reward, step.action = 7, 2
        step.info = {"only": 1}
        return step

    with Collector(toy(longest=10**6), writer, on_step=shape, record_infos=True, seed=0) as env:
        first, info = env.reset()
        assert not (first == 1).all()
        assert "t" in info
        assert env.step(0)[1] != 7
    episode = writer.episodes[0]
    assert (episode.observations == 1).all()
    assert (episode.rewards.tolist(), episode.actions.tolist()) == ([7], [2])
    assert episode.columns["infos/only"].tolist() == [1, 1]


def test_a_hook_ends_the_episode_and_the_next_goes_on(toy, writer, plain):
    def cut(step):
        step.terminated = not step.is_reset and step.env.t % 3 == 0
        return step

    with Collector(toy(longest=10**6), writer, on_step=cut, seed=0) as env:
        env.reset(seed=2)
        for _ in range(7):
            assert env.step(1)[2] is False
    (oracle := plain(toy(longest=10**6))).run(2, [1] * 7)
    seen = np.array(oracle.episodes[0][0]["observations"])
    assert [len(e) for e in writer.episodes] == [3, 3, 1]
    for e, episode in enumerate(writer.episodes):
        np.testing.assert_array_equal(episode.observations, seen[3 * e : 3 * e + len(episode) + 1])
    assert [e.terminations[-1] for e in writer.episodes] == [True, True, False]
    assert [e.metadata.get("continued", False) for e in writer.episodes] == [False, True, True]


def test_extras_of_a_continued_episode_carry_their_last_row(toy, writer):
    with Collector(toy(longest=10**6), writer, on_step=state, seed=0) as env:
        env.reset()
        env.step(0)
        env.truncate()
        env.step(0)
    assert writer.episodes[1].extras["state"]["qpos"][:, 0].tolist() == [1, 2]
    assert writer.episodes[1].extras["state"]["name"].strings() == ["t1", "t2"]
    assert writer.episodes[1].extras["log_prob"].tolist() == [-2]


def test_a_hook_may_survive_the_end_that_the_environment_declares(toy, writer):
    def never(step):
        step.terminated = step.truncated = False
        return step

    with Collector(toy(longest=1), writer, on_step=never, seed=0) as env:
        env.reset()
        assert any(env.step(0)[2:4])
        env.step(0)
    assert [len(e) for e in writer.episodes] == [2]
    assert writer.episodes[0].truncations.tolist() == [False, True]


@pytest.mark.parametrize("key", ["rewards", "infos", "rewards/b", "a//b", "", 3])
def test_extras_cannot_take_the_names_of_the_standard(toy, writer, key):
    def bad(step):
        step.extras[key] = 1
        return step

    with pytest.raises(DataError, match=r"expected keys that are strings.* and not the standard's"):
        Collector(toy(), writer, on_step=bad).reset()


def test_extras_must_come_at_every_step(toy, writer):
    def sometimes(step):
        if step.env.t != 2:
            step.extras["a"] = 1
        return step

    with Collector(toy(longest=10**6), writer, on_step=sometimes, seed=0) as env:
        env.reset()
        env.step(0)
        with pytest.raises(DataError, match=r"expected a value for a, got none - at row 2; .*extras must be given"):
            env.step(0)
    assert [len(e) for e in writer.episodes] == [1]


@pytest.mark.parametrize(
    "rewards",
    [
        [1.0, 2.0, 4.0],
        [0.1] * 7,
        [0.1] * 20,
        [1.0] * 20,
        np.linspace(-1, 1, 100),
        np.random.default_rng(0).normal(size=50),
        [1e200, -1e200],
        [1e308] * 3,
        [1.0, np.nan],
        [np.nan, 1.0],
        [np.inf, 1.0],
        [-np.inf] * 70,
        [np.inf, -np.inf],
    ],
)
def test_figures_of_rewards_are_those_of_numpy(rewards):
    """Also of short episodes, where they come of lists, and where a sum is too large or not a number."""
    rewards = np.asarray(rewards)
    spec = Spec({"rewards": Field(np.dtype("f8"))})
    figures = reward_statistics(Episode(spec, {"rewards": rewards}))
    with np.errstate(all="ignore"):
        expected = [rewards.sum(), rewards.mean(), rewards.std(), rewards.max(), rewards.min()]
    np.testing.assert_array_equal(list(figures.values()), expected)  # to the last bit
    assert all(type(each) is float for each in figures.values())
