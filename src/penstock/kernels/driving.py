# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled kernels of driving logs (numba, GIL released, cached on disk). Definitions: `driving_reference`.

`select_agents` reads frames in order and keeps the last observation of each track in a hash table. The nearest agents
and lines are kept in a short sorted list a sample, so no array of all distances is made. The caller owns all arrays,
the slots of the table included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.driving_reference import LEAST_AREA, OF_INTEREST
from penstock.kernels.jit import helper, kernel

_FIRST, _LAST = OF_INTEREST.start, OF_INTEREST.stop
_PI, _TURN = np.float32(np.pi), np.float32(2 * np.pi)
_GOLDEN, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@helper
def _slot(track: Any, scene: int, mask: int, keys: Any, stamp: Any) -> Any:
    """Where the table holds a track of this scene; a slot of an earlier scene is free."""
    key = np.uint64(track)
    at = np.int64((key * _GOLDEN) >> _32) & mask
    while stamp[at] == scene and keys[at] != key:
        at = (at + 1) & mask
    return at


@helper
def _follows(yaw: Any, extent: Any, was: int, now: int, limits: Any) -> Any:
    """Whether an observation can be the next one of a track, by turn and footprint."""
    turn = (np.float64(yaw[now] - yaw[was]) + np.pi) % (2 * np.pi) - np.pi
    if not abs(turn) * 180 / np.pi < limits[1]:
        return False
    old, new = extent[was, 0] * extent[was, 1], extent[now, 0] * extent[now, 1]
    if old < LEAST_AREA or new < LEAST_AREA:
        return False
    ratio = old / new if old > new else new / old
    return ratio < limits[2]


@kernel
def select_agents(
    scenes: Any,
    agents: Any,
    ego: Any,
    centroid: Any,
    yaw: Any,
    extent: Any,
    labels: Any,
    track: Any,
    limits: Any,
    slots: int,
    out: Any,
) -> None:
    """See `driving_reference.select_agents`: frames in order, the last observation of each track in a hash table."""
    keys, stamp = np.empty(slots, np.uint64), np.full(slots, -1, np.int64)
    last, seen = np.empty(slots, np.int64), np.empty(slots, np.int64)
    before = np.full(len(out), -1, np.int64)
    least = np.float32(limits[0])
    out[:] = 0
    for s in range(len(scenes)):
        for f in range(scenes[s, 0], scenes[s, 1]):
            for i in range(agents[f, 0], agents[f, 1]):
                at = _slot(track[i], s, slots - 1, keys, stamp)
                known = stamp[at] == s and last[at] >= 0
                keys[at], stamp[at] = np.uint64(track[i]), s
                total = labels[i, _FIRST]
                for column in range(_FIRST + 1, _LAST):
                    total += labels[i, column]
                x, y = ego[f, 0] - centroid[i, 0], ego[f, 1] - centroid[i, 1]
                if not total > least or not np.sqrt(x * x + y * y) < limits[3]:
                    last[at] = -1
                    continue
                if known and f == seen[at] + 1 and _follows(yaw, extent, last[at], i, limits):
                    before[i] = last[at]
                    out[i, 0] = out[last[at], 0] + 1
                last[at], seen[at] = i, f
    for s in range(len(scenes) - 1, -1, -1):
        for f in range(scenes[s, 1] - 1, scenes[s, 0] - 1, -1):
            for i in range(agents[f, 0], agents[f, 1]):
                if before[i] >= 0:
                    out[before[i], 1] = out[i, 1] + 1


@kernel
def relative_poses(
    xy: Any,
    yaw: Any,
    extent: Any,
    frame: Any,
    bounds: Any,
    place: Any,
    anchor: Any,
    origin: Any,
    first: int,
    step: int,
    positions: Any,
    yaws: Any,
    extents: Any,
    there: Any,
) -> None:
    """See `driving_reference.relative_poses`: one walk along the track a sample."""
    n, length = there.shape
    positions[:], yaws[:], extents[:], there[:] = 0, 0, 0, 0
    for i in range(n):
        row, lo, hi = place[i], bounds[i, 0], bounds[i, 1]
        if row < 0:
            continue
        x, y, turn = origin[i, 0], origin[i, 1], np.float32(origin[i, 2])
        cos, sin = np.cos(origin[i, 2]), np.sin(origin[i, 2])
        start = anchor[i] + step * first
        while lo <= row - step < hi and (frame[row - step] - start) * step >= 0:
            row -= step
        for j in range(length):
            wanted = start + step * j
            while lo <= row < hi and (frame[row] - wanted) * step < 0:
                row += step
            if not lo <= row < hi:
                break
            if frame[row] != wanted:
                continue
            dx, dy = np.float64(xy[row, 0]) - x, np.float64(xy[row, 1]) - y
            positions[i, j, 0], positions[i, j, 1] = cos * dx + sin * dy, cos * dy - sin * dx
            yaws[i, j] = _wrapped(np.float32(yaw[row]), turn)
            extents[i, j, 0], extents[i, j, 1] = extent[row, 0], extent[row, 1]
            there[i, j] = 1


