"""The kernels of packing: the compiled ones equal the definitions, bin for bin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import compiled, reference

SEAMS = [1, 2, 63, 64, 65, 100, 4095, 4096, 4097]


@st.composite
def problems(draw: Any, axes: int = 1) -> Any:
    """`[m, axes]` lengths and `[axes]` capacities, with many equal lengths, empty ones and full ones."""
    capacity = [draw(st.sampled_from(SEAMS) | st.integers(1, 300)) for _ in range(axes)]
    few = [st.sampled_from([0, 1, c // 3, c // 2, c]) | st.integers(0, c) for c in capacity]
    rows = draw(st.lists(st.tuples(*few), max_size=60))
    times = draw(st.lists(st.integers(1, 5), min_size=len(rows), max_size=len(rows)))
    length = np.repeat(np.array(rows, np.int64).reshape(-1, axes), np.array(times, np.int64), axis=0)
    return length, np.array(capacity, np.int64)


def both(name: str, *arguments: Any, outs: Any) -> Any:
    """What a kernel gives and writes, after the compiled one was held against its definition."""
    results = []
    for module in (compiled, reference):
        room = [np.full_like(out, -7) for out in outs]
        results.append((getattr(module, name)(*arguments, *room), room))
    assert results[0][0] == results[1][0]
    for ours, defined in zip(*(room for _, room in results), strict=True):
        np.testing.assert_array_equal(ours, defined)
    return results[0]


@settings(deadline=None)
@given(problems(), st.integers(1, 400))
def test_counting_equals_filling(problem: Any, most: int) -> None:
    length, (capacity,) = problem
    bins = both("count_decreasing", length[:, 0], capacity, most, outs=[])[0]
    falling = np.ascontiguousarray(-np.sort(-length[:, 0]))
    filled, (bin_of,) = both("best_fit", falling, capacity, most, outs=[np.empty(len(length), np.int64)])
    assert bins == (filled, np.bincount(bin_of, minlength=1).max(initial=0))


@pytest.mark.parametrize("capacity", [64, 4096, 4097, 300_000])
def test_counting_equals_filling_of_many(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    length = np.minimum(rng.lognormal(np.log(capacity / 6), 1, 20_000).astype(np.int64), capacity)
    out = np.empty(len(length), np.int64)
    filled = compiled.best_fit(np.ascontiguousarray(-np.sort(-length)), capacity, 40, out)
    assert compiled.count_decreasing(length, capacity, 40) == (filled, np.bincount(out).max())
    assert np.bincount(out, weights=-np.sort(-length)).max() <= capacity


@settings(deadline=None)
@given(problems(), st.integers(1, 400))
def test_fits_over_all_bins(problem: Any, most: int) -> None:
    length, (capacity,) = problem
    for name in ("best_fit", "first_fit"):
        both(name, length[:, 0].copy(), capacity, most, outs=[np.empty(len(length), np.int64)])


@settings(deadline=None)
@given(problems())
def test_sorting(problem: Any) -> None:
    length, (capacity,) = problem
    order, run = np.empty(len(length), np.int64), np.zeros(len(length), np.int64)
    runs = compiled.sort_decreasing(length[:, 0].copy(), capacity, order, run)
    want_order, want_run = np.empty_like(order), np.zeros_like(run)
    assert runs == reference.sort_decreasing(length[:, 0].copy(), capacity, want_order, want_run)
    np.testing.assert_array_equal([order, run], [want_order, want_run])


@settings(deadline=None)
@given(st.integers(1, 3).flatmap(problems), st.sampled_from([1, 2, 8]), st.integers(1, 9), st.integers(1, 6), st.data())
def test_open_fit(problem: Any, align: int, most: int, keep: int, data: Any) -> None:
    length, capacity = problem
    best, block = data.draw(st.booleans()), data.draw(st.booleans())
    least = data.draw(st.sampled_from([np.zeros_like(capacity), capacity // 4]))
    arguments = length, capacity, 1 / capacity, least, align, most, keep, best, block
    both("open_fit", *arguments, outs=[np.empty(len(length), np.int64)])


@settings(deadline=None)
@given(st.integers(1, 3).flatmap(problems), st.sampled_from([1, 2, 8]), st.integers(1, 9), st.booleans(), st.data())
def test_concat(problem: Any, align: int, most: int, whole: bool, data: Any) -> None:
    length, capacity = problem
    length = length * data.draw(st.sampled_from([1, 3]))
    head = data.draw(st.integers(0, min(3, capacity.min() - 1)))
    axes = length.shape[1]
    empty = np.empty((0, 2), np.int64), np.empty((0, axes), np.int64), np.empty((0, axes), np.int64)
    (pieces, _), _ = both("concat", length, capacity, align, most, head, whole, outs=empty)
    rooms = np.empty((pieces, 2), np.int64), np.empty((pieces, axes), np.int64), np.empty((pieces, axes), np.int64)
    _, (index, begin, size) = both("concat", length, capacity, align, most, head, whole, outs=rooms)
    both("lay", index[:, 0].copy(), begin, size, align, head, outs=[np.empty_like(size)])


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=60))
def test_bin_slots(raw: list[int]) -> None:
    bin_of = np.unique(raw, return_inverse=True)[1].astype(np.int64)
    bins = int(bin_of.max()) + 1
    both("bin_slots", bin_of, bins, outs=[np.empty(len(raw), np.int64), np.empty(bins, np.int64)])


@settings(deadline=None)
@given(st.data(), st.sampled_from([np.uint16, np.uint32]), st.booleans())
def test_reading_a_plan(data: Any, dtype: Any, runs: bool) -> None:
    sizes = data.draw(st.lists(st.lists(st.integers(1, 5), max_size=6), min_size=1, max_size=4))
    pack_first = np.cumsum([0, *map(len, sizes)])
    slot_first = np.cumsum([0, *map(sum, sizes)])
    cut = np.concatenate([np.cumsum([0, *s])[:-1] for s in sizes]).astype(dtype)
    slot = np.concatenate([np.random.default_rng(0).permutation(sum(s)) for s in sizes]).astype(dtype)
    starts = [np.arange(0, sum(s), 3) if runs else np.arange(0) for s in sizes]
    run, run_first = np.concatenate(starts).astype(dtype), np.cumsum([0, *map(len, starts)])
    total = int(pack_first[-1])
    pack = np.array(data.draw(st.lists(st.integers(0, max(total - 1, 0)), max_size=9 if total else 0)), np.int64)
    window = np.searchsorted(pack_first, pack, side="right") - 1
    shape = np.empty((2, len(pack)), np.int64)
    m, (extent,) = both("pack_slots", pack, window, cut, pack_first, slot_first, outs=[shape])
    epoch = pack % 3
    tables = slot, slot_first, run, run_first
    both("pack_ranks", epoch, window, window + 2**40, extent, *tables, outs=[np.empty((5, m), np.int64)])
