"""`rollout`: run environments with a policy, or with random actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from penstock.errors import ArgumentError, DataError
from penstock.recording.hooks import seed_stream

Policy = Callable[[Any], Any]
EpisodeReport = Callable[[int, float, int], object]


@dataclass
class Rollout:
    """Returns and lengths of finished episodes, and the number of all steps."""

    returns: list[float] = field(default_factory=list[float])
    lengths: list[int] = field(default_factory=list[int])
    steps: int = 0

    @property
    def episodes(self) -> int:
        """Number of finished episodes."""
        return len(self.returns)


def rollout(
    env: gymnasium.Env[Any, Any],
    policy: Policy | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    on_episode: EpisodeReport | None = None,
) -> Rollout:
    """Run an environment until a number of episodes or steps is reached, whichever comes first.

    Wrap the environment in a `Collector` to record the episodes.

    Args:
        env: Environment to run.
        policy: Function from an observation to an action. The default is None: random actions.
        episodes: Number of episodes to finish. The default is None: no limit.
        steps: Number of steps. The last episode may stay open. The default is None: no limit.
        seed: Seed of the action space and of every reset. The default is None: not seeded.
        on_episode: Called as `on_episode(number, return, length)` after each episode. The default is None.

    Returns:
        Returns and lengths of the finished episodes.

    Raises:
        DataError: There is no limit.
        ArgumentError: The environment is a name.

    Example:
        >>> import gymnasium
        >>> rollout(gymnasium.make("CartPole-v1"), lambda observation: 1, episodes=2, seed=0).episodes
        2
    """
    enough, limit = _limits(episodes, steps)
    if isinstance(env, str):
        raise ArgumentError(f"expected an environment, got {env!r}; gymnasium.make({env!r}) makes it")
    act = _policy(env.action_space, policy, seed)
    seeds = None if seed is None else seed_stream(seed)
    done = Rollout()
    while done.episodes < enough and done.steps < limit:
        observation, _ = env.reset(seed=None if seeds is None else next(seeds))
        total = 0.0
        length = 0
        over = False
        while not over and done.steps < limit:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            over = terminated or truncated
            total, length = total + float(reward), length + 1
            done.steps += 1
        if over:
            _finish(done, total, length, on_episode)
    return done


def rollout_vector(
    envs: VectorEnv[Any, Any, Any],
    policy: Policy | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    on_episode: EpisodeReport | None = None,
) -> Rollout:
    """Run a vector environment until a number of episodes or steps is reached, whichever comes first.

    Args:
        envs: Vector environment to run.
        policy: Function from a batch of observations to a batch of actions. The default is None: random actions.
        episodes: Number of episodes to finish, over all environments. The default is None: no limit.
        steps: Number of steps over all environments, without steps that only reset one. The default is None: no limit.
        seed: Seed of the action space and of the first reset. The default is None: not seeded.
        on_episode: Called as `on_episode(number, return, length)` after each episode. The default is None.

    Returns:
        Returns and lengths of the finished episodes.

    Raises:
        DataError: There is no limit.

    Example:
        >>> import gymnasium
        >>> rollout_vector(gymnasium.make_vec("CartPole-v1", 2), steps=100, seed=0).steps
        100
    """
    enough, limit = _limits(episodes, steps)
    any_envs: Any = envs  # which has spaces of no type
    act = _policy(any_envs.action_space, policy, seed)
    mode = AutoresetMode(envs.metadata["autoreset_mode"])
    observations, _ = envs.reset(seed=None if seed is None else next(seed_stream(seed)))
    done, over = Rollout(), np.zeros(envs.num_envs, np.bool_)
    totals, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
    while done.episodes < enough and done.steps < limit:
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = envs.reset(options={"reset_mask": over})
        live = ~over if mode is AutoresetMode.NEXT_STEP else np.ones_like(over)
        observations, rewards, terminations, truncations, _ = envs.step(act(observations))
        over = terminations | truncations
        totals[live] += rewards[live]
        lengths[live] += 1
        done.steps += int(live.sum())
        for k in np.flatnonzero(over).tolist():
            _finish(done, float(totals[k]), int(lengths[k]), on_episode)
        totals[over], lengths[over] = 0.0, 0
    return done


def _limits(episodes: int | None, steps: int | None) -> tuple[float, float]:
    if episodes is None and steps is None:
        raise DataError("expected a number of episodes or steps to stop at, got neither")
    return float("inf") if episodes is None else episodes, float("inf") if steps is None else steps


def _policy(space: gymnasium.Space[Any], policy: Policy | None, seed: int | None) -> Policy:
    if policy is not None:
        return policy
    if seed is not None:
        space.seed(seed)
    return lambda _: space.sample()


def _finish(done: Rollout, total: float, length: int, report: EpisodeReport | None) -> None:
    done.returns.append(total)
    done.lengths.append(length)
    if report is not None:
        report(len(done.returns) - 1, total, length)
