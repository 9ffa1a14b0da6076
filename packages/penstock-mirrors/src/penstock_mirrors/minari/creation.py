"""Metadata that the creator of a dataset provides."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from penstock.envs.recovery import spec_to_json
from penstock.errors import DataError, SpecError
from penstock.formats.minari.metadata import VERSION
from penstock_mirrors.minari.dataset.versions import parse_dataset_id
from penstock_mirrors.minari.storage.datasets_root_dir import get_dataset_path

EnvLike = str | gymnasium.Env[Any, Any] | EnvSpec
Policy = Callable[[Any], Any]

_PURPOSE = {
    "code_permalink": "reproducibility, link versioned code",
    "author": "longevity, name an author",
    "author_email": "longevity, give contact information",
    "algorithm_name": "reproducibility, name the algorithm",
    "description": "longevity, describe the dataset",
}

_SCORES = ("ref_min_score", "ref_max_score", "expert_policy", "num_episodes_average_score")


class RandomPolicy:
    """Policy that draws actions from the action space of `env`, seeded 123, to measure `ref_min_score`."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.action_space = env.action_space
        self.action_space.seed(123)

    def __call__(self, observation: Any) -> Any:
        return self.action_space.sample()


def free_path(dataset_id: str) -> Path:
    """Return the path of a new dataset. Nothing is created."""
    parse_dataset_id(dataset_id)
    path = get_dataset_path(dataset_id)
    if path.exists():
        raise DataError(
            f"A Minari dataset with ID {dataset_id} already exists and it cannot be overridden. Use another name or "
            "version."
        )
    return path


def dataset_metadata(
    dataset_id: str,
    env_spec: EnvSpec | None,
    eval_env: EnvLike | None,
    **given: Any,
) -> dict[str, Any]:
    """Return the entries of a new dataset's metadata; warn about each missing entry.

    Arguments: `given`, the texts under their names, `requirements`, and the arguments of `reference_scores`.
    """
    for name, purpose in _PURPOSE.items():
        if given.get(name) is None:
            warnings.warn(f"`{name}` is set to None. It is recommended for {purpose}.", stacklevel=4)
    scores = {name: given.pop(name) for name in _SCORES if name in given}
    entries: dict[str, Any] = {"dataset_id": dataset_id, "minari_version": VERSION}
    entries |= {name: value for name, value in given.items() if value is not None}
    for name in ("author", "author_email"):
        if name in entries:
            entries[name] = as_set(entries[name])
    if env_spec is None:
        warnings.warn("env_spec is None: no environment can be recovered from this dataset", stacklevel=4)
    if eval_env is None:
        warnings.warn(
            f"`eval_env` is set to None. The environment that collected the data ({env_spec}) stands for it; pass "
            "another one, its id or its spec, if that is to be evaluated in",
            stacklevel=4,
        )
    eval_spec = spec_of(eval_env, "eval_env")
    return {
        **entries,
        **stored_spec("eval_env_spec", eval_spec),
        **reference_scores(eval_spec or env_spec, **scores),
    }


def spec_of(env: EnvLike | None, name: str) -> EnvSpec | None:
    """Return the spec of an environment or id, or the spec itself."""
    match env:
        case None:
            return None
        case str():
            return gymnasium.spec(env)
        case EnvSpec():
            return env
        case gymnasium.Env():
            return env.spec
        case _:
            raise SpecError(
                f"Unsupported env type: expected `{name}` as str, EnvSpec or gym.Env, got {type(env).__name__}"
            )


def stored_spec(name: str, spec: EnvSpec | None) -> dict[str, str]:
    """Return the entry of a spec; warn and return none for a spec that has no JSON."""
    text = spec_to_json(spec)
    if spec is not None and text is None:
        warnings.warn(f"{name} is not serializable; the environment cannot be recovered", stacklevel=2)
    return {} if text is None else {name: text}


def as_set(value: str | Iterable[str]) -> set[str]:
    """Return one or several names as a set."""
    return {value} if isinstance(value, str) else {str(name) for name in value}


def reference_scores(
    spec: EnvSpec | None,
    ref_min_score: float | None = None,
    ref_max_score: float | None = None,
    expert_policy: Policy | None = None,
    num_episodes_average_score: int = 100,
) -> dict[str, Any]:
    """Return the known entries among `ref_min_score`, `ref_max_score` and `num_episodes_average_score`.

    With an `expert_policy` the highest score is its mean return; a lowest that is missing is the mean return of random
    actions. Only then is the environment made.
    """
    if expert_policy is not None and ref_max_score is not None:
        raise DataError("Can't pass a value for `expert_policy` and `ref_max_score` at the same time.")
    if expert_policy is None and ref_max_score is None:
        return {} if ref_min_score is None else {"ref_min_score": ref_min_score}
    if expert_policy is not None or ref_min_score is None:
        if spec is None:
            raise DataError("expected an environment to measure reference scores in; pass `env` or both scores")
        env = gymnasium.make(spec)
        if ref_min_score is None:
            ref_min_score = average_return(env, RandomPolicy(env), num_episodes_average_score)
        if expert_policy is not None:
            ref_max_score = average_return(env, expert_policy, num_episodes_average_score)
        env.close()
    return {
        "ref_max_score": ref_max_score,
        "ref_min_score": ref_min_score,
        "num_episodes_average_score": num_episodes_average_score,
    }


def average_return(env: gymnasium.Env[Any, Any], policy: Any, episodes: int) -> float:
    """Return the mean undiscounted return of `policy` over `episodes`, the first reset with the seed 123."""
    if episodes < 1:
        raise DataError(f"expected at least one episode to average over, got {episodes}")
    returns: list[float] = []
    observation, _ = env.reset(seed=123)
    while len(returns) < episodes:
        total, done = 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
        observation, _ = env.reset()
    return sum(returns) / episodes
