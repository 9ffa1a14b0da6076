"""One order, whatever the shape: ranks, threads, batch sizes, skipped ranges and epochs of any length."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.columns import Columns
from penstock.data.from_arrays import from_arrays
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.planned_samples import PlannedSamples
from penstock.loading import Batch, Loader
from penstock.plan.base import DerivedPlan, Plan

EPOCHS = 60


class Uneven(DerivedPlan):
    """Epochs of the given sizes, over and over; position `k` is row `k` of the source."""

    def __init__(self, upstream: Plan, sizes: list[int]) -> None:
        super().__init__(upstream, f"Uneven({sizes})")
        self.first = [0, *accumulate(sizes[e % len(sizes)] for e in range(EPOCHS))]

    def __len__(self) -> int:
        return self.first[1]

    steady = False
    uneven = True
    empty = False

    def set_epoch_start(self, epoch: int, start: int) -> None:
        pass

    def start(self, epoch: int) -> int:
        return self.first[epoch]

    def locate(self, k):
        epoch = np.searchsorted(self.first, k, side="right") - 1
        return epoch, k - np.array(self.first)[epoch]

    def sizes(self, epoch):
        return np.diff(self.first)[epoch]

    def positions(self, k):
        return k


def uneven(sizes: list[int]) -> MapDataset:
    rows = EPOCHS * max(sizes)
    base = from_arrays({"k": np.arange(rows)}, lengths=[rows]).steps()
    return MapDataset(PlannedSamples(base.sources, Uneven(base.plan, sizes)))


class Oracle:
    """The order in plain Python: one position after the other."""

    def __init__(self, first: list[int], drop_last: bool) -> None:
        self.epochs = [range(a, b) for a, b in pairwise(first)]
        self.drop_last, self.position, self.skipped = drop_last, 0, set[int]()

    def batch(self, size: int) -> list[int]:
        for epoch in self.epochs:
            kept = [k for k in epoch if k >= self.position and k not in self.skipped]
            if len(kept) >= (size if self.drop_last else 1):
                given = kept[:size]
                over = len(kept) - len(given) < (size if self.drop_last else 1)
                self.position = epoch.stop if over else given[-1] + 1
                return given
        raise AssertionError("the epochs of the test have run out")


def take(loader: Loader, n: int) -> list[Batch]:
    batches: list[Batch] = []
    while len(batches) < n:
        for batch in loader:
            batches.append(batch)
            if len(batches) == n:
                break
    return batches


LEG = st.fixed_dictionaries(
    {
        "world": st.integers(1, 5),
        "size": st.integers(5, 9),
        "threads": st.integers(0, 2),
        "batches": st.integers(1, 5),
        "restored_from": st.integers(0, 4),
        "skip": st.one_of(st.none(), st.tuples(st.integers(-15, 40), st.integers(1, 30))),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(9, 40), min_size=1, max_size=3), st.booleans(), st.lists(LEG, min_size=1, max_size=5))
def test_the_ranks_together_give_the_uninterrupted_order(sizes, drop_last, legs):
    data = uneven(sizes)
    oracle = Oracle(data.plan.first, drop_last)
    state = data.loader(5).state_dict()
    for leg in legs:
        skip = leg["skip"] and tuple(max(0, oracle.position + edge) for edge in (leg["skip"][0], sum(leg["skip"])))
        if skip:
            oracle.skipped |= set(range(*skip))
        expected = [oracle.batch(leg["size"]) for _ in range(leg["batches"])]
        shares, states = [], []
        for rank in range(leg["world"]):
            loader = data.loader(
                leg["size"], drop_last=drop_last, rank=rank, world=leg["world"], threads=leg["threads"]
            )
            loader.load_state_dict(state)
            if skip:
                loader.skip(skip)
            shares.append(take(loader, leg["batches"]))
            states.append(json.loads(json.dumps(loader.state_dict())))
        together = [[k for part in parts for k in part["k"].tolist()] for parts in zip(*shares, strict=True)]
        assert together == expected
        assert all(abs(a.n - b.n) <= 1 for parts in zip(*shares, strict=True) for a in parts for b in parts)
        for batch in (batch for share in shares for batch in share):
            listed = loader.why(batch.ticket).table
            assert listed["first_row"][~listed["skipped"]].tolist() == batch["k"].tolist()
        assert all(other == states[0] for other in states)
        assert states[0]["position"] >= oracle.position  # beyond what is skipped, at most
        state = states[leg["restored_from"] % leg["world"]]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(1, 6),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=4),
)
def test_every_rank_gets_len_batches(n, size, world, drop_last, skips):
    size = max(size, world)
    data = from_arrays({"k": np.arange(n)}, lengths=[n]).steps().shuffle(seed=3)
    for rank in range(world):
        loader = data.loader(size, drop_last=drop_last, rank=rank, world=world, threads=0, allow_empty=True)
        for lo, count in skips:
            loader.skip((lo, lo + count))
        expected = len(loader)
        assert sum(1 for _ in loader) == expected


def test_a_short_last_batch_leaves_some_ranks_without_rows():
    data = from_arrays({"k": np.arange(9)}, lengths=[9]).steps().map(lambda c: Columns({"k": c["k"] * 2}))
    loaders = [data.loader(8, rank=rank, world=4, threads=1) for rank in range(4)]
    given = [[batch["k"].tolist() for batch in loader] for loader in loaders]
    assert given == [[[0, 2], []], [[4, 6], []], [[8, 10], []], [[12, 14], [16]]]
    empty = list(loaders[0])[-1]
    assert (empty.n, empty["k"].dtype, empty.ticket.count, empty.ticket.position) == (0, np.int64, 0, 17)
    assert len(loaders[0].why(empty.ticket)) == 0


def test_the_state_stays_small_with_three_dozen_ranges_at_large_positions():
    loader = from_arrays({"k": np.arange(9)}, lengths=[9]).steps().shuffle().loader(2)
    for i in range(36):
        loader.skip((10**9 + 1000 * i, 10**9 + 1000 * i + 256))
    state = json.dumps(loader.state_dict())
    assert len(state) < 1000
    other = from_arrays({"k": np.arange(9)}, lengths=[9]).steps().shuffle().loader(3, rank=1, world=2)
    other.load_state_dict(json.loads(state))
    assert json.dumps(other.state_dict()) == state


def test_a_range_of_many_epochs_is_passed_at_once():
    loader = from_arrays({"k": np.arange(10)}, lengths=[10]).steps().loader(4, drop_last=True, threads=0)
    loader.skip(range(3, 10**15 + 5))
    assert [batch["k"].tolist() for batch in loader] == [[5, 6, 7, 8]]
    assert loader.state_dict()["position"] == 10**15 + 10
    assert [batch["k"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_positions_far_out_are_found_at_once():
    data = from_arrays({"k": np.arange(1000)}, lengths=[1000]).steps().shuffle(seed=5)
    loader = data.loader(100, threads=0)
    loader.load_state_dict({**loader.state_dict(), "position": 10**17 + 300})
    assert (
        next(iter(loader))["k"].tolist()
        == planned_samples(data).at(np.arange(10**17 + 300, 10**17 + 400))["k"].tolist()
    )


def test_a_state_of_uneven_epochs_knows_its_own():
    lengths = np.random.default_rng(0).integers(1, 20, 200).tolist()

    def packs():
        data = penstock.from_arrays({"tokens": np.arange(sum(lengths))}, lengths).sequences()
        return data.shuffle(1).pack(32, repack=True).shuffle(2)

    loader = packs().loader(7, threads=0)
    for _ in range(30):
        for _ in loader:
            pass
    running = iter(loader)
    next(running)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["epoch"] == [30, loader.state_dict()["position"] - 7]
    again = packs().loader(7, threads=1)
    again.load_state_dict(state)
    for batch, other in zip(running, again, strict=True):
        assert np.array_equal(batch["tokens"], other["tokens"])
    with pytest.raises(penstock.errors.StateError, match="an epoch and its first position"):
        again.load_state_dict({**state, "epoch": [1]})
    for position in (state["position"] + 1000, 1 << 60):
        with pytest.raises(penstock.errors.StateError, match="expected a position within epoch 30, which is"):
            packs().loader(7, threads=0).load_state_dict({**state, "position": position})
