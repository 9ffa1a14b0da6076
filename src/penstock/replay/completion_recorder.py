"""`CompletionRecorder`: completions while they are sampled, written to a replay when all of a prompt are finished.

A completion may be sampled in pieces, by several policies, and over a restart: the state has all unfinished groups.
Each token has the version of the policy that sampled it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        "group": Field(np.dtype("int64"), align="episode"),
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
        tokens: Tokens that were sampled.
        log_probs: Log-probability of each, under the policy that sampled it.
        versions: Version of that policy, for each.
        reward: Reward of the whole completion, or None while it is unfinished.
        truncated: Whether it was ended before its end.

    Example:
        >>> PendingCompletion(key=0, group=0, prompt=[5, 6], tokens=[7], log_probs=[-0.5], versions=[0]).truncated
        False
    """

    key: int
    group: int
    prompt: list[int]
    tokens: list[int] = field(default_factory=list[int])
    log_probs: list[float] = field(default_factory=list[float])
    versions: list[int] = field(default_factory=list[int])
    reward: float | None = None
    truncated: bool = False

    def episode(self) -> Episode:
        """Return the columns of the finished completion. The reward is at the last token."""
        before, steps = len(self.prompt), len(self.prompt) + len(self.tokens)
        last = np.arange(steps) == steps - 1
        rewards = np.zeros(steps, np.float32)
        rewards[-1] = self.reward or 0.0
        columns: dict[str, Array] = {
            "tokens": np.array(self.prompt + self.tokens, np.int32),
            "completion_mask": np.arange(steps) >= before,
            "log_probs": np.array([0.0] * before + self.log_probs, np.float32),
            "versions": np.array([self.versions[0]] * before + self.versions, np.int32),
            "rewards": rewards,
            "terminations": last & (not self.truncated),
            "truncations": last & self.truncated,
            "group": np.array([self.group], np.int64),
        }
        return Episode(SPEC, columns)


class CompletionRecorder:
    """Collect `num_generations` completions of each prompt, and write them when all are finished.

    The loop around a model asks `pending` for the completions to continue, samples some tokens of each, and gives them
    to `extend`. It may stop anywhere: after an update, the next tokens come from the next policy, and after a restart
    `load_state_dict` brings back what was unfinished.

    Args:
        target: `Replay` or other writer, or the folder of a column store from which a replay in another process reads.
        num_generations: Completions of a prompt, at least 1.
        seed: 0 to 2^64 - 1. Recorders that write to one replay need different seeds, so that prompts have different
            numbers. The default is 0.

    Raises:
        PlanError: A number is out of range.

    Example:
        >>> import penstock
        >>> replay = penstock.Replay(None, 100, samples=penstock.Completions(8), sampler=penstock.GroupSampler(2))
        >>> recorder = CompletionRecorder(replay, num_generations=2)
        >>> keys = recorder.add_prompt([5, 6])
        >>> for done in list(recorder.pending):
        ...     recorder.extend(done.key, [1, 2], log_probs=[-0.1, -0.7], version=0)
        >>> recorder.finish(keys[0], reward=1.0), [one.key for one in recorder.pending], replay.episodes
        (False, [1], 0)
        >>> recorder.finish(keys[1], reward=0.0), replay.episodes
        (True, 2)
    """

    def __init__(self, target: str | os.PathLike[str] | Writer, num_generations: int, *, seed: int = 0) -> None:
        if num_generations < 1:
            raise PlanError(f"expected num_generations of at least 1, got {num_generations}")
        if not 0 <= seed < 1 << 64:
            raise PlanError(f"expected a seed of 0 to 2^64 - 1, got {seed}")
        self.num_generations, self.seed = num_generations, seed
        self._writer = target if isinstance(target, Writer) else _store(Path(target))
        self._all: dict[int, PendingCompletion] = {}  # all completions of unfinished groups
        self._prompts = 0

    def __len__(self) -> int:
        """Return the number of prompts with unfinished completions."""
        return len({one.group for one in self._all.values()})

    @property
    def pending(self) -> list[PendingCompletion]:
        """Completions to continue, oldest first."""
        return [one for one in self._all.values() if one.reward is None]

    def add_prompt(self, tokens: Sequence[int]) -> list[int]:
        """Begin the completions of a prompt.

        Args:
            tokens: Tokens of the prompt, at least one.

        Returns:
            The keys of `num_generations` completions.

        Raises:
            ArgumentError: The prompt is empty.
        """
        if len(tokens) == 0:
            raise ArgumentError("expected a prompt of at least one token, got an empty one; begin with a start token")
        group = int(key_of(int(key_of(self.seed)) ^ self._prompts)) >> 1
        first = self._prompts * self.num_generations
        self._prompts += 1
        keys = list(range(first, first + self.num_generations))
        for key in keys:
            self._all[key] = PendingCompletion(key, group, [int(token) for token in tokens])
        return keys

    def extend(self, key: int, tokens: Sequence[int], log_probs: Sequence[float], version: int) -> None:
        """Add tokens to a completion.

        Args:
            key: Key of the completion.
            tokens: Tokens that were sampled.
            log_probs: Log-probability of each, under the policy that sampled it.
            version: Version of that policy.

        Raises:
            ArgumentError: The completion is unknown or finished.
            DataError: There is not one log-probability for each token, or one is not finite.
        """
        one = self._pending(key)
        if len(tokens) != len(log_probs) or not np.isfinite(np.asarray(log_probs, np.float64)).all():
            raise DataError(
                f"expected a finite log-probability for each of {len(tokens)} tokens, got {list(log_probs)[:8]}"
            )
        one.tokens += [int(token) for token in tokens]
        one.log_probs += [float(value) for value in log_probs]
        one.versions += [int(version)] * len(tokens)

    def finish(self, key: int, reward: float, *, truncated: bool = False) -> bool:
        """End a completion. If it is the last one of its prompt, all of them are written.

        Args:
            key: Key of the completion.
            reward: Reward of the whole completion, finite.
            truncated: Whether it was ended before its end, for example at the length limit. The default is False.

        Returns:
            Whether the completions of this prompt were written.

        Raises:
            ArgumentError: The completion is unknown or finished, or has no tokens.
            DataError: The reward is not finite, or the replay refuses a completion.
        """
        one = self._pending(key)
        if not one.tokens:
            raise ArgumentError(f"expected a completion with at least one token, got none for key {key}")
        if not np.isfinite(reward):
            raise DataError(f"expected a finite reward, got {reward} for key {key}")
        group = [other for other in self._all.values() if other.group == one.group]
        one.reward, one.truncated = float(reward), truncated
        if any(other.reward is None for other in group):
            return False
        try:
            self._writer.write_all([other.episode() for other in group])
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
            "completions": [{**vars(one)} for one in self._all.values()],
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
        completions = [PendingCompletion(**one) for one in state["completions"]]
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


def _store(path: Path) -> Writer:
    if (path / SPEC_FILE).exists():
        return ColumnsWriter(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return ColumnsWriter.create(path, SPEC)
