"""SAME_STEP mode: the last observation and info of an episode, of environments that reuse what they return."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from penstock.errors import DataError
from penstock.recording.checks import RecordingWarning
from penstock.recording.memory import MemoryWriter
from penstock.recording.same_step import OverwriteCheck
from penstock.recording.vector import VectorCollector

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


class Levels(Counter):
    """Resets say a level from the second one on, and steps the time."""

    level = -1

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        self.level += 1
        return observation, {"level": self.level} if self.level else {}

    def step(self, action):
        observation, _, *ends, _ = super().step(action)
        return observation, float(self.level + 1), *ends, {"time": self.t}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_infos_of_wrappers_are_of_the_episode_that_ended(mode, kind):
    """Statistics that a wrapper adds are of the last step; what only later resets return is of the first row."""
    example = {"episode": {"r": 0.0, "l": 0, "t": 0.0}, "level": 0}
    envs = RecordEpisodeStatistics(
        kind([lambda: Levels(reuse=False), lambda: Levels(length=2, reuse=False)], autoreset_mode=mode)
    )
    with VectorCollector(
        envs, writer := MemoryWriter(), record_infos=True, info_example=example, unfinished="drop"
    ) as recorder:
        drive(recorder, 12)
    assert len(writer.episodes) >= 6
    for episode in writer.episodes:
        columns, steps, level = episode.columns, len(episode), int(episode.rewards[0]) - 1
        assert columns["infos_mask/episode/r"].tolist() == [False] * steps + [True]
        assert columns["infos/episode/r"][-1] == episode.rewards.sum()
        assert columns["infos/episode/l"][-1] == steps
        assert columns["infos_mask/level"].tolist() == [level > 0] + [False] * steps
        assert columns["infos/level"][0] == level
        assert columns["infos/time"].tolist() == [0, *range(1, steps + 1)]
        assert columns["infos_mask/time"].tolist() == [False] + [True] * steps


class WithoutFinalInfo(Remote):
    """Last observations as an array for all environments, and no infos of last steps, but a score where one ended."""

    def step(self, actions):
        *result, infos = super().step(actions)
        if "final_info" in infos:
            del infos["final_info"]
            infos["final_obs"] = np.stack([np.zeros(2) if f is None else f for f in infos["final_obs"]])
            infos["score"] = np.array([10.0, 20.0])
        return *result, infos


class Lives(Counter):
    """Infos are 0 where an episode begins, as is the fill value of a missing one."""

    def look(self):
        return super().look()[0].copy(), {"used": self.t, "name": f"life {self.t}", "at": np.full(2, self.t)}


@pytest.mark.parametrize("length", [1, 3])
def test_environments_without_final_info_lack_the_infos_of_last_rows(length):
    envs = WithoutFinalInfo(SyncVectorEnv([lambda: Lives(length=length)] * 2, autoreset_mode="SameStep"))
    with VectorCollector(
        envs, writer := MemoryWriter(), record_infos=True, info_example={"score": 0.0}, unfinished="drop"
    ) as recorder:
        drive(recorder, 12)
    assert len(writer.episodes) == 24 // length
    for episode in writer.episodes:
        for name in ("used", "name", "at"):
            assert episode.columns[f"infos_mask/{name}"].tolist() == [True] * length + [False]
        assert episode.infos["used"].tolist() == [*range(length), 0]
        assert episode.infos["name"].strings() == [*(f"life {t}" for t in range(length)), ""]
        assert episode.columns["infos_mask/score"].tolist() == [False] * length + [True]
        assert episode.infos["score"][-1] == [10.0, 20.0][episode.metadata["env"]]
    strict = VectorCollector(envs, MemoryWriter(), record_infos="error")
    with pytest.raises(DataError, match=r"at row .*need record_infos=True"):
        drive(strict, length)


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
