from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from penstock.errors import DataError
from penstock.recording.collector import Collector
from penstock.recording.memory import MemoryWriter
from penstock.recording.rollout import rollout, rollout_vector
from penstock.recording.vector import VectorCollector


def test_returns_and_lengths_are_those_recorded(toy, same_as_replay):
    reports = []
    with Collector(toy(), writer := MemoryWriter()) as env:
        done = rollout(env, episodes=7, seed=3, on_episode=lambda *report: reports.append(report))
    assert done.episodes == len(writer.episodes) == 7
    assert done.lengths == [len(e) for e in writer.episodes]
    assert done.returns == pytest.approx([e.total_reward for e in writer.episodes])
    assert reports == list(zip(range(7), done.returns, done.lengths, strict=True))
    assert done.steps == sum(done.lengths)
    same_as_replay(toy, writer.episodes)


def test_the_seed_decides_everything(toy):
    def run(**how):
        with Collector(toy(), writer := MemoryWriter()) as env:
            rollout(env, episodes=4, **how)
        return [(e.metadata["seed"], e.actions.tolist()) for e in writer.episodes]

    assert run(seed=1) == run(seed=1) != run(seed=2)
    assert run() != run()


def test_the_policy_sees_each_observation(toy):
    seen = []
    with Collector(toy(longest=10**6), writer := MemoryWriter()) as env:
        done = rollout(env, lambda o: seen.append(o.copy()) or 1, steps=5, seed=0)
    np.testing.assert_array_equal(writer.episodes[0].observations[:-1], seen)
    assert (done.steps, done.episodes) == (5, 0)
    assert writer.episodes[0].actions.tolist() == [1] * 5


def test_whichever_limit_comes_first(toy):
    assert rollout(toy(longest=1), episodes=2, steps=100, seed=0).steps == 2
    assert rollout(toy(longest=1), episodes=100, steps=3, seed=0).episodes == 3
    for drive, env in ((rollout, toy()), (rollout_vector, SyncVectorEnv([toy]))):
        with pytest.raises(DataError, match="got neither"):
            drive(env)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vectorised_rollouts_count_what_is_recorded(toy, mode):
    make = [lambda: toy(reuse=False)] * 3
    envs = VectorCollector(
        SyncVectorEnv(make, autoreset_mode=mode), writer := MemoryWriter(), seed=5, unfinished="drop"
    )
    reports = []
    with envs:
        done = rollout_vector(envs, episodes=20, seed=3, on_episode=lambda *report: reports.append(report))
    assert done.episodes == len(writer.episodes) >= 20
    assert done.lengths == [len(e) for e in writer.episodes]
    assert done.returns == pytest.approx([e.total_reward for e in writer.episodes])
    assert [r[0] for r in reports] == list(range(done.episodes))


def test_vectorised_rollouts_are_seeded(toy):
    def run(seed):
        with VectorCollector(SyncVectorEnv([toy] * 2), writer := MemoryWriter()) as envs:
            rollout_vector(envs, steps=40, seed=seed)
        return [e.actions.tolist() for e in writer.episodes]

    assert run(1) == run(1) != run(2)


def test_vectorised_policies_get_batches():
    envs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    done = rollout_vector(envs, lambda o: (o[:, 2] > 0).astype(np.int64), steps=400, seed=0)
    assert done.steps >= 400
    assert np.mean(done.lengths) > 15
