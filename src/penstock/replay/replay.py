"""`Replay`: experience that arrives while batches are drawn from it. `replay.run` has what changes in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.boundary import loading_state
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.formats.base.writer import StepRecording, Writer
from penstock.loading.ticket import Batch, Ticket
from penstock.loading.why import Why
from penstock.plan.transform import SampleTransform
from penstock.replay.batches import ReplayBatches
from penstock.replay.completions import Completions
from penstock.replay.draw import DrawLog
from penstock.replay.options import ReplayOptions, require_kind
from penstock.replay.prioritized import checked_priorities
from penstock.replay.ratio import SampleRatio
from penstock.replay.run import ReplayRun
from penstock.replay.samplers import ReplaySampler, UniformSampler, numbers_of
from penstock.replay.samples import ReplaySamples, Transitions
from penstock.replay.share import EpisodeShare
from penstock.replay.status import ReplayStatus
from penstock.replay.steps import GymnasiumSteps, columns_of, spec_of


class Replay(Writer):
    """Train while collecting: a dataset that grows while a learner draws batches from it.

    A replay has the samples of the last `capacity` steps of a run. A sample arrives with the step that completes it,
    and leaves when `capacity` more steps have arrived. Steps, episodes and samples have numbers that never change. Each
    frame is stored once: sequences and stacks are read as ranges of rows, and never cross the end of an episode.

    `add` takes a step of an environment, or of each of a vector of them. A replay is also a `Writer`, so
    `Collector(env, replay)`, `VectorCollector` and `Recorder` record into it, and deliver each step, unless they record
    infos or extras. With a path, any number of collectors, in any process, append to the column store there
    (`Collector(env, path, mode="append")`), and the replay copies new episodes into memory at the next draw.

    A batch is a function of the seed, the number of its first draw, and the arrivals and priorities before it. A
    journal of these repeats a run bit for bit. Reading and writing are safe from several threads.

    Args:
        store: Folder of a column store, which may be missing until a collector creates it. None: memory only.
        capacity: Steps whose samples are in memory. It holds at least one sample.
        samples: Definition of a sample: `Transitions`, `Windows` for sequences, or `Completions` of a language model.
            The default is `Transitions()`: single steps with their next observations.
        sampler: `UniformSampler`, `RecentSampler`, `StratifiedSampler`, `PrioritizedSampler`, or `GroupSampler` for
            `Completions`. The default is `UniformSampler()`.
        ratio: Samples for each step that arrives, and the fewest steps to start with. The default is None: no limit.
        seed: 0 to 2^64 - 1. The default is 0.
        index: Number of this learner among the learners of one folder, such as its rank. The default is 0.
        count: Number of learners. Each has every `count`-th episode of the folder in memory, within its own capacity,
            and draws with its own random numbers. The default is 1.
        keep_steps: Steps that the folder keeps at least, `count * capacity` or more. Files of older episodes are
            removed, for all processes; episodes keep their numbers. A state can be loaded as long as the episodes that
            were in memory are kept. The default is None: this replay removes no files.
        offline: Dataset with the same outputs, whose samples are drawn too, and never leave. They are read where they
            are. A `PrioritizedSampler` has priorities of them too. They are the last rows of a batch, whose column
            `source` is 0 for the replay and 1 for the dataset. The default is None: none.
        share: Share of the replay with an offline dataset, 0 to 1, which each prefix of the draws has to within one
            sample. An empty replay has none. The default is None: one pool, where all samples count by priority alone.
        journal: File for the journal. The default is None: none.
        replays: Journal of an earlier run with the same store and arguments, to draw the same batches again. The
            default is None.

    Raises:
        ArgumentError: `samples`, `sampler` or `ratio` has another type.
        PlanError: The capacity is below one sample, or an argument is out of range.
        FormatError: The folder has another format.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"observations": np.arange(7.0), "rewards": np.ones(5)}, lengths=[2, 3])
        >>> replay = Replay(None, capacity=1000)
        >>> replay.write_all(data)
        [0, 1]
        >>> batch = replay.sample(64)
        >>> bool((batch["next_observations"] == batch["observations"] + 1).all())
        True

        Sequences of 2 steps, drawn by priority:

        >>> sampler = penstock.replay.PrioritizedSampler()
        >>> replay = Replay(None, 1000, samples=penstock.transforms.Windows(2), sampler=sampler)
        >>> replay.write_all(data)
        [0, 1]
        >>> batch = replay.sample(8)
        >>> batch["rewards"].shape, batch["weights"].shape
        ((8, 2), (8,))
        >>> replay.update(batch.ticket, np.ones(8))
        0

        A quarter of the samples from the steps of a run, and the others from an offline dataset:

        >>> replay = Replay(None, 1000, offline=data.transitions(), share=0.25)
        >>> replay.write(data[0])
        0
        >>> replay.sample(8)["source"].tolist()
        [0, 0, 1, 1, 1, 1, 1, 1]
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None,
        capacity: int,
        *,
        samples: ReplaySamples | SampleTransform | None = None,
        sampler: ReplaySampler | None = None,
        ratio: SampleRatio | None = None,
        seed: int = 0,
        index: int = 0,
        count: int = 1,
        keep_steps: int | None = None,
        offline: MapDataset | None = None,
        share: float | Fraction | None = None,
        journal: str | os.PathLike[str] | None = None,
        replays: str | os.PathLike[str] | None = None,
    ) -> None:
        samples = Transitions() if samples is None else samples
        sampler = UniformSampler() if sampler is None else sampler
        part = EpisodeShare(index, count)
        path, journal_path, repeated = (None if each is None else Path(each) for each in (store, journal, replays))
        options = ReplayOptions.of(
            path, capacity, samples, sampler, ratio, seed, part, keep_steps, replays is not None, offline, share
        )
        self._run = ReplayRun(options, journal_path, repeated)

    def __len__(self) -> int:
        """Return the number of samples in memory."""
        with self._run.lock:
            lo, hi = self._run.anchors
        return hi - lo

    def __repr__(self) -> str:
        run = self._run
        where = "memory" if run.options.path is None else repr(str(run.options.path))
        of = f"{run.options.samples!r}, {run.options.sampler!r}"
        return f"Replay({where}, {len(self)} samples, {of}, drawn={run.drawn})"

    def __reduce__(self) -> tuple[Any, ...]:
        run = self._run
        if run.journal is not None or run.entries is not None:
            raise TypeError(
                "a Replay with a journal cannot be pickled or copied: one run writes a journal; save "
                "state_dict(rows=True) and make the replay again"
            )
        with run.lock:
            return _unpickled, (run.options, run.state_dict(rows=True), run.log)

    @property
    def spec(self) -> Spec:
        """Columns of the episodes. Raises `PlanError` before the first step."""
        return self._run.spec

    def set_policy_version(self, version: int) -> None:
        """Note that the learner has updated its policy. It counts from the next draw on: see `GroupSampler`.

        Args:
            version: Version of the policy, at least the last one.

        Raises:
            PlanError: The version is lower than the last one, or the sampler is another.
            StateError: The replay repeats a journal, which has the versions.
        """
        self._run.set_version(version)

    def add(
        self,
        observations: Any,
        actions: Any,
        next_observations: Any,
        rewards: Any,
        terminations: Any,
        truncations: Any,
        infos: Mapping[str, Any] | None = None,
        *,
        autoreset: Any = None,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one step of an environment, or of each of `n` environments. It can be drawn at once.

        After the observation and the action come the values that `step` returned, in the order of Gymnasium:
        `replay.add(obs, action, *env.step(action))`. Of a vector of environments, each value has a row for each one.
        The first step decides the columns of an empty replay: `observations` and `actions` (with `/name` for dicts and
        tuples), `rewards`, `terminations` and `truncations`, with the dtypes given; rewards are floats.

        Each observation is stored once. An observation that is not the next observation of the step before begins a new
        episode, as after a `reset`, and the one before is truncated there.

        Args:
            observations: Observation before the step.
            actions: Action.
            next_observations: Observation that the step returned.
            rewards: Reward.
            terminations: Whether the episode terminated.
            truncations: Whether the episode was cut off.
            infos: Infos of the step, which are needed for `infos["final_obs"]` in SAME_STEP mode. Nothing else of them
                is stored. The default is None.
            autoreset: Autoreset mode of a vector environment: `envs.metadata["autoreset_mode"]`. A step that only
                resets an environment (NEXT_STEP) is left out, and the last observation of an episode is taken from
                `infos` (SAME_STEP). `"Disabled"` means that `next_observations` are always from before a reset, as
                Stable-Baselines3 and CleanRL store them. It is needed for vectors.
            extras: Further values by column, `[n, ...]`, such as log-probabilities of actions. The default is none.

        Raises:
            DataError: A value has another dtype or shape than the column, or the last observation is missing.
            ArgumentError: The autoreset mode of a vector is missing or unknown.
            PlanError: Samples are whole episodes (`Completions`), or several learners share the folder.
            StateError: The replay repeats a journal.

        Example:
            >>> import gymnasium, numpy as np
            >>> env = gymnasium.make("CartPole-v1")
            >>> replay = Replay(None, capacity=1000)
            >>> observation, _ = env.reset(seed=0)
            >>> for _ in range(3):
            ...     result = env.step(0)
            ...     replay.add(observation, 0, *result)
            ...     observation = result[0]
            >>> batch = replay.sample(8)
            >>> len(replay), batch["next_observations"].shape, bool(batch["truncations"].any())
            (3, (8, 4), False)
        """
        given = (actions, rewards, terminations, truncations, observations, next_observations)
        steps = self._run.adding
        if steps is not None and steps.add_inner(given, extras, autoreset):
            return
        values = columns_of(given[:4], extras)
        alone = np.ndim(rewards) == 0
        steps = self._adding(observations, values, 1 if alone else len(rewards), alone)
        steps.add(observations, next_observations, values, infos, autoreset)

    def write(self, episode: Episode) -> int:
        """Add one episode. With a path, it is saved there first, and survives a kill of the process.

        Args:
            episode: Episode with the columns of the replay.

        Returns:
            The number of the episode.

        Raises:
            ArgumentError: It is no episode.
            SpecError: The columns differ, or have rows of different lengths.
            DataError: A completion is longer than the capacity or `Completions.max_length`.
            PlanError: The learner did not draw in time, see `SampleRatio`.
            StateError: The replay repeats a journal.
            OSError: The disk is full.
        """
        return self.write_together([episode])[0]

    def write_together(self, episodes: Sequence[Episode]) -> list[int]:
        """Add episodes that belong together, such as the completions of a prompt: all of them or none.

        Args:
            episodes: Episodes with the columns of the replay.

        Returns:
            The numbers of the episodes.

        Raises:
            ArgumentError: One is no episode.
            SpecError: The columns of one differ, or have rows of different lengths.
            DataError: A completion is longer than the capacity or `Completions.max_length`.
            PlanError: The learner did not draw in time, see `SampleRatio`.
            StateError: The replay repeats a journal.
            OSError: The disk is full.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[2, 3, 4])
            >>> replay = Replay(None, capacity=100)
            >>> replay.write_together(list(data)), replay.refresh().episodes
            ([0, 1, 2], 3)
        """
        for episode in episodes:
            require_kind("an episode", episode, Episode, "penstock.Episode(spec, columns), or record with a Collector")
        return self._run.write(episodes)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the dataset's metadata.

        Args:
            metadata: New entries. Without a path, they are dropped with the replay.
        """
        self._run.update_metadata(metadata)

    def close(self) -> None:
        """Flush and close the files of the writer and of the journal. Batches can still be drawn."""
        if self._run.adding is not None:
            self._run.adding.close()
        self._run.close()

    def refresh(self) -> ReplayStatus:
        """Take in the episodes that were appended to the folder, and say how things stand. `sample` does the first.

        Returns:
            Counts of samples, steps and episodes, and which side is next by the ratio.

        Example:
            >>> import numpy as np, penstock
            >>> replay = Replay(None, capacity=100)
            >>> replay.write(penstock.from_arrays({"rewards": np.arange(4.0)}, lengths=[4])[0])
            0
            >>> status = replay.refresh()
            >>> status.samples, status.steps, status.episodes, status.may_sample(4)
            (4, 4, 1, True)
        """
        return ReplayStatus.of(self._run)

    def sample(self, n: int | None = None, *, max_tokens: int | None = None) -> Batch:
        """Draw a batch.

        Args:
            n: Number of samples, at least 1. With a `GroupSampler`, a multiple of `num_generations`.
            max_tokens: Tokens of the batch with padding, in place of `n`: as many whole groups as fit.

        Returns:
            The outputs of `samples`, `[n, ...]`, with the column `weights` `[n]` float32 if the sampler has priorities.
            The `ticket` names the batch for `update` and `why`. Cost: some tens of microseconds and the copy of the
            rows.

        Raises:
            PlanError: There is nothing to draw, or the ratio's timeout has passed.
            FormatError: The folder was replaced or is damaged.
        """
        _, batch = self._run.draw(n, max_tokens=max_tokens)
        return batch

    def batches(
        self,
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        offline: MapDataset | None = None,
        share: float | Fraction = 0.5,
    ) -> ReplayBatches:
        """Return endless batches, for a loop or for a `Loader`.

        With an offline dataset, the samples of the replay are the first rows of a batch and the samples of the dataset
        the others, in the dataset's order; `source` is 0 or 1. After any number of samples, each has had its share to
        within one sample. The ticket names the rows of the replay. Rows of the dataset have the importance weight 1.

        Args:
            batch_size: Samples of a batch, at least 1.
            max_tokens: Tokens of a batch in place of its size, with a `GroupSampler` and without an offline dataset.
            offline: Dataset with the same outputs. The default is None: the replay alone.
            share: Share of the replay, 0 to 1. A float counts as the decimal that it prints as. The default is 0.5.

        Raises:
            PlanError: The batch size is below 1, the share is impossible, or the offline dataset is empty.
        """
        return ReplayBatches(self._run, batch_size, offline, share, max_tokens=max_tokens)

    def update(self, which: Batch | Ticket | str | Sequence[int] | IntArray, priorities: Any) -> int:
        """Set priorities of samples. They count from the next draw on.

        Args:
            which: A batch that `sample` returned, its ticket, or `[n]` numbers of samples.
            priorities: `[n]` numbers, finite, 0 or more, such as absolute temporal-difference errors. Of a sample that
                occurs several times, the last one counts.

        Returns:
            How many of the samples had left the store. Their priorities are ignored. `refresh` counts them.

        Raises:
            DataError: A priority is NaN, infinite or negative, or the number of priorities is wrong.
            StateError: The ticket is unknown: it is from another replay, or more than 2^20 samples ago.
            ExpiredRowError: A sample has not arrived yet.
            PlanError: The sampler has no priorities.
            ArgumentError: `which` is neither a batch, a ticket nor numbers of samples.
        """
        run = self._run
        with run.lock:
            given_ticket = which.ticket if isinstance(which, Batch) else which
            ticket = Ticket.parse(given_ticket) if isinstance(given_ticket, (Ticket, str)) else None
            anchors = numbers_of(which) if ticket is None else run.log.of(ticket).anchors
            return run.update(ticket, anchors, checked_priorities(priorities, anchors))

    def why(self, ticket: Ticket | str, column: str | None = None) -> Why:
        """Return where the samples of a recent batch are from, and how likely each was. Nothing is read.

        Args:
            ticket: Ticket of a batch, at most 2^20 samples ago.
            column: Output whose rows to list. The default is the widest range of steps.

        Returns:
            A line for each sample, in the order of the batch. The columns of `Why.table` are as for `Loader.why`, with
            `anchor` (number of the sample) and, as the sampler has them, `probability` and `priority` of the sample
            when it was drawn, and its importance `weight`. `position` is the number of the draw. `episode` is its
            number in the store, and rows count the steps that arrived. A sample that has left memory is looked up in
            the folder; without a path, it has -1.

        Raises:
            StateError: The ticket is unknown.
            PlanError: The column is unknown.

        Example:
            >>> import numpy as np, penstock
            >>> replay = Replay(None, capacity=100, sampler=penstock.replay.PrioritizedSampler(), seed=1)
            >>> replay.write(penstock.from_arrays({"rewards": np.arange(4.0)}, lengths=[4])[0])
            0
            >>> lines = replay.why(replay.sample(4).ticket).table
            >>> lines["step"].tolist(), lines["probability"].tolist()
            ([0, 1, 2, 3], [0.25, 0.25, 0.25, 0.25])
        """
        return self._run.why(ticket, column)

    def state_dict(self, rows: bool = False) -> dict[str, Any]:
        """Return the state of the learner's side: the number of draws, and all priorities.

        Args:
            rows: Whether the rows in memory are in it too. Without them, `load_state_dict` reads the episodes from the
                folder, or needs the same steps to be added first; of a replay with a path, the open episodes are in the
                state in any case. The default is False.

        Returns:
            Plain values and integer arrays. Priorities are compressed: 1 to 4 bytes for each sample.

        Example:
            >>> import numpy as np, penstock
            >>> data = penstock.from_arrays({"rewards": np.arange(4.0)}, lengths=[4])
            >>> replay, other = Replay(None, capacity=100), Replay(None, capacity=100)
            >>> replay.write(data[0])
            0
            >>> other.load_state_dict(replay.state_dict(rows=True))
            >>> other.sample(4)["rewards"].tolist() == replay.sample(4)["rewards"].tolist()
            True
        """
        return self._run.state_dict(rows)

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state: the same episodes are in memory, and the next draw is the next one of that run.

        Episodes that arrived since are taken in at the next draw. Steps of the environments of `add` continue their
        open episodes. Without a path and without rows in the state, add the same steps first.

        Args:
            state: Output of `state_dict`.

        Raises:
            StateError: The state belongs to other arguments, other episodes or another version.
        """
        self._run.load_state_dict(state)

    def _adding(self, observations: Any, values: Mapping[str, Any], n: int, alone: bool) -> GymnasiumSteps:
        """What `add` gives its steps to. Other environments than before begin with new episodes."""
        run = self._run
        steps = run.adding
        if steps is None or (steps.source.lanes, steps.alone) != (n, alone):
            options = run.options
            if isinstance(options.samples, Completions) or options.share.count > 1:
                raise PlanError(
                    "expected whole episodes for samples of completions, and for learners that share a folder, got a "
                    "step; use write(), or record into the folder"
                )
            spec = spec_of(observations, values, n, alone) if run.is_empty() else self.spec
            key = 0
            if steps is not None:
                steps.close()
                steps.source.close()
                key, run.sources = run.sources, run.sources + 1
            run.adding = steps = GymnasiumSteps(run.source(spec, key, n), alone)
        return steps

    def __record_steps__(self, spec: Spec, lanes: int) -> StepRecording | None:
        """Return what takes the steps of a collector, or None where samples are whole episodes."""
        if isinstance(self._run.options.samples, Completions) or self._run.options.share.count > 1:
            return None
        self._run.sources += 1
        return self._run.source(spec, self._run.sources - 1, lanes)


def _unpickled(options: ReplayOptions, state: Mapping[str, Any], log: DrawLog) -> Replay:
    replay = Replay.__new__(Replay)
    run = ReplayRun(options, None, None)
    run.load_state_dict(state)
    run.log = log
    vars(replay)["_run"] = run
    return replay


def run_of(replay: Replay) -> ReplayRun:
    """Return what changes in a replay, for tests and other parts of penstock."""
    return replay._run  # pyright: ignore[reportPrivateUsage]  # the one way to what users do not need
