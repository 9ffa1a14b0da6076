"""Checks of rows: each takes a block of episodes and yields the rows to which a kind of finding applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from penstock.conversion.scan import equal
from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.space_columns import spec_leaves
from penstock.core.spaces import Box, Space, Text
from penstock.core.spec import Spec
from penstock.data.loaded_episodes import flattened
from penstock.doctor.block import FLAGS, NEXT, ROLES, EpisodeBlock, Hits, any_value, has_role, sums
from penstock.doctor.sensors import sensors
from penstock.doctor.thresholds import CheckThresholds

RowCheck = Callable[[EpisodeBlock, CheckThresholds], Iterator[Hits]]


def spaces_of(spec: Spec) -> dict[str, Space]:
    """Return the space of each column of numbers that has one."""
    leaves = spec_leaves(spec).items()
    return {path: leaf for path, leaf in leaves if path in spec and not isinstance(leaf, Text)}


def values(block: EpisodeBlock, _: CheckThresholds) -> Iterator[Hits]:
    """NaN, infinite values, and values outside their space."""
    spaces = spaces_of(block.spec)
    for path, field, rows in block.arrays():
        nan = np.zeros(len(rows), np.bool_)
        watched = any(has_role(role, path) for role in ROLES)
        if watched and rows.dtype.kind in "fc" and rows.size:
            flat = flattened(rows)
            if not np.isfinite(flat).all():
                nan = any_value(np.isnan(flat))
                yield from block.by_row("nan", path, field.align, nan)
                yield from block.by_row("infinite", path, field.align, any_value(np.isinf(flat)))
        if path in spaces:
            yield from block.by_row("outside-space", path, field.align, ~spaces[path].contains(rows) & ~nan)


def ends(block: EpisodeBlock, _: CheckThresholds) -> Iterator[Hits]:
    """Episodes without steps, ends inside episodes, and last steps that are no end."""
    yield from block.by_episode("no-steps", "", block.lengths == 0)
    bounds = block.bounds("step")
    last = bounds[1:][block.lengths > 0] - 1
    ended = np.zeros(len(last), np.bool_)
    flags = [(path, rows) for path, field, rows in block.arrays() if path in FLAGS and field.align == "step"]
    for path, rows in flags:
        flag = any_value(rows.astype(np.bool_))
        ended |= flag[last]
        early = flag.copy()
        early[last] = False
        yield from block.by_row("early-end", path, "step", early)
    if flags:
        open_end = np.zeros(len(block), np.bool_)
        open_end[block.lengths > 0] = ~ended
        yield from block.by_episode("no-end", "", open_end, np.maximum(block.lengths - 1, 0))


def next_observations(block: EpisodeBlock, _: CheckThresholds) -> Iterator[Hits]:
    """Stored next observations that are not the observations of the next step, which have T + 1 rows, or T."""
    for path, field, after in block.arrays(NEXT):
        name = "observations" + path[len(NEXT) :]
        now = block.columns.get(name)
        if now is None or isinstance(now, Ragged) or after.shape[1:] != now.shape[1:] or field.align != "step":
            continue
        align = block.spec[name].align
        steps, known = block.bounds("step"), block.bounds(align)
        owner = block.owners("step")
        place = np.arange(len(after)) - steps[owner] + 1  # of the next observation, in its episode
        has_next = np.flatnonzero(place < np.diff(known)[owner])
        differs = np.zeros(len(after), np.bool_)
        differs[has_next] = any_value(~equal(after[has_next], now[known[owner[has_next]] + place[has_next]]))
        yield from block.by_row("next-observation", path, "step", differs)


def clocks(block: EpisodeBlock, thresholds: CheckThresholds) -> Iterator[Hits]:
    """Timestamps that go back, repeat, jump, or lack digits. The usual time is the median of the episode."""
    for path, field, rows in block.clocks():
        bounds = block.bounds(field.align)
        change, usual = clock_changes(rows, bounds)
        owner = block.owners(field.align)
        yield from block.by_row("time-backward", path, field.align, change < 0)
        yield from block.by_row("time-repeats", path, field.align, change == 0)
        gap = (change > thresholds.gap_factor * usual[owner]) & (usual[owner] > 0)
        yield from block.by_row("time-gap", path, field.align, gap)
        if rows.dtype.kind == "f" and len(rows):
            coarse = np.spacing(np.abs(rows)).astype(np.float64) > 0.01 * usual[owner]
            yield from block.by_row("time-precision", path, field.align, coarse & (usual[owner] > 0))


def clock_changes(rows: AnyArray, bounds: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the time since the row before, and its median for each episode."""
    change = np.full(len(rows), np.nan)
    if len(rows) > 1:
        # Integers are subtracted as integers: nanoseconds since 1970 do not fit a float64.
        change[1:] = (rows[1:] - rows[:-1]) if rows.dtype.kind != "u" else _difference(rows)
    change[bounds[:-1][np.diff(bounds) > 0]] = np.nan
    owner = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    order = np.lexsort((change, owner))  # NaN last within an episode
    count = np.maximum(np.diff(bounds) - 1, 0)
    usual = np.full(len(count), np.nan)
    usual[count > 0] = change[order[(bounds[:-1] + count // 2)[count > 0]]]
    return change, usual


def _difference(rows: AnyArray) -> FloatArray:
    later, earlier = rows[1:], rows[:-1]
    forward = later >= earlier
    return np.where(forward, (later - earlier).astype(np.float64), -((earlier - later).astype(np.float64)))


def actions(block: EpisodeBlock, thresholds: CheckThresholds) -> Iterator[Hits]:
    """Actions that never change, or that are at the bounds of their space most of the time."""
    spaces = spaces_of(block.spec)
    bounds = block.bounds("step")
    for path, field, rows in block.arrays("actions"):
        if field.align != "step" or rows.dtype.kind != "f":
            continue
        changes = sums((~block.unchanged(path)).astype(np.int64), bounds)
        long = block.lengths >= max(thresholds.constant_steps, 2)
        yield from block.by_episode("constant-actions", path, long & (changes == 1))
        space = spaces.get(path)
        if isinstance(space, Box) and space.shape == field.shape and np.isfinite([space.low, space.high]).all():
            clipped = flattened((rows <= space.low) | (rows >= space.high))
            share = sums(clipped.mean(axis=1) if clipped.size else np.zeros(len(rows)), bounds)
            share /= np.maximum(block.lengths, 1)
            clipping = long & (changes > 1) & (share > thresholds.clipped_share)
            yield from block.by_episode("clipped-actions", path, clipping)


def idle(block: EpisodeBlock, thresholds: CheckThresholds) -> Iterator[Hits]:
    """First and last steps in which neither actions nor observations change."""
    still = block.still_steps(thresholds.idle_share)
    if still is None:
        return
    bounds = block.bounds("step")
    moves = np.flatnonzero(~still)
    begin = np.searchsorted(moves, bounds[:-1])
    end = np.searchsorted(moves, bounds[1:])
    has_moves = end > begin  # episodes in which anything moves
    first = np.zeros(len(block), np.int64)
    last = np.zeros(len(block), np.int64)
    first[has_moves] = moves[begin[has_moves]] - bounds[:-1][has_moves]
    last[has_moves] = moves[end[has_moves] - 1] - bounds[:-1][has_moves]
    yield from block.by_episode("idle-start", "", has_moves & (first >= max(thresholds.idle_steps, 1)))
    tail = block.lengths - 1 - last
    yield from block.by_episode("idle-end", "", has_moves & (tail >= max(thresholds.idle_steps, 1)), last)


ROW_CHECKS: tuple[RowCheck, ...] = (values, ends, next_observations, clocks, sensors, actions, idle)
