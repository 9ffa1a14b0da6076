from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.locate import Groups, OffsetGroups


def located(groups: Groups, index: np.ndarray) -> np.ndarray:
    """The group of each index by the kernel, which equals a search in the starts of all groups."""
    group = np.searchsorted(groups.table[:, 0], index, side="right") - 1
    wanted = groups.table[group].T.copy()
    wanted[0] = index - wanted[0]
    found = groups.locate(index)
    np.testing.assert_array_equal(found, wanted)
    return found


@settings(deadline=None)
@given(st.lists(st.integers(0, 40) | st.just(5000), max_size=60))
def test_every_index_is_found(sizes: list[int]) -> None:
    groups = Groups.of(np.array(sizes, np.int64), np.arange(len(sizes)))
    assert groups.n == sum(sizes)
    place, group = located(groups, np.arange(groups.n))
    np.testing.assert_array_equal(group, np.repeat(np.arange(len(sizes)), sizes))
    np.testing.assert_array_equal(place, [i for size in sizes for i in range(size)])


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 4095, 4096, 4097])
def test_seams(count: int) -> None:
    sizes = np.random.default_rng(count).integers(0, 9, count) + (np.arange(count) == count // 2) * 10**12
    groups = Groups.of(sizes, np.arange(count))
    ends = np.cumsum(sizes)
    index = np.unique(np.concatenate([ends - 1, ends, ends - sizes]).clip(0, groups.n - 1))
    np.testing.assert_array_equal(located(groups, index)[1], np.searchsorted(ends, index, side="right"))


@pytest.mark.parametrize("index", [-1, 5, 2**62, -(2**62)])
@pytest.mark.parametrize("sizes", [[2, 3], [0], []])
def test_an_index_outside_is_refused(index: int, sizes: list[int]) -> None:
    groups = Groups.of(np.array(sizes, np.int64))
    with pytest.raises(IndexError, match=f"within 0:{sum(sizes)}, got {min(index, 0)} to {max(index, 0)}"):
        groups.locate(np.array([0, index]))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9) | st.just(3000), max_size=200),
    st.integers(0, 12),
    st.integers(1, 4),
    st.integers(0, 1000),
    st.booleans(),
)
def test_offsets_alone_are_enough(lengths: list[int], room: int, stride: int, begin: int, writeable: bool) -> None:
    steps = np.array(lengths, np.int64)
    offsets = begin + np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    offsets.flags.writeable = writeable
    sizes = np.maximum(0, -(-(steps - room) // stride))
    wanted = Groups.of(sizes, steps * 0, np.arange(len(steps)), offsets[:-1], steps)
    groups = OffsetGroups.of(offsets, room, stride)
    assert groups.n == wanted.n
    index = np.arange(groups.n)
    np.testing.assert_array_equal(groups.locate(index), wanted.locate(index))
    np.testing.assert_array_equal(groups.group_of(index), wanted.group_of(index))
    for outside in (-1, groups.n):
        with pytest.raises(IndexError, match=f"within 0:{groups.n}, got {outside} to {outside}"):
            groups.locate(np.array([outside]))
