"""`Completions`: whole rollouts of a language model as samples, padded or packed, with group-relative advantages.

An episode is one completion with its prompt, and a step is a token, so tokens have rows of equal size. A batch is as
wide as its longest completion. Advantages are computed when a batch is read, from the completions of equal `group` in
it: `GroupSampler` draws whole groups. Source: Shao et al., "DeepSeekMath" (2024), for the advantages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from penstock.core.arrays import AnyArray, BoolArray, Float32Array, IntArray
from penstock.core.ragged import offsets_of
from penstock.core.spec import Spec
from penstock.errors import PlanError, SpecError
from penstock.kernels.fit import best_fit
from penstock.kernels.replay import MASK
from penstock.plan.transform import require_int
from penstock.replay.samples import AnchorRule, Arrays, ReplaySamples, SampleLayout, SampleOutput

ONE_EACH = 1 << 40  # stride of anchors: more steps than an episode has, so that it has one anchor
EPSILON = 1e-6  # added to the standard deviation of a group
NEEDED = {"tokens": "step", "rewards": "step", "versions": "step", "group": "episode"}


@dataclass(frozen=True)
class Completions(ReplaySamples):
    """Whole completions of a language model, for a replay with a `GroupSampler`.

    `CompletionRecorder` writes the columns. A batch of `n` completions, the longest of which has `L` tokens, has
    every step column as `[n, L]` (`tokens`, `completion_mask`, `log_probs`, `versions`, `rewards`, ...), `mask`
    `[n, L]` (True for tokens, False for padding), `group` `[n]`, `returns` `[n]` (sum of rewards) and `advantages`
    `[n]` float32: the return minus the mean of the group, divided by the standard deviation of the group (of a sample,
    plus 1e-6).

    With `pack=True`, short completions share rows of `max_length` tokens, and all arrays are `[rows, max_length]`.
    `segment_ids` numbers the completions of a row from 1 (0 is padding), `positions` the tokens of a completion from 0.

    Args:
        max_length: Most tokens of a completion with its prompt, at least 1. A longer one is refused when it arrives.
        pack: Whether completions share rows. The default is False.
        scale_rewards: Whether to divide advantages by the standard deviation. The default is True.

    Raises:
        PlanError: `max_length` is out of range.

    Example:
        >>> import penstock
        >>> replay = penstock.Replay(None, 100, samples=Completions(8), sampler=penstock.replay.GroupSampler(2))
        >>> recorder = penstock.replay.CompletionRecorder(replay, num_generations=2)
        >>> for key, word, reward in zip(recorder.add_prompt([7, 8]), ([1], [2, 3]), (0.0, 1.0)):
        ...     recorder.extend(key, word, log_probs=[-0.5] * len(word), version=0)
        ...     _ = recorder.finish(key, reward)
        >>> batch = replay.sample(2)
        >>> batch["tokens"].tolist(), batch["returns"].tolist(), (batch["advantages"] * 100).round().tolist()
        ([[7, 8, 1, 0], [7, 8, 2, 3]], [0.0, 1.0], [-71.0, 71.0])
    """

    max_length: int
    pack: bool = False
    scale_rewards: bool = True

    def __post_init__(self) -> None:
        require_int(self, "max_length", 1)
        if self.max_length >= ONE_EACH:
            raise PlanError(f"expected a max_length below 2^40 tokens, got {self.max_length}")

    @override
    def layout(self, spec: Spec) -> SampleLayout:
        aligns = {path: field.align for path, field in spec.items()}
        if wrong := [path for path, align in NEEDED.items() if aligns.get(path) != align]:
            raise SpecError(f"expected the columns of CompletionRecorder, got none or others for {wrong}")
        outputs = [
            SampleOutput(path, path, field.align, 0, self.max_length)
            if field.align == "step"
            else SampleOutput(path, path, field.align, 0, 1, squeeze=True)
            for path, field in spec.items()
        ]
        outputs.append(SampleOutput("mask", "", "step", 0, self.max_length, pad=MASK))
        return SampleLayout(
            AnchorRule(stride=ONE_EACH), tuple(outputs), self.finish, self.max_length, self.cost, self.max_length - 1
        )

    def cost(self, lengths: IntArray) -> int:
        """Return the tokens of a batch, with padding.

        Args:
            lengths: `[n]` int64 tokens of each completion.

        Example:
            >>> Completions(8).cost(np.array([5, 3, 2])), Completions(8, pack=True).cost(np.array([5, 3, 2]))
            (15, 16)
        """
        if self.pack:
            return (int(_rows_of(lengths, self.max_length).max(initial=-1)) + 1) * self.max_length
        return len(lengths) * int(lengths.max(initial=0))

    def finish(self, flat: Arrays) -> Arrays:
        """Add returns and advantages to the rows that were read, and pack them.

        Args:
            flat: Padded arrays, changed in place.
        """
        mask: BoolArray = flat["mask"]
        returns = (flat["rewards"] * mask).sum(1, dtype=np.float64)
        flat["returns"] = returns.astype(np.float32)
        flat["advantages"] = group_advantages(returns, flat["group"], self.scale_rewards)
        return _packed(flat, mask, self.max_length) if self.pack else flat


def group_advantages(returns: AnyArray, group: AnyArray, scale_rewards: bool = True) -> Float32Array:
    """Return how much better each completion is than its group.

    Args:
        returns: `[n]` floats.
        group: `[n]` integers, equal for completions of one prompt.
        scale_rewards: Whether to divide by the standard deviation of the group. The default is True.

    Returns:
        `[n]` float32. 0 where all completions of a group have the same return.

    Example:
        >>> group_advantages(np.array([1.0, 3.0, 5.0]), np.array([4, 4, 9]), scale_rewards=False).tolist()
        [-1.0, 1.0, 0.0]
    """
    _, number = np.unique(group, return_inverse=True)
    count = np.bincount(number)
    away = returns - (np.bincount(number, returns) / count)[number]
    if scale_rewards:
        deviation = np.sqrt(np.bincount(number, away * away) / np.maximum(count - 1, 1))
        away = away / (deviation[number] + EPSILON)
    return away.astype(np.float32)


def _rows_of(lengths: IntArray, row: int) -> IntArray:
    """`[n]` row of each completion, by best fit of decreasing lengths."""
    order = np.argsort(-lengths, kind="stable")
    rows = np.empty(len(lengths), np.int64)
    best_fit(lengths[order], row, max(len(lengths), 1), rows)
    out = np.empty_like(rows)
    out[order] = rows
    return out


def _packed(flat: Arrays, mask: BoolArray, row: int) -> Arrays:
    """The arrays in rows: values of a completion are repeated for its tokens."""
    lengths = mask.sum(1)
    rows = _rows_of(lengths, row)
    order = np.argsort(rows, kind="stable")
    before = offsets_of(lengths[order])[:-1]
    first = np.searchsorted(rows[order], rows[order])  # the first completion of the same row
    begin = np.empty(len(rows), np.int64)
    begin[order] = rows[order] * row + before - before[first]
    segment = np.empty(len(rows), np.int32)
    segment[order] = np.arange(1, len(rows) + 1) - first
    positions = np.nonzero(mask)[1].astype(np.int32)
    places = np.repeat(begin, lengths) + positions
    shape = int(rows.max(initial=-1)) + 1, row

    def packed(values: AnyArray) -> AnyArray:
        tokens = values[mask] if values.shape[:2] == mask.shape else np.repeat(values, lengths, axis=0)
        out = np.zeros((shape[0] * row, *tokens.shape[1:]), tokens.dtype)
        out[places] = tokens
        return out.reshape(*shape, *tokens.shape[1:])

    arrays = {name: packed(values) for name, values in flat.items() if name != "mask"}
    return {
        **arrays,
        "mask": packed(mask),
        "segment_ids": packed(segment),
        "positions": packed(np.where(mask, np.arange(mask.shape[1], dtype=np.int32), 0)),
    }
