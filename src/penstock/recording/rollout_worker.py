"""`RolloutWorker`: makes episodes by number, in several environments at a time, and records them in order.

An episode is the same wherever it is made: its number gives the seed of the reset and the random numbers of the
policy, it has one version of the weights, and the shape of a batch never changes, because environments that wait have a
row too. Any environment may make any episode. So an environment must forget the episode before when it is reset with a
seed, and a policy must act on each row alone.
"""

from __future__ import annotations

import copy
import signal
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from typing_extensions import override

from penstock.core.ragged import Array
from penstock.core.spec import Spec
from penstock.errors import DataError, WorkerError
from penstock.recording.checks import RecordingWarning
from penstock.recording.hooks import episode_seed, reward_statistics
from penstock.recording.policies import LoadedPolicy
from penstock.recording.recorder import StepRecorder
from penstock.recording.rollout import EpisodeReport, Rollout
from penstock.recording.rollout_spec import RolloutSpec
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import Mode, Sink, Target, WriterSink

Limited = Callable[[], AbstractContextManager[None]]


class RolloutWorker:
    """Environments and a policy that make the episodes of a `RolloutSpec` by number.

    Environments after the first one are made with the first episode.

    Args:
        spec: The episodes.
        columns: Columns of the dataset, of `first_columns`. The default is None: the first episode decides the columns
            of infos.

    Raises:
        DataError: There is no such environment or policy.
        SpecError: The environment has other columns.

    Example:
        >>> from penstock.recording.memory import MemoryWriter
        >>> worker = RolloutWorker(RolloutSpec("CartPole-v1", n_envs=3, seed=7))
        >>> rollout = worker.record(range(4, 9), writer := MemoryWriter())
        >>> [episode.metadata["number"] for episode in writer.episodes]
        [4, 5, 6, 7, 8]
        >>> alone = RolloutWorker(RolloutSpec("CartPole-v1", seed=7))
        >>> alone.record(range(5, 6), writer).lengths[0] == rollout.lengths[1]
        True
    """

    def __init__(self, spec: RolloutSpec, columns: Spec | None = None) -> None:
        self.spec = spec
        self._columns = columns
        self._policies = spec.loader()
        self._environments = [spec.make()]
        env: Any = self._environments[0]
        self._observation_space, self._batches = env.observation_space, batch_space(env.action_space, spec.n_envs)
        self._spare = np.random.default_rng(0)

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of a dataset of these episodes."""
        return self.spec.metadata(self._environments[0])

    @property
    def fingerprint(self) -> str:
        """Digest of the environment's description and of the file that defines the policy."""
        return self.spec.fingerprint(self._environments[0])

    def record(
        self,
        numbers: range,
        target: Target,
        *,
        mode: Mode = "create",
        format: str | None = None,
        on_episode: EpisodeReport | None = None,
    ) -> Rollout:
        """Make episodes, and write them in the order of their numbers.

        Memory: the open episodes, and closed ones that wait for an earlier one.

        Args:
            numbers: Numbers of the episodes.
            target: Path of a dataset, an open `Writer` (which you close), or a function from a `Spec` to a `Writer`.
            mode: For a path: `"create"`, `"append"` or `"overwrite"`. The default is `"create"`.
            format: Format of the dataset. The default is chosen by the ending of its name.
            on_episode: Called as `on_episode(number, return, length)` when an episode is written. The default is None.

        Returns:
            Returns and lengths of the episodes.

        Raises:
            WorkerError: The environment or the policy failed. The message says how to repeat the episode.
            DataError: An episode cannot be recorded.
            OSError: The disk is full.
        """
        schema = self._schema()
        about = self.metadata
        if mode == "append":
            about.pop("rollout")  # of the first recording
        sink = WriterSink(target, schema, format, mode, about, reward_statistics, "error", "warn")
        if schema.infos is not None and not schema.infos.fixed:
            schema.adopt(self.first_columns(), f"the first episode of {self.spec.env}")
        sink.first = numbers.start  # so that messages have these numbers
        done = Rollout()
        with closing(sink):
            for number, columns, metadata in self._in_order(numbers, schema):
                sink.add(columns, metadata)
                sink.flush()
                rewards: Any = columns["rewards"]
                total, steps = float(rewards.sum()), len(rewards)
                done.returns.append(total)
                done.lengths.append(steps)
                done.steps += steps
                if on_episode is not None:
                    on_episode(number, total, steps)
        return done

    def first_columns(self) -> Spec:
        """Return the columns of the dataset. If infos are recorded, episode 0 is made, which decides their columns."""
        schema = self._schema()
        if schema.infos is not None and not schema.infos.fixed:
            deque(self._in_order(range(1), schema), maxlen=0)
        return schema.spec()

    def check_repeats(self) -> None:
        """Warn if the environment does not repeat an episode from its seed, in the first steps of episode 0."""
        with time_limit(self.spec.step_timeout) as limited, limited():
            repeats = self.spec.repeats(self._environments[0])
        if not repeats:
            warnings.warn(
                f"expected the environment {self.spec.env} to repeat an episode after a reset with the same seed, got "
                "other values; no episode is lost or doubled, but an episode that is made again differs",
                RecordingWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """Close the environments."""
        for env in self._environments:
            env.close()

    def _schema(self) -> RecordingSchema:
        schema = self.spec.schema(self._environments[0])
        if self._columns is not None:
            schema.adopt(self._columns, f"the recording of {self.spec.env}")
        return schema

    def _in_order(self, numbers: range, schema: RecordingSchema) -> Generator[ClosedEpisode]:
        """Make episodes; yield them in the order of their numbers."""
        waiting = iter(numbers)
        closed: dict[int, ClosedEpisode] = {}
        due = numbers.start
        while len(self._environments) < self.spec.n_envs:
            self._environments.append(self.spec.make())
        self._spare = np.random.default_rng(0)  # for rows whose actions are ignored
        with time_limit(self.spec.step_timeout) as limited:
            lanes = [_Lane(self.spec, row, env, schema, limited) for row, env in enumerate(self._environments)]
            for lane, number in zip(lanes, waiting, strict=False):
                lane.begin(number, self._policies.newest())
            while any(lane.is_open for lane in lanes):
                self._act(lanes)
                for lane in lanes:
                    if lane.is_open and (episode := lane.step()) is not None:
                        closed[episode.number] = episode
                        if (number := next(waiting, None)) is not None:
                            lane.begin(number, self._policies.newest())
                while due in closed:
                    yield closed.pop(due)
                    due += 1

    def _act(self, lanes: list[_Lane]) -> None:
        """Choose the action of each open episode, with a call for each version of the policy."""
        acting = [lane for lane in lanes if lane.is_open]
        for policy in {id(lane.policy): lane.policy for lane in acting}.values():
            own = [lane for lane in acting if lane.policy is policy]
            if policy.act is None:
                for lane in own:
                    lane.action = lane.actions.sample()
                continue
            try:
                actions = self._batch_actions(lanes, policy, own)
            except Exception as error:
                raise own[0].failure(error) from error
            for lane in own:
                lane.action = actions[lane.row]

    def _batch_actions(self, lanes: list[_Lane], policy: LoadedPolicy, own: list[_Lane]) -> list[Any]:
        """Return the actions of a policy for all environments; only the actions of its episodes count."""
        if len(lanes) == 1:
            return [policy.act_on(lanes[0].observation, lanes[0].rng)]
        filler = own[0].observation  # for environments that had no episode yet
        rows = [filler if lane.observation is None else lane.observation for lane in lanes]
        space = self._observation_space
        batch = concatenate(space, rows, create_empty_array(space, len(lanes)))
        generators = [lane.rng if lane.is_open and lane.policy is policy else self._spare for lane in lanes]
        actions = policy.act_on(batch, generators)
        listed = list(iterate(self._batches, actions))
        if len(listed) != len(lanes):
            raise DataError(f"expected actions for {len(lanes)} environments, got {len(listed)}")
        return listed


class ClosedEpisode(NamedTuple):
    """A closed episode: its number, its columns, and its metadata."""

    number: int
    columns: dict[str, Array]
    metadata: dict[str, Any]


class _Lane:
    """An environment, its open episode, and what belongs to that episode alone."""

    def __init__(self, spec: RolloutSpec, row: int, env: Any, schema: RecordingSchema, limited: Limited) -> None:
        self.row = row
        self._spec = spec
        self._env = env
        self._limited = limited
        self.actions: gymnasium.Space[Any] = copy.deepcopy(env.action_space)
        self._sink = _LastEpisode(schema, None, "keep", "keep")
        self._recorder = StepRecorder(self._sink, schema, "python")
        self.is_open = False
        self.number = 0
        self.steps = 0
        self.observation: Any = None
        self.action: Any = None
        self.policy = LoadedPolicy(None)
        self.rng = np.random.default_rng(0)

    def begin(self, number: int, policy: LoadedPolicy) -> None:
        """Reset the environment for an episode."""
        seed = episode_seed(self._spec.seed, number)
        draws = np.random.SeedSequence(self._spec.seed, spawn_key=(number,))
        self.number = number
        self.steps = 0
        self.policy = policy
        if policy.act is None:
            self.actions.seed(int(draws.generate_state(1)[0] >> 1))  # many spaces take 31 bits
        else:
            self.rng = np.random.default_rng(draws)
        version = {} if policy.version is None else {"policy_version": policy.version}
        try:
            with self._limited():
                self.observation, info = self._env.reset(seed=seed)
            self._recorder.begin(self.observation, info, metadata={"number": number, "seed": seed, **version})
        except Exception as error:
            raise self.failure(error) from error
        self.is_open = True

    def step(self) -> ClosedEpisode | None:
        """Take the action. Return the episode if it ends."""
        try:
            with self._limited():
                self.observation, _, terminated, truncated, _ = self._recorder.advance(self.action, self._env.step)
        except Exception as error:
            raise self.failure(error) from error
        self.steps += 1
        if not (terminated or truncated):
            return None
        self.is_open = False
        return ClosedEpisode(self.number, *self._sink.last)

    def failure(self, error: Exception) -> WorkerError:
        """Return the error of this episode, with the place in the code and how to repeat it."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        seed = episode_seed(self._spec.seed, self.number)
        version = "" if self.policy.version is None else f", policy version {self.policy.version}"
        return WorkerError(
            f"episode {self.number} of {self._spec.env} (seed {seed} of its reset{version}) failed at step "
            f"{self.steps}: {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno}); repeat it with "
            f"--seed {self._spec.seed} --first {self.number} -n 1"
        )


class _LastEpisode(Sink):
    """Keeps the columns and metadata of the episode that closed last."""

    last: tuple[dict[str, Array], dict[str, Any]] = ({}, {})

    @override
    def add(self, columns: dict[str, Array], metadata: Mapping[str, Any], lane: int = 0) -> None:
        self.last = columns, dict(metadata)

    @override
    def flush(self) -> None:
        """Nothing waits."""

    @override
    def close(self) -> None:
        """There are no files."""


@contextmanager
def time_limit(seconds: float | None) -> Generator[Limited]:
    """Give a context manager that raises `TimeoutError` in its block after so many seconds."""
    if seconds is None:
        yield nullcontext
        return
    if threading.current_thread() is not threading.main_thread():
        raise DataError("expected --step-timeout with --runner processes or ray, got threads, which cannot be stopped")

    def late(*_: object) -> None:
        raise TimeoutError(f"expected an answer of the environment within {seconds:g} s, got none")

    @contextmanager
    def limited() -> Generator[None]:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    before = signal.signal(signal.SIGALRM, late)
    try:
        yield limited
    finally:
        signal.signal(signal.SIGALRM, before)
