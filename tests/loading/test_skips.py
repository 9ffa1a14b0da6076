"""Ranges that are left out, against sets of positions; and skipping while a loader runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError, StateError
from penstock.loading import Ticket
from penstock.loading.skips import Skips

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda r: (r[0], sum(r))), max_size=6)


def dataset(n: int = 40) -> MapDataset:
    return from_arrays({"k": np.arange(n)}, lengths=[n]).steps()


@given(RANGES)
def test_ranges_count_as_sets_do(ranges):
    skips = Skips(ranges)
    gone = {k for lo, hi in ranges for k in range(lo, hi)}
    kept = [k for k in range(200) if k not in gone]
    assert skips.positions(np.arange(len(kept))).tolist() == kept
    assert [skips.kept_before(k) for k in range(200)] == [sum(other < k for other in kept) for k in range(200)]
    assert skips.covers(np.arange(200)).tolist() == [k in gone for k in range(200)]
    assert all(a[1] < b[0] for a, b in zip(skips.ranges[:-1], skips.ranges[1:], strict=True))
    assert Skips.from_json(skips.to_json()).ranges == skips.ranges
    added = Skips()
    for lo, hi in ranges:
        added = added.with_range(lo, hi)
    assert added.ranges == skips.ranges


@pytest.mark.parametrize("ranges", [[(3, 3)], [(-1, 3)], [(0, 1 << 62)]])
def test_odd_ranges(ranges):
    with pytest.raises(StateError):
        Skips(ranges)


@pytest.mark.parametrize("value", [None, {}, [[1]], [[1, True]], [["1", 2]], [[1, 0]], [[1, 2.0]], [3]])
def test_damaged_json(value):
    with pytest.raises(StateError):
        Skips.from_json(value)


@pytest.mark.parametrize("threads", [0, 2])
def test_skipping_in_a_loop_acts_from_the_next_batch_on(threads):
    loader = dataset().loader(4, threads=threads)
    seen = []
    for batch in loader:
        seen.append(batch["k"].tolist())
        if len(seen) == 2:
            loader.skip((2, 17))  # some of it is behind, some was prefetched
    assert seen[:3] == [[0, 1, 2, 3], [4, 5, 6, 7], [17, 18, 19, 20]]
    assert seen[-1] == [37, 38, 39]
    assert len(seen) == 8
    assert loader.state_dict()["position"] == 40


def test_skipping_the_rest_ends_the_loop_and_not_the_loader():
    loader = dataset().loader(4, threads=1)
    seen = []
    for batch in loader:
        seen += batch["k"].tolist()
        loader.skip(range(4, 44))
    assert seen == [0, 1, 2, 3]
    assert next(iter(loader)).ticket.position == 44


@pytest.mark.parametrize("threads", [0, 1])
def test_an_epoch_without_a_sample_left_is_passed_over(threads):
    loader = dataset(8).loader(4, threads=threads)
    loader.skip(range(8))
    loader.skip(range(16, 24))
    for first in (8, 24):
        assert [batch.ticket.position for batch in loader] == [first, first + 4]


def test_a_loop_that_gave_its_last_batch_does_not_run_on_into_the_next_epoch():
    loader = dataset(8).loader(4, threads=1)
    for batch in loader:
        if batch.ticket.stop == 8:
            loader.skip((10, 12))
    assert loader.state_dict()["position"] == 8
    assert [batch["k"].tolist() for batch in loader] == [[0, 1, 4, 5], [6, 7]]


def test_tickets_are_skipped_and_the_state_brings_the_ranges():
    first = dataset().shuffle(seed=1).loader(10)
    bad = next(iter(first)).ticket
    again = dataset().shuffle(seed=1).loader(10)
    again.skip(str(bad))
    again.skip(Ticket(35, 0, bad.digest))  # nothing
    state = again.state_dict()
    assert state["skipped"] == [[0, 10]]
    other = dataset().shuffle(seed=1).loader(10, threads=0)
    other.load_state_dict(state)
    expected = dataset().shuffle(seed=1)[10:]["k"].tolist()
    assert [k for batch in other for k in batch["k"].tolist()] == expected
    assert len(again) == 3 or len(other) == 3
    other.load_state_dict({**state, "skipped": []})
    assert other.state_dict()["skipped"] == []


def test_what_cannot_be_skipped():
    loader = dataset().loader(4)
    for what, error, text in (
        (range(0, 9, 2), PlanError, "consecutive"),
        ((5, 3), PlanError, "0 <= lo <= hi"),
        ((-2, 3), PlanError, "0 <= lo <= hi"),
        (Ticket(0, 4, "00000000"), StateError, "00000000"),
        ("zz", StateError, "32 hexadecimal digits"),
    ):
        with pytest.raises(error, match=text):
            loader.skip(what)
    with pytest.raises(TypeError):
        loader.skip((0.5, 3))
    with pytest.raises(PlanError, match="IterDataset"):
        penstock.IterDataset.of(dataset(), 4).loader().skip((0, 4))
    assert loader.state_dict()["skipped"] == []
