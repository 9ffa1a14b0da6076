"""Reports about recorded episodes: last observations and infos of vector environments, and infos that differ."""

# pyright: basic

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import penstock
from penstock.recording.memory import MemoryWriter
from tests.reports.reported import report


class Simulator(VectorEnv):
    """Environments on one device: one array of last observations for all, and infos of the state after the reset."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    num_envs = 3
    single_observation_space = gymnasium.spaces.Box(-1e6, 1e6, (3,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)
    observation_space = batch_space(single_observation_space, 3)
    action_space = batch_space(single_action_space, 3)

    def __init__(self, always: bool) -> None:
        self.always = always

    def look(self) -> np.ndarray:
        return np.stack([np.arange(3), self.episode, self.t], 1).astype(np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episode, self.t = np.zeros(3, int), np.zeros(3, int)
        return self.look(), {"lives": self.t.copy()}

    def step(self, actions: Any) -> Any:
        self.t = self.t + 1
        done, last = self.t >= 2 + np.arange(3), self.look()
        self.episode, self.t = self.episode + done, np.where(done, 0, self.t)
        infos = {"lives": self.t.copy(), **({"final_obs": last} if done.any() or self.always else {})}
        return self.look(), np.ones(3), done, np.zeros(3, bool), infos


@report(
    "Farama-Foundation/Arcade-Learning-Environment#614",
    "last observations of a step that also resets are one array for all environments, and there is no `final_info`",
)
@report("isaac-sim/IsaacLab#6219", "the same, where `final_obs` is in every step")
@report("isaac-sim/IsaacLab#4369", "the last observation of an episode is not the first of the next one")
@pytest.mark.parametrize("always", [False, True])
def test_last_observations_without_final_info(always: bool) -> None:
    with penstock.record(Simulator(always), writer := MemoryWriter(), record_infos=True, unfinished="drop") as envs:
        envs.reset()
        for _ in range(12):
            envs.step(np.zeros(3, np.int64))
    assert len(writer.episodes) == 6 + 4 + 3
    for episode in writer.episodes:
        k, steps = episode.metadata["env"], len(episode)
        assert steps == 2 + k
        assert episode.observations[:, 2].tolist() == list(range(steps + 1))
        assert len(set(episode.observations[:, 1].tolist())) == 1
        assert episode.infos["lives"][:-1].tolist() == list(range(steps))
        assert episode.columns["infos_mask/lives"].tolist() == [True] * steps + [False]


class Rising(gymnasium.Env):
    """Rewards say the number of the episode; the observation is one array, written again and again."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length, self.episode, self.seen = length, 0, np.zeros(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episode, self.t = self.episode + 1, 0
        self.seen[:] = self.episode, 0
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        self.seen[1] = self.t
        return self.seen, float(self.episode), self.t == self.length, False, {"progress": self.t / self.length}


@report("vwxyzjn/cleanrl#534", "statistics of an episode are in its last row, in every autoreset mode")
@report(
    "Farama-Foundation/Gymnasium#1624", "statistics of later episodes are as right as of the first, in SAME_STEP mode"
)
@report("openai/gym#3116", "infos of the last step are not overwritten by those of the reset")
@report(
    "Farama-Foundation/Gymnasium#1715",
    "the last observation of an environment that reuses its array is not overwritten",
)
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_statistics_and_last_rows_of_every_mode(mode: AutoresetMode) -> None:
    envs = RecordEpisodeStatistics(SyncVectorEnv([lambda: Rising(2), lambda: Rising(3)], autoreset_mode=mode))
    example = {"episode": {"r": 0.0, "l": 0, "t": 0.0}}
    with penstock.record(
        envs, writer := MemoryWriter(), record_infos=True, info_example=example, unfinished="drop"
    ) as collector:
        collector.reset()
        for _ in range(24):
            collector.step(np.zeros(2, np.int64))
    assert len(writer.episodes) > 12
    for episode in writer.episodes:
        steps = len(episode)
        assert episode.observations[:, 1].tolist() == list(range(steps + 1))
        assert episode.columns["infos_mask/episode/r"].tolist() == [False] * steps + [True]
        assert episode.columns["infos/episode/r"][-1] == episode.rewards.sum()
        assert episode.columns["infos/episode/l"][-1] == steps
        assert episode.infos["progress"][-1] == 1


@report("Farama-Foundation/Minari#192", "infos of MuJoCo's resets and steps differ, and both are recorded")
@report("Farama-Foundation/Minari#246", "the same for Hopper")
def test_infos_of_mujoco() -> None:
    with penstock.record(gymnasium.make("Hopper-v5"), writer := MemoryWriter(), record_infos=True, seed=0) as env:
        _, first = env.reset()
        *_, later = env.step(np.zeros(3, np.float32))
    (episode,) = writer.episodes
    assert first.keys() < later.keys() == episode.infos.keys()
    for key in later:
        assert episode.columns[f"infos_mask/{key}"].tolist() == [key in first, True]
        assert episode.infos[key][-1] == later[key]


@report("takuseno/d3rlpy#98", "an episode of one step has two observations")
def test_the_final_observation_is_stored() -> None:
    with penstock.record(Rising(1), writer := MemoryWriter()) as env:
        env.reset()
        env.step(0)
    assert writer.episodes[0].observations[:, 1].tolist() == [0, 1]
