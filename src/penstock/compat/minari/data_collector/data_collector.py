"""The environment wrapper that records episodes."""

from __future__ import annotations

import copy
import secrets
import warnings
import weakref
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium

from penstock.compat.minari.creation import Policy, dataset_metadata, free_path
from penstock.compat.minari.data_collector.callbacks import EpisodeMetadataCallback, StepDataCallback
from penstock.compat.minari.data_collector.collection import Collection, finish, unfinished
from penstock.compat.minari.dataset.columns import as_dict
from penstock.compat.minari.dataset.minari_dataset import MinariDataset
from penstock.compat.minari.dataset.minari_storage import MinariStorage
from penstock.compat.minari.dataset.spaces import stored_space
from penstock.compat.minari.dataset.step_data import StepData, singular
from penstock.compat.minari.environments import EnvLike, spec_from_json
from penstock.core.episode import Episode
from penstock.core.ragged import Array
from penstock.core.spec import Spec
from penstock.errors import DataError
from penstock.formats.minari import root
from penstock.record.buffer import EpisodeBuffer
from penstock.record.checks import Checks
from penstock.record.infos import InfoColumns, InfoSchema, make_infos
from penstock.record.sink import make_spec

AUTOSEED_BITS = 31  # what every simulator takes

_STEP_KEYS = frozenset(StepData.__annotations__)
_TAKEN = ("observations", "actions", "rewards", "terminations", "truncations", "infos", "infos_mask", "present")


