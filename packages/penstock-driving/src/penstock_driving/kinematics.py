"""Motion of what drives: velocities by differences, and trajectories that a car could follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.core.arrays import AnyArray

MOST_ACCELERATION = 0.3
"""Metres a step, a step: 3 m/s2 at 10 frames a second."""
MOST_TURN = float(np.radians(45) * 0.1)
"""Radians a step: 45 degrees a second at 10 frames a second."""
EFFORT = 5.0
"""How much a radian of turn, or a metre of acceleration, weighs beside a metre off the way."""
_ROUNDS = 40
_TRIALS = 12
_CLOSE = 1e-9


class ObservedPositions(Protocol):
    """Positions `[n, L, 2]` and their availability `[n, L]`, float32."""

    @property
    def positions(self) -> AnyArray:
        """`[n, L, 2]` metres."""
        ...

    @property
    def there(self) -> AnyArray:
        """`[n, L]`, 1 where there is one."""
        ...


def velocities(
    history: ObservedPositions, future: ObservedPositions, step_time: float, masked: bool
) -> tuple[AnyArray, AnyArray]:
    """m/s in the past `[n, H, 2]`, the current one first, and in the future `[n, F, 2]`, float32.

    Differences of positions that follow one another, of the future's first from the current one. Missing
    positions are zeros: so are the velocities of the two steps next to them if they are to be `masked`.
    """
    step = np.float32(step_time)
    back = (history.positions[:, :-1] - history.positions[:, 1:]) / step
    ahead = np.diff(future.positions, axis=1, prepend=history.positions[:, :1]) / step
    if masked:
        back *= (history.there[:, :-1] * history.there[:, 1:])[..., None]
        ahead[:, 1:] *= future.there[:, :-1, None]
        ahead *= future.there[..., None]
    return back, ahead


def follow(start: AnyArray, controls: AnyArray) -> AnyArray:
    """The poses `[n, N, 4]` (x, y, yaw, metres a step) of cars that begin at `start[n, 4]` and turn and accelerate by
    `controls[n, N, 2]` (radians and metres a step, each step).
    """
    turned = np.cumsum(controls, axis=1) + start[:, None, 2:]
    yaw, speed = turned[..., 0], turned[..., 1]
    steps = np.stack([np.cos(yaw) * speed, np.sin(yaw) * speed], axis=-1)
    return np.concatenate([start[:, None, :2] + np.cumsum(steps, axis=1), turned], axis=-1)


@dataclass(frozen=True)
class Tracking:
    """Costs of a path, and limits of a car: arguments of `feasible`.

    `weights` of being off in x, y, yaw and, if there are four, in metres a step; `[3]`, or any shape that broadcasts to
    the goal's. `effort` `[2]` weighs a radian of turn and a metre of acceleration. Every step turns and accelerates
    within `least` and `most` `[2]`.
    """

    weights: AnyArray
    effort: AnyArray
    least: AnyArray
    most: AnyArray


CAR = Tracking(
    weights=np.ones(3),
    effort=np.array([EFFORT, EFFORT]),
    least=-np.array([MOST_TURN, MOST_ACCELERATION]),
    most=np.array([MOST_TURN, MOST_ACCELERATION]),
)
"""A car at 10 frames a second, to which its speed is indifferent."""


def feasible(start: AnyArray, goal: AnyArray, tracking: Tracking = CAR) -> tuple[AnyArray, AnyArray]:
    """The way that a car can follow from `start[n, 4]` (x, y, yaw, metres a step) nearest to `goal[n, N, 3]`, or `[n,
    N, 4]` where speeds count too.

    Minimises half the sum of squared and weighted distances and controls (see `Tracking`), with every control within
    its limits, by projected Gauss-Newton steps. Gives poses `[n, N, 4]` and controls `[n, N, 2]`. Each row depends on
    itself alone. Cost: some hundred microseconds a row at 50 steps.
    """
    n, length = goal.shape[:2]
    weights = np.broadcast_to(tracking.weights, goal.shape)
    least, most = np.tile(tracking.least, length), np.tile(tracking.most, length)
    effort = np.tile(tracking.effort, length)
    controls = np.clip(np.zeros((n, 2 * length)), least, most)
    cost = _residuals(start, goal, weights, effort, controls)[1]
    busy = np.arange(n, dtype=np.int64)
    for _ in range(_ROUNDS):
        if len(busy) == 0:
            break
        aim = (start[busy], goal[busy], weights[busy], effort)
        change = _newton(*aim, controls[busy], least, most)
        better = _descended(*aim, controls[busy], change, cost[busy], least, most)
        gained = cost[busy] - better[1]
        controls[busy], cost[busy] = better
        busy = busy[gained > _CLOSE * (1 + cost[busy])]
    controls = controls.reshape(n, length, 2)
    return follow(start, controls), controls


def _residuals(
    start: AnyArray, goal: AnyArray, weights: AnyArray, effort: AnyArray, controls: AnyArray
) -> tuple[AnyArray, AnyArray]:
    """Remaining error to the goal `[n, N, 3 or 4]`, weighted, and the cost `[n]`."""
    way = follow(start, controls.reshape(len(controls), -1, 2))
    off = way[..., : goal.shape[-1]] - goal
    off[..., 2] = (off[..., 2] + np.pi) % (2 * np.pi) - np.pi
    off *= weights
    spent = effort * controls
    return off, 0.5 * ((off * off).sum(axis=(1, 2)) + (spent * spent).sum(axis=1))


def _newton(
    start: AnyArray,
    goal: AnyArray,
    weights: AnyArray,
    effort: AnyArray,
    controls: AnyArray,
    least: AnyArray,
    most: AnyArray,
) -> AnyArray:
    """The Gauss-Newton change of the controls `[n, 2N]` that no limit holds against the slope of the cost."""
    off, _ = _residuals(start, goal, weights, effort, controls)
    slope = _slopes(start, controls, goal.shape[-1]) * weights.reshape(len(off), -1, 1)
    gradient = (np.swapaxes(slope, 1, 2) @ off.reshape(len(off), -1, 1))[..., 0] + effort**2 * controls
    clamped = ((controls >= most) & (gradient < 0)) | ((controls <= least) & (gradient > 0))
    normal = np.swapaxes(slope, 1, 2) @ slope
    diagonal = np.arange(normal.shape[1], dtype=np.int64)
    normal[:, diagonal, diagonal] += effort**2
    normal[clamped[:, :, None] | clamped[:, None, :]] = 0
    normal[:, diagonal, diagonal] += clamped
    return -np.linalg.solve(normal, np.where(clamped, 0, gradient)[..., None])[..., 0]


def _slopes(start: AnyArray, controls: AnyArray, wide: int) -> AnyArray:
    """`[n, wide * N, 2N]` how x, y, yaw and, of four, speed of each step change with each turn and acceleration."""
    n, length = len(controls), controls.shape[1] // 2
    way = follow(start, controls.reshape(n, length, 2))
    cos = np.cos(way[..., 2])
    sin = np.sin(way[..., 2])
    speed = way[..., 3]
    slope = np.zeros((n, length, wide, length, 2))
    sums = [np.cumsum(part, axis=1) for part in (-sin * speed, cos * speed, cos, sin)]
    # A control of step i moves every step from i to k on: the sum over those, which is a difference of running sums.
    for row, control, total in ((0, 0, sums[0]), (1, 0, sums[1]), (0, 1, sums[2]), (1, 1, sums[3])):
        before = np.concatenate([np.zeros((n, 1)), total[:, :-1]], axis=1)
        slope[:, :, row, :, control] = np.tril(total[:, :, None] - before[:, None, :])
    slope[:, :, 2, :, 0] = np.tril(np.ones((length, length)))
    if wide > 3:
        slope[:, :, 3, :, 1] = np.tril(np.ones((length, length)))
    return slope.reshape(n, wide * length, 2 * length)


def _descended(
    start: AnyArray,
    goal: AnyArray,
    weights: AnyArray,
    effort: AnyArray,
    controls: AnyArray,
    change: AnyArray,
    cost: AnyArray,
    least: AnyArray,
    most: AnyArray,
) -> tuple[AnyArray, AnyArray]:
    """The controls after the longest of some steps along the change that lowers the cost, and that cost."""
    best, lowest = controls.copy(), cost.copy()
    left, size = np.arange(len(cost)), 1.0
    for _ in range(_TRIALS):
        trial = np.clip(controls[left] + size * change[left], least, most)
        residuals = _residuals(start[left], goal[left], weights[left], effort, trial)[1]
        lower = residuals < cost[left]
        best[left[lower]], lowest[left[lower]] = trial[lower], residuals[lower]
        left, size = left[~lower], size / 2
        if len(left) == 0:
            break
    return best, lowest
