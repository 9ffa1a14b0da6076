"""Replay buffers of Stable-Baselines3 and CleanRL whose steps are in a `penstock.Replay`.

Algorithms get the values of Stable-Baselines3's own buffers, in the same order for the same seed. Each observation is
stored once. Written against Stable-Baselines3 2.9.2.

Sampling is the code of Stable-Baselines3. It draws the numbers of steps and environments, and takes the rows of
`observations`, `next_observations`, `actions` and `rewards`, which are views of the replay here. `dones` and `timeouts`
are arrays, because its algorithms change them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import penstock
from penstock.core.narrowing import is_dict
from penstock.errors import ArgumentError, require
from penstock.replay.replay import run_of

if TYPE_CHECKING:
    from gymnasium import Space
    from stable_baselines3.common.buffers import BaseBuffer
    from stable_baselines3.common.buffers import DictReplayBuffer as _DictReplayBuffer
    from stable_baselines3.common.buffers import NStepReplayBuffer as _NStepReplayBuffer
    from stable_baselines3.common.buffers import ReplayBuffer as _ReplayBuffer
    from stable_baselines3.her import HerReplayBuffer as _HerReplayBuffer
else:
    _buffers = require("stable_baselines3.common.buffers", "sb3", "penstock-mirrors")
    BaseBuffer, _ReplayBuffer = _buffers.BaseBuffer, _buffers.ReplayBuffer
    _DictReplayBuffer, _NStepReplayBuffer = _buffers.DictReplayBuffer, _buffers.NStepReplayBuffer
    _HerReplayBuffer = require("stable_baselines3.her", "sb3", "penstock-mirrors").HerReplayBuffer

__all__ = ["DictReplayBuffer", "HerReplayBuffer", "NStepReplayBuffer", "ReplayBuffer"]

Array = npt.NDArray[Any]


class _Ring:
    """The last `size` steps of `n` environments, numbered by their place in a ring as Stable-Baselines3 does."""

    def __init__(self, size: int, n: int, path: str | os.PathLike[str] | None) -> None:
        self.replay = penstock.Replay(path, capacity=size * n)
        self._size, self._n = size, n
        self._added = 0  # steps of all environments
        self._before = 0  # steps in the folder
        self._last: tuple[Any, Any, dict[str, Array]] | None = None

    def add(self, observations: Any, actions: Array, following: Any, rewards: Array, ends: Array, cuts: Array) -> None:
        """Add a step of each environment."""
        if not self._added:
            run = run_of(self.replay)
            self._before = 0 if run.is_empty() else run.anchors[1]
        self.replay.add(observations, actions, following, rewards, ends, cuts, autoreset="Disabled")
        self._added += 1
        self._last = None

    def rows(self, places: Array, environments: Array) -> dict[str, Array]:
        """Return the columns of some steps. The columns of one sample are taken together."""
        last = self._last
        if last is not None and last[0] is places and last[1] is environments:
            return last[2]
        newest = self._added - 1
        steps = np.maximum(newest - (newest - places) % self._size, 0)  # 0: a place without a step, which has no weight
        numbers = self._before + steps * self._n + environments
        flat = run_of(self.replay).take(numbers.ravel())
        columns = {path: each.reshape(*numbers.shape, *each.shape[1:]) for path, each in flat.items()}
        self._last = places, environments, columns
        return columns


class _View:
    """A column of a ring, which is indexed by places and environments."""

    def __init__(self, ring: _Ring, path: str) -> None:
        self._ring, self._path = ring, path

    def __getitem__(self, index: tuple[Any, ...]) -> Array:
        places, environments, *_ = index  # the rest is `:`
        return self._ring.rows(places, environments)[self._path]


class ReplayBuffer(_ReplayBuffer):
    """Replay buffer for DQN, SAC, TD3, DDPG and CleanRL: `DQN(..., replay_buffer_class=ReplayBuffer)`.

    With a path, the run is recorded there too: the folder is a dataset with all its episodes. No other process may
    write to it.

    Args:
        buffer_size: Steps of all environments together.
        observation_space: Space of observations.
        action_space: Space of actions.
        device: Device of the samples. The default is `"auto"`.
        n_envs: Number of environments. The default is 1.
        optimize_memory_usage: Refused: observations are stored once anyway. The default is False.
        handle_timeout_termination: Whether `dones` of a sample exclude time limits, as infos have them. The default is
            True.
        path: Folder to record to. The default is None: memory only.

    Attributes:
        replay: The `penstock.Replay` of the steps.

    Raises:
        ArgumentError: `optimize_memory_usage` is True.

    Example:
        >>> import numpy as np
        >>> from gymnasium.spaces import Box, Discrete
        >>> buffer = ReplayBuffer(100, Box(-1, 1, (2,)), Discrete(3), device="cpu")
        >>> for step in range(4):
        ...     now, after = (np.full((1, 2), t / 10, np.float32) for t in (step, step + 1))
        ...     buffer.add(now, after, np.array([step % 3]), np.array([1.0]), np.array([step == 3]), [{}])
        >>> sample = buffer.sample(64)
        >>> sample.rewards.shape, sorted(set(sample.dones[:, 0].tolist())), len(buffer.replay)
        (torch.Size([64, 1]), [0.0, 1.0], 4)
    """

    observation_space: Any
    action_space: Any
    observations: Any
    next_observations: Any
    actions: Any
    rewards: Any

    def __init__(
        self,
        buffer_size: int,
        observation_space: Space[Any],
        action_space: Space[Any],
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        if optimize_memory_usage:
            raise ArgumentError(
                "expected optimize_memory_usage=False, got True; leave it out: each observation is stored once anyway"
            )
        base: Any = BaseBuffer  # whose spaces have no types
        base.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.optimize_memory_usage = False
        self.handle_timeout_termination = handle_timeout_termination
        self._path = path
        self.reset()

    def reset(self) -> None:
        """Forget all steps. A folder keeps its episodes."""
        super().reset()
        self._ring = _Ring(self.buffer_size, self.n_envs, self._path)
        self.observations, self.next_observations = self._views("observations"), self._views("next_observations")
        self.actions, self.rewards = _View(self._ring, "actions"), _View(self._ring, "rewards")
        self.dones, self.timeouts = (np.zeros((self.buffer_size, self.n_envs), np.float32) for _ in range(2))

    @property
    def replay(self) -> penstock.Replay:
        """The steps."""
        return self._ring.replay

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Add a step of each environment.

        Args:
            obs: Observations.
            next_obs: Next observations, from before a reset.
            action: Actions.
            reward: Rewards.
            done: Whether episodes ended.
            infos: Infos, with `"TimeLimit.truncated"` where a time limit ended the episode. They are read if
                `handle_timeout_termination` is True.
        """
        ends = np.array(done, np.bool_)
        cuts = np.zeros_like(ends)
        if self.handle_timeout_termination:
            cuts = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        self.dones[self.pos], self.timeouts[self.pos] = ends, cuts
        dtype = self._maybe_cast_dtype(self.action_space.dtype)
        actions = np.array(action, dtype).reshape(self.n_envs, self.action_dim)
        rewards = np.array(reward, np.float32)
        self._ring.add(self._rows(obs), actions, self._rows(next_obs), rewards, ends & ~cuts, ends & cuts)
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0

    def _views(self, path: str) -> Any:
        return _View(self._ring, path)

    def _rows(self, observations: Any) -> Any:
        return self._fitted(observations, self.observation_space, self.obs_shape)

    def _fitted(self, values: Any, space: Any, shape: Any) -> Array:
        return np.array(values, space.dtype).reshape(self.n_envs, *shape)


