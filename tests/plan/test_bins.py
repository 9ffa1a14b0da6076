"""What must hold for every rule and all lengths."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PlanError
from penstock.plan.packing import PackIndex, PackPieces, Rule, lower_bound

METHODS = ("best_fit_decreasing", "best_fit", "first_fit", "next_fit", "random_fit", "concat_split")
IN_ORDER = ("best_fit", "first_fit", "next_fit", "concat_split")
POLICIES = ("truncate_left", "truncate_right", "split", "drop", "own_pack")


@st.composite
def rules(draw: Any, methods: Any = METHODS) -> Rule:
    capacity = tuple(draw(st.lists(st.sampled_from([4, 7, 8, 16, 100]), min_size=1, max_size=3)))
    method = draw(st.sampled_from(methods))
    options: dict[str, Any] = {
        "overlong": draw(st.sampled_from(POLICIES)),
        "align": draw(st.sampled_from([1, 1, 4, 8])),
    }
    options["max_sequences"] = draw(st.sampled_from([None, None, 1, 3]))
    if method in ("best_fit", "first_fit"):
        options["open_bins"] = draw(st.sampled_from([None, 1, 3]))
        if options["open_bins"]:
            options["flush"] = draw(st.sampled_from(["oldest", "block"]))
    if method == "concat_split":
        options |= {"head": draw(st.integers(0, 2)), "whole": draw(st.booleans())}
    return Rule(capacity, method, seed=draw(st.integers(0, 2)), **options)


@st.composite
def problems(draw: Any, methods: Any = METHODS, longest: int = 3) -> Any:
    rule = draw(rules(methods))
    sizes = [st.integers(0, c) | st.integers(0, longest * c) for c in rule.capacity]
    lengths = draw(st.lists(st.tuples(*sizes), max_size=40))
    dtype = draw(st.sampled_from([np.uint16, np.int64, np.uint64]))
    array = np.array(lengths, dtype).reshape(-1, len(rule.capacity))
    options = {"window": draw(st.sampled_from([4, 8, None])), "block": draw(st.sampled_from([1, 2])), "keep": "memory"}
    return array[:, 0] if len(rule.capacity) == 1 and draw(st.booleans()) else array, rule, options


def everything(index: PackIndex, epoch: int = 0) -> PackPieces:
    return index.pieces(np.arange(len(index)), epoch)


def check_conserved(lengths: Any, rule: Rule, index: PackIndex, pieces: PackPieces) -> None:
    """Every row once, but for what the policy drops, which the report counts."""
    rows = lengths.astype(np.int64).reshape(len(lengths), len(rule.capacity))
    limit = np.array(rule.capacity)
    over = (rows > limit).any(1)
    for i, length in enumerate(rows):
        mine = np.flatnonzero(pieces.item == i)
        mine = mine[np.lexsort((pieces.begin[mine] + pieces.length[mine]).T)]
        begin, end = pieces.begin[mine], pieces.begin[mine] + pieces.length[mine]
        assert (begin >= 0).all()
        assert (pieces.length[mine] >= 0).all()
        if not length.any() or (over[i] and rule.overlong == "drop"):
            assert len(mine) == 0
            continue
        np.testing.assert_array_equal(begin[1:], end[:-1])
        first, last = np.zeros_like(limit), length
        if over[i] and rule.overlong == "truncate_left":
            first = np.maximum(length - limit, 0)
        if over[i] and rule.overlong == "truncate_right":
            last = np.minimum(length, limit)
        np.testing.assert_array_equal(begin[0], first)
        np.testing.assert_array_equal(end[-1], last)
        assert len(mine) == 1 or rule.method == "concat_split" or (over[i] and rule.overlong == "split")
    report = index.report()
    assert report.rows == tuple(pieces.length.sum(axis=0))
    assert report.lost == tuple(rows.sum(axis=0) - pieces.length.sum(axis=0))
    assert report.empty == np.count_nonzero(~rows.any(axis=1))
    assert (pieces.length > 0).any(axis=1).all()  # no piece of nothing takes a place among the sequences of a pack
    assert report.own_packs == (over.sum() if rule.overlong == "own_pack" else 0)
    assert report.dropped == (over.sum() if rule.overlong == "drop" else 0)
    assert report.truncated == (over.sum() if rule.overlong in ("truncate_left", "truncate_right") else 0)
    assert report.split == np.count_nonzero(np.bincount(pieces.item, minlength=1) > 1)
    assert (report.items, report.packs, report.pieces) == (len(lengths), len(index), len(pieces.item))


def check_packs(lengths: Any, rule: Rule, index: PackIndex, pieces: PackPieces) -> None:
    """Nothing over a limit, nothing overlapping, all starts aligned, no pack empty."""
    end = pieces.destination + pieces.length
    np.testing.assert_array_equal(np.unique(pieces.pack), np.arange(len(index)))
    assert (np.diff(pieces.pack) >= 0).all()
    counts = np.bincount(pieces.pack, minlength=1)
    assert counts.max() == index.most_sequences
    assert counts.max() <= rule.most
    same = pieces.pack[1:] == pieces.pack[:-1]
    assert (pieces.destination[1:][same] >= end[:-1][same]).all()
    assert (end <= index.width).all()
    alone = counts[pieces.pack] == 1
    assert (end[~alone] <= rule.capacity).all()
    rows = lengths.astype(np.int64).reshape(len(lengths), len(rule.capacity))[pieces.item]
    cut = np.maximum(rows - rule.capacity, 0) if rule.overlong == "truncate_left" else 0
    reserved = np.where((pieces.begin > cut) & (pieces.length > 0), rule.head, 0)
    assert ((pieces.destination - reserved) % rule.align == 0).all()
    if rule.overlong != "own_pack":
        assert index.width == rule.capacity


@settings(deadline=None, max_examples=300)
@given(problems())
def test_rows_are_conserved_and_packs_hold_them(problem: Any) -> None:
    lengths, rule, options = problem
    index = PackIndex(lengths, rule, **options)
    for epoch in (0, 1):
        pieces = everything(index, epoch)
        check_conserved(lengths, rule, index, pieces)
        check_packs(lengths, rule, index, pieces)
    assert index.report().lower_bound <= len(index)


@settings(deadline=None, max_examples=150)
@given(problems(), st.data())
def test_any_pack_at_any_time(problem: Any, data: Any) -> None:
    """Random access, in any grouping, kept or planned again, on any number of threads, is iteration."""
    lengths, rule, options = problem
    index = PackIndex(lengths, rule, **options)
    n = len(index)
    whole = everything(index, 3)
    asked = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=8)) if n else [], np.int64)
    for other in (
        index,
        PackIndex(lengths, rule, **options | {"keep": "recompute"}),
        PackIndex(lengths, rule, **options, threads=2),
        PackIndex(lambda item: lengths[item], rule, n=len(lengths), **options),
        PackIndex.from_bytes(index.to_bytes(), lengths, rule),
        pickle.loads(pickle.dumps(index)),
    ):
        some = other.pieces(asked, np.full(len(asked), 3))
        assert (len(other), other.most_sequences, other.width) == (n, index.most_sequences, index.width)
        wanted = [np.flatnonzero(whole.pack == k) for k in asked]
        np.testing.assert_array_equal(some.pack, np.repeat(np.arange(len(asked)), [len(w) for w in wanted]))
        rows = np.concatenate([*wanted, np.empty(0, np.int64)]).astype(np.int64)
        for ours, expected in zip(some[1:], whole[1:], strict=True):
            np.testing.assert_array_equal(ours, expected[rows])


@settings(deadline=None)
@given(problems(methods=IN_ORDER))
def test_the_given_order_is_kept(problem: Any) -> None:
    lengths, rule, options = problem
    index = PackIndex(lengths, rule, **options)
    pieces = everything(index)
    same = pieces.pack[1:] == pieces.pack[:-1]
    assert (pieces.item[1:][same] >= pieces.item[:-1][same]).all()
    if rule.method == "next_fit" and rule.overlong != "own_pack":
        assert (np.diff(pieces.item) >= 0).all()
    for ours, later in zip(pieces, everything(index, 7), strict=True):
        np.testing.assert_array_equal(ours, later)


@pytest.mark.parametrize("method", ["best_fit_decreasing", "random_fit"])
@pytest.mark.parametrize("axes", [1, 2])
def test_companions_change_and_counts_do_not(method: Any, axes: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 20, (4000, axes))
    index, other = (PackIndex(lengths, Rule((64,) * axes, method, seed=seed), window=1024, block=8) for seed in (0, 1))

    def pairs(pieces: PackPieces) -> set[tuple[int, int]]:
        same = pieces.pack[1:] == pieces.pack[:-1]
        return set(zip(pieces.item[:-1][same].tolist(), pieces.item[1:][same].tolist(), strict=True))

    epochs = [everything(index, epoch) for epoch in range(3)]
    for pieces in epochs[1:]:
        np.testing.assert_array_equal(pieces.length, epochs[0].length)
        assert len(pairs(pieces) & pairs(epochs[0])) < len(pairs(pieces)) / 4
    assert len(pairs(everything(other)) & pairs(epochs[0])) < len(pairs(epochs[0])) / 4


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 4095, 4096, 4097, 20_000])
def test_windows_are_fixed_sets(n: int) -> None:
    lengths = np.random.default_rng(n).integers(1, 100, n).astype(np.uint16)
    index = PackIndex(lengths, Rule(128), window=1024, block=64)
    pieces = everything(index)
    np.testing.assert_array_equal(np.sort(pieces.item), np.arange(n))
    bound = lower_bound(lengths, 128)
    assert bound <= len(index) <= bound * 1.01 + 2 + n // 1024
    assert n < 4096 or np.ptp(pieces.item[pieces.pack < 100]) > n / 2  # a window is a sample of the whole


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(30, 60))
def test_the_bound_is_one(lengths: list[int], capacity: int) -> None:
    """Against the true optimum, by trying all ways."""

    def fewest(left: list[int], rooms: list[int]) -> int:
        if not left:
            return len(rooms)
        first, rest = left[0], left[1:]
        ways = {room: [*rooms[:j], room - first, *rooms[j + 1 :]] for j, room in enumerate(rooms) if room >= first}
        return min([fewest(rest, way) for way in ways.values()] + [fewest(rest, [*rooms, capacity - first])])

    short = lengths[:7]
    assert (
        lower_bound(short, capacity) <= fewest(sorted(short, reverse=True), []) <= len(PackIndex(short, Rule(capacity)))
    )
    assert lower_bound(short, capacity) >= -(-sum(short) // capacity)


def test_lengths_of_any_size() -> None:
    huge = 1 << 40
    index = PackIndex([huge, huge // 2, huge // 2, 1], Rule(huge))
    assert (len(index), everything(index).length.sum()) == (3, 2 * huge + 1)
    assert PackIndex([huge] * 3, Rule(huge, align=2)).report().efficiency == (1.0,)
    many = PackIndex([huge], Rule(1 << 20, overlong="split"))
    assert (len(many), many.pieces([1 << 20 - 1]).length.tolist()) == (1 << 20, [[1 << 20]])
    with pytest.raises(PlanError, match="smaller window"):
        len(PackIndex([huge], Rule(1, overlong="split")))
    with pytest.raises(PlanError, match="smaller window"):
        len(PackIndex([huge], Rule(1, method="concat_split")))


def test_a_window_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that miss the same window wait for the one that plans it."""
    lengths = np.random.default_rng(0).integers(1, 100, 2000)
    index = PackIndex(lengths, Rule(128), window=1000, block=8, keep="recompute")
    wanted, planned = everything(index), list[int]()
    again, together = pickle.loads(pickle.dumps(index)), threading.Barrier(4)
    plan = again._planned

    def counting(w: int) -> Any:
        planned.append(w)
        return plan(w)

    def read(_: int) -> PackPieces:
        together.wait()
        return everything(again)

    monkeypatch.setattr(again, "_planned", counting)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(read, range(4)):
            for ours, expected in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(ours, expected)
    assert sorted(planned) == [0, 1]


def test_lengths_are_read_wherever_they_lie() -> None:
    """In memory of any layout and byte order, or by a function; impossible ones are named."""
    lengths = np.random.default_rng(0).integers(1, 100, 2000)
    options: dict[str, Any] = {"window": 256, "block": 8, "keep": "recompute"}
    wanted = everything(PackIndex(lengths, Rule(128), **options))
    for raw in (lengths.astype(">u2"), np.repeat(lengths, 2)[::2], lengths.astype(np.uint8)[:, None]):
        for ours, expected in zip(everything(PackIndex(raw, Rule(128), **options)), wanted, strict=True):
            np.testing.assert_array_equal(ours, expected)
    for wrong in (-1, 129):
        lengths[1234] = wrong
        for raw in (lengths, lambda item: lengths[item]):
            with pytest.raises(PlanError, match=f"got .{wrong}. at item 1234"):
                len(PackIndex(raw, Rule(128), n=2000, **options))
