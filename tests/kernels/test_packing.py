"""The kernels of packing: the compiled ones equal the definitions, bin for bin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import concat, fit, open_fit, pack_reading, runs
from penstock.kernels.pack_reading import GIVEN, LEFT, PARTS, RIGHT
from tests.kernels.reference import pack_reading as reading_reference
from tests.kernels.reference import packing as packing_reference

compiled, reference = (
    SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items() if callable(value)})
    for modules in ([concat, fit, open_fit, pack_reading, runs], [packing_reference, reading_reference])
)

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
    counts = np.bincount(length[:, 0], minlength=capacity + 1).astype(np.int32)
    bins = both("count_decreasing", counts, capacity, most, outs=[])[0]
    falling = np.ascontiguousarray(-np.sort(-length[:, 0]))
    filled, (bin_of,) = both("best_fit", falling, capacity, most, outs=[np.empty(len(length), np.int64)])
    assert bins == (filled, np.bincount(bin_of, minlength=1).max(initial=0))


@pytest.mark.parametrize("capacity", [64, 4096, 4097, 300_000])
def test_counting_equals_filling_of_many(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    length = np.minimum(rng.lognormal(np.log(capacity / 6), 1, 20_000).astype(np.int64), capacity)
    out = np.empty(len(length), np.int64)
    filled = compiled.best_fit(np.ascontiguousarray(-np.sort(-length)), capacity, 40, out)
    counts = np.bincount(length, minlength=capacity + 1).astype(np.int32)
    assert compiled.count_decreasing(counts, capacity, 40) == (filled, np.bincount(out).max())
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
@given(problems(), st.integers(1, 400), st.sampled_from([np.uint16, np.uint32]))
def test_planning_in_one_go(problem: Any, most: int, dtype: Any) -> None:
    length, (capacity,) = problem
    column = np.ascontiguousarray(length[:, 0])
    results = []
    for module in (compiled, reference):
        cut, slot, local, run = np.zeros((4, len(length)), dtype)
        room = np.full((4, len(length)), 99, np.int32)
        results.append((module.plan_decreasing(column, capacity, most, room, cut, slot, local, run), slot, local))
        results[-1] += cut[: results[-1][0][0]], run[: results[-1][0][1]]
    for ours, defined in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, defined)


@settings(deadline=None)
@given(st.data(), st.sampled_from([np.uint8, np.uint16, np.int64]), st.integers(0, 40))
def test_runs_of_lengths(data: Any, dtype: Any, longest: int) -> None:
    length = np.random.default_rng(0).integers(0, 30, 400).astype(dtype)
    spans = data.draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100)), max_size=12))
    start, size = np.array(spans, np.int64).reshape(-1, 2).T.copy()
    _, (found,) = both("gather_runs", length, start, size, outs=[np.empty(size.sum(), np.int64)])
    good = [module.histogram(length, start, size, counts) for module, counts in histograms(longest)]
    assert good == [found.max(initial=0) <= longest] * 2
    for module, counts in histograms(longest) if good[0] else ():
        module.histogram(length, start, size, counts)
        np.testing.assert_array_equal(counts, np.bincount(found, minlength=longest + 1))


def histograms(longest: int) -> Any:
    return [(module, np.zeros(longest + 1, np.int32)) for module in (compiled, reference)]


def test_negative_lengths_are_not_counted() -> None:
    for module, counts in histograms(9):
        assert not module.histogram(np.array([1, -1]), np.array([0]), np.array([2]), counts)


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
    short = [np.full((max(pieces - 2, 0), columns), -7) for columns in (2, axes, axes)]
    assert compiled.concat(length, capacity, align, most, head, whole, *short)[0] == pieces
    np.testing.assert_array_equal(short[0], index[: len(short[0])])
    for policy in (GIVEN, GIVEN + LEFT):
        laid = []
        for module in (compiled, reference):
            laid.append(np.stack([begin, np.where(size == length[index[:, 1]], -1, size), size * 0]))
            module.place_pieces(
                index[:, 0].copy(), length[index[:, 1]], begin[:0, 0], capacity, policy, align, head, laid[-1]
            )
        np.testing.assert_array_equal(*laid)


@settings(deadline=None)
@given(st.integers(1, 3).flatmap(problems), st.sampled_from([1, 2, 8]), st.booleans())
def test_what_of_an_item_is_laid(problem: Any, align: int, parts: bool) -> None:
    length, capacity = problem
    pack, part = np.arange(len(length)) // 3, np.arange(len(length)).astype(np.uint32) % 4
    for policy in (0, RIGHT, LEFT, PARTS):
        options = pack, length * 2, part if parts else part[:0], capacity, policy, align, 0
        both("place_pieces", *options, outs=[np.empty((3, *length.shape), np.int64)])


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
    local = np.random.default_rng(1).integers(0, 9, slot_first[-1]).astype(dtype)
    position = np.arange(len(sizes) + 4) * 9
    blocks = data.draw(st.integers(0, 5))
    epoch = data.draw(st.sampled_from([np.array([3]), pack % 3]))
    shape = np.empty((3, len(pack)), np.int64)
    m, (extent,) = both("pack_slots", pack, epoch, pack_first, slot_first, cut, outs=[shape])
    plan = slot, slot_first, local, run, run_first, position, blocks, 4, np.array([7, 2**63 + 1], np.uint64)
    both("pack_items", extent, epoch, 3, *plan, outs=[np.empty((3, m), np.int64)])
    for wrong in (-1, total):
        arguments = np.array([wrong]), np.zeros(1, np.int64), pack_first, slot_first, cut
        assert both("pack_slots", *arguments, outs=[np.empty((3, 1), np.int64)])[0] == -1
