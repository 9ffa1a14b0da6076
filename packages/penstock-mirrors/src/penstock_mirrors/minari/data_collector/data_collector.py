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

from penstock.core.episode import Episode
from penstock.core.spaces import Space
from penstock.envs.recovery import spec_from_json
from penstock.errors import DataError
from penstock.formats.minari import ids
from penstock.recording.infos import make_infos
from penstock.recording.recorder import StepRecorder
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import about_reset
from penstock_mirrors.minari.creation import EnvLike, Policy, dataset_metadata, free_path
from penstock_mirrors.minari.data_collector.callbacks import EpisodeMetadataCallback, StepDataCallback
from penstock_mirrors.minari.data_collector.collection import Collection, finish, unfinished
from penstock_mirrors.minari.dataset.columns import as_dict, stored_space
from penstock_mirrors.minari.dataset.minari_dataset import MinariDataset
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.dataset.step_data import StepData, singular

AUTOSEED_BITS = 31  # what every simulator takes

_STEP_KEYS = frozenset(StepData.__annotations__)
_TAKEN = ("observations", "actions", "rewards", "terminations", "truncations", "infos", "infos_mask", "present")


class DataCollector(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment wrapper that records episodes for `create_dataset` and `add_to_dataset`.

    - `step_data_callback`, `episode_metadata_callback`: classes; see their own pages.
    - `record_infos`: False; True (every info must have the keys of the first one, anything else is a `DataError`); or
      "union" (a key that is missing is filled in, the extra group `infos_mask` says where).
    - `observation_space`, `action_space`: of the dataset, where a callback changes what is recorded.
    - `data_format`: "hdf5" (the default), "arrow" or "parquet". `jpeg_encoding`: store images as JPEG, with loss.

    Recordings are stored in a hidden directory of the datasets root until they become a dataset, and survive a crash:
    `unfinished` lists such directories, `recover_collection` turns them into datasets, and a new collector warns about
    them. Cost: 1 to 2 us a step, plus the time of custom callbacks.
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
        describe = None
        if episode_metadata_callback is not EpisodeMetadataCallback:
            describe = partial(_described, episode_metadata_callback(), self._spaces)
        schema = self._make_schema()
        self._collection = Collection(begin, schema, describe)
        self._recorder = StepRecorder(self._collection, schema, "any")
        weakref.finalize(self, self._collection.flush)
        _report_unfinished()

    def _start_afresh(self) -> None:
        """Discard the open episode and the columns of infos and extras, which may differ in the next dataset."""
        schema = self._make_schema()
        self._collection.use(schema)
        self._recorder.use(schema, "any")

    def _make_schema(self) -> RecordingSchema:
        infos = make_infos("error" if self._record_infos is True else self._record_infos, None)  # as Minari has it
        return RecordingSchema(*self._spaces, infos, extras=self._callback is not None, reserved=_TAKEN)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and start an episode; one that is open is recorded as truncated.

        Without a `seed` one is drawn and stored, unless `options["minari_autoseed"]` is False.
        """
        self._recorder.end()
        if seed is None and (options is None or options.get("minari_autoseed", True)):
            seed = secrets.randbits(AUTOSEED_BITS)
        observation, info = self.env.reset(seed=seed, options=options)
        about = about_reset(seed, options)
        if self._callback is None:
            self._recorder.begin(observation, info, metadata=about)
        else:
            step = singular(self._callback(env=self.env, obs=observation, info=info))
            self._recorder.begin(step["observation"], step["info"], metadata=about, extras=_extras(step))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and record it. After the last step of an episode, stepping on starts the next one.

        Returns the values of the environment, unchanged by callbacks.
        """
        if self._callback is None:
            return self._recorder.advance(action, self.env.step, carry={})
        if not self._recorder.is_open:
            raise DataError("expected reset() before step(): no episode is open")
        return self._step_with(self._callback, action)

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
        self._recorder.store_action(step["action"])
        self._recorder.store_result(
            step["observation"],
            step["reward"],
            step["terminated"],
            step["truncated"],
            step["info"],
            _extras(step),
            carry={},
        )
        return result

    def add_to_dataset(self, dataset: MinariDataset) -> None:
        """Append the recorded episodes to a dataset, with seeds, options and statistics, and start a new recording."""
        self._recorder.end()
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
        """Make a dataset of the recorded episodes, and start a new recording.

        The arguments are the same as in `create_dataset_from_buffers`.
        """
        path = free_path(dataset_id)
        self._recorder.end()
        self._collection.flush()
        metadata = dataset_metadata(
            dataset_id,
            copy.deepcopy(self.env.spec),
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
        self._collection.storage().update_metadata(metadata)
        self._collection.become(path)
        self._start_afresh()
        return MinariDataset(path / ids.DATA)

    def close(self) -> None:
        """Close the environment. Episodes that are not in a dataset yet are kept: `create_dataset` still works."""
        super().close()
        self._recorder.end()
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
    """
    place = free_path(dataset_id)
    data = Path(path) / ids.DATA
    storage = MinariStorage.read(data)
    env_spec = spec_from_json(storage.metadata.get("env_spec"))
    storage.update_metadata(dataset_metadata(dataset_id, env_spec, None, **metadata))
    storage.close()
    finish(Path(path), place)
    return MinariDataset(place / ids.DATA)


def _described(callback: EpisodeMetadataCallback, spaces: tuple[Space, Space], episode: Episode) -> Mapping[str, Any]:
    return callback(as_dict(Episode(episode.spec, episode.columns), episode.id, *spaces))


def _extras(step: StepData) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key not in _STEP_KEYS}


def _report_unfinished() -> None:
    left = unfinished()
    if left:
        warnings.warn(
            f"recordings that were never made datasets: {', '.join(map(str, left))}; make them datasets with "
            "penstock_mirrors.minari.data_collector.recover_collection(path, dataset_id), or delete them",
            stacklevel=3,
        )
