from __future__ import annotations

import numpy as np

from penstock.core.selection import Selection


def grid() -> Selection:
    # three samples of four steps: whole; two spans with a hole; nothing
    int64 = np.int64
    return Selection(
        np.array([0, 1, 0], int64),
        np.array([5, 9, 2], int64),
        np.array([4, 1, 2], int64),
        np.array([0, 4, 6], int64),
        (3, 4),
    )


def test_mask_is_what_spans_cover():
    assert grid().mask().astype(int).tolist() == [[1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0]]
    assert not grid().complete


def test_mask_leaves_out_spans_that_only_repeat():
    held = grid()
    repeated = Selection(
        held.source, held.start, held.length, held.destination, held.shape, np.array([True, False, True])
    )
    assert repeated.mask().astype(int).tolist() == [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]


def test_samples_cut_the_grid():
    part = grid().samples(1, 3)
    assert part.shape == (2, 4)
    assert part.destination.tolist() == [0, 2]
    assert np.array_equal(part.mask(), grid().mask()[1:3])
    assert grid().samples(0, 1).complete


def test_of_keeps_the_grid_and_the_spans_of_one_source():
    part = grid().of(0)
    assert part.shape == (3, 4)
    assert part.start.tolist() == [5, 2]
