"""A dataset, or some episodes of one: read, filtered, sampled, grown."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from penstock.envs.recovery import recover, spec_from_json
from penstock.errors import DataError, FormatError
from penstock.formats.minari.metadata import VERSION
from penstock_mirrors.minari.data_collector.episode_buffer import EpisodeBuffer
from penstock_mirrors.minari.dataset.episode_data import EpisodeData
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.dataset.versions import check_requirements, gen_dataset_id, is_supported, parse_dataset_id

Indices = npt.NDArray[np.int_]
GymSpace = gymnasium.Space[Any]

__all__ = ["MinariDataset", "MinariDatasetSpec", "gen_dataset_id", "parse_dataset_id"]


@dataclass
class MinariDatasetSpec:
    """Description of a dataset; `namespace`, `dataset_name` and `version` are the parts of its id."""

    env_spec: EnvSpec | None
    total_episodes: int
    total_steps: int
    dataset_id: str
    combined_datasets: list[str]
    observation_space: GymSpace
    action_space: GymSpace
    data_path: str
    minari_version: str

    namespace: str | None = field(init=False)
    dataset_name: str = field(init=False)
    version: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.namespace, self.dataset_name, self.version = parse_dataset_id(self.dataset_id)


class MinariDataset:
    """Dataset of the episodes `episode_indices` (default: all) of a storage, or of the data directory at a path."""

    def __init__(
        self, data: MinariStorage | str | os.PathLike[str], episode_indices: Sequence[int] | Indices | None = None
    ) -> None:
        self._storage = data if isinstance(data, MinariStorage) else MinariStorage.read(data)
        metadata = self._storage.metadata
        self._id = str(metadata["dataset_id"])
        self._version = str(metadata["minari_version"])
        self._env_specs = {name: metadata.get(name) for name in ("env_spec", "eval_env_spec")}
        parts: list[Any] = metadata.get("combined_datasets") or []
        self._combined = list(map(str, parts))
        if not is_supported(metadata["minari_version"]):
            raise FormatError(
                f"expected a dataset of a release up to {VERSION}, got one of {self._version}; install a newer release",
                path=self._storage.data_path,
            )
        indices = range(self._storage.total_episodes) if episode_indices is None else episode_indices
        self._indices: Indices = np.asarray(indices, np.int64)
        self._generator = np.random.default_rng()

    def recover_environment(
        self, eval_env: bool = False, *, trust: bool = False, **kwargs: Any
    ) -> gymnasium.Env[Any, Any]:
        """Make the environment that the dataset was collected in, or with `eval_env` the one to evaluate in.

        `kwargs` go to `gymnasium.make`. Only an environment that is registered here with the entry point and arguments
        that the dataset names is made, in wrappers that neither run code nor write files, unless `trust`. Warns about
        requirements of the dataset that are not met.
        """
        check_requirements(self._storage.metadata.get("requirements") or [], {"minari": VERSION})
        spec = self.eval_env_spec if eval_env else self.env_spec
        if eval_env and spec is None:
            logging.getLogger(__name__).info(
                "%s has no evaluation environment; the one of its data stands for it", self.id
            )
            spec = self.env_spec
        if spec is None:
            raise DataError("Environment cannot be recovered when env_spec is None")
        return recover(spec, trust=trust, **kwargs)

    def set_seed(self, seed: int) -> None:
        """Seed the generator of `sample_episodes`."""
        self._generator = np.random.default_rng(seed)

    def filter_episodes(self, condition: Callable[[EpisodeData], bool]) -> MinariDataset:
        """Return a view of the episodes for which `condition` is true. Cost: decodes every episode, one at a time."""
        kept = [bool(condition(episode)) for episode in self]
        return MinariDataset(self._storage, self._indices[np.array(kept, np.bool_)])

    def sample_episodes(self, n_episodes: int) -> list[EpisodeData]:
        """Return `n_episodes` different random episodes."""
        return list(self.iterate_episodes(self._generator.choice(self._indices, size=n_episodes, replace=False)))

    def iterate_episodes(self, episode_indices: Iterable[int] | None = None) -> Iterator[EpisodeData]:
        """Yield episodes by their numbers in the storage (default: all of this dataset). Memory: one at a time."""
        wanted = self._indices if episode_indices is None else episode_indices
        return (EpisodeData(**episode) for episode in self._storage.get_episodes(wanted))

    def update_dataset_from_buffer(self, buffer: Sequence[EpisodeBuffer]) -> None:
        """Append episodes; they are part of this dataset or view."""
        self._grow(lambda: self._storage.update_episodes(buffer))

    def update_from_storage(self, storage: MinariStorage) -> None:
        """Append the episodes of another storage with their metadata; they are part of this dataset or view."""
        self._grow(lambda: self._storage.update_from_storage(storage))

    def _grow(self, append: Callable[[], None]) -> None:
        first = self._storage.total_episodes
        append()
        self.episode_indices = np.append(self._indices, np.arange(first, self._storage.total_episodes))

    def __iter__(self) -> Iterator[EpisodeData]:
        return self.iterate_episodes()

    def __getitem__(self, idx: int) -> EpisodeData:
        number = operator.index(idx)  # one episode: a slice is a TypeError, iterate_episodes takes several
        return next(self.iterate_episodes([int(self._indices[number])]))

    def __len__(self) -> int:
        return self.total_episodes

    @property
    def total_episodes(self) -> int:
        return len(self._indices)

    @cached_property
    def total_steps(self) -> int:
        """Number of steps of all episodes."""
        return self._storage.count_steps(self._indices)

    @property
    def episode_indices(self) -> Indices:
        """`[n]` int64 numbers of the episodes in the storage."""
        return self._indices

    @episode_indices.setter
    def episode_indices(self, new_value: Sequence[int] | Indices) -> None:
        self._indices = np.asarray(new_value, np.int64)
        self.__dict__.pop("total_steps", None)

    @property
    def observation_space(self) -> GymSpace:
        return self._storage.observation_space

    @property
    def action_space(self) -> GymSpace:
        return self._storage.action_space

    @cached_property
    def env_spec(self) -> EnvSpec | None:
        """The spec of the environment that the data came from, if it is known."""
        return spec_from_json(self._env_specs["env_spec"], "env_spec")

    @cached_property
    def eval_env_spec(self) -> EnvSpec | None:
        """The spec of the environment to evaluate in, if there is another one."""
        return spec_from_json(self._env_specs["eval_env_spec"], "eval_env_spec")

    @property
    def combined_datasets(self) -> list[str]:
        """The ids of the datasets that were combined into this dataset."""
        return self._combined

    @property
    def id(self) -> str:
        return self._id

    @property
    def minari_version(self) -> str:
        """The release that the dataset was written by, or for."""
        return self._version

    @property
    def storage(self) -> MinariStorage:
        """Access to the data on disk."""
        return self._storage

    @property
    def spec(self) -> MinariDatasetSpec:
        return MinariDatasetSpec(
            env_spec=self.env_spec,
            total_episodes=self.total_episodes,
            total_steps=self.total_steps,
            dataset_id=self.id,
            combined_datasets=self.combined_datasets,
            observation_space=self.observation_space,
            action_space=self.action_space,
            data_path=str(self._storage.data_path),
            minari_version=self.minari_version,
        )
