"""Agents of driving logs: which of them can be followed, where they were and will be, and who is near.

`select_agents` reads frames in order and keeps the last observation of each track in a hash table with open addresses.
A slot is stamped with its scene, so that the table need not be cleared. `relative_poses` walks along the track of each
sample once, since its rows are in the order of frames. `nearest_agents` keeps a short sorted list for each sample, so
no array of all distances is made. Loops check each row that they look up and stop at a wrong one; the wrappers name it.
The caller owns all arrays that it hands in. Reference: `tests/driving/reference/logs.py`.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import (
    BoolArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
    IntScalar,
    UInt32Array,
    UInt64Array,
)
from penstock.kernels.jit import helper, kernel

OF_INTEREST = slice(3, 16)
"""The labels of what takes part in traffic: cars, vans, ... animals."""

LEAST_AREA = 0.01
"""Footprints below this many square metres are errors of perception."""

_FIRST, _LAST = OF_INTEREST.start, OF_INTEREST.stop
_PI, _TURN = np.float32(np.pi), np.float32(2 * np.pi)
_GOLDEN, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)  # 2^64 divided by the golden ratio: spreads keys well


def select_agents(
    scenes: IntArray,
    agents: IntArray,
    ego: FloatArray,
    centroid: FloatArray,
    yaw: Float32Array,
    extent: Float32Array,
    labels: Float32Array,
    track: UInt64Array,
    limits: FloatArray,
    slots: int,
    out: UInt32Array,
) -> None:
    """Count for how many frames before and after each observation its track goes on without a break."""
    n, frames = len(out), len(agents)
    columns = (len(centroid), len(yaw), len(extent), len(labels), len(track))
    if columns != (n,) * 5 or len(ego) != frames or labels.shape[1] < _LAST or len(limits) != 4:
        raise ValueError(f"expected columns of {n} observations and {frames} frames, got {columns} and {len(ego)}")
    for spans, end in ((scenes, frames), (agents, n)):
        if spans.size and not 0 <= spans.min() <= spans.max() <= end:
            raise ValueError(f"expected scenes and frames within 0:{end}, got {spans.min()}:{spans.max()}")
    if slots < 1 or slots & (slots - 1):
        raise ValueError(f"expected slots as a power of two, got {slots}")
    out.fill(0)
    keys, stamp = np.empty(slots, np.uint64), np.full(slots, -1, np.int64)
    last = np.empty(slots, np.int64)
    seen = np.empty(slots, np.int64)
    before = np.full(n, -1, np.int64)
    # Columns of packed records are neither contiguous nor aligned.
    columns = (np.require(column, requirements="CA") for column in (centroid, yaw, extent, labels, track))
    if not _select_agents(scenes, agents, ego, *columns, limits, out, keys, stamp, last, seen, before):
        raise ValueError(f"expected fewer tracks in each scene than {slots} slots")


def relative_poses(
    xy: FloatArray,
    yaw: Float32Array,
    extent: Float32Array,
    frame: IntArray,
    bounds: IntArray,
    place: IntArray,
    anchor: IntArray,
    origin: FloatArray,
    first: int,
    step: int,
    positions: Float32Array,
    yaws: Float32Array,
    extents: Float32Array,
    there: Float32Array,
) -> None:
    """Compute past or future poses relative to one pose a sample: step `j` is frame `anchor + step * (first + j)`.

    Observations of a track are adjacent, in the order of frames, each frame once at most.
    """
    n = len(there)
    rows = len(frame)
    length = there.shape[1]
    if not len(xy) == len(yaw) == len(extent) == rows or step not in (1, -1):
        raise ValueError(f"expected columns of {rows} observations and a step of 1 or -1, got {len(xy)} and {step}")
    if not len(bounds) == len(place) == len(anchor) == len(origin) == n:
        raise ValueError(
            f"expected columns of {n} samples, got {len(bounds)}, {len(place)}, {len(anchor)}, {len(origin)}"
        )
    if positions.shape != (n, length, 2) or yaws.shape != (n, length) or extents.shape != (n, length, 2):
        raise ValueError(f"expected poses of {n} samples and {length} steps, got {list(positions.shape)}")
    for part in (positions, yaws, extents, there):
        part.fill(0)
    poses = positions, yaws, extents, there
    bad = _relative_poses(xy, yaw, extent, frame, bounds, place, anchor, origin, first, step, *poses)
    if bad >= 0:
        raise ValueError(f"expected tracks within {rows} observations, got {bounds[bad].tolist()} of sample {bad}")


def nearest_agents(
    frames: IntArray,
    agents: IntArray,
    place: Int32Array,
    xy: FloatArray,
    track: Int32Array,
    wanted: BoolArray,
    centre: FloatArray,
    leave_out: IntArray,
    radius: float,
    out: IntArray,
    nearest: IntArray,
) -> None:
    """Find the agents nearest to each centre: agents of its last frame first, then agents of earlier frames."""
    n, rows = len(frames), len(xy)
    if not len(track) == len(wanted) == rows or not len(centre) == len(leave_out) == n:
        raise ValueError(f"expected columns of {rows} places and {n} samples, got {len(track)} and {len(centre)}")
    if out.shape != nearest.shape or len(out) != n:
        raise ValueError(f"expected room for {n} samples, got {list(out.shape)} and {list(nearest.shape)}")
    out.fill(-1)
    nearest.fill(-1)
    fars, close = np.empty(out.shape[1]), np.empty(out.shape[1])
    bad = _nearest_agents(
        frames, agents, place, xy, track, wanted, centre, leave_out, radius, out, nearest, fars, close
    )
    if bad >= 0:
        raise ValueError(f"expected frames within {len(agents)} and places within {rows}, got others in sample {bad}")


@kernel(
    "i8[2C] i8[2C] f8[2C] f8[2C] f4[1C] f4[2C] f4[2C] u8[1C] f8[1C] u4[2C] u8[1C] i8[1C] i8[1C] i8[1C] i8[1C]",
)
def _select_agents(
    scenes: IntArray,
    agents: IntArray,
    ego: FloatArray,
    centroid: FloatArray,
    yaw: Float32Array,
    extent: Float32Array,
    labels: Float32Array,
    track: UInt64Array,
    limits: FloatArray,
    out: UInt32Array,
    keys: UInt64Array,
    stamp: IntArray,
    last: IntArray,
    seen: IntArray,
    before: IntArray,
) -> bool:
    least, mask = np.float32(limits[0]), len(keys) - 1
    for s in range(len(scenes)):
        tracks = 0
        for f in range(scenes[s, 0], scenes[s, 1]):
            for i in range(agents[f, 0], agents[f, 1]):
                slot = _slot(track[i], s, mask, keys, stamp)
                if stamp[slot] != s:
                    tracks += 1
                    if tracks > mask:  # a full table would be searched forever
                        return False
                known = stamp[slot] == s and last[slot] >= 0
                keys[slot], stamp[slot] = track[i], s
                total = labels[i, _FIRST]
                for column in range(_FIRST + 1, _LAST):
                    total += labels[i, column]
                x, y = ego[f, 0] - centroid[i, 0], ego[f, 1] - centroid[i, 1]
                if not total > least or not np.sqrt(x * x + y * y) < limits[3]:
                    last[slot] = -1
                    continue
                if known and f == seen[slot] + 1 and _follows(yaw, extent, last[slot], i, limits):
                    before[i] = last[slot]
                    out[i, 0] = out[last[slot], 0] + 1
                last[slot], seen[slot] = i, f
    for s in range(len(scenes) - 1, -1, -1):
        for f in range(scenes[s, 1] - 1, scenes[s, 0] - 1, -1):
            for i in range(agents[f, 0], agents[f, 1]):
                if before[i] >= 0:
                    out[before[i], 1] = out[i, 1] + 1
    return True


@helper
def _slot(track: np.uint64, scene: int, mask: int, keys: UInt64Array, stamp: IntArray) -> IntScalar:
    """Return where the table holds a track of this scene; a slot of an earlier scene is free."""
    slot = np.int64((track * _GOLDEN) >> _32) & mask
    while stamp[slot] == scene and keys[slot] != track:
        slot = (slot + 1) & mask
    return slot


@helper
def _follows(yaw: Float32Array, extent: Float32Array, was: int, now: int, limits: FloatArray) -> bool:
    """Whether an observation can be the next one of a track, by turn and footprint."""
    turn = (np.float64(yaw[now] - yaw[was]) + np.pi) % (2 * np.pi) - np.pi
    if not abs(turn) * 180 / np.pi < limits[1]:
        return False
    old, new = extent[was, 0] * extent[was, 1], extent[now, 0] * extent[now, 1]
    if old < LEAST_AREA or new < LEAST_AREA:
        return False
    ratio = old / new if old > new else new / old
    return ratio < limits[2]


@kernel("f8[2C] f4[1C] f4[2C] i8[1C] i8[2C] i8[1C] i8[1C] f8[2C] i8 i8 f4[3C] f4[2C] f4[3C] f4[2C]")
def _relative_poses(
    xy: FloatArray,
    yaw: Float32Array,
    extent: Float32Array,
    frame: IntArray,
    bounds: IntArray,
    place: IntArray,
    anchor: IntArray,
    origin: FloatArray,
    first: int,
    step: int,
    positions: Float32Array,
    yaws: Float32Array,
    extents: Float32Array,
    there: Float32Array,
) -> int:
    n, length = there.shape
    for i in range(n):
        row = place[i]
        lo = bounds[i, 0]
        hi = bounds[i, 1]
        if row < 0:
            continue
        if lo < 0 or hi > len(frame):
            return i
        x = origin[i, 0]
        y = origin[i, 1]
        turn = np.float32(origin[i, 2])
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
            dx, dy = xy[row, 0] - x, xy[row, 1] - y
            positions[i, j, 0], positions[i, j, 1] = cos * dx + sin * dy, cos * dy - sin * dx
            yaws[i, j] = _wrapped(np.float32(yaw[row]), turn)
            extents[i, j, 0], extents[i, j, 1] = extent[row, 0], extent[row, 1]
            there[i, j] = 1
    return -1


@helper
def _wrapped(yaw: np.float32, turn: np.float32) -> np.float32:
    """Return the difference of two angles within half a turn, all in float32."""
    left = np.float32(np.fmod(np.float32(yaw - turn) + _PI, _TURN))
    if left < 0:
        left = np.float32(left + _TURN)
    return np.float32(left - _PI)


@kernel("i8[2C] i8[2C] i4[1C] f8[2C] i4[1C] b1[1C] f8[2C] i8[1C] f8 i8[2C] i8[2C] f8[1C] f8[1C]")
def _nearest_agents(
    frames: IntArray,
    agents: IntArray,
    place: Int32Array,
    xy: FloatArray,
    track: Int32Array,
    wanted: BoolArray,
    centre: FloatArray,
    leave_out: IntArray,
    radius: float,
    out: IntArray,
    nearest: IntArray,
    fars: FloatArray,
    close: FloatArray,
) -> int:
    most = out.shape[1]
    for i in range(len(frames) if most else 0):
        lo = frames[i, 0]
        hi = frames[i, 1]
        x = centre[i, 0]
        y = centre[i, 1]
        count = first = 0
        if lo < hi and (lo < 0 or hi > len(agents)):
            return i
        for f in range(hi - 1, lo - 1, -1):
            if f == hi - 2:
                first = count
                for k in range(count):
                    close[k] = fars[k]
            if agents[f, 0] < agents[f, 1] and (agents[f, 0] < 0 or agents[f, 1] > len(place)):
                return i
            for j in range(agents[f, 0], agents[f, 1]):
                row = np.int64(place[j])
                if not 0 <= row < len(xy):
                    return i
                far = _away(row, xy, track, wanted, x, y, leave_out[i], radius)
                if far == np.inf or (first and _again(row, far, out, nearest, i, first, track, close)):
                    continue
                if first < most:
                    count = _put(row, far, track, out, i, fars, first, count)
        for k in range(count):
            if nearest[i, k] < 0:
                nearest[i, k] = out[i, k]
    return -1


@helper
def _away(
    row: IntScalar,
    xy: FloatArray,
    track: Int32Array,
    wanted: BoolArray,
    x: float,
    y: float,
    leave_out: int,
    radius: float,
) -> float:
    """Return the distance of an observation; infinity if it does not count."""
    if not wanted[row] or track[row] == leave_out:
        return np.inf
    dx, dy = xy[row, 0] - x, xy[row, 1] - y
    far = np.sqrt(dx * dx + dy * dy)
    return far if far < radius else np.inf


@helper
def _again(
    row: IntScalar,
    far: float,
    out: IntArray,
    nearest: IntArray,
    i: int,
    first: int,
    track: Int32Array,
    close: FloatArray,
) -> bool:
    """Whether an agent is among the first, which the last frame has; then the place where it was nearest is kept."""
    for k in range(first):
        if track[out[i, k]] == track[row]:
            if far < close[k]:
                close[k], nearest[i, k] = far, row
            return True
    return False


@helper
def _put(
    row: IntScalar, far: float, track: Int32Array, out: IntArray, i: int, fars: FloatArray, begin: int, count: int
) -> int:
    """Insert an agent into `out[i, begin : count]`, in the order of distance, once each; return how many there are."""
    end = count
    for k in range(begin, count):
        if track[out[i, k]] == track[row]:
            if fars[k] <= far:
                return count
            end = k
            break
    if end == out.shape[1]:
        if not far < fars[end - 1]:
            return count
        end -= 1
    grown = end + 1 if end >= count else count
    while end > begin and far < fars[end - 1]:
        out[i, end], fars[end] = out[i, end - 1], fars[end - 1]
        end -= 1
    out[i, end], fars[end] = row, far
    return grown
