"""SAME_STEP mode: the last observation and info of an episode, of environments that reuse what they return."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from penstock.errors import DataError
from penstock.record.checks import RecordingWarning
from penstock.record.memory import MemoryWriter
from penstock.record.same_step import OverwriteCheck
from penstock.record.vector import VectorCollector

BOX, CODE = spaces.Box(-np.inf, np.inf, (2,), np.float64), spaces.Box(0, 1000, (1,), np.int64)
FORMS = {"array": BOX, "dict": spaces.Dict({"x": BOX, "n": spaces.Discrete(1000)}), "tuple": spaces.Tuple((CODE, BOX))}


class Counter(gymnasium.Env):
    """Observation and info say the number of steps since the environment was made; one array and one dict for all."""

    def __init__(self, form="array", length=3, reuse=True):
        self.observation_space, self.action_space = FORMS[form], spaces.Discrete(2)
        self.length, self.reuse, self.total = length, reuse, 0
        self.x, self.code, self.info = np.zeros(2), np.zeros(1, np.int64), {"seen": np.zeros(2)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look()

    def step(self, action):
        self.t += 1
        observation, info = self.look()
        return observation, 0.0, self.t == self.length, False, info

    def look(self):
        self.total += 1
        if not self.reuse:
            self.x, self.code, self.info = np.zeros(2), np.zeros(1, np.int64), {"seen": np.zeros(2)}
        self.x[:] = self.code[:] = self.info["seen"][:] = self.info["deep"] = self.total
        observation = {
            spaces.Box: self.x,
            spaces.Dict: {"x": self.x, "n": self.total % 1000},
            spaces.Tuple: (self.code, self.x),
        }[type(self.observation_space)]
        return observation, self.info


class Remote(gymnasium.vector.VectorWrapper):
    """Environments that are not in reach, as in other processes."""

    unwrapped = None


def drive(envs, steps):
    envs.reset(seed=0)
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, np.int64))


def first_leaf(tree):
    while not isinstance(tree, np.ndarray):
        tree = tree["x"] if isinstance(tree, dict) else tree[1]
    return tree[:, 0]


@pytest.mark.parametrize("form", FORMS)
def test_environments_in_this_process_are_copied_in_time(form):
    writer = MemoryWriter()
    envs = SyncVectorEnv([lambda: Counter(form), lambda: Counter(form, 2)], autoreset_mode="SameStep")
    members = envs.envs
    with VectorCollector(envs, writer, record_infos=True) as recorder:
        drive(recorder, 12)
    assert envs.envs is members
    assert len(writer.episodes) == 4 + 6
    for episode in writer.episodes:
        values = first_leaf(episode.observations)
        np.testing.assert_array_equal(np.diff(values), 1)  # the last one is not that of the next episode
        np.testing.assert_array_equal(episode.infos["seen"][:, 0], values)
        np.testing.assert_array_equal(episode.infos["deep"], values)


@pytest.mark.parametrize("form", FORMS)
def test_environments_out_of_reach_that_reuse_arrays_are_refused(form):
    writer = MemoryWriter()
    with VectorCollector(Remote(SyncVectorEnv([lambda: Counter(form)], autoreset_mode="SameStep")), writer) as envs:
        with pytest.raises(DataError, match=r"observations.* of environment 0: .*was not saved; return copies"):
            drive(envs, 3)
        envs.step(np.zeros(1, np.int64))  # the next episode goes on
        assert writer.episodes == []


class FreshObservations(Counter):
    def look(self):
        observation, info = super().look()
        return observation.copy(), info


@pytest.mark.parametrize(
    ("make", "match"), [(lambda: Counter("dict"), "observations/x"), (FreshObservations, "last infos .* infos/seen")]
)
def test_worker_processes_that_reuse_arrays_are_refused(make, match):
    writer = MemoryWriter()
    envs = AsyncVectorEnv([make], autoreset_mode="SameStep")
    with (
        VectorCollector(envs, writer, record_infos=True, unfinished="drop") as recorder,
        pytest.raises(DataError, match=match),
    ):
        drive(recorder, 3)
    assert writer.episodes == []


@pytest.mark.parametrize(("verdict", "warned"), [("warn", 1), ("keep", 0)])
def test_overwritten_rows_can_be_recorded_on_request(verdict, warned):
    writer = MemoryWriter()
    envs = Remote(SyncVectorEnv([Counter], autoreset_mode="SameStep"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with VectorCollector(envs, writer, overwritten=verdict) as recorder:
            drive(recorder, 9)
    assert [w.category for w in caught] == [RecordingWarning] * warned
    assert len(writer.episodes) == 3


@pytest.mark.parametrize("form", FORMS)
def test_fresh_arrays_out_of_reach_are_recorded_unseen(form):
    writer = MemoryWriter()
    envs = Remote(SyncVectorEnv([lambda: Counter(form, reuse=False)] * 2, autoreset_mode="SameStep"))
    with VectorCollector(envs, writer, record_infos=True) as recorder:
        drive(recorder, 9)
    assert all((np.diff(first_leaf(e.observations)) == 1).all() for e in writer.episodes)
    assert len(writer.episodes) == 6


def test_final_observations_and_infos_as_batches():
    class Batches(Remote):
        """`final_obs` in the form of the observations, `final_info` as one dict an environment."""

        def step(self, actions):
            *result, infos = super().step(actions)
            if "final_obs" in infos:
                finals = [f or {"x": np.zeros(2), "n": 0} for f in infos["final_obs"]]
                infos["final_obs"] = {key: np.array([f[key] for f in finals]) for key in ("x", "n")}
                seen = infos["final_info"]
                infos["final_info"] = np.array([{key: seen[key][k] for key in ("seen", "deep")} for k in range(2)])
            return *result, infos

    writer = MemoryWriter()
    make = [lambda: Counter("dict", reuse=False), lambda: Counter("dict", 2, reuse=False)]
    with VectorCollector(
        Batches(SyncVectorEnv(make, autoreset_mode="SameStep")), writer, record_infos=True
    ) as recorder:
        drive(recorder, 6)
    assert len(writer.episodes) == 5
    for episode in writer.episodes:
        values = episode.observations["x"][:, 0]
        np.testing.assert_array_equal(np.diff(values), 1)
        np.testing.assert_array_equal(episode.infos["deep"], values)
        np.testing.assert_array_equal(episode.observations["n"], values)


def rows(*values, dtype=np.int64):
    return {"observations": np.array([[v] for v in values], dtype)}


def test_a_small_position_may_be_equal_by_chance_once():
    check = OverwriteCheck("error")
    with pytest.warns(RecordingWarning, match="not said again"):
        check(0, "observations", rows(1, 2, 3), {"observations": np.array([3])})
    with pytest.raises(DataError, match="environment 0"):
        check(0, "observations", rows(1, 2, 4), {"observations": np.array([4])})


def test_one_unequal_pair_clears_an_environment():
    check = OverwriteCheck("error")
    check(0, "observations", rows(1, 2, 3), {"observations": np.array([7])})
    for _ in range(2):
        check(0, "observations", rows(1, 2, 3), {"observations": np.array([3])})
    with pytest.warns(RecordingWarning, match="environment 1"):  # each environment has to show it
        check(1, "observations", rows(1, 2, 3), {"observations": np.array([3])})


def test_what_never_changes_is_no_sign():
    check = OverwriteCheck("error")
    columns = {"observations/goal": np.ones((4, 2)), "observations/n": np.arange(4)}
    for _ in range(3):
        check(0, "observations", columns, {"observations/goal": np.ones(2), "observations/n": 9})


def test_episodes_of_one_step_from_one_start_are_noticed_as_a_whole():
    check = OverwriteCheck("error")  # the row before is the start too
    with pytest.warns(RecordingWarning, match="observations"):
        check(0, "observations", rows(5, 5, dtype=np.float64), {"observations": np.array([5.0])})
    with pytest.raises(DataError, match="observations"):
        check(0, "observations", rows(5, 5, dtype=np.float64), {"observations": np.array([5.0])})
