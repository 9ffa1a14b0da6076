"""Functions on whole datasets: create, combine, split, normalise scores."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from penstock.core.narrowing import is_dict
from penstock.errors import DataError
from penstock.formats.minari.metadata import VERSION
from penstock_mirrors.minari.creation import EnvLike, Policy, RandomPolicy, dataset_metadata, free_path, spec_of
from penstock_mirrors.minari.data_collector.episode_buffer import EpisodeBuffer
from penstock_mirrors.minari.dataset.minari_dataset import MinariDataset
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.dataset.staging import building
from penstock_mirrors.minari.dataset.versions import is_supported, parse_dataset_id
from penstock_mirrors.minari.serialization import deserialize_space

GymSpace = gymnasium.Space[Any]

__all__ = [
    "RandomPolicy",
    "combine_datasets",
    "create_dataset_from_buffers",
    "get_dataset_spec_dict",
    "get_env_spec_dict",
    "get_normalized_score",
    "split_dataset",
    "validate_datasets_to_combine",
]

# Entries that a combined dataset takes over if all parts that have them agree.
_SHARED = (
    "eval_env_spec",
    "algorithm_name",
    "code_permalink",
    "description",
    "ref_min_score",
    "ref_max_score",
    "num_episodes_average_score",
)


def create_dataset_from_buffers(
    dataset_id: str,
    buffer: Sequence[EpisodeBuffer],
    env: EnvLike | None = None,
    eval_env: EnvLike | None = None,
    algorithm_name: str | None = None,
    author: str | set[str] | None = None,
    author_email: str | set[str] | None = None,
    code_permalink: str | None = None,
    action_space: GymSpace | None = None,
    observation_space: GymSpace | None = None,
    ref_min_score: float | None = None,
    ref_max_score: float | None = None,
    expert_policy: Policy | None = None,
    num_episodes_average_score: int = 100,
    description: str | None = None,
    data_format: str | None = None,
    requirements: list[str] | None = None,
    *,
    jpeg_encoding: bool = False,
) -> MinariDataset:
    """Create a dataset, atomically, from episodes in memory.

    `env` and `eval_env` are ids, specs or environments; without `env` both spaces are needed. `data_format` is "hdf5"
    (the default), "arrow" or "parquet". `jpeg_encoding` stores images as JPEG, which loses detail. The scores are
    explained at `creation.reference_scores`; everything else is stored as it is, with a warning where it is missing.
    """
    path = free_path(dataset_id)
    env_spec = spec_of(env, "env")
    observation_space, action_space = _spaces(env, observation_space, action_space)
    metadata = dataset_metadata(
        dataset_id,
        env_spec,
        eval_env,
        code_permalink=code_permalink,
        author=author,
        author_email=author_email,
        algorithm_name=algorithm_name,
        description=description,
        requirements=requirements,
        ref_min_score=ref_min_score,
        ref_max_score=ref_max_score,
        expert_policy=expert_policy,
        num_episodes_average_score=num_episodes_average_score,
    )
    with building(path) as data:
        storage = MinariStorage.new(
            data, observation_space, action_space, env_spec, data_format or "hdf5", jpeg_encoding=jpeg_encoding
        )
        storage.update_metadata(metadata)
        storage.update_episodes(buffer)
        storage.close()
    return MinariDataset(path / data.name)


def _spaces(
    env: EnvLike | None, observation_space: GymSpace | None, action_space: GymSpace | None
) -> tuple[GymSpace, GymSpace]:
    if observation_space is not None and action_space is not None:
        return observation_space, action_space
    if env is None:
        raise DataError("Both observation space and action space must be provided, if env is None")
    built = env if isinstance(env, gymnasium.Env) else gymnasium.make(env)
    return observation_space or built.observation_space, action_space or built.action_space


def combine_datasets(datasets_to_combine: Sequence[MinariDataset], new_dataset_id: str) -> MinariDataset:
    """Copy the episodes of several datasets or views into a new dataset, with all their metadata.

    The first dataset sets the format and the spaces. Entries on which all parts agree, and all authors and
    requirements, are taken over; `combined_datasets` names the parts. Lossless data stays lossless.
    """
    if not datasets_to_combine:
        raise DataError("expected at least one dataset to combine, got none")
    env_spec = validate_datasets_to_combine(datasets_to_combine)
    path = free_path(new_dataset_id)
    first = datasets_to_combine[0].storage
    with building(path) as data:
        storage = MinariStorage.new(data, first.observation_space, first.action_space, env_spec, first.FORMAT)
        storage.update_metadata(
            {
                "dataset_id": new_dataset_id,
                "minari_version": VERSION,
                "combined_datasets": [part.id for part in datasets_to_combine],
                **_shared(datasets_to_combine),
            }
        )
        for part in datasets_to_combine:
            storage.update_from_storage(part.storage, part.episode_indices)
        storage.close()
    return MinariDataset(path / data.name)


def _shared(datasets: Sequence[MinariDataset]) -> dict[str, Any]:
    every = [part.storage.metadata for part in datasets]
    shared: dict[str, Any] = {}
    for name in _SHARED:
        values = [metadata[name] for metadata in every if metadata.get(name) is not None]
        if values and all(value == values[0] for value in values):
            shared[name] = values[0]
    listed: list[list[Any]] = [metadata.get("requirements") or [] for metadata in every]
    requirements = dict.fromkeys(str(line) for lines in listed for line in lines)
    return {**shared, **({"requirements": list(requirements)} if requirements else {})}


def validate_datasets_to_combine(datasets_to_combine: Sequence[MinariDataset]) -> EnvSpec | None:
    """Return the environment spec of a combined dataset: the one with the largest `max_episode_steps`."""
    for part in datasets_to_combine[1:]:
        if (part.observation_space, part.action_space) != (
            datasets_to_combine[0].observation_space,
            datasets_to_combine[0].action_space,
        ):
            raise DataError(f"expected datasets of the same spaces, got others in {part.id}")
    specs = [part.env_spec for part in datasets_to_combine]
    known = [spec for spec in specs if spec is not None]
    if not known:
        return None
    if len(known) < len(specs):
        raise DataError("Cannot combine datasets having env_spec with those having no env_spec.")
    limits = [spec.max_episode_steps for spec in known]
    longest = None if None in limits else max(limit for limit in limits if limit is not None)
    combined = [dataclasses.replace(spec, max_episode_steps=longest) for spec in map(copy.deepcopy, known)]
    if any(spec != combined[0] for spec in combined):
        raise DataError("The datasets to be combined have different values for `env_spec` attribute.")
    return combined[0]


def split_dataset(dataset: MinariDataset, sizes: Sequence[int], seed: int | None = None) -> list[MinariDataset]:
    """Split a dataset into views of `sizes` different episodes, drawn by a permutation of `seed`."""
    if sum(sizes) > dataset.total_episodes or min(sizes, default=0) < 0:
        raise DataError(f"expected sizes that sum to at most {dataset.total_episodes} episodes, got {list(sizes)}")
    shuffled = np.random.default_rng(seed).permutation(dataset.episode_indices)
    ends = np.cumsum(sizes, dtype=np.int64)
    return [MinariDataset(dataset.storage, shuffled[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def get_normalized_score(dataset: MinariDataset, returns: npt.ArrayLike) -> Any:
    """Return normalized scores of undiscounted `returns` (a number or an array): 0 is random, 1 is the expert."""
    metadata = dataset.storage.metadata
    low, high = (metadata.get(name) for name in ("ref_min_score", "ref_max_score"))
    if low is None or high is None:
        raise DataError(f"Reference score not provided for dataset {dataset.id}. Can't compute the normalized score.")
    return (np.asarray(returns) - low) / (high - low)


def get_dataset_spec_dict(dataset_spec: Mapping[str, Any]) -> dict[str, str]:
    """Return a description of a dataset's raw metadata, as Markdown."""
    entries = {name: dataset_spec.get(key, "Not provided") for name, key in _SHOWN.items()}
    spaces = {"Observation": dataset_spec.get("observation_space"), "Action": dataset_spec.get("action_space")}
    version, link = dataset_spec.get("minari_version"), dataset_spec.get("code_permalink")
    supported = "supported" if is_supported(version) else "not supported"
    dataset_id = str(dataset_spec["dataset_id"])
    parse_dataset_id(dataset_id)
    return {
        "Total Steps": str(dataset_spec["total_steps"]),
        "Total Episodes": str(dataset_spec["total_episodes"]),
        **{f"Dataset {name} Space": f"`{_flat(space)}`" for name, space in spaces.items() if space is not None},
        **{
            name: value if isinstance(value, str) else ", ".join(sorted(map(str, value)))
            for name, value in entries.items()
        },
        "Code Permalink": f"[{link}]({link})" if link else "Not provided",
        "Minari Version": f"`{version}` ({supported})",
        "Download": f"`minari download {dataset_id}`",
    }


_SHOWN = {"Algorithm": "algorithm_name", "Author": "author", "Email": "author_email"}


def _flat(space: Any) -> str:
    parsed = deserialize_space(space) if isinstance(space, str) or is_dict(space) else space
    return " ".join(repr(parsed).split())


def get_env_spec_dict(env_spec: EnvSpec) -> dict[str, str]:
    """Return a description of an environment. It is not made, so its spaces are not included."""
    shown = ("entry_point", "nondeterministic", "order_enforce", "disable_env_checker", "kwargs", "additional_wrappers")
    limits = {name: str(getattr(env_spec, name)) for name in ("max_episode_steps", "reward_threshold")}
    code = {name: f"`{getattr(env_spec, name)}`" for name in (*shown, "vector_entry_point")}
    return {"ID": env_spec.id, "entry_point": code.pop("entry_point"), **limits, **code}
