"""Vectorised environments by benchmark name: Gymnasium's vector API, or Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from penstock.errors import DataError, SpecError, require
from penstock.recording.spaces import from_gymnasium
from penstock_imitation.envs.benchmark import Benchmark
from penstock_imitation.envs.config import EnvConfig, VecEnvOptions
from penstock_imitation.envs.registry import resolve
from penstock_imitation.envs.wrappers import FirstSeed

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

Make = Callable[[], gymnasium.Env[Any, Any]]
Autoreset = Literal["next_step", "same_step", "disabled"]

_MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


@overload
def load_vec_env(
    env_cfg: EnvConfig | Mapping[str, Any],
    venv_opts: VecEnvOptions | Mapping[str, Any] = ...,
    *,
    seed: int | None = ...,
    api: Literal["gymnasium"] = ...,
    autoreset: Autoreset | None = ...,
) -> VectorEnv[Any, Any, Any]: ...


@overload
def load_vec_env(
    env_cfg: EnvConfig | Mapping[str, Any],
    venv_opts: VecEnvOptions | Mapping[str, Any] = ...,
    *,
    seed: int | None = ...,
    api: Literal["stable_baselines3"],
    autoreset: Autoreset | None = ...,
) -> VecEnv: ...


def load_vec_env(
    env_cfg: EnvConfig | Mapping[str, Any],
    venv_opts: VecEnvOptions | Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    api: Literal["gymnasium", "stable_baselines3"] = "gymnasium",
    autoreset: Autoreset | None = None,
) -> Any:
    """Create `n_envs` environments of a benchmark's task as one, each in its own process if `venv_parallel`.

    Environment k has the seed `env_seed(seed, k)`, which its first reset uses unless that reset gets another. Processes
    are started as the benchmark needs it, mostly by `spawn`: a script must call this below `if __name__ ==
    "__main__":`.

    Args:
        env_cfg: Keys of `EnvConfig`, as an object or a mapping.
        venv_opts: Keys of `VecEnvOptions`. The default is None: all defaults.
        seed: Seed of the first resets. The default is None: not seeded.
        api: `"gymnasium"` (the default) or `"stable_baselines3"`.
        autoreset: When an environment is reset after an episode: by the `"next_step"`, in the `"same_step"`, or by the
            caller (`"disabled"`). The default is None: `"next_step"` for Gymnasium.

    Returns:
        With `api="gymnasium"`, a `SyncVectorEnv` or `AsyncVectorEnv`. With `api="stable_baselines3"`, a `DummyVecEnv`
        or `SubprocVecEnv` of monitored environments, which always reset in the same step; the last observation of an
        episode is `infos[k]["terminal_observation"]`.

    Raises:
        DataError: A name or key is unknown, or Stable-Baselines3 gets an autoreset mode that it lacks.
        MissingExtraError: A library is not installed.
        SpecError: The spaces of the environments differ from the benchmark.

    Example:
        >>> with_seed = load_vec_env({"benchmark_name": "toy", "task_name": "reach"}, {"venv_parallel": False}, seed=0)
        >>> observations, infos = with_seed.reset()
        >>> observations.shape, infos["agent"].shape
        ((2, 3, 32, 32), (2, 2))
    """
    benchmark, config = resolve(env_cfg)
    options = venv_opts if isinstance(venv_opts, VecEnvOptions) else VecEnvOptions.from_mapping(venv_opts or {})
    make = benchmark.factory(config)
    makes = [make if seed is None else Seeded(make, env_seed(seed, k)) for k in range(options.n_envs)]
    if api == "gymnasium":
        envs: Any = _gymnasium(makes, options, benchmark, _mode(autoreset or "next_step"))
        return _checked(envs, benchmark, config, envs.single_observation_space, envs.single_action_space)
    if api != "stable_baselines3":
        raise DataError(f"expected the api 'gymnasium' or 'stable_baselines3', got {api!r}")
    if autoreset not in {None, "same_step"}:
        raise DataError(f"expected no autoreset mode, for Stable-Baselines3 has only 'same_step', got {autoreset!r}")
    venv: Any = _stable_baselines3(makes, options, benchmark)
    return _checked(venv, benchmark, config, venv.observation_space, venv.action_space)


def env_seed(seed: int, k: int) -> int:
    """Return the seed of environment `k`, below 2^31, drawn from (`seed`, `k`), so that no two are similar.

    It does not depend on the number of environments.

    Args:
        seed: Seed of all environments, 0 or more.
        k: Number of the environment, 0 or more.

    Returns:
        The seed.

    Raises:
        DataError: A number is negative.

    Example:
        >>> env_seed(0, 0) == env_seed(0, 1), env_seed(0, 1) == env_seed(1, 0)
        (False, False)
    """
    if seed < 0 or k < 0:
        raise DataError(f"expected a seed and an environment of at least 0, got {seed} and {k}")
    return int(np.random.SeedSequence(seed, spawn_key=(k,)).generate_state(1)[0] >> 1)


def final_observations(observations: Any, infos: Mapping[str, Any]) -> Any:
    """Return the observations at the end of a step of Gymnasium's vector API, before any reset.

    They are the `observations` that `step` returned, except for episodes that ended in an environment that resets in
    the same step: their last observations are in `infos["final_obs"]`. Only then are observations copied. Arrays only.

    Args:
        observations: `[n, ...]` observations that `step` returned.
        infos: Infos that `step` returned.

    Returns:
        `[n, ...]` observations.

    Example:
        >>> infos = {"final_obs": [None, np.ones(1)], "_final_obs": np.array([False, True])}
        >>> final_observations(np.zeros((2, 1)), infos)
        array([[0.],
               [1.]])
    """
    if "final_obs" not in infos:
        return observations
    ended = np.flatnonzero(infos["_final_obs"])
    merged = np.array(observations)
    merged[ended] = np.stack([infos["final_obs"][k] for k in ended])
    return merged


@dataclass(frozen=True)
class Seeded:
    """A factory of environments that have their own seeds."""

    make: Make
    seed: int

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """A new environment whose first reset has the seed."""
        return FirstSeed(self.make(), self.seed)


@dataclass(frozen=True)
class Monitored:
    """A factory of environments that report returns and lengths as Stable-Baselines3 expects it."""

    make: Make

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """A new environment, in a `Monitor`."""
        return require("stable_baselines3.common.monitor", "sb3").Monitor(self.make())


def _mode(name: str) -> AutoresetMode:
    if name not in _MODES:
        raise DataError(f"expected an autoreset mode among {', '.join(_MODES)}, got {name!r}")
    return _MODES[name]


def _gymnasium(
    makes: Sequence[Make], options: VecEnvOptions, benchmark: Benchmark, mode: AutoresetMode
) -> VectorEnv[Any, Any, Any]:
    if options.venv_parallel:
        return AsyncVectorEnv(makes, context=benchmark.context, autoreset_mode=mode)
    return SyncVectorEnv(makes, autoreset_mode=mode)


def _stable_baselines3(makes: Sequence[Make], options: VecEnvOptions, benchmark: Benchmark) -> VecEnv:
    theirs = require("stable_baselines3.common.vec_env", "sb3")
    monitored = [Monitored(make) for make in makes]
    if options.venv_parallel:
        return cast("VecEnv", theirs.SubprocVecEnv(monitored, start_method=benchmark.context))
    return cast("VecEnv", theirs.DummyVecEnv(monitored))


def _checked(envs: Any, benchmark: Benchmark, config: EnvConfig, *spaces: gymnasium.Space[Any]) -> Any:
    """The environments, if their spaces equal the benchmark's for the task; else they are closed."""
    if config.task_name not in benchmark.tasks():
        return envs
    for kind, known, space in zip(("observation", "action"), benchmark.spaces(config), spaces, strict=True):
        if from_gymnasium(space) != known:
            envs.close()
            raise SpecError(
                f"expected the {kind} space {known} of {benchmark.name} {config.task_name!r}, got {space}; is "
                "it another version of the library than the one that penstock knows?"
            )
    return envs
