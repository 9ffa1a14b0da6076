from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import compiled, reference
from penstock.kernels.locate import Groups


def both(groups: Groups, index: Any) -> Any:
    outs = [np.empty((groups.table.shape[1], len(index)), np.int64) for _ in range(2)]
    for kernel, out in zip((compiled, reference), outs, strict=True):
        kernel.locate(groups.table, groups.guide, groups.shift, index, out)
    np.testing.assert_array_equal(*outs)
    return outs[0]


@settings(deadline=None)
@given(st.lists(st.integers(0, 40) | st.just(5000), max_size=60))
def test_every_index_is_found(sizes: list[int]) -> None:
    groups = Groups.of(np.array(sizes, np.int64), np.arange(len(sizes)))
    assert groups.n == sum(sizes)
    place, group = both(groups, np.arange(groups.n))
    np.testing.assert_array_equal(group, np.repeat(np.arange(len(sizes)), sizes))
    np.testing.assert_array_equal(place, [i for size in sizes for i in range(size)])


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 4095, 4096, 4097])
def test_seams(count: int) -> None:
    sizes = np.random.default_rng(count).integers(0, 9, count) + (np.arange(count) == count // 2) * 10**12
    groups = Groups.of(sizes, np.arange(count))
    ends = np.cumsum(sizes)
    index = np.unique(np.concatenate([ends - 1, ends, ends - sizes]).clip(0, groups.n - 1))
    np.testing.assert_array_equal(both(groups, index)[1], np.searchsorted(ends, index, side="right"))
