"""`CompletionRecorder`: completions while they are sampled, written to a replay when all of a prompt are finished.

A completion may be sampled in pieces, by several policies, and over a restart: the state has all unfinished groups.
Each token has the version of the policy that sampled it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.boundary import loading_state
from penstock.core.episode import Episode
from penstock.core.ragged import Array
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, DataError, PlanError
from penstock.formats.base.writer import Writer
from penstock.formats.columns.layout import SPEC as SPEC_FILE
from penstock.formats.columns.writer import ColumnsWriter
from penstock.replay.replay import Replay, run_of
from penstock.replay.sum_tree import key_of

_STEPS = {
    "tokens": "int32",
    "completion_mask": "bool",
    "log_probs": "float32",
    "versions": "int32",
    "rewards": "float32",
    "terminations": "bool",
    "truncations": "bool",
}
SPEC = Spec(
    {
        **{path: Field(np.dtype(dtype)) for path, dtype in _STEPS.items()},
        **{path: Field(np.dtype("int64"), align="episode") for path in ("group", "task")},
    }
)
"""Columns of completions. A step is a token of the prompt or of the completion."""


@dataclass
class PendingCompletion:
    """A completion that is being sampled.

    Args:
        key: Number of the completion in its recorder.
        group: Number of the prompt.
        prompt: Tokens of the prompt.
        tokens: Tokens of the completion.
        log_probs: Log-probability of each, under the policy that sampled it; 0 for one that no policy sampled.
        versions: Version of that policy, for each; None for one that no policy sampled.
        reward: Reward of the whole completion, or None while it is unfinished.
        truncated: Whether it was ended before its end.
        task: Number of the task of the prompt.
        turn_rewards: Rewards of turns: the token of the completion at which each is, and the reward.

    Example:
        >>> PendingCompletion(key=0, group=0, prompt=[5, 6], tokens=[7], log_probs=[-0.5], versions=[0]).truncated
        False
    """

    key: int
    group: int
    prompt: list[int]
    tokens: list[int] = field(default_factory=list[int])
    log_probs: list[float] = field(default_factory=list[float])
    versions: list[int | None] = field(default_factory=list[int | None])
    reward: float | None = None
    truncated: bool = False
    task: int = 0
    turn_rewards: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])

    def episode(self) -> Episode:
        """Return the columns of the finished completion. Its reward is added at the last token.

        A token that no policy sampled has the version of the sampled token before it, or of the first one.
        """
        before, steps = len(self.prompt), len(self.prompt) + len(self.tokens)
        last = np.arange(steps) == steps - 1
        sampled = [version is not None for version in self.versions]
        known = [version for version in self.versions if version is not None]
        versions = [known[max(n - 1, 0)] for n in accumulate(sampled)]
        rewards = np.zeros(steps, np.float32)
        for token, reward in self.turn_rewards:
            rewards[before + token] += reward
        rewards[-1] += self.reward or 0.0
        columns: dict[str, Array] = {
            "tokens": np.array(self.prompt + self.tokens, np.int32),
            "completion_mask": np.array([False] * before + sampled),
            "log_probs": np.array([0.0] * before + self.log_probs, np.float32),
            "versions": np.array([known[0]] * before + versions, np.int32),
            "rewards": rewards,
            "terminations": last & (not self.truncated),
            "truncations": last & self.truncated,
            "group": np.array([self.group], np.int64),
            "task": np.array([self.task], np.int64),
        }
        return Episode(SPEC, columns)


class CompletionRecorder:
    """Collect `num_generations` completions of each prompt, and write them when all are finished.

    The loop around a model asks `pending` for the completions to continue, samples some tokens of each, and gives them
    to `extend`. It may stop anywhere: after an update, the next tokens come from the next policy, and after a restart
    `load_state_dict` brings back what was unfinished. `resample` begins a completion again, and `discard` gives its
    prompt up.

    Args:
        target: `Replay` or other writer, or the folder of a column store from which a replay in another process reads.
        num_generations: Completions of a prompt, at least 1.
        max_length: Most tokens of a completion with its prompt, as the `Completions` of the replay. The default is
            None: that of `target` if it is a replay, otherwise no limit.
        seed: 0 to 2^64 - 1. Recorders that write to one replay need different seeds, so that prompts have different
            numbers. The default is 0.

    Raises:
        PlanError: A number is out of range.

    Example:
        >>> import penstock
        >>> sampler = penstock.replay.GroupSampler(2)
        >>> replay = penstock.Replay(None, 100, samples=penstock.replay.Completions(8), sampler=sampler)
        >>> recorder = CompletionRecorder(replay, num_generations=2)
        >>> keys = recorder.add_prompt([5, 6])
        >>> for done in list(recorder.pending):
        ...     recorder.extend(done.key, [1, 2], log_probs=[-0.1, -0.7], version=0)
        >>> recorder.finish(keys[0], reward=1.0), [one.key for one in recorder.pending], replay.refresh().episodes
        (False, [1], 0)
        >>> recorder.finish(keys[1], reward=0.0), replay.refresh().episodes
        (True, 2)
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | Writer,
        num_generations: int,
        *,
        max_length: int | None = None,
        seed: int = 0,
    ) -> None:
        if num_generations < 1:
            raise PlanError(f"expected num_generations of at least 1, got {num_generations}")
        if max_length is not None and max_length < 2:
            raise PlanError(f"expected max_length of at least 2, a prompt and a token, got {max_length}")
        if not 0 <= seed < 1 << 64:
            raise PlanError(f"expected a seed of 0 to 2^64 - 1, got {seed}")
        self.num_generations, self.seed = num_generations, seed
        self._writer = target if isinstance(target, Writer) else _store(Path(target))
        self.max_length = _most_tokens(self._writer) if max_length is None else max_length
        self._all: dict[int, PendingCompletion] = {}  # all completions of unfinished groups
        self._prompts = 0

    def __len__(self) -> int:
        """Return the number of prompts with unfinished completions."""
        return len({one.group for one in self._all.values()})

    @property
    def pending(self) -> list[PendingCompletion]:
        """Completions to continue, oldest first."""
        return [one for one in self._all.values() if one.reward is None]

    def add_prompt(self, tokens: Sequence[int], *, task: int = 0) -> list[int]:
        """Begin the completions of a prompt.

        Args:
            tokens: Tokens of the prompt, at least one.
            task: Number of the task that the prompt is from, for `GroupSampler(balance_tasks=True)`. The default is 0.

        Returns:
            The keys of `num_generations` completions.

        Raises:
            ArgumentError: The prompt is empty, or leaves no room for a token.
        """
        if len(tokens) == 0:
            raise ArgumentError("expected a prompt of at least one token, got an empty one; begin with a start token")
        if self.max_length is not None and len(tokens) >= self.max_length:
            raise ArgumentError(
                f"expected a prompt below max_length={self.max_length:,} tokens, got {len(tokens):,}; shorten it, or "
                "raise max_length"
            )
        group = int(key_of(int(key_of(self.seed)) ^ self._prompts)) >> 1
        first = self._prompts * self.num_generations
        self._prompts += 1
        keys = list(range(first, first + self.num_generations))
        for key in keys:
            self._all[key] = PendingCompletion(key, group, [int(token) for token in tokens], task=int(task))
        return keys

    def extend(
        self,
        key: int,
        tokens: Sequence[int],
        log_probs: Sequence[float] = (),
        version: int | None = None,
        *,
        sampled: bool | Sequence[bool] = True,
        reward: float = 0.0,
    ) -> None:
        """Add tokens to a completion: tokens of a policy, or others, such as the answer of a tool.

        Tokens that no policy sampled are not in `completion_mask`, and have a log-probability of 0.

        Args:
            key: Key of the completion.
            tokens: The tokens.
            log_probs: Log-probability of each sampled token, under the policy that sampled it. The default is none, for
                tokens that no policy sampled.
            version: Version of that policy. The default is None, for tokens that no policy sampled.
            sampled: Whether a policy sampled the tokens, or a bool for each token. The default is True.
            reward: Reward of the turn that ends with these tokens, finite. It is in `rewards` at their last token, and
                in the return. The default is 0.

        Raises:
            ArgumentError: The completion is unknown or finished, a reward has no token, or there is a version without
                sampled tokens, or sampled tokens without one.
            DataError: There is not one bool for each token or one log-probability for each sampled token, a number is
                not finite, or the completion would be longer than `max_length`. Nothing is added then.

        Example:
            >>> import penstock
            >>> sampler = penstock.replay.GroupSampler(1)
            >>> replay = penstock.Replay(None, 100, samples=penstock.replay.Completions(8), sampler=sampler)
            >>> recorder = penstock.replay.CompletionRecorder(replay, num_generations=1)
            >>> (key,) = recorder.add_prompt([5])
            >>> recorder.extend(key, [1, 2], log_probs=[-0.1, -0.2], version=0, reward=0.5)
            >>> recorder.extend(key, [90, 91], sampled=False)
            >>> recorder.extend(key, [3], log_probs=[-0.3], version=0)
            >>> recorder.finish(key, reward=1.0)
            True
            >>> batch = replay.sample(1)
            >>> batch["tokens"].tolist(), batch["completion_mask"].astype(int).tolist()
            ([[5, 1, 2, 90, 91, 3]], [[0, 1, 1, 0, 0, 1]])
            >>> batch["rewards"].tolist(), batch["returns"].tolist()
            ([[0.0, 0.0, 0.5, 0.0, 0.0, 1.0]], [1.5])
        """
        one = self._pending(key)
        mask = [sampled] * len(tokens) if isinstance(sampled, bool) else [bool(each) for each in sampled]
        if len(mask) != len(tokens):
            raise DataError(f"expected sampled as a bool, or as one for each of {len(tokens)} tokens, got {len(mask)}")
        if len(log_probs) != sum(mask) or not np.isfinite(np.asarray(log_probs, np.float64)).all():
            raise DataError(
                f"expected a finite log-probability for each of {sum(mask)} sampled tokens, got {list(log_probs)[:8]}; "
                "give sampled=False, or a mask, for tokens that no policy sampled"
            )
        if (version is None) == any(mask):
            raise ArgumentError(f"expected a version with sampled tokens alone, got {version} for key {key}")
        if not np.isfinite(reward):
            raise DataError(f"expected a finite reward, got {reward} for key {key}")
        if reward and not tokens:
            raise ArgumentError(f"expected tokens for a reward, got none for key {key}; give it with the last tokens")
        self._require_room(one, len(tokens))
        one.tokens += [int(token) for token in tokens]
        values = iter(log_probs)
        one.log_probs += [float(next(values)) if each else 0.0 for each in mask]
        one.versions += [None if version is None or not each else int(version) for each in mask]
        if reward:
            one.turn_rewards.append((len(one.tokens) - 1, float(reward)))

    def resample(self, key: int) -> None:
        """Begin a completion of an unfinished prompt again, without its tokens. It is in `pending` again.

        Args:
            key: Key of the completion, also of a finished one.

        Raises:
            ArgumentError: The completion is unknown, or was written.
        """
        one = self._unwritten(key)
        self._all[key] = PendingCompletion(key, one.group, one.prompt, task=one.task)

    def discard(self, key: int) -> list[int]:
        """Give up the prompt of a completion: none of its completions is written.

        Args:
            key: Key of one of the completions.

        Returns:
            The keys of all completions of the prompt, which are unknown from now on.

        Raises:
            ArgumentError: The completion is unknown, or was written.
        """
        group = self._unwritten(key).group
        keys = [one.key for one in self._all.values() if one.group == group]
        for each in keys:
            del self._all[each]
        return keys

    def finish(self, key: int, reward: float, *, truncated: bool = False) -> bool:
        """End a completion. If it is the last one of its prompt, all of them are written.

        Args:
            key: Key of the completion.
            reward: Reward of the whole completion, finite, in addition to the rewards of turns.
            truncated: Whether it was ended before its end, for example at the length limit. The default is False.

        Returns:
            Whether the completions of this prompt were written.

        Raises:
            ArgumentError: The completion is unknown or finished, or has no sampled tokens.
            DataError: The reward is not finite, or the writer refuses a completion.
        """
        one = self._pending(key)
        if not any(version is not None for version in one.versions):
            raise ArgumentError(
                f"expected a completion with at least one sampled token, got none for key {key}; extend() it with the "
                "end token that the model sampled, resample() it, or discard() its prompt"
            )
        if not np.isfinite(reward):
            raise DataError(f"expected a finite reward, got {reward} for key {key}")
        group = [other for other in self._all.values() if other.group == one.group]
        one.reward, one.truncated = float(reward), truncated
        if any(other.reward is None for other in group):
            return False
        try:
            _write(self._writer, [other.episode() for other in group])
        except BaseException:
            one.reward = None  # so that it can be finished again
            raise
        for other in group:
            del self._all[other.key]
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished groups as plain values."""
        return {
            "num_generations": self.num_generations,
            "seed": self.seed,
            "prompts": self._prompts,
            "completions": [asdict(one) for one in self._all.values()],
        }

    @loading_state
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the unfinished groups of a saved state.

        Args:
            state: Output of `state_dict`.

        Raises:
            PlanError: The state belongs to another seed or `num_generations`.
        """
        if (int(state["num_generations"]), int(state["seed"])) != (self.num_generations, self.seed):
            raise PlanError(
                f"expected the state of a recorder with num_generations={self.num_generations} and seed={self.seed}, "
                f"got {state['num_generations']} and {state['seed']}"
            )
        completions = [PendingCompletion(**deepcopy(one)) for one in state["completions"]]
        self._prompts = int(state["prompts"])
        self._all = {one.key: one for one in completions}

    def close(self) -> None:
        """Close the writer. Unfinished completions are in the state only."""
        self._writer.close()

    def _pending(self, key: int) -> PendingCompletion:
        one = self._all.get(key)
        if one is None or one.reward is not None:
            raise ArgumentError(f"expected the key of a completion in `pending`, got {key}")
        return one

    def _unwritten(self, key: int) -> PendingCompletion:
        if key not in self._all:
            raise ArgumentError(f"expected the key of a completion of an unfinished prompt, got {key}")
        return self._all[key]

    def _require_room(self, one: PendingCompletion, more: int) -> None:
        length = len(one.prompt) + len(one.tokens)
        if self.max_length is not None and length + more > self.max_length:
            raise DataError(
                f"expected at most max_length={self.max_length:,} tokens with the prompt, got {length:,} and {more:,} "
                f"more for key {one.key}; finish() it with truncated=True, resample() it, or discard() its prompt"
            )


def _most_tokens(writer: Writer) -> int | None:
    """Most tokens of an episode that a replay takes."""
    return run_of(writer).contents.longest if isinstance(writer, Replay) else None


def _write(writer: Writer, episodes: list[Episode]) -> None:
    """Write all completions of a prompt, or none."""
    if isinstance(writer, Replay):
        writer.write_together(episodes)
    else:
        writer.write_all(episodes)


def _store(path: Path) -> Writer:
    if (path / SPEC_FILE).exists():
        return ColumnsWriter(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return ColumnsWriter.create(path, SPEC)