class DataCollector(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that records its episodes, for `create_dataset` or `add_to_dataset` to make datasets of.

    - `step_data_callback`, `episode_metadata_callback`: classes; see their own pages.
    - `record_infos`: False; True (every info must have the keys of the first one, anything else is a `DataError`); or
      "union" (a key that is missing is filled in, the extra group `infos_mask` says where).
    - `observation_space`, `action_space`: of the dataset, where a callback changes what is recorded.
    - `data_format`: "hdf5" (the default), "arrow" or "parquet". `jpeg_encoding`: store images as JPEG, with loss.

    What is recorded lies in a hidden directory of the datasets root until a dataset is made of it, and is still there
    after a crash: `unfinished` lists such directories, `recover_collection` makes datasets of them, and a new collector
    warns about them. Cost: 1 to 2 us a step; custom callbacks cost what they cost.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        step_data_callback: type[StepDataCallback] = StepDataCallback,
        episode_metadata_callback: type[EpisodeMetadataCallback] = EpisodeMetadataCallback,
        record_infos: bool | Literal["union"] = False,
        observation_space: gymnasium.Space[Any] | None = None,
        action_space: gymnasium.Space[Any] | None = None,
        data_format: str | None = None,
        *,
        jpeg_encoding: bool = False,
    ) -> None:
        super().__init__(env)
        self._callback = None if step_data_callback is StepDataCallback else step_data_callback()
        self._describe = None if episode_metadata_callback is EpisodeMetadataCallback else episode_metadata_callback()
        self._gym_spaces = (observation_space or env.observation_space, action_space or env.action_space)
        self._spaces = (stored_space(self._gym_spaces[0]), stored_space(self._gym_spaces[1]))
        self.data_format = data_format or "hdf5"
        self._record_infos: bool | Literal["union"] = record_infos
        # A partial and no method: what refers to this object would keep it from being finalized.
        observations, actions = self._gym_spaces
        begin = partial(
            MinariStorage.new,
            observation_space=observations,
            action_space=actions,
            env_spec=env.spec,
            data_format=self.data_format,
            jpeg_encoding=jpeg_encoding,
        )
        self._collection = Collection(begin)
        weakref.finalize(self, self._collection.flush)
        self._start_afresh()
        _report_unfinished()

    def _start_afresh(self) -> None:
        """Forget the open episode and the columns of infos and extras: the next dataset may have others."""
        self._buffer = EpisodeBuffer(*self._spaces, cast="any")
        schema = make_infos(self._record_infos, None)
        self._infos = None if schema is None else InfoColumns(schema)
        self._extras = InfoColumns(InfoSchema("error", "", "boundary", _TAKEN))
        self._step_extras = InfoColumns(InfoSchema("error", "", "step", _TAKEN))
        self._spec: Spec | None = None
        self._open = False
        self._about: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and start an episode; one that is open is recorded as truncated.

        Without a `seed` one is drawn and stored, unless `options["minari_autoseed"]` is False.
        """
        self._end_unfinished()
        if seed is None and (options is None or options.get("minari_autoseed", True)):
            seed = secrets.randbits(AUTOSEED_BITS)
        observation, info = self.env.reset(seed=seed, options=options)
        about = {"seed": seed, "options": copy.deepcopy(options)}
        self._about = {name: value for name, value in about.items() if value is not None}
        self._buffer.steps = 0
        if self._callback is None:
            self._store_first(observation, info)
        else:
            step = singular(self._callback(env=self.env, obs=observation, info=info))
            self._store_first(step["observation"], step["info"])
            self._extras.store(0, _extras(step))
        self._open = True
        return observation, info

    def _store_first(self, observation: Any, info: Any) -> None:
        self._buffer.store_observation(0, observation)
        if self._infos is not None:
            self._infos.store(0, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and record it. After the last step of an episode, stepping on starts the next one.

        Returns what the environment returned, whatever a callback changed. Raises `DataError` for what cannot be
        recorded, and without a `reset` before.
        """
        if not self._open:
            raise DataError("expected reset() before step(): no episode is open")
        if self._callback is not None:
            return self._step_with(self._callback, action)
        buffer = self._buffer
        i = buffer.steps
        buffer.store_action(i, action)  # before the environment can change it
        result = self.env.step(action)
        observation, reward, terminated, truncated, info = result
        buffer.store_reward(i, reward)
        buffer.store_observation(i + 1, observation)
        if self._infos is not None:
            self._infos.store(i + 1, info)
        buffer.steps = i + 1
        if terminated or truncated:
            self._end(bool(terminated), bool(truncated))
        return result

    def _step_with(self, callback: StepDataCallback, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        observation, reward, terminated, truncated, info = result
        step = singular(
            callback(
                env=self.env,
                obs=observation,
                info=info,
                action=action,
                rew=reward,
                terminated=terminated,
                truncated=truncated,
            )
        )
        buffer = self._buffer
        i = buffer.steps
        buffer.store_action(i, step["action"])
        buffer.store_reward(i, step["reward"])
        buffer.store_observation(i + 1, step["observation"])
        if self._infos is not None:
            self._infos.store(i + 1, step["info"])
        self._store_extras(i, _extras(step))
        buffer.steps = i + 1
        if step["terminated"] or step["truncated"]:
            self._end(bool(step["terminated"]), bool(step["truncated"]))
        return result

    def _store_extras(self, i: int, extras: Mapping[str, Any]) -> None:
        """Groups that were there at the reset have T + 1 rows, the others T."""
        boundary = {key: value for key, value in extras.items() if self._extras.has(key)}
        self._extras.store(i + 1, boundary)
        self._step_extras.store(i, {key: value for key, value in extras.items() if key not in boundary})

    def _end_unfinished(self) -> None:
        if self._open and self._buffer.steps:
            self._end(False, True)
        self._open = False

    def _end(self, terminated: bool, truncated: bool) -> None:
        """Record the open episode; the next one begins with its last observation."""
        n, about = self._buffer.steps, self._about
        columns: dict[str, Array] = self._buffer.take(terminated, truncated, carry=True)
        if self._infos is not None:
            columns |= self._infos.take(n + 1, carry=True)
        columns |= self._extras.take(n + 1, carry=True)
        columns |= self._step_extras.take(n)
        self._about = {}
        if self._spec is None:
            schemas = [held.schema for held in (self._infos, self._extras, self._step_extras) if held is not None]
            self._spec = make_spec(*self._spaces, schemas)
            self._check = Checks(self._spec, nan="keep", outside="warn")
        number = self._collection.episodes
        self._check(number, columns)
        if self._describe is not None:
            about = {**about, **self._describe(as_dict(Episode(self._spec, columns), number, *self._spaces))}
        self._collection.add(Episode(self._spec, columns, number, about))

    def add_to_dataset(self, dataset: MinariDataset) -> None:
        """Append what was recorded to a dataset, with seeds, options and statistics, and start afresh."""
        self._end_unfinished()
        self._collection.flush()
        if self._collection.episodes:
            dataset.update_from_storage(self._collection.storage())
        self._collection.discard()
        self._start_afresh()

    def create_dataset(
        self,
        dataset_id: str,
        eval_env: EnvLike | None = None,
        algorithm_name: str | None = None,
        author: str | set[str] | None = None,
        author_email: str | set[str] | None = None,
        code_permalink: str | None = None,
        ref_min_score: float | None = None,
        ref_max_score: float | None = None,
        expert_policy: Policy | None = None,
        num_episodes_average_score: int = 100,
        description: str | None = None,
        requirements: list[str] | None = None,
    ) -> MinariDataset:
        """Make a dataset of what was recorded, and start afresh. Arguments as of `create_dataset_from_buffers`.

        Raises `DataError` if the id is malformed or taken; what was recorded is kept.
        """
        path = free_path(dataset_id)
        told = {
            "code_permalink": code_permalink,
            "author": author,
            "author_email": author_email,
            "algorithm_name": algorithm_name,
            "description": description,
            "requirements": requirements,
        }
        scores = {
            "ref_min_score": ref_min_score,
            "ref_max_score": ref_max_score,
            "expert_policy": expert_policy,
            "num_episodes_average_score": num_episodes_average_score,
        }
        self._end_unfinished()
        self._collection.flush()
        metadata = dataset_metadata(dataset_id, copy.deepcopy(self.env.spec), told, scores, eval_env)
        self._collection.storage().update_metadata(metadata)
        self._collection.become(path)
        self._start_afresh()
        return MinariDataset(path / root.DATA)

    def close(self) -> None:
        """Close the environment. What was recorded and not made a dataset is kept: `create_dataset` still works."""
        super().close()
        self._end_unfinished()
        self._collection.flush()
        if self._collection.episodes:
            warnings.warn(
                f"{self._collection.episodes} recorded episodes are not a dataset yet; they are kept in "
                f"{self._collection.path}. Call create_dataset, or recover_collection from anywhere, or delete it.",
                stacklevel=2,
            )


def recover_collection(path: str | Path, dataset_id: str, **metadata: Any) -> MinariDataset:
    """Make a dataset of a recording that was never finished (see `unfinished`).

    `metadata` are entries of the dataset's, such as `author`, `description` or `algorithm_name`.

    Raises `DataError` if the id is malformed or taken, or there is no such recording.
    """
    place = free_path(dataset_id)
    data = Path(path) / root.DATA
    storage = MinariStorage.read(data)
    env_spec = spec_from_json(storage.metadata.get("env_spec"), "env_spec")
    storage.update_metadata(dataset_metadata(dataset_id, env_spec, metadata, {}, None))
    storage.close()
    finish(Path(path), place)
    return MinariDataset(place / root.DATA)


def _extras(step: StepData) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key not in _STEP_KEYS}


def _report_unfinished() -> None:
    left = unfinished()
    if left:
        warnings.warn(
            f"recordings that were never made datasets: {', '.join(map(str, left))}; make them datasets with "
            "penstock.compat.minari.data_collector.recover_collection(path, dataset_id), or delete them",
            stacklevel=3,
        )
