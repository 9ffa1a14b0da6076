"""`RolloutSpec`: which episodes to make, as plain values that any process understands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np

from penstock.core.narrowing import is_listed, is_mapping
from penstock.envs.recovery import NamedEnvironments, benchmarks, makers_of
from penstock.errors import DataError, suggestion
from penstock.recording.hooks import episode_seed
from penstock.recording.infos import make_infos
from penstock.recording.policies import RANDOM, PolicyLoader, find_policy, source_of
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import environment_metadata
from penstock.recording.spaces import from_gymnasium

REPEATED_STEPS = 64
"""Steps that are made twice, to see whether an environment repeats an episode."""


@dataclass(frozen=True)
class RolloutSpec:
    """An environment, a policy, and the seed from which the seeds of all episodes follow.

    Episode `number` is a function of the seed and the number, and of the version of the weights if there are any:
    the environment is reset with `episode_seed(seed, number)`, and each episode has its own random numbers for the
    policy.

    Args:
        env: `benchmark/task`, a Gymnasium id, or `module:id` to import the module first.
        settings: Values of the benchmark, such as `"env_cfg.toy_frame_stack=3"`. The default is none.
        policy: `"random"`, or `module:function` from an observation to an action; with several environments, from a
            batch to a batch. If it has an argument `rng`, it gets the `numpy.random.Generator` of the episode, or a
            list with one for each row. The default is `"random"`.
        weights: Folder of versions of the weights, see `PolicyWeights`. The policy is then a function from the path of
            a version to the function that acts. The default is None.
        seed: Seed of all episodes. The default is 0.
        n_envs: Environments of a worker, which act as one batch. The default is 1.
        infos: Whether to record infos. The default is False.
        step_timeout: Most seconds of a step or reset. The default is None: no limit.
        folder: Folder to import the policy from, too. The default is None.

    Raises:
        DataError: A number is out of range.

    Example:
        >>> spec = RolloutSpec("CartPole-v1", seed=7)
        >>> env = spec.make()
        >>> env.observation_space.shape
        (4,)
        >>> spec.repeats(env)
        True
    """

    env: str
    settings: Sequence[str] = ()
    policy: str = RANDOM
    weights: str | None = None
    seed: int = 0
    n_envs: int = 1
    infos: bool = False
    step_timeout: float | None = None
    folder: str | None = None

    def __post_init__(self) -> None:
        if self.n_envs < 1 or self.seed < 0 or (self.step_timeout is not None and self.step_timeout <= 0):
            raise DataError(f"expected n_envs of at least 1, a seed of at least 0 and a positive timeout, got {self}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RolloutSpec:
        """Make one of the entries in `values` that have the names of its fields.

        Args:
            values: Plain values.
        """
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {**asdict(self), "settings": list(self.settings)}

    def make(self) -> gymnasium.Env[Any, Any]:
        """Make the environment.

        Raises:
            DataError: There is no such environment.
        """
        makers = self._makers()
        return _gymnasium(self.env) if makers is None else makers.make(self.env, self.settings)

    def metadata(self, env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
        """Return the metadata of a dataset of these episodes.

        Args:
            env: The environment.
        """
        makers = self._makers()
        benchmark = {} if makers is None else makers.described(self.env, self.settings)
        rollout = {"env": self.env, "policy": self.policy, "seed": self.seed}
        return environment_metadata(env, {**benchmark, "rollout": rollout})

    def schema(self, env: gymnasium.Env[Any, Any]) -> RecordingSchema:
        """Return the columns, without the columns of infos, which the first episode decides.

        Args:
            env: The environment.
        """
        spaces = from_gymnasium(env.observation_space), from_gymnasium(env.action_space)
        return RecordingSchema(*spaces, make_infos("union" if self.infos else False, None))

    def loader(self) -> PolicyLoader:
        """Return the loader of the policy.

        Raises:
            DataError: There is no such policy.
        """
        return PolicyLoader(self.policy, self.weights, self.folder)

    def fingerprint(self, env: gymnasium.Env[Any, Any]) -> str:
        """Return the SHA-256 hex digest of the environment's description and of the file that defines the policy.

        Args:
            env: The environment.
        """
        spec = self.schema(env).spec()
        values = {name: value for name, value in self.metadata(env).items() if name != "rollout"}
        text = json.dumps([values, spec.to_json()], sort_keys=True, default=str)
        policy = b"" if self.policy == RANDOM else source_of(find_policy(self.policy, self.folder))
        return hashlib.sha256(text.encode() + policy).hexdigest()

    def repeats(self, env: gymnasium.Env[Any, Any], number: int = 0) -> bool:
        """Return whether two episodes of one environment with the same seed and actions are equal at first.

        Args:
            env: The environment.
            number: Number of the episode. The default is 0.
        """
        return _first_steps(env, episode_seed(self.seed, number)) == _first_steps(env, episode_seed(self.seed, number))

    def _makers(self) -> NamedEnvironments | None:
        """The module that makes the environment; None for an environment of Gymnasium."""
        makers = makers_of(self.env)
        if makers is None and self.settings:
            raise DataError(
                f"expected a benchmark with settings (--set), got the environment {self.env!r} of Gymnasium"
            )
        return makers


def _gymnasium(env: str) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(env)
    except (gymnasium.error.Error, ImportError) as error:
        name, slash, _ = env.partition("/")
        names = benchmarks()
        known = f"benchmarks are {', '.join(names)}" if names else "pip install penstock-imitation brings benchmarks"
        hint = f"{suggestion(name, names)}; {known}" if slash else ""
        raise DataError(f"expected an environment that can be made, got {env!r}: {error}{hint}") from error


def _first_steps(env: gymnasium.Env[Any, Any], seed: int) -> str:
    """Digest of the first steps of an episode with random actions."""
    digest = hashlib.sha256()
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    _update(digest, observation)
    for _ in range(REPEATED_STEPS):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        _update(digest, observation)
        digest.update(repr((float(reward), bool(terminated), bool(truncated))).encode())
        if terminated or truncated:
            break
    return digest.hexdigest()


def _update(digest: Any, observation: Any) -> None:
    for leaf in _leaves(observation):
        digest.update(leaf.encode() if isinstance(leaf, str) else np.ascontiguousarray(leaf).tobytes())


def _leaves(value: Any) -> list[Any]:
    if is_mapping(value):
        return [leaf for key in sorted(value) for leaf in _leaves(value[key])]
    return [leaf for item in value for leaf in _leaves(item)] if is_listed(value) else [value]