class DictReplayBuffer(ReplayBuffer, _DictReplayBuffer):
    """`ReplayBuffer` for observations that are dicts.

    Args:
        buffer_size: As of `ReplayBuffer`, with all other arguments.
        observation_space: A `gymnasium.spaces.Dict`.
        action_space: Space of actions.

    Raises:
        ArgumentError: The observations are no dicts, or `optimize_memory_usage` is True.

    Example:
        >>> from gymnasium.spaces import Box, Dict, Discrete
        >>> buffer = DictReplayBuffer(100, Dict(x=Box(-1, 1, (2,))), Discrete(3), device="cpu")
        >>> now, after = {"x": np.zeros((1, 2), np.float32)}, {"x": np.ones((1, 2), np.float32)}
        >>> buffer.add(now, after, np.array([2]), np.array([1.0]), np.array([False]), [{}])
        >>> buffer.sample(3).next_observations["x"].tolist()
        [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    def _views(self, path: str) -> Any:
        shapes: Any = self.obs_shape
        if not is_dict(shapes):
            raise ArgumentError(f"expected a Dict as observation space, got {self.observation_space}; use ReplayBuffer")
        return {key: _View(self._ring, f"{path}/{key}") for key in shapes}

    def _rows(self, observations: Any) -> Any:
        shapes: Any = self.obs_shape
        return {
            key: self._fitted(observations[key], self.observation_space[key], shape) for key, shape in shapes.items()
        }


class NStepReplayBuffer(_NStepReplayBuffer, ReplayBuffer):
    """`ReplayBuffer` with sums of the rewards of `n_steps` steps, and `discounts`.

    Args:
        args: As of `ReplayBuffer`.
        n_steps: Steps of a sum. The default is 3.
        gamma: Discount factor. The default is 0.99.
        kwargs: As of `ReplayBuffer`.

    Example:
        >>> from gymnasium.spaces import Box, Discrete
        >>> buffer = NStepReplayBuffer(100, Box(-1, 1, (2,)), Discrete(3), device="cpu", n_steps=2, gamma=0.5)
        >>> for step in range(2):
        ...     now, after = (np.full((1, 2), t, np.float32) for t in (step, step + 1))
        ...     buffer.add(now, after, np.array([0]), np.array([1.0]), np.array([step == 1]), [{}])
        >>> sorted(set(buffer.sample(64).rewards[:, 0].tolist()))
        [1.0, 1.5]
    """


class HerReplayBuffer(_HerReplayBuffer, DictReplayBuffer):
    """`DictReplayBuffer` with goals of hindsight: `SAC(..., replay_buffer_class=HerReplayBuffer)`.

    It has the arguments of Stable-Baselines3's `HerReplayBuffer`.

    Example:
        >>> from gymnasium.spaces import Box, Dict, Discrete
        >>> goals = Dict({name: Box(-1, 1, (2,)) for name in ("observation", "achieved_goal", "desired_goal")})
        >>> HerReplayBuffer(100, goals, Discrete(3), env=None, device="cpu").size()
        0
    """
