"""`DeltaTimestamps`: rows of single columns at times around each step, in seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from typing_extensions import override

from penstock.core.frozen import set_fields
from penstock.errors import PlanError
from penstock.plan.anchored import EPISODE, AnchoredPlan, Output
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.transform import SampleTransform


@dataclass(frozen=True)
class DeltaTimestamps(SampleTransform):
    """A sample of every step `t`, with the rows of some columns at several times before and after it.

    It has the samples of LeRobot's `delta_timestamps`. Columns with times are `[n, L, ...]`; rows beyond the episode
    are its first or last row. A `<column>_mask` `[n, L]` is True for rows inside: the opposite of LeRobot's
    `<column>_is_pad`. All other columns are `[n, ...]`, at step `t`. Building the plan costs a running sum over
    episodes.

    Args:
        offsets: Seconds from step `t` for each column, or for all columns below a prefix, in any order. They are
            multiples of `1 / fps`.
        fps: Steps a second.
        tolerance: Most seconds between a time and the nearest multiple. The default is 1e-4, as in LeRobot.

    Raises:
        PlanError: A time is no multiple, a number is out of range, a column is unknown, has one row an episode, or is
            named twice.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"x": np.arange(5), "actions": np.arange(5) * 10}, lengths=[2, 3])
        >>> samples = data.apply(DeltaTimestamps({"actions": [-0.1, 0.0, 0.1]}, fps=10))
        >>> samples[1]["actions"].tolist(), samples[1]["actions_mask"].tolist(), int(samples[1]["x"])
        ([0, 10, 10], [True, True, False], 1)
    """

    offsets: Mapping[str, Sequence[float]] | tuple[tuple[str, tuple[int, ...]], ...]
    fps: float
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        set_fields(self, fps=float(self.fps), tolerance=float(self.tolerance))
        if not (self.fps > 0 and math.isfinite(self.fps)):
            raise PlanError(f"expected a positive number of steps a second, got {self.fps!r}")
        if not self.tolerance >= 0:
            raise PlanError(f"expected a tolerance of at least 0 seconds, got {self.tolerance!r}")
        if isinstance(self.offsets, Mapping):
            steps = {name: self._steps(name, times) for name, times in self.offsets.items()}
            set_fields(self, offsets=tuple(sorted(steps.items())))

    def _steps(self, name: str, times: Sequence[float]) -> tuple[int, ...]:
        """Return times as steps. Raises `PlanError` if there are none, or some between two steps."""
        if not times or not all(math.isfinite(time) for time in times):
            raise PlanError(f"expected seconds for {name!r}, got {list(times)}")
        if wrong := [
            time for time in times if abs(time * self.fps - round(time * self.fps)) / self.fps > self.tolerance
        ]:
            raise PlanError(
                f"expected multiples of 1/{self.fps:g} s within {self.tolerance:g} s for {name!r}, got {wrong}"
            )
        return tuple(round(time * self.fps) for time in times)

    @override
    def plan(self, episodes: Episodes) -> Plan:
        outputs: dict[str, Output] = {}
        masks: list[tuple[str, View]] = []
        for name, steps in cast("tuple[tuple[str, tuple[int, ...]], ...]", self.offsets):
            paths = episodes.columns(name)
            aligns = {episodes.aligns[path] for path in paths}
            if "episode" in aligns or len(aligns) > 1:
                raise PlanError(
                    f"expected columns with a row for each step for the times of {name!r}, got {sorted(aligns)}"
                )
            view = _view(aligns.pop() == "boundary", steps)
            if twice := [path for path in paths if path in outputs]:
                raise PlanError(f"expected times for each column once, got {twice[0]!r} again below {name!r}")
            outputs.update({path: (path, path, view) for path in paths})
            masks.append((f"{name}_mask", view))
        rest = {
            path: (path, path, EPISODE if align == "episode" else View(align, 0, 1))
            for path, align in episodes.aligns.items()
            if path not in outputs
        }
        ordered = [(outputs | rest)[path] for path in episodes.aligns]
        return AnchoredPlan(episodes, self, ordered, masks=masks, squeeze=set(rest), pad="repeat")


@dataclass(frozen=True)
class PickedView(View):
    """Single rows around the anchor step, at any distances and in any order."""

    picks: tuple[int, ...] = ()

    @property
    @override
    def steps(self) -> Sequence[int]:
        return self.picks

    @property
    @override
    def axis(self) -> tuple[int, int, int, int, str, str]:
        return self.lo, self.hi, self.every, self.end, repr(self.picks), self.drawn


def _view(boundary: bool, steps: tuple[int, ...]) -> View:
    """Return the view of some steps: a range if they are evenly spaced."""
    align = "boundary" if boundary else "step"
    lo, hi = min(steps), max(steps) + 1
    every = steps[1] - steps[0] if len(steps) > 1 else 1
    if every > 0 and steps == tuple(range(lo, hi, every)):
        return View(align, lo, hi, every, end=int(boundary))
    return PickedView(align, lo, hi, end=int(boundary), picks=steps)
