"""Samples of a replay: which steps are anchors, and which rows each output reads from its anchor.

Every sample has an anchor step. `Transitions` is one step with what followed it; any transform whose plan is anchored
(`Windows`, `Steps`, `Pairs`) gives sequences. Rows are stored once: next observations, n steps and stacks of frames are
ranges of rows around the anchor, which the gather clips to the episode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.columns import under
from penstock.core.spec import ALIGNS, Align, Spec
from penstock.errors import ArgumentError, PlanError, SpecError
from penstock.kernels.replay import ALIGN, COLUMN, END, EVERY, HI, LO, MASK, PAD, REPEAT, ROW_BYTES, SHIFT, VIEWS
from penstock.plan.anchored import AnchoredPlan
from penstock.plan.episodes import Episodes
from penstock.plan.steps import REAL, SUMMED, Arrays, NStepSums, require_summable
from penstock.plan.transform import SampleTransform, require_int


class ReplaySamples(ABC):
    """What a sample of a replay is: `Transitions` or `Completions`. A frozen dataclass."""

    @abstractmethod
    def layout(self, spec: Spec) -> SampleLayout:
        """Return the outputs for the columns of a dataset.

        Args:
            spec: Columns of the dataset.

        Raises:
            PlanError: The dataset lacks columns that the samples need.
            SpecError: A column is missing or has another alignment.
        """


@dataclass(frozen=True)
class Transitions(ReplaySamples):
    """Single steps with what followed them, for one-step and n-step learning.

    A sample of step `t` has `observations` at `t`, `actions` at `t`, `rewards`, `next_observations` at `t + n_step`,
    `terminations`, `truncations`, and every other step or episode column at `t`. With `n_step > 1`, an episode that
    ends within the `n` steps cuts them: `rewards` is the discounted sum up to the end, and `next_observations` is the
    last observation of the episode. `discounts` is the factor for the value of the next observation: `gamma` to the
    number of steps, or 0 after a termination. A truncated episode keeps its factor, because its value continues.

    Steps of an episode that is still recorded are samples too. There the sum ends with the last recorded step, and
    `next_observations` is the observation after it: a shorter sum that bootstraps, and neither flag is set.

    A termination inside an episode, such as a lost life, ends the sum too, as in `n_step_returns`. `discounts` is 0
    there, and `next_observations` has no meaning. With `cut_at_terminations=False`, it counts for nothing: only the
    last step of an episode terminates. `terminations` and `truncations` are of the last step of the sum.
    Sums are float32, or float64 where the stored rewards are float64 or integers of 32 or 64 bits.

    With `stack > 1`, observations are stacks `[n, stack, ...]` of the last frames, oldest first. At the start of an
    episode the first frame repeats. Frames are stored once.

    Args:
        n_step: Number of steps to sum rewards over, at least 1. The default is 1.
        gamma: Discount factor of one step, 0 to 1. The default is 0.99.
        stack: Number of observations in a stack, at least 1. The default is 1.
        cut_at_terminations: Whether a termination inside an episode ends a sum. The default is True.
        shared_frames: Whether a frame that is in both stacks is copied once: `observations` and `next_observations`
            are then overlapping parts of one array of `stack + 1` frames, so a batch has fewer bytes, and a change of
            one changes the other. For `stack > 1` and `n_step=1`. The default is False.

    Raises:
        PlanError: A number is out of range, or there are no frames to share.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays(
        ...     {
        ...         "observations": np.arange(4.0),
        ...         "rewards": np.ones(3),
        ...         "terminations": [False, False, True],
        ...         "truncations": [False, False, False],
        ...     },
        ...     lengths=[3],
        ... )
        >>> replay = penstock.Replay(None, 100, samples=Transitions(n_step=2, gamma=0.5))
        >>> replay.write(data[0])
        0
        >>> batch = replay.sample(64)
        >>> columns = (batch[name].tolist() for name in ("rewards", "next_observations", "discounts"))
        >>> sorted(set(zip(*columns)))
        [(1.0, 3.0, 0.0), (1.5, 2.0, 0.25), (1.5, 3.0, 0.0)]
    """

    n_step: int = 1
    gamma: float = 0.99
    stack: int = 1
    cut_at_terminations: bool = True
    shared_frames: bool = field(default=False, repr=False)  # samples are the same ones

    def __post_init__(self) -> None:
        require_int(self, "n_step", 1)
        require_int(self, "stack", 1)
        if not 0 <= self.gamma <= 1:
            raise PlanError(f"expected gamma within 0 to 1, got {self.gamma}")
        if self.shared_frames and (self.stack == 1 or self.n_step > 1):
            raise PlanError(
                f"expected stack > 1 and n_step=1 for shared_frames=True, got stack={self.stack} and "
                f"n_step={self.n_step}; leave it out"
            )

    @override
    def layout(self, spec: Spec) -> SampleLayout:
        outputs: list[SampleOutput] = []
        for path, column in spec.items():
            if column.align != "boundary":
                hi = self.n_step if path in SUMMED else 1
                outputs.append(SampleOutput(path, path, column.align, 0, hi, pad=REPEAT, squeeze=hi == 1))
            elif self.shared_frames and under("observations", path):
                outputs.append(SampleOutput(path, path, "boundary", 1 - self.stack, 2, pad=REPEAT, end=1))
            elif under("observations", path):
                span, alone = self.stack, self.stack == 1
                outputs += [
                    SampleOutput(path, path, "boundary", 1 - span, 1, pad=REPEAT, squeeze=alone, end=1),
                    SampleOutput(
                        f"next_{path}",
                        path,
                        "boundary",
                        self.n_step - span + 1,
                        self.n_step + 1,
                        pad=REPEAT,
                        squeeze=alone,
                        end=1,
                        shift=True,
                    ),
                ]
            else:
                outputs.append(SampleOutput(path, path, "boundary", 0, 1, squeeze=True, end=1))
        if self.n_step == 1 and self.cut_at_terminations:
            return SampleLayout(AnchorRule(), tuple(outputs), self._stacks if self.shared_frames else None)
        require_summable(spec, self.n_step)
        rows = self.n_step + (not self.cut_at_terminations)
        outputs.append(SampleOutput(REAL, "rewards", "step", 0, rows, pad=MASK))
        sums = NStepSums(self.n_step, self.gamma).summed
        return SampleLayout(AnchorRule(), tuple(outputs), sums if self.cut_at_terminations else self._uncut)

    def _stacks(self, flat: Arrays) -> Arrays:
        """The stacks before and after the step, as parts of the frames."""
        stacks: Arrays = {}
        for name, rows in flat.items():
            if under("observations", name):
                stacks |= {name: rows[:, :-1], f"next_{name}": rows[:, 1:]}
            else:
                stacks[name] = rows
        return stacks

    def _uncut(self, flat: Arrays) -> Arrays:
        """The sums, of which only the last step of an episode can terminate: one after which there is no other."""
        going = flat[REAL]
        flat[REAL] = real = going[:, : self.n_step]
        last = real.sum(1) - 1
        each = np.arange(len(last))
        for name in SUMMED:
            flat[name] = flat[name].reshape(real.shape + flat[name].shape[1 + (self.n_step > 1) :])
        ended = flat["terminations"][each, last] & ~going[each, last + 1]
        flat["terminations"] = np.zeros_like(flat["terminations"])
        flat["terminations"][each, last] = ended
        sums = NStepSums(self.n_step, self.gamma).summed(flat)
        return self._stacks(sums) if self.shared_frames else sums


@dataclass(frozen=True)
class SampleOutput:
    """Rows of one output of a sample: `lo : hi : every` from the anchor, clipped to the episode."""

    name: str
    column: str
    align: Align
    lo: int
    hi: int
    every: int = 1
    pad: int = 0
    squeeze: bool = False
    end: int = 0
    shift: bool = False

    @property
    def rows(self) -> int:
        """Number of rows of a sample."""
        return len(range(self.lo, self.hi, self.every))


@dataclass(frozen=True)
class AnchorRule:
    """Which steps of an episode are anchors: `first, first + stride, ...`, without the last `spare` steps."""

    first: int = 0
    spare: int = 0
    stride: int = 1

    def count(self, steps: IntArray) -> IntArray:
        """Return the number of anchors of episodes."""
        return np.maximum(0, -(-(steps - self.first - self.spare) // self.stride))


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """Anchors and outputs of the samples of a replay."""

    anchors: AnchorRule
    outputs: tuple[SampleOutput, ...]
    finish: Callable[[Arrays], Arrays] | None = None
    longest: int | None = None
    cost: Callable[[IntArray], int] | None = None
    delay: int = 0  # steps after the anchor without which an open episode has no sample of it

    @classmethod
    def of(cls, samples: ReplaySamples | SampleTransform, spec: Spec) -> SampleLayout:
        """Return the layout of samples over the columns of a dataset."""
        if ragged := [path for path, field in spec.items() if field.ragged]:
            raise SpecError(
                f"expected columns with rows of equal size in a replay, got rows of different lengths in {ragged}; "
                "record them as arrays of a fixed shape, or leave them out"
            )
        if isinstance(samples, ReplaySamples):
            return samples.layout(spec)
        plan = samples.plan(_no_episodes(spec))
        if not isinstance(plan, AnchoredPlan) or any(mark.kind != "mask" for mark in plan.marks):
            raise ArgumentError(
                f"expected Transitions, Windows, Steps or Pairs as the samples of a replay, got {samples!r}"
            )
        if not plan.inside or (plan.pad != "drop" and any(view.every != 1 for view in plan.views)):
            raise ArgumentError(
                f"expected windows around a step, and without frame_skip where they are padded, got {samples!r}; give "
                "a past of pad_before, and as many more steps as pad_after"
            )
        pad = REPEAT if plan.pad == "repeat" else 0
        outputs: list[SampleOutput] = []
        for read in plan.reads:
            view = plan.views[read.view]
            outputs.append(
                SampleOutput(
                    read.name,
                    read.column,
                    spec[read.column].align,
                    view.lo,
                    view.hi,
                    view.every,
                    pad,
                    read.squeeze,
                    view.end,
                )
            )
        for mark in plan.marks:
            view = plan.views[mark.view]
            align: Align = "boundary" if view.align == "boundary" else "step"
            outputs.append(SampleOutput(mark.name, "", align, view.lo, view.hi, pad=MASK, end=view.end))
        ahead = [output.hi - 1 - output.end for output in outputs if output.align != "episode"]
        return cls(AnchorRule(plan.first, plan.spare, plan.stride), tuple(outputs), delay=max(0, *ahead, 0))

    @property
    def past(self) -> int:
        """Steps before an anchor that its outputs read."""
        return max(0, *(-output.lo for output in self.outputs), 0)

    @property
    def least_steps(self) -> int:
        """Steps of the shortest episode with an anchor."""
        return self.anchors.first + self.anchors.spare + 1

    def table(self, spec: Spec) -> IntArray:
        """Return the outputs as the gather reads them, `[outputs, VIEWS]` int64."""
        number = {path: i for i, path in enumerate(spec)}
        table = np.zeros((len(self.outputs), VIEWS), np.int64)
        for row, output in zip(table, self.outputs, strict=True):
            row[[ALIGN, LO, HI, EVERY, END]] = (
                ALIGNS.index(output.align),
                output.lo,
                output.hi,
                output.every,
                output.end,
            )
            row[[PAD, SHIFT]] = output.pad, output.shift
            if output.pad != MASK:
                row[[COLUMN, ROW_BYTES]] = number[output.column], spec[output.column].row_bytes
        return table


def _no_episodes(spec: Spec) -> Episodes:
    none = np.zeros(0, np.int64)
    aligns: dict[str, Align] = {path: field.align for path, field in spec.items()}
    return Episodes(none, none, none, none, aligns, spec.fingerprint)
