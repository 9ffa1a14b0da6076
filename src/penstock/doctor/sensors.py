"""Frozen sensors, and pictures that are repeated or blank, also in video that was compressed with loss.

A sensor is frozen if its rows stay the same to the last bit for `frozen_steps` while actions change. Shorter runs, from
`stuck_steps` on, count if the value then jumps: a sensor that comes back has to catch up, an object at rest has not.
Runs of pictures count as well if they fill most of a short episode.

A decoder does not return a repeated picture bit by bit: near key frames it differs from the one before. Measured with
libx264 (crf 23 to 35) and SVT-AV1 on a noisy scene of 240 x 320: half to all pictures of a frozen camera are equal to
the last bit, and the others differ by at most 9 in the mean of a 16 x 16 block, where an object that moves by two
pixels differs by 18 or more. So a few pictures between equal ones belong to the run if they differ by `picture_noise`
at most, and if a third of the run is equal to the last bit.
A camera that sends black pictures gives values up to 14 apart, with a deviation of 0.7.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from penstock.core.frames import channel_axis
from penstock.core.spec import is_camera
from penstock.data.loaded_episodes import flattened
from penstock.doctor.block import EpisodeBlock, Hits, runs
from penstock.doctor.thresholds import CheckThresholds

GAP = 8  # pictures between two equal ones that may differ by noise
EQUAL_SHARE = 1 / 3  # of a run of pictures, at least
TILE = 16  # pixels: side of a block
SMALL_TILE = 8  # of pictures of fewer pixels a side than LARGE
LARGE = 128
BLANK_RANGE = 16  # most of a picture of one colour, in levels of a channel
BLANK_DEVIATION = 1.0
PROBES = 16  # rows and columns of a picture that are looked at first


def sensors(block: EpisodeBlock, thresholds: CheckThresholds) -> Iterator[Hits]:
    """Observations that stay the same while actions change, and pictures of one colour."""
    moving = _action_changes(block)
    for path, field, rows in block.arrays("observations"):
        bounds = block.bounds(field.align)
        camera = is_camera(field)
        blank = _blank(rows, bounds, thresholds) if camera else np.zeros(len(rows), np.bool_)
        if moving is not None and rows.dtype.kind in "fu" and field.shape:
            same = block.unchanged(path)
            if camera and thresholds.picture_noise:
                same = _nearly_same(rows, same, bounds, thresholds.picture_noise)
            start, size = runs(same, bounds, max(min(thresholds.frozen_steps, thresholds.stuck_steps), 2))
            chosen = _frozen(block, rows, bounds, moving, (start, size), thresholds, camera=camera)
            frozen = _within(len(rows), start[chosen] + 1, size[chosen] - 1) & ~blank
            yield from block.by_row("frozen-picture" if camera else "frozen-sensor", path, field.align, frozen)
        yield from block.by_row("blank-picture", path, field.align, blank)


def _blank(rows: AnyArray, bounds: IntArray, thresholds: CheckThresholds) -> BoolArray:
    """`[rows]` whether a picture is one of several in a row that have one colour each."""
    blank = _one_colour(rows)
    alone = ~blank
    alone[bounds[:-1][np.diff(bounds) > 0]] = True
    start, size = runs(~alone, bounds, max(thresholds.blank_pictures, 1))
    return blank & _within(len(rows), start, size)


def _within(count: int, start: IntArray, size: IntArray) -> BoolArray:
    """`[count]` whether a row is in one of the runs."""
    inside = np.zeros(count, np.bool_)
    for a, n in zip(start.tolist(), size.tolist(), strict=True):
        inside[a : a + n] = True
    return inside


def _action_changes(block: EpisodeBlock) -> IntArray | None:
    """`[steps]` number of changes of any action so far in the block, or None without actions."""
    columns = [path for path, field, _ in block.arrays("actions") if field.align == "step"]
    if not columns:
        return None
    return np.cumsum(~np.logical_and.reduce([block.unchanged(path) for path in columns]))


def _frozen(
    block: EpisodeBlock,
    rows: AnyArray,
    bounds: IntArray,
    moving: IntArray,
    spans: tuple[IntArray, IntArray],
    thresholds: CheckThresholds,
    *,
    camera: bool,
) -> BoolArray:
    """`[runs]` bool, which runs of equal rows come from a frozen sensor."""
    start, size = spans
    if not len(start):
        return np.zeros(0, np.bool_)
    episode = np.searchsorted(bounds, start, side="right") - 1
    steps = block.bounds("step")
    step = steps[episode] + start - bounds[episode]
    end = np.minimum(step + size, steps[episode + 1])
    changes = moving[np.maximum(end - 1, step)] - moving[step]
    # Actions change in a long run at least once every `frozen_steps` steps, in a short one every second step.
    long = (size >= thresholds.frozen_steps) & (changes * max(thresholds.frozen_steps, 1) >= size)
    if camera:
        long |= (size >= thresholds.stuck_steps) & (changes * 2 >= size) & (2 * size > np.diff(bounds)[episode])
    short = (size < thresholds.frozen_steps) & (size >= thresholds.stuck_steps) & (changes * 2 >= size)
    inner = (start > bounds[episode]) & (start + size < bounds[episode + 1])
    if (short & inner).any():
        change = _changes(rows)
        usual = _usual_changes(change, bounds)
        after = change[np.minimum(start + size, len(rows) - 1)]
        short &= inner & (after >= thresholds.stuck_jump * usual[episode]) & (usual[episode] > 0)
        return long | short
    return long


def _changes(rows: AnyArray) -> FloatArray:
    """`[rows]` largest change of any value since the row before, of pictures the mean; 0 for the first row."""
    change = np.zeros(len(rows))
    flat = flattened(rows)
    with np.errstate(invalid="ignore"):  # infinite values, which are reported by their own check
        if rows.dtype == np.uint8 and flat.shape[1] > 1:
            for row in range(1, len(rows)):  # one at a time, because a block of pictures is large already
                change[row] = np.abs(flat[row].astype(np.int16) - flat[row - 1]).mean()
        elif flat.shape[1]:
            change[1:] = np.abs(np.diff(flat.astype(np.float64), axis=0)).max(axis=1)
    return np.nan_to_num(change, nan=0, posinf=0)


def _usual_changes(change: FloatArray, bounds: IntArray) -> FloatArray:
    """`[n]` median of the changes of each episode that are not zero; 0 without any."""
    usual = np.zeros(len(bounds) - 1)
    for e, (a, b) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        moved = change[a + 1 : b]
        moved = moved[moved > 0]
        usual[e] = np.median(moved) if len(moved) else 0
    return usual


def _nearly_same(rows: AnyArray, same: BoolArray, bounds: IntArray, noise: float) -> BoolArray:
    """`[rows]` whether a picture is the one before it, but for the noise of a codec."""
    equal = np.flatnonzero(same)
    gaps = np.flatnonzero((np.diff(equal) > 1) & (np.diff(equal) <= GAP + 1))
    if not len(gaps):
        return same
    begins = np.zeros(len(rows), np.bool_)
    begins[bounds[:-1][np.diff(bounds) > 0]] = True
    near = same.copy()
    for gap in gaps.tolist():
        first, last = int(equal[gap]), int(equal[gap + 1])
        if not begins[first + 1 : last].any():
            coarse = tile_means(rows[first:last])
            near[first + 1 : last] = np.abs(np.diff(coarse, axis=0)).max(axis=1, initial=0) <= noise
    start, size = runs(near, bounds, 2)
    for a, n in zip(start.tolist(), size.tolist(), strict=True):
        inner = slice(a + 1, a + n)
        if near[inner].sum() > same[inner].sum():
            coarse = tile_means(rows[a : a + n])
            drifts = np.abs(coarse - coarse[0]).max(initial=0) > 2 * noise
            if drifts or same[inner].sum() < EQUAL_SHARE * (n - 1):
                near[inner] = same[inner]
    return near


def tile_means(rows: AnyArray) -> FloatArray:
    """Return the means of the square blocks of pictures, by channel."""
    pixels = _channels_last(rows)
    n, height, width = pixels.shape[:3]
    side = TILE if min(height, width) >= LARGE else SMALL_TILE
    whole = pixels[:, : height // side * side, : width // side * side]
    tiles = whole.reshape(n, height // side, side, width // side, side, -1)
    return tiles.mean(axis=(2, 4), dtype=np.float32).reshape(len(rows), -1)


def _channels_last(rows: AnyArray) -> AnyArray:
    """`[n * stack, H, W, C]` pictures."""
    shape = rows.shape[1:]
    if len(shape) == 4:
        return _channels_last(rows.reshape(-1, *shape[1:]))
    if len(shape) == 2:
        return rows[..., None]
    return np.moveaxis(rows, (channel_axis(shape) or 0) + 1, -1)


def _one_colour(rows: AnyArray) -> BoolArray:
    """`[rows]` whether all pixels of a picture have one colour, but for the noise of a codec."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    pixels = _channels_last(rows)
    stack = len(pixels) // len(rows)
    few = pixels[:, :: max(pixels.shape[1] // PROBES, 1), :: max(pixels.shape[2] // PROBES, 1)]
    spread = few.max(axis=(1, 2)).astype(np.int16) - few.min(axis=(1, 2))
    blank = (spread <= BLANK_RANGE).all(axis=1)
    for row in np.flatnonzero(blank).tolist():
        picture = pixels[row]
        spread = picture.max(axis=(0, 1)).astype(np.int16) - picture.min(axis=(0, 1))
        blank[row] = spread.max() <= BLANK_RANGE and picture.std(axis=(0, 1)).max() <= BLANK_DEVIATION
    return np.asarray(blank.reshape(len(rows), stack).all(axis=1))
