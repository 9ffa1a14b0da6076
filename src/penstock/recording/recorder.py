"""`Recorder`: record episodes step by step, from any loop. No environment is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from penstock.core.ragged import Array
from penstock.core.spaces import Space
from penstock.errors import DataError, SpecError, require
from penstock.formats.base.writer import RowStream, StepRecording
from penstock.recording.buffer import Cast, EpisodeBuffer
from penstock.recording.checks import Verdict
from penstock.recording.hooks import EpisodeMetadata, reward_statistics
from penstock.recording.infos import InfoColumns, Policy, make_infos
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import Mode, Recording, Sink, Target, WriterSink

_ALONE = np.zeros(1, np.int64)
Unfinished = Literal["save", "drop"]


class StepRecorder(Recording):
    """Store the steps of one episode after another, and pass closed episodes to a sink.

    `Recorder`, `Collector` and Minari's `DataCollector` record through it. A value is copied when it is stored.
    `store_action` comes before the environment moves, so that the environment may change the action.

    Args:
        sink: Where closed episodes go.
        schema: Columns of the recording.
        cast: Which other dtypes are accepted.
        unfinished: What `close` does with an open episode.
    """

    def __init__(self, sink: Sink, schema: RecordingSchema, cast: Cast, unfinished: Unfinished = "save") -> None:
        self._sink, self._unfinished = sink, unfinished
        self.use(schema, cast)

    def use(self, schema: RecordingSchema, cast: Cast) -> None:
        """Begin with the columns of a schema, and forget the open episode.

        Args:
            schema: Columns of the recording.
            cast: Which other dtypes are accepted.
        """
        self._buffer = EpisodeBuffer(*schema.spaces, cast=cast)
        self._infos = None if schema.infos is None else InfoColumns(schema.infos)
        self._extras = None if schema.extras is None else InfoColumns(schema.extras)
        self._step_extras = None if schema.step_extras is None else InfoColumns(schema.step_extras)
        self._open = self._attended = False  # an attended episode has infos, or a target that takes open episodes
        self._about: dict[str, Any] = {}
        self._stream: RowStream | None = None
        self._steps: StepRecording | None = None

    @property
    def is_open(self) -> bool:
        """Whether an episode is open, to which a step can be added."""
        return self._open

    def begin(
        self,
        observation: Any,
        info: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Start an episode. An open one is saved as truncated.

        Args:
            observation: First observation.
            info: First info. The default is an empty one.
            metadata: Metadata of the episode, such as a task or an operator. The default is none.
            extras: Further values of this moment, by name. Such a column has T + 1 rows. The default is none.

        Raises:
            DataError: A value cannot be recorded, or the recorder was closed. No episode is open then.
        """
        self._sink.require_open()
        self.end()
        self._buffer.steps = 0
        self._buffer.store_observation(0, observation)
        if self._infos is not None:
            self._infos.store(0, {} if info is None else info)
        if self._extras is not None:
            self._extras.store(0, dict(extras or {}))
        self._about = dict(metadata or {})
        self._begin_stream()
        self._open = True

    def step(
        self,
        action: Any,
        observation: Any,
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
        info: Mapping[str, Any] | None = None,
        *,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one step. An episode that ends with it is saved.

        After the action come the values that `step` of a Gymnasium environment returns, in the same order, so that
        `recorder.step(action, *env.step(action))` records an environment.

        Args:
            action: Action of the step.
            observation: Observation after the step.
            reward: Reward of the step. The default is 0.
            terminated: Whether the episode terminated. The default is False.
            truncated: Whether the episode was cut off. The default is False.
            info: Info after the step. The default is an empty one.
            extras: Further values, by name. Names that `begin` had are of the moment after the step, other names are
                of the step and have T rows. The default is none.

        Raises:
            DataError: No episode is open, or a value cannot be recorded. The episode then ends with the step before.
            OSError: The episode cannot be written, see `flush`.
        """
        self.store_action(action)
        self.store_result(observation, reward, terminated, truncated, info or {}, extras or {})

    def store_action(self, action: Any) -> None:
        """Store the action of the next step. A second call before `store_result` replaces it.

        Args:
            action: The action.

        Raises:
            DataError: No episode is open, or the action cannot be recorded. The episode stays open.
        """
        if not self._open:
            raise DataError("expected begin() before a step: no episode is open, the last one has ended or failed")
        self._buffer.store_action(self._buffer.steps, action)

    def store_result(
        self,
        observation: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        info: Any,
        extras: Mapping[str, Any] | None = None,
        carry: Mapping[str, Any] | None = None,
    ) -> None:
        """Complete a step after `store_action`. An episode that ends with it is saved.

        Args:
            observation: Observation after the step.
            reward: Reward of the step.
            terminated: Whether the episode terminated.
            truncated: Whether the episode was cut off.
            info: Info after the step.
            extras: Further values, for a schema with extras.
            carry: If the episode ends here, start the next one with the last observation, and with this metadata. The
                default is None: the next one starts with `begin`.
        """
        buffer, i = self._buffer, self._buffer.steps
        self._open = False  # until the step is recorded
        buffer.store_reward(i, reward)
        buffer.store_observation(i + 1, observation)
        if self._infos is not None:
            self._infos.store(i + 1, info)
        if self._extras is not None and self._step_extras is not None:
            given = dict(extras or {})
            boundary = {key: given.pop(key) for key in list(given) if self._extras.has(key)}
            self._extras.store(i + 1, boundary)
            self._step_extras.store(i, given)
        self._show(i, bool(terminated), bool(truncated))
        buffer.steps = i + 1
        if terminated or truncated:
            self._close_episode(bool(terminated), bool(truncated), carry)
        else:
            self._open = True

    def advance(
        self, action: Any, step: Callable[[Any], tuple[Any, ...]], carry: Mapping[str, Any] | None = None
    ) -> Any:
        """Store an action, call `step` of an environment, and store its result; for schemas without extras.

        The calls of `store_action` and `store_result` are written out here: they would cost a third of the time.

        Args:
            action: Action for the environment.
            step: Function from an action to the observation, reward, both ends and info.
            carry: As in `store_result`.

        Returns:
            The result of `step`.
        """
        if not self._open:
            raise DataError("expected reset() before step(): no episode is open, the last one has ended or failed")
        buffer = self._buffer
        i = buffer.steps
        store_action = buffer.store_action  # calling a slot by its name takes longer than reading and then calling it
        store_action(i, action)
        result = step(action)
        observation, reward, terminated, truncated, info = result
        self._open = False  # until the step is recorded
        store_reward = buffer.store_reward
        store_reward(i, reward)
        store_observation = buffer.store_observation
        store_observation(i + 1, observation)
        if self._attended:
            if self._infos is not None:
                self._infos.store(i + 1, info)
            self._show(i, bool(terminated), bool(truncated))
        buffer.steps = i + 1
        if terminated or truncated:
            self._close_episode(bool(terminated), bool(truncated), carry)
        else:
            self._open = True
        return result

    def end(self, terminated: bool = False) -> None:
        """Save the open episode, if there is one with steps. It ends with the last step.

        Args:
            terminated: Whether the episode terminated there. The default is False: it was truncated.

        Raises:
            OSError: The episode cannot be written, see `flush`.
        """
        if self._buffer.steps:
            self._close_episode(terminated, not terminated, None)
        self._open = False

    def split(self, metadata: Mapping[str, Any]) -> None:
        """Save the open episode as truncated, and start the next one with its last observation.

        An episode without steps stays open.

        Args:
            metadata: Metadata of the next episode.

        Raises:
            DataError: No episode is open.
        """
        if not self._open:
            raise DataError("expected an open episode, got none")
        if self._buffer.steps:
            self._close_episode(False, True, metadata)

    def interrupt(self) -> None:
        """Refuse further steps of the open episode. `begin`, `end` and `close` still save it."""
        self._open = False

    def resume(self) -> None:
        """Accept steps again after `interrupt`."""
        self._open = True

    def discard(self) -> None:
        """Drop the open episode, for example to repeat a demonstration that failed."""
        if self._buffer.steps and self._steps is not None:
            self._steps.end(0, False, False)
            self._steps.drop(0)
        self._open, self._buffer.steps = False, 0
        self._drop_stream()

    def close(self) -> None:
        """Save or drop the open episode, and close the writer unless it was passed in.

        Raises:
            OSError: Writing failed. `close` can be called again.
        """
        if self._unfinished == "save":
            self.end()
        self.discard()
        self._sink.close()

    def _begin_stream(self) -> None:
        self._stream = self._sink.row_stream()
        self._attended = self._infos is not None or self._stream is not None or self._sink.delivers

    def _show(self, i: int, terminated: bool, truncated: bool) -> None:
        """Let the target have a step that was stored, as far as it takes rows or steps."""
        if self._stream is not None:
            self._stream.append(self._buffer.observation_rows(i, self._stream.columns))
        if not self._sink.delivers:
            return
        self._steps = steps = self._sink.step_recording(1)
        if steps is not None:
            if i == 0:
                steps.begin(_ALONE, self._buffer.boundary_rows(0))
            steps.step(_ALONE, self._buffer.step_rows(i, terminated, truncated), np.array([terminated or truncated]))

    def _close_episode(self, terminated: bool, truncated: bool, carry: Mapping[str, Any] | None) -> None:
        n = self._buffer.steps
        about = self._about
        carries = carry is not None
        columns: dict[str, Array] = self._buffer.take(terminated, truncated, carries)
        if self._infos is not None:
            columns |= self._infos.take(n + 1, carries)
        if self._extras is not None and self._step_extras is not None:
            columns |= self._extras.take(n + 1, carries)
            columns |= self._step_extras.take(n)
        self._open, self._about = carries, dict(carry or {})
        if self._steps is not None:
            self._steps.end(0, terminated, truncated)
        try:
            self._sink.add(columns, about)
            self._sink.write_due()
        finally:
            self._drop_stream()  # nothing is left of it if the episode was written
        if carries:
            self._begin_stream()

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.discard()


class Recorder(StepRecorder):
    """Record episodes from your own loop, a robot or a log. Every episode is written when it ends.

    An episode is `begin`, any number of `step`, and `end`, which is not needed after a step that terminates or
    truncates. Memory: the open episode.

    Args:
        target: Path of a dataset, an open `Writer` (which you close), or a function from a `Spec` to a `Writer`.
        observation_space: Space of the observations, of `penstock.spaces` or of Gymnasium.
        action_space: Space of the actions.
        mode: For a path: `"create"` refuses an existing dataset, `"append"` continues it or creates one, `"overwrite"`
            replaces it when the first episode ends. The default is `"create"`.
        format: Format of the dataset. The default is chosen by the ending of its name, as for `penstock.convert`, or
            with `"append"` the format of the dataset.
        metadata: Metadata of the dataset. The default is none.
        record_infos: False: no infos. True or `"union"`: keys may come and go; missing values are filled, and
            `infos_mask/...` is True for recorded ones. `"error"`: every info must have the keys of the first, and there
            are no masks. The default is False.
        info_example: An info with keys that may first appear after the first episode. The default is None.
        episode_metadata: Function from an `Episode` to its metadata. The default is statistics of its rewards.
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
        OSError: The folder cannot be written.

    Example:
        >>> import numpy as np, penstock, tempfile
        >>> from penstock import spaces
        >>> path = f"{tempfile.mkdtemp()}/arm"
        >>> joints = spaces.Box(np.full(2, -3.2), np.full(2, 3.2), np.dtype("float64"))
        >>> with penstock.Recorder(path, observation_space=joints, action_space=joints) as recorder:
        ...     recorder.begin(np.zeros(2), metadata={"task": "reach"})
        ...     for _ in range(3):
        ...         recorder.step(np.ones(2), np.ones(2), reward=0.5)
        ...     recorder.end()
        >>> episode = penstock.open(path)[0]
        >>> len(episode), episode.observations.shape, episode.metadata["task"]
        (3, (4, 2), 'reach')
    """

    def __init__(
        self,
        target: Target,
        *,
        observation_space: Any,
        action_space: Any,
        mode: Mode = "create",
        format: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        record_infos: bool | Policy = False,
        info_example: Mapping[str, Any] | None = None,
        episode_metadata: EpisodeMetadata | None = reward_statistics,
        nan: Verdict = "error",
        outside: Verdict = "warn",
        dtypes: Literal["error", "cast"] = "error",
        unfinished: Unfinished = "save",
    ) -> None:
        infos = make_infos(record_infos, info_example)
        schema = RecordingSchema(_space(observation_space), _space(action_space), infos, extras=True)
        sink = WriterSink(target, schema, format, mode, metadata or {}, episode_metadata, nan, outside)
        super().__init__(sink, schema, cast_of(dtypes), unfinished)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def cast_of(dtypes: Literal["error", "cast"]) -> Cast:
    """Return the rule of the columns for an argument `dtypes`."""
    if dtypes not in ("error", "cast"):
        raise SpecError(f"expected dtypes to be 'error' or 'cast', got {dtypes!r}")
    return "any" if dtypes == "cast" else "python"


def _space(space: Any) -> Space:
    if isinstance(space, Space):
        return space
    return require("penstock.recording.spaces", "gymnasium").from_gymnasium(space)
