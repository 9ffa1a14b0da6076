"""Loops over driving logs and map lines in NumPy: the kernels in `agents` and `lines` must equal these."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock_driving.kernels.agents import LEAST_AREA, OF_INTEREST

Int = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]


def of_interest(labels: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """`[N]` bool: the probabilities `[N, 17]` of the labels of interest, added up one by one, exceed the threshold."""
    total = np.zeros(len(labels), labels.dtype)
    for column in range(OF_INTEREST.start, OF_INTEREST.stop):
        total += labels[:, column]
    return total > labels.dtype.type(threshold)


def select_agents(
    scenes: Int,
    agents: Int,
    ego: Floats,
    centroid: Floats,
    yaw: Floats,
    extent: Floats,
    labels: Floats,
    track: npt.NDArray[Any],
    limits: Floats,
    slots: int,
    out: npt.NDArray[np.uint32],
) -> None:
    """How many frames before and after each observation its track goes on without a break, into `out` `[N, 2]`.

    `scenes[S, 2]` are frames, `agents[F, 2]` the observations of each frame, `ego[F, 2]` where the ego is. `limits` are
    the least probability, the most degrees of turn and the most ratio of areas between two frames, and the most metres
    to the ego. An observation beyond the first or last of these breaks its track and has 0, 0. `slots` is a power of
    two above the tracks of any scene, which the compiled kernel needs.
    """
    out[:] = 0
    frames = np.concatenate([np.arange(a, b) for a, b in scenes.tolist()] or [np.zeros(0, np.int64)])
    counts = agents[frames, 1] - agents[frames, 0]
    frame = np.repeat(frames, counts)
    row = np.arange(counts.sum()) + np.repeat(agents[frames, 0] - (np.cumsum(counts) - counts), counts)
    scene = np.repeat(np.repeat(np.arange(len(scenes)), scenes[:, 1] - scenes[:, 0]), counts)
    order = np.lexsort((row, track[row], scene))
    frame, row, scene = frame[order], row[order], scene[order]
    with np.errstate(all="ignore"):
        away = ego[frame] - centroid[row]
        valid = of_interest(labels[row], limits[0]) & (np.sqrt((away * away).sum(axis=1)) < limits[3])
        linked = valid.copy()
        linked[:1] = False
        was, now = row[:-1], row[1:]
        linked[1:] &= (
            valid[:-1] & (scene[1:] == scene[:-1]) & (track[now] == track[was]) & (frame[1:] == frame[:-1] + 1)
        )
        turn = np.mod((yaw[now] - yaw[was]).astype(np.float64) + np.pi, 2 * np.pi) - np.pi
        linked[1:] &= np.abs(turn) * 180 / np.pi < limits[1]
        new, old = extent[now, 0] * extent[now, 1], extent[was, 0] * extent[was, 1]
        ratio = np.where(old > new, old / new, new / old).astype(np.float64)
        linked[1:] &= ~(new.astype(np.float64) < LEAST_AREA) & ~(old.astype(np.float64) < LEAST_AREA)
        linked[1:] &= ratio < limits[2]
    begins = np.flatnonzero(~linked)
    lengths = np.diff(np.append(begins, len(row)))
    place = np.arange(len(row)) - np.repeat(begins, lengths)
    out[row, 0], out[row, 1] = place, np.repeat(lengths, lengths) - place - 1


def relative_poses(
    xy: Floats,
    yaw: Floats,
    extent: Floats,
    frame: npt.NDArray[Any],
    bounds: Int,
    place: Int,
    anchor: Int,
    origin: Floats,
    first: int,
    step: int,
    positions: Floats,
    yaws: Floats,
    extents: Floats,
    there: Floats,
) -> None:
    """Compute past or future poses relative to one pose a sample: step `j` is frame `anchor + step * (first + j)`.

    Observations `xy[M, 2]`, `yaw[M]`, `extent[M, 3]` of a track are adjacent, in the order of `frame[M]`, each frame
    once at most: sample `i` has those in `bounds[i, 0] : bounds[i, 1]`, one of them is `place[i]`, or none is where
    that is below 0. `origin[n, 3]` are x, y and yaw. Fills `positions` `[n, L, 2]`, `yaws` `[n, L]` within half a turn,
    `extents` `[n, L, 2]` and `there` `[n, L]`, 1 where there is an observation; all are 0 elsewhere. All float32.
    """
    n, length = there.shape
    for out in (positions, yaws, extents, there):
        out[:] = 0
    single, pi = np.float32, np.float32(np.pi)
    for i in range(n):
        if place[i] < 0:
            continue
        lo, hi = bounds[i]
        wanted = anchor[i] + step * (first + np.arange(length))
        found = np.searchsorted(frame[lo:hi], wanted) + lo
        here = np.flatnonzero((found < hi) & (frame[np.minimum(found, hi - 1)] == wanted))
        rows = found[here]
        x, y = (xy[rows].astype(np.float64) - origin[i, :2]).T
        cos, sin = np.cos(origin[i, 2]), np.sin(origin[i, 2])
        positions[i, here, 0], positions[i, here, 1] = cos * x + sin * y, cos * y - sin * x
        turned = (yaw[rows].astype(single) - single(origin[i, 2])) + pi
        left = np.fmod(turned, single(2 * np.pi))
        yaws[i, here] = np.where(left < 0, left + single(2 * np.pi), left) - pi
        extents[i, here] = extent[rows, :2]
        there[i, here] = 1


def nearest_agents(
    frames: Int,
    agents: Int,
    place: npt.NDArray[Any],
    xy: Floats,
    track: npt.NDArray[Any],
    wanted: npt.NDArray[np.bool_],
    centre: Floats,
    leave_out: Int,
    radius: float,
    out: Int,
    nearest: Int,
) -> None:
    """Find the agents nearest to each centre: agents of its last frame first, then agents of earlier frames.

    Sample `i` looks at frames `frames[i, 0] : frames[i, 1]`, frame `f` has the observations `agents[f, 0] : agents[f,
    1]`, which are at `place` in the table of `xy[M, 2]`, `track[M]` and `wanted[M]`. `out[n, K]` gets a place of each
    agent (the one in the last frame, or else the nearest one), `nearest[n, K]` the one where it was nearest; -1 where
    there are fewer agents. Only what is `wanted` and less than `radius` from `centre[i]` counts, and not track
    `leave_out[i]`.
    """
    out[:], nearest[:] = -1, -1
    for i in range(len(frames)):
        lo, hi = frames[i]
        if lo >= hi:
            continue
        seen: dict[int, int] = {}
        taken: dict[int, int] = {}
        for last in (True, False):
            spans = [agents[hi - 1]] if last else agents[lo:hi][::-1]
            rows = np.concatenate([place[a:b] for a, b in spans])
            away = xy[rows] - centre[i]
            far = np.sqrt(away[:, 0] * away[:, 0] + away[:, 1] * away[:, 1])
            keep = wanted[rows] & (far < radius) & (track[rows] != leave_out[i])
            for row in rows[keep][np.argsort(far[keep], kind="stable")].tolist():
                taken.setdefault(int(track[row]), row)
                if not last:
                    seen.setdefault(int(track[row]), row)
        for k, (name, row) in enumerate(list(taken.items())[: out.shape[1]]):
            out[i, k], nearest[i, k] = row, seen[name]


def nearest_lines(lines: Floats, bounds: Floats, centre: Floats, reach: float, out: Int) -> None:
    """The lines nearest to each of `centre[n, 2]`, into `out[n, K]`, -1 where there are fewer.

    Only lines whose bounding box `bounds[M, 2, 2]` comes within `reach` of the centre along both axes count. How far
    one of `lines[M, P, 2]` is, its nearest point says; of lines as far as each other the first comes first.
    """
    out[:] = -1
    for i, (x, y) in enumerate(centre):
        low, high = bounds[:, 0] - reach, bounds[:, 1] + reach
        near = np.flatnonzero((x > low[:, 0]) & (y > low[:, 1]) & (x < high[:, 0]) & (y < high[:, 1]))
        off = lines[near] - centre[i]
        far = np.sqrt((off[..., 0] * off[..., 0] + off[..., 1] * off[..., 1]).min(axis=1, initial=np.inf))
        found = near[np.argsort(far, kind="stable")][: out.shape[1]]
        out[i, : len(found)] = found


def move_lines(
    lines: Floats,
    lengths: Int,
    which: Int,
    matrix: Floats,
    third: Floats,
    reach: float,
    out: Floats,
    there: npt.NDArray[np.bool_],
) -> None:
    """The lines `which[n, K]`, moved by `matrix[n, 3, 3]`, into `out[n, K, P, 3]` float32 with `third[n, K]` as the
    third number; 0 where `which` is -1, and behind the first `lengths[M]` points of a line. `there[n, K, P]` says which
    points are real and less than `reach` from the origin."""
    out[:], there[:] = 0, False
    for i, k in np.argwhere(which >= 0).tolist():
        count = lengths[which[i, k]]
        x, y = lines[which[i, k], :count].T
        a = matrix[i]
        out[i, k, :count, 0] = x * a[0, 0] + y * a[0, 1] + a[0, 2]
        out[i, k, :count, 1] = x * a[1, 0] + y * a[1, 1] + a[1, 2]
        out[i, k, :count, 2] = third[i, k]
        near = out[i, k, :count, :2] * out[i, k, :count, :2]
        there[i, k, :count] = np.sqrt(near[:, 0] + near[:, 1]) < np.float32(reach)
