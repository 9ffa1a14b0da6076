"""`Collector`: record episodes from a single environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gymnasium

from penstock.core.ragged import Array
from penstock.core.spec import Spec
from penstock.errors import DataError
from penstock.record.buffer import EpisodeBuffer
from penstock.record.checks import Verdict
from penstock.record.hooks import EpisodeMetadata, StepData, StepHook, reward_statistics, seed_stream
from penstock.record.infos import MASK, InfoColumns, InfoSchema, Policy, make_infos
from penstock.record.sink import Sink, Target, about_reset, environment_metadata, make_spec
from penstock.record.spaces import from_gymnasium

# First keys that extras cannot have.
RESERVED = ("observations", "actions", "rewards", "terminations", "truncations", "infos", MASK)


class Collector(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment wrapper that records episodes. Every episode is written when it ends.

    Use it in place of the environment. Cost: about 1 us for each step.

    Args:
        env: Environment to record.
        target: Path of a new dataset, an open `Writer` (which you close), or a function from a `Spec` to a `Writer`.
        format: Format of a new dataset. The default is `"columns"`.
        metadata: Metadata of the dataset, in addition to `env_spec`. The default is none.
        record_infos: False: no infos. True or `"error"`: every info must have the columns of the first. `"union"`:
            missing values are filled, and `infos_mask/...` is True for recorded ones. The default is False.
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
        SpecError: A space has no columns.
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

        >>> from penstock.record.memory import MemoryWriter
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
        format: str = "columns",
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
        unfinished: Literal["save", "drop"] = "save",
    ) -> None:
        super().__init__(env)
        spaces = from_gymnasium(env.observation_space), from_gymnasium(env.action_space)
        self._spaces, self._unfinished, self._on_step = spaces, unfinished, on_step
        self._seeds = seed_stream(seed) if autoseed else None
        self._buffer = EpisodeBuffer(*spaces, cast="any" if dtypes == "cast" else "python")
        schema = make_infos(record_infos, info_example)
        self._infos = None if schema is None else InfoColumns(schema)
        self._extras = InfoColumns(InfoSchema("error", "", "boundary", RESERVED))
        self._step_extras = InfoColumns(InfoSchema("error", "", "step", RESERVED))
        self._sink = Sink(target, format, environment_metadata(env, metadata), episode_metadata, nan, outside)
        self._open = False
        self._about: dict[str, Any] = {}
        self._closed = False

    @property
    def episodes(self) -> int:
        """Number of written episodes."""
        return self._sink.episodes

    @property
    def steps(self) -> int:
        """Total number of steps of the written episodes."""
        return self._sink.steps

    @property
    def pending(self) -> int:
        """Number of closed episodes that wait in memory because writing failed."""
        return len(self._sink.pending)

    @property
    def dataset_spec(self) -> Spec:
        """Columns of the dataset. Columns of infos and extras are final after the first episode."""
        return self._sink.spec or self._make_spec()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. An open episode is saved as truncated. Seed and options are stored with the new one.

        Args:
            seed: Seed of the environment. The default is None: draw one, or none without `autoseed`.
            options: Options of the environment. The default is None.

        Returns:
            Observation and info of the environment.
        """
        self._end_unfinished()
        if seed is not None:
            seed = int(seed)  # environments take no NumPy integers
        elif self._seeds is not None:
            seed = next(self._seeds)
        self._about = about_reset(seed, options)
        observation, info = self.env.reset(seed=seed, options=options)
        if self._on_step is None:
            self._begin(observation, info)
        else:
            data = self._on_step(StepData(self.env, observation, info, is_reset=True))
            self._begin(data.observation, data.info)
            self._extras.store(0, data.extras)
        self._open = True
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
        if not self._open:
            raise DataError("expected reset() before step(): no episode is open, the last one has ended or failed")
        buffer, i = self._buffer, self._buffer.steps
        buffer.store_action(i, action)
        result = self.env.step(action)
        observation, reward, terminated, truncated, info = result
        self._open = False  # until the step is recorded
        if self._on_step is not None:
            self._open = self._record_hooked(self._on_step, action, result)
            return result
        buffer.store_reward(i, reward)
        buffer.store_observation(i + 1, observation)
        if self._infos is not None:
            self._infos.store(i + 1, info)
        buffer.steps = i + 1
        if terminated or truncated:
            self._end(bool(terminated), bool(truncated))
        else:
            self._open = True
        return result

    def truncate(self) -> None:
        """End the open episode here as truncated, and save it.

        The next `step` starts an episode with the last observation, and its metadata has `continued`. `reset` starts a
        fresh one. An episode without steps stays open.

        Raises:
            DataError: No episode is open.
        """
        if not self._open:
            raise DataError("expected an open episode to truncate, got none; call reset() first")
        if self._buffer.steps:
            self._end(False, True, carry=True)

    def flush(self) -> None:
        """Write the episodes that wait in memory because writing failed, for example on a full disk.

        Raises:
            OSError: Writing failed again. Call `flush` later.
        """
        self._sink.flush()

    def close(self) -> None:
        """Save or drop the open episode, close the writer unless it was passed in, and close the environment.

        Raises:
            OSError: Writing failed. `close` can be called again.
        """
        try:
            if self._unfinished == "save":
                self._end_unfinished()
            self._open, self._buffer.steps = False, 0
            self._sink.close()
        finally:
            if not self._closed:
                self._closed = True
                super().close()

    def _begin(self, observation: Any, info: dict[str, Any]) -> None:
        self._buffer.steps = 0
        self._buffer.store_observation(0, observation)
        if self._infos is not None:
            self._infos.store(0, info)

    def _record_hooked(self, hook: StepHook, action: Any, result: tuple[Any, ...]) -> bool:
        """Record a step as changed by the hook. Return whether an episode is still open."""
        observation, reward, terminated, truncated, info = result
        buffer, i = self._buffer, self._buffer.steps
        data = hook(StepData(self.env, observation, info, action, reward, terminated, truncated))
        if data.action is not action:
            buffer.store_action(i, data.action)
        buffer.store_reward(i, data.reward)
        buffer.store_observation(i + 1, data.observation)
        if self._infos is not None:
            self._infos.store(i + 1, data.info)
        self._store_extras(i, data.extras)
        buffer.steps = i + 1
        if not (data.terminated or data.truncated):
            return True
        goes_on = not (terminated or truncated)
        self._end(bool(data.terminated), bool(data.truncated), carry=goes_on)
        return goes_on

    def _store_extras(self, i: int, extras: dict[str, Any]) -> None:
        boundary = {key: value for key, value in extras.items() if self._extras.has(key)}
        self._extras.store(i + 1, boundary)
        self._step_extras.store(i, {key: value for key, value in extras.items() if key not in boundary})

    def _end_unfinished(self) -> None:
        if self._buffer.steps:
            self._end(False, True)
        self._open = False

    def _end(self, terminated: bool, truncated: bool, carry: bool = False) -> None:
        n, about = self._buffer.steps, self._about
        columns: dict[str, Array] = self._buffer.take(terminated, truncated, carry)
        if self._infos is not None:
            columns |= self._infos.take(n + 1, carry)
        columns |= self._extras.take(n + 1, carry)
        columns |= self._step_extras.take(n)
        self._open, self._about = carry, {"continued": True}
        self._sink.add(self._make_spec, columns, about)
        self._sink.flush()

    def _make_spec(self) -> Spec:
        schemas = [infos.schema for infos in (self._infos, self._extras, self._step_extras) if infos is not None]
        return make_spec(*self._spaces, schemas)
