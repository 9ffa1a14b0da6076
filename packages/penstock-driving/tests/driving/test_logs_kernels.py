"""The kernels of driving logs equal their definitions, whatever the rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from driving.reference import logs as reference
from penstock_driving.kernels import agents as kernels
from penstock_driving.kernels import lines as line_kernels

seeds = st.integers(0, 10**6)


def table(rng: np.random.Generator, tracks: int, frames: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames, tracks and bounds of tracks with holes."""
    kept = [np.flatnonzero(rng.random(frames) < 0.7) for _ in range(tracks)]
    ends = np.cumsum([len(part) for part in kept])
    frame = np.concatenate([*kept, np.zeros(0, np.int64)]).astype(np.int64)
    track = np.repeat(np.arange(tracks, dtype=np.int32), [len(part) for part in kept])
    return frame, track, np.stack([ends - [len(part) for part in kept], ends], axis=1).astype(np.int64)


@given(seeds, st.integers(1, 5), st.integers(1, 12), st.integers(0, 6), st.sampled_from([(0, -1), (1, 1)]))
@settings(max_examples=60, deadline=None)
def test_poses_are_their_definition(seed, tracks, frames, length, way):
    rng = np.random.default_rng(seed)
    frame, track, bounds = table(rng, tracks, frames)
    rows = len(frame)
    xy, yaw = rng.normal(0, 50, (rows, 2)), rng.uniform(-7, 7, rows).astype(np.float32)
    extent = rng.random((rows, 3)).astype(np.float32)
    place = rng.integers(-1, rows, 9) if rows else np.full(9, -1)
    own = bounds[track[place]] if rows else np.zeros((9, 2), np.int64)
    anchor = rng.integers(-2, frames + 2, 9)
    origin = rng.normal(0, 4, (9, 3))
    got, wanted = ([np.full((9, length, *tail), 7, np.float32) for tail in ((2,), (), (2,), ())] for _ in range(2))
    for module, out in ((kernels, got), (reference, wanted)):
        module.relative_poses(xy, yaw, extent, frame, own, place, anchor, origin, *way, *out)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6, atol=1e-5)
    for ours, theirs in zip(got[1:], wanted[1:], strict=True):
        assert np.array_equal(ours, theirs)


@given(seeds, st.integers(0, 7), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_the_nearest_agents_are_their_definition(seed, most, reach):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, 6)
    ends = np.cumsum(counts)
    spans = np.stack([ends - counts, ends], axis=1)
    rows = int(ends[-1])
    place = rng.permutation(rows).astype(np.int32)
    xy = rng.integers(-9, 10, (rows, 2)).astype(np.float64)
    track, wanted = rng.integers(0, 6, rows).astype(np.int32), rng.random(rows) < 0.8
    last = rng.integers(0, 6, 5)
    frames = np.stack([np.maximum(last - reach, 0), last + 1], axis=1)
    centre, leave_out = rng.normal(0, 5, (5, 2)), rng.integers(-1, 6, 5)
    out = [np.empty((5, most), np.int64) for _ in range(4)]
    for module, (found, nearest) in ((kernels, out[:2]), (reference, out[2:])):
        module.nearest_agents(frames, spans, place, xy, track, wanted, centre, leave_out, 9.5, found, nearest)
    # Where two are as far as each other, or one was so twice, either may come first.
    far = np.append(np.hypot(*(xy[:, None] - centre).transpose(2, 0, 1)).T, np.full((5, 1), -1), axis=1)
    sample = np.arange(5)[:, None]
    np.testing.assert_allclose(far[sample, out[1]], far[sample, out[3]])
    assert all(len(set(t)) == len(t) for t in (track[row[row >= 0]].tolist() for row in out[0]))
    assert np.array_equal((out[0] >= 0), (out[2] >= 0))


@given(seeds, st.integers(0, 6), st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_lines_near_and_moved_are_their_definition(seed, most, lines):
    rng = np.random.default_rng(seed)
    points = rng.normal(0, 30, (lines, 1, 2)) + rng.normal(0, 3, (lines, 4, 2))
    bounds = np.stack([points.min(axis=1), points.max(axis=1)], axis=1)
    centre = rng.normal(0, 20, (5, 2))
    found, wanted = (np.empty((5, most), np.int64) for _ in range(2))
    line_kernels.nearest_lines(points, bounds, centre, 20.0, found)
    reference.nearest_lines(points, bounds, centre, 20.0, wanted)
    assert np.array_equal(found, wanted)
    lengths, third = rng.integers(0, 5, lines), rng.random((5, most)).astype(np.float32)
    out = [(np.full((5, most, 4, 3), 7, np.float32), np.ones((5, most, 4), np.bool_)) for _ in range(2)]
    for module, (moved, there) in zip((line_kernels, reference), out, strict=True):
        module.move_lines(points, lengths, found, rng.random((5, 3, 3)) * 0 + np.eye(3), third, 15.0, moved, there)
    np.testing.assert_allclose(out[0][0], out[1][0], rtol=1e-6)
    assert np.array_equal(out[0][1], out[1][1])
