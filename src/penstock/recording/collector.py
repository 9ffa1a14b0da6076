"""`Collector`: record episodes from a single environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium

from penstock.errors import DataError
from penstock.recording.checks import Verdict
from penstock.recording.hooks import EpisodeMetadata, StepData, StepHook, reward_statistics, seed_stream
from penstock.recording.infos import Policy, make_infos
from penstock.recording.recorder import StepRecorder, Unfinished, cast_of
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import Mode, Recording, Target, WriterSink, about_reset, environment_metadata
from penstock.recording.spaces import from_gymnasium

CONTINUED = {"continued": True}  # metadata of an episode that starts where the one before was cut off


class Collector(Recording, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment wrapper that records episodes. Every episode is written when it ends.

    Use it in place of the environment. Cost: about 1 us for each step.

    Args:
        env: Environment to record.
        target: Path of a dataset, an open `Writer` (which you close), or a function from a `Spec` to a `Writer`.
        mode: For a path: `"create"` refuses an existing dataset, `"append"` continues it or creates one, `"overwrite"`
            replaces it when the first episode ends. The default is `"create"`.
        format: Format of the dataset. The default is chosen by the ending of its name, as for `penstock.convert`, or
            with `"append"` the format of the dataset.
        metadata: Metadata of the dataset, in addition to `env_spec`. The default is none.
        record_infos: False: no infos. True or `"union"`: keys may come and go; missing values are filled, and
            `infos_mask/...` is True for recorded ones. `"error"`: every info must have the keys of the first, and there
            are no masks. The default is False.
        info_example: An info with keys that may first appear after the first episode. The default is None.
        on_step: Hook that changes or adds to the recorded data, see `StepData`. The default is None.
        episode_metadata: Function from an `Episode` to its metadata. The default is statistics of its rewards.
        seed: Seed of the generator that draws a seed for every reset without one. The default is None: a random seed.
        autoseed: Whether to draw these seeds. The default is True.
        nan: What to do with values that are not finite, when the episode ends: `"error"`, `"warn"` or `"keep"`. The
            default is `"error"`.
        outside: The same for values outside their space. The default is `"warn"`.
        dtypes: `"cast"` rounds observations and actions to the dtype of their space; `"error"` refuses other dtypes.
            The default is `"error"`.
        unfinished: What `close` does with an open episode: `"save"` it as truncated, or `"drop"` it. The default is
            `"save"`.

    Raises:
        SpecError: A space has no columns, or differs from the dataset that is continued.
        FileExistsError: The path exists.
        DataError: While stepping, a value cannot be recorded.
        OSError: While stepping, the disk is full. See `flush`.

    Example:
        >>> import gymnasium, penstock, tempfile
        >>> path = f"{tempfile.mkdtemp()}/cartpole"
        >>> with Collector(gymnasium.make("CartPole-v1"), path, seed=0) as env:
        ...     for _ in range(2):
        ...         observation, info = env.reset()
        ...         done = False
        ...         while not done:
        ...             observation, reward, terminated, truncated, info = env.step(1)
        ...             done = terminated or truncated
        >>> len(penstock.open(path))
        2

        Episodes in memory:

        >>> from penstock.recording.memory import MemoryWriter
        >>> env = Collector(gymnasium.make("CartPole-v1"), writer := MemoryWriter(), seed=0)
        >>> observation, info = env.reset()
        >>> for _ in range(3):
        ...     _ = env.step(1)
        >>> env.close()
        >>> writer.episodes[0]
        Episode(id=0, steps=3, columns=['observations', 'actions', 'rewards', 'terminations', 'truncations'])
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        target: Target,
        *,
        mode: Mode = "create",
        format: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        record_infos: bool | Policy = False,
        info_example: Mapping[str, Any] | None = None,
        on_step: StepHook | None = None,
        episode_metadata: EpisodeMetadata | None = reward_statistics,
        seed: int | None = None,
        autoseed: bool = True,
        nan: Verdict = "error",
        outside: Verdict = "warn",
        dtypes: Literal["error", "cast"] = "error",
        unfinished: Unfinished = "save",
    ) -> None:
        super().__init__(env)
        spaces = from_gymnasium(env.observation_space), from_gymnasium(env.action_space)
        infos = make_infos(record_infos, info_example)
        schema = RecordingSchema(*spaces, infos, extras=on_step is not None)
        about = environment_metadata(env, metadata)
        self._sink = WriterSink(target, schema, format, mode, about, episode_metadata, nan, outside)
        self._recorder = StepRecorder(self._sink, schema, cast_of(dtypes), unfinished)
        self._on_step = on_step
        self._seeds = seed_stream(seed) if autoseed else None
        self._closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. An open episode is saved as truncated. Seed and options are stored with the new one.

        Args:
            seed: Seed of the environment. The default is None: draw one, or none without `autoseed`.
            options: Options of the environment. The default is None.

        Returns:
            Observation and info of the environment.

        Raises:
            DataError: The collector was closed.
        """
        self._sink.require_open()
        self._recorder.end()
        if seed is not None:
            seed = int(seed)  # environments take no NumPy integers
        elif self._seeds is not None:
            seed = next(self._seeds)
        about = about_reset(seed, options)
        observation, info = self.env.reset(seed=seed, options=options)
        if self._on_step is None:
            self._recorder.begin(observation, info, metadata=about)
        else:
            data = self._on_step(StepData(self.env, observation, info, is_reset=True))
            self._recorder.begin(data.observation, data.info, metadata=about, extras=data.extras)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment and record it.

        Args:
            action: Action for the environment.

        Returns:
            The result of the environment, without the changes of a hook.

        Raises:
            DataError: No episode is open, or the action cannot be recorded; the environment did not step then. Or the
                result cannot be recorded; the episode then ends with the step before.
        """
        if self._on_step is None:
            return self._recorder.advance(action, self.env.step)
        return self._hooked_step(self._on_step, action)

    def truncate(self) -> None:
        """End the open episode here as truncated, and save it.

        The next `step` starts an episode with the last observation, and its metadata has `continued`. `reset` starts a
        fresh one. An episode without steps stays open.

        Raises:
            DataError: No episode is open.
        """
        if not self._recorder.is_open:
            raise DataError("expected an open episode to truncate, got none; call reset() first")
        self._recorder.split(CONTINUED)

    def close(self) -> None:
        """Save or drop the open episode, close the writer unless it was passed in, and close the environment.

        Raises:
            OSError: Writing failed. `close` can be called again.
        """
        try:
            self._recorder.close()
        finally:
            if not self._closed:
                self._closed = True
                super().close()

    def _hooked_step(self, hook: StepHook, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and record it as changed by the hook."""
        recorder = self._recorder
        if not recorder.is_open:
            raise DataError("expected reset() before step(): no episode is open, the last one has ended or failed")
        recorder.store_action(action)
        result = self.env.step(action)
        observation, reward, terminated, truncated, info = result
        recorder.interrupt()  # until the hook has returned
        data = hook(StepData(self.env, observation, info, action, reward, terminated, truncated))
        recorder.resume()
        if data.action is not action:
            recorder.store_action(data.action)
        carry = None if terminated or truncated else CONTINUED
        recorder.store_result(
            data.observation, data.reward, data.terminated, data.truncated, data.info, data.extras, carry
        )
        return result
