"""Paths that a car can follow, fitted to a target path."""

from __future__ import annotations

import math

import numpy as np

from penstock.core.arrays import AnyArray
from penstock_driving.geometry import angular_distance
from penstock_driving.kinematics import Tracking, feasible

_ROUNDS = 5


def fit_ackerman_model_exact(
    x0: AnyArray | float,
    y0: AnyArray | float,
    r0: AnyArray | float,
    v0: AnyArray | float,
    gx: AnyArray,
    gy: AnyArray,
    gr: AnyArray,
    gv: AnyArray,
    wgx: AnyArray,
    wgy: AnyArray,
    wgr: AnyArray,
    wgv: AnyArray,
    ws: float = 5.0,
    wa: float = 5.0,
    min_acc: float = -0.3,
    max_acc: float = 0.3,
    min_steer: float = -math.radians(45) * 0.1,
    max_steer: float = math.radians(45) * 0.1,
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray, AnyArray, AnyArray]:
    """Fit the path from `x0`, `y0`, `r0` (yaw), `v0` (metres a step) that is nearest to `gx`, `gy`, `gr`,
    `gv` `[N]`.

    `wgx` to `wgv` `[N]` weigh the distance from the goal, `ws` and `wa` steering and acceleration, both within limits
    per step. Returns x, y, yaw, speed, acceleration and steering `[N]`. See
    `penstock_driving.kinematics.feasible`.
    """
    start = np.array([[x0, y0, r0, v0]], np.float64)
    goal, weights = np.stack([gx, gy, gr, gv], axis=-1), np.stack([wgx, wgy, wgr, wgv], axis=-1)
    least, most = np.array([min_steer, min_acc]), np.array([max_steer, max_acc])
    way, controls = feasible(start, goal[None].astype(np.float64), Tracking(weights, np.array([ws, wa]), least, most))
    x, y, r, v = way[0].T
    steer, acc = controls[0].T
    return x, y, r, v, acc, steer


def fit_ackerman_model_approximate(
    gx: AnyArray,
    gy: AnyArray,
    gr: AnyArray,
    gv: AnyArray,
    wx: AnyArray,
    wy: AnyArray,
    wr: AnyArray,
    wv: AnyArray,
    wgx: AnyArray,
    wgy: AnyArray,
    wgr: AnyArray,
    wgv: AnyArray,
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Fit a path near to `gx`, `gy`, `gr` (yaw), `gv` (metres a step) `[N]` that nearly follows the motion of a car.

    `wgx` to `wgv` weigh the distance from the goal; `wx` to `wv` weigh the distance of each step from the motion of the
    step before, all `[N]` (the last of `wx` to `wv` is ignored). Five Gauss-Newton steps start at the goal. Returns x,
    y, yaw and speed `[N]`.
    """
    n = len(gx)
    goal = np.stack([gx, gy, gr, gv]).astype(np.float64)
    near = np.stack([wgx, wgy, wgr, wgv]).reshape(-1)
    smooth = np.stack([wx, wy, wr, wv])[:, : n - 1].reshape(-1)
    weights = np.concatenate([near, smooth])
    way = goal.copy()
    for _ in range(_ROUNDS):
        off = np.concatenate([_off(way, goal).reshape(-1), _jumps(way).reshape(-1)])
        slope = np.concatenate([np.eye(4 * n), _slopes(way)])
        step = np.linalg.lstsq(weights[:, None] * slope, weights * off, rcond=None)[0]
        way -= step.reshape(4, n)
    x, y, r, v = way
    return x, y, r, v


def _off(way: AnyArray, goal: AnyArray) -> AnyArray:
    """`[4, N]` from the goal to the way; of angles the shorter way around."""
    off = way - goal
    off[2] = angular_distance(way[2], goal[2])
    return off


def _jumps(way: AnyArray) -> AnyArray:
    """`[4, N - 1]` what the motion from each step leads to, less the next step."""
    jumps = way[:, :-1] - way[:, 1:]
    jumps[0] += np.cos(way[2, :-1]) * way[3, :-1]
    jumps[1] += np.sin(way[2, :-1]) * way[3, :-1]
    jumps[2] = angular_distance(way[2, :-1], way[2, 1:])
    return jumps


def _slopes(way: AnyArray) -> AnyArray:
    """`[4 (N - 1), 4 N]` how the jumps change with x, y, yaw and speed of each step."""
    n = way.shape[1]
    k = np.arange(n - 1, dtype=np.int64)
    slope = np.zeros((4, n - 1, 4, n))
    for row in range(4):
        slope[row, k, row, k], slope[row, k, row, k + 1] = 1, -1
    cos = np.cos(way[2, :-1])
    sin = np.sin(way[2, :-1])
    speed = way[3, :-1]
    slope[0, k, 2, k], slope[0, k, 3, k] = -sin * speed, cos
    slope[1, k, 2, k], slope[1, k, 3, k] = cos * speed, sin
    return slope.reshape(4 * (n - 1), 4 * n)