@helper
def _wrapped(yaw: Any, turn: Any) -> Any:
    """The difference of two angles within half a turn, all in float32."""
    left = np.float32(np.fmod(np.float32(yaw - turn) + _PI, _TURN))
    if left < 0:
        left = np.float32(left + _TURN)
    return np.float32(left - _PI)


@helper
def _put(row: int, far: Any, name: Any, track: Any, rows: Any, fars: Any, begin: int, count: int) -> Any:
    """Insert an agent into `rows[begin : count]`, in the order of distance, once each; gives how many there are."""
    end = count
    for k in range(begin, count):
        if track[rows[k]] == name:
            if fars[k] <= far:
                return count
            end = k
            break
    if end == len(rows):
        if not far < fars[end - 1]:
            return count
        end -= 1
    grown = max(count, end + 1)
    while end > begin and far < fars[end - 1]:
        rows[end], fars[end] = rows[end - 1], fars[end - 1]
        end -= 1
    rows[end], fars[end] = row, far
    return grown


@helper
def _again(row: int, far: Any, rows: Any, first: int, track: Any, close: Any, nearest: Any) -> Any:
    """Whether an agent is among the first, which the last frame has; then the place where it was nearest is kept."""
    for k in range(first):
        if track[rows[k]] == track[row]:
            if far < close[k]:
                close[k], nearest[k] = far, row
            return True
    return False


@helper
def _away(row: int, xy: Any, track: Any, wanted: Any, x: Any, y: Any, leave_out: int, radius: float) -> Any:
    """Return the distance of an observation; infinity if it does not count."""
    if not wanted[row] or track[row] == leave_out:
        return np.inf
    dx, dy = xy[row, 0] - x, xy[row, 1] - y
    far = np.sqrt(dx * dx + dy * dy)
    return far if far < radius else np.inf


@kernel
def nearest_agents(
    frames: Any,
    agents: Any,
    place: Any,
    xy: Any,
    track: Any,
    wanted: Any,
    centre: Any,
    leave_out: Any,
    radius: float,
    out: Any,
    nearest: Any,
) -> None:
    """See `driving_reference.nearest_agents`: a short sorted list a sample."""
    out[:], nearest[:] = -1, -1
    most = out.shape[1]
    fars, close = np.empty(most), np.empty(most)
    for i in range(len(frames) if most else 0):
        lo, hi, x, y = frames[i, 0], frames[i, 1], centre[i, 0], centre[i, 1]
        count = first = 0
        for f in range(hi - 1, lo - 1, -1):
            if f == hi - 2:
                first = count
                close[:] = fars
            for j in range(agents[f, 0], agents[f, 1]):
                row = np.int64(place[j])
                far = _away(row, xy, track, wanted, x, y, leave_out[i], radius)
                if far == np.inf or (first and _again(row, far, out[i], first, track, close, nearest[i])):
                    continue
                if first < most:
                    count = _put(row, far, track[row], track, out[i], fars, first, count)
        for k in range(count):
            if nearest[i, k] < 0:
                nearest[i, k] = out[i, k]


@kernel
def nearest_lines(lines: Any, bounds: Any, centre: Any, reach: float, out: Any) -> None:
    """See `driving_reference.nearest_lines`: a short sorted list a sample."""
    out[:] = -1
    most = out.shape[1]
    fars = np.empty(most)
    for i in range(len(centre) if most else 0):
        x, y = centre[i, 0], centre[i, 1]
        count = 0
        for m in range(len(bounds)):
            if not (x > bounds[m, 0, 0] - reach and y > bounds[m, 0, 1] - reach):
                continue
            if not (x < bounds[m, 1, 0] + reach and y < bounds[m, 1, 1] + reach):
                continue
            least = np.inf
            for p in range(lines.shape[1]):
                dx, dy = lines[m, p, 0] - x, lines[m, p, 1] - y
                least = min(least, dx * dx + dy * dy)
            far = np.sqrt(least)
            if count == most and not far < fars[most - 1]:
                continue
            end = min(count, most - 1)
            count = min(count + 1, most)
            while end > 0 and far < fars[end - 1]:
                out[i, end], fars[end] = out[i, end - 1], fars[end - 1]
                end -= 1
            out[i, end], fars[end] = m, far


@kernel
def move_lines(
    lines: Any, lengths: Any, which: Any, matrix: Any, third: Any, reach: float, out: Any, there: Any
) -> None:
    """See `driving_reference.move_lines`."""
    most = np.float32(reach)
    for i in range(out.shape[0]):
        a, b, c = matrix[i, 0, 0], matrix[i, 0, 1], matrix[i, 0, 2]
        d, e, f = matrix[i, 1, 0], matrix[i, 1, 1], matrix[i, 1, 2]
        for k in range(out.shape[1]):
            line = which[i, k]
            count = lengths[line] if line >= 0 else 0
            for p in range(count):
                x, y = lines[line, p, 0], lines[line, p, 1]
                u, v = np.float32(x * a + y * b + c), np.float32(x * d + y * e + f)
                out[i, k, p, 0], out[i, k, p, 1], out[i, k, p, 2] = u, v, third[i, k]
                there[i, k, p] = np.sqrt(np.float32(u * u + v * v)) < most
            out[i, k, count:], there[i, k, count:] = 0, False
