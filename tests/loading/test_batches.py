"""Planned batches: similar lengths, token budgets, ramps; ranks, resuming, skips and tickets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.map_dataset import MapDataset
from penstock.errors import PlanError
from penstock.loading import Loader
from penstock.plan import Batches, PlanTransform
from penstock.testing.plans import TransformContract

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=60).filter(any)


def sequences(lengths: list[int]) -> MapDataset:
    """Each row says its sequence: row `i` of sequence `e` is `100 * e + i`."""
    rows = np.concatenate([100 * (e + 1) + np.arange(n) for e, n in enumerate(lengths)])
    return penstock.from_arrays({"x": rows, "e": np.repeat(np.arange(len(lengths)), lengths)}, lengths).sequences()


def epoch_of(loader: Loader) -> list[Any]:
    return list(loader)


def values(batch: Any) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(batch["x"], batch["mask"], strict=True)]


class TestBatches(TransformContract):
    @pytest.fixture(
        params=[Batches(5, seed=3), Batches(tokens=14), Batches(4, sort=False), Batches([(0, 2), (11, 5)], window=9)],
        ids=repr,
        autouse=True,
    )
    def _transform(self, request: pytest.FixtureRequest) -> None:
        self._chosen = request.param

    def transform(self) -> PlanTransform:
        return self._chosen


@settings(max_examples=80, deadline=None)
@given(
    LENGTHS,
    st.one_of(st.none(), st.integers(1, 9)),
    st.one_of(st.none(), st.integers(16, 60)),
    st.integers(1, 4),
    st.integers(1, 40),
    st.booleans(),
)
def test_batches_keep_to_their_limits(
    lengths: list[int], size: int | None, tokens: int | None, multiple: int, window: int, shuffled: bool
) -> None:
    size = 5 if size is None and tokens is None else size
    data = sequences(lengths).shuffle(1) if shuffled else sequences(lengths)
    planned = data.apply(penstock.transforms.Batches(size, tokens=tokens, multiple=multiple, window=window))
    loader = planned.loader(threads=0)
    for _ in range(2):
        count = len(loader)
        batches = epoch_of(loader)
        assert len(batches) == count
        found = [row for batch in batches for row in values(batch)]
        assert sorted(found) == sorted(values(sequences(lengths)[:]))
        for batch in batches:
            longest = max(1, *(len(row) for row in values(batch)))
            assert batch["x"].shape == (batch.n, -(-longest // multiple) * multiple)
            assert size is None or batch.n <= size
            assert tokens is None or batch["x"].size <= tokens


def test_a_window_is_cut_greedily_from_its_longest_sample() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, 500).tolist()
    batches = epoch_of(sequences(lengths).shuffle(2).loader(penstock.transforms.Batches(tokens=120), threads=0))
    expected: list[int] = []
    left = sorted(lengths, reverse=True)
    while left:
        many = 120 // left[0]
        expected.append(len(left[:many]))
        left = left[many:]
    assert sorted(batch.n for batch in batches) == sorted(expected)
    padding = 1 - sum(lengths) / sum(batch["x"].size for batch in batches)
    assert padding < 0.03
    widths = [batch["x"].shape[1] for batch in batches]
    assert widths != sorted(widths, reverse=True)


def test_ramps_hold_from_their_positions_on() -> None:
    data = (
        penstock.from_arrays({"x": np.arange(40)}, [40])
        .steps()
        .apply(penstock.transforms.Batches([(0, 4), (10, 8), (60, 3)], sort=False))
    )
    loader = data.loader(threads=0)
    assert [batch.n for batch in loader] == [4, 4, 2, 8, 8, 8, 6]
    assert [batch.n for batch in loader] == [8, 8, 4, 3, 3, 3, 3, 3, 3, 2]
    budget = sequences([2] * 30).apply(penstock.transforms.Batches(tokens=[(0, 4), (10, 12)], sort=False))
    assert [batch.n for batch in budget.loader(threads=0)] == [2, 2, 2, 2, 2, 6, 6, 6, 2]


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 6), st.integers(1, 40))
def test_ranks_share_each_batch_and_resume_anywhere(lengths: list[int], world: int, stop: int, window: int) -> None:
    planned = sequences(lengths).shuffle(4).apply(penstock.transforms.Batches(7, tokens=40, window=window))
    whole = [values(batch) for loader in [planned.loader(threads=0)] for _ in range(2) for batch in loader]
    loader = planned.loader(threads=0)
    first = [values(batch) for _, batch in zip(range(stop), loader, strict=False)]
    ranks = [planned.loader(rank=rank, world=world, threads=0) for rank in range(world)]
    for each in ranks:
        each.load_state_dict(loader.state_dict())
    rest: list[list[list[int]]] = []
    while len(first) + len(rest) < len(whole):
        for parts in zip(*ranks, strict=True):
            rows = [part.n for part in parts]
            assert max(rows) - min(rows) <= 1
            assert len({part["x"].shape[1] for part in parts}) == 1
            rest.append([row for part in parts for row in values(part)])
    assert first + rest == whole


def test_threads_do_not_change_batches() -> None:
    lengths = np.random.default_rng(1).integers(1, 40, 3000).tolist()
    planned = sequences(lengths).shuffle(1).apply(penstock.transforms.Batches(tokens=400, window=1000))
    alone, several = (list(planned.loader(threads=threads)) for threads in (0, 3))
    assert [values(batch) for batch in alone] == [values(batch) for batch in several]


def test_tickets_and_skips_of_planned_batches() -> None:
    planned = sequences([3, 1, 4, 1, 5, 9, 2, 6]).apply(penstock.transforms.Batches(2, seed=1))
    loader = planned.loader(threads=0)
    batches = list(loader)
    table = loader.why(batches[1].ticket).table
    assert table["rows"].tolist() == [len(row) for row in values(batches[1])]
    again = planned.loader(threads=0)
    again.skip(batches[1].ticket)
    again.skip((6, 7))
    left = list(again)
    assert [values(batch) for batch in left] == [values(batches[0]), values(batches[2]), values(batches[3])[1:]]
    assert len(loader) == 4


def test_mixes_packs_and_functions() -> None:
    mixed = penstock.mix({"a": sequences([3, 5, 8, 2]), "b": sequences([9, 1])}, [2, 1], union=True, stop=6)
    batches = list(mixed.loader(penstock.transforms.Batches(3), threads=0))
    assert sum(batch.n for batch in batches) == 6
    packs = sequences([3, 5, 8, 2, 9, 1]).pack(10).apply(penstock.transforms.Batches([(0, 1), (2, 2)], sort=False))
    assert [batch["x"].shape for batch in packs.loader(threads=0)] == [(1, 10), (1, 10), (1, 10)]
    mapped = sequences([3, 5]).apply(penstock.transforms.Batches(2)).map(lambda columns: {"wide": columns["x"] * 2})
    assert next(iter(mapped.loader(threads=0)))["wide"].shape == (2, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "got neither"),
        ({"size": 0}, "expected size as a number of at least 1"),
        ({"tokens": -3}, "expected tokens as a number"),
        ({"size": []}, "expected size"),
        ({"size": 2.5}, "expected size"),
        ({"size": [3, 4]}, "expected size"),
        ({"size": [(5, 2)]}, "ascending positions from 0"),
        ({"size": [(0, 2), (0, 3)]}, "ascending positions from 0"),
        ({"size": [(0, 2), (4, 0)]}, "expected size"),
        ({"size": 2, "multiple": 0}, "multiple"),
        ({"size": 2, "window": 0}, "window"),
        ({"size": 2, "seed": -1}, "seed"),
    ],
)
def test_wrong_batches_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        sequences([3, 4]).apply(penstock.transforms.Batches(**options))


def test_wrong_uses_are_refused() -> None:
    planned = sequences([3, 4]).apply(penstock.transforms.Batches(2))
    with pytest.raises(PlanError, match="whose batches are planned"):
        planned.loader(2)
    with pytest.raises(PlanError, match="whose batches are planned"):
        planned.loader(drop_last=True)
    with pytest.raises(PlanError, match="whose batches are made in turn"):
        planned.loader(output="torch").data_loader()
    with pytest.raises(PlanError, match="samples of at most 3 tokens, got 4"):
        next(iter(sequences([3, 4]).loader(penstock.transforms.Batches(tokens=3), threads=0)))


@pytest.mark.parametrize(("world", "stop"), [(1, 3), (2, 7), (3, 12)])
def test_packs_that_get_longer_are_batched_by_tokens(world: int, stop: int) -> None:
    """Each batch is as wide as its rows, ranks differ by a row, and a state goes on with any number of ranks."""
    lengths = np.random.default_rng(3).integers(1, 9, 200)
    below = penstock.from_arrays({"x": np.arange(lengths.sum())}, lengths.tolist()).sequences().shuffle(seed=1)
    packs = below.pack([(0, 8), (90, 16), (250, 32)]).map(lambda columns: {**columns.flat, "y": columns["x"] + 1})
    data = packs.apply(penstock.transforms.Batches(tokens=64, sort=False))

    def batches(loader: penstock.Loader) -> list[Any]:
        return [(batch["x"], batch["segment_ids"], str(batch.ticket)) for _ in range(2) for batch in loader]

    whole = batches(data.loader(rank=0, world=1))
    shapes = [x.shape for x, _, _ in whole]
    assert {(8, 8), (4, 16), (2, 32)} <= set(shapes)
    assert all(rows * width <= 64 for rows, width in shapes)
    assert [width for _, width in shapes] == sorted(width for _, width in shapes)
    shared = [batches(data.loader(rank=rank, world=world, threads=2)) for rank in range(world)]
    for (x, ids, _), parts in zip(whole, zip(*shared, strict=True), strict=True):
        assert np.array_equal(np.concatenate([part[0] for part in parts]), x)
        assert np.array_equal(np.concatenate([part[1] for part in parts]), ids)
        counts = [len(part[0]) for part in parts]
        assert max(counts) - min(counts) <= 1
    first = data.loader(rank=0, world=world)
    taken = iter(first)
    for _ in range(stop):
        next(taken)
    second = data.loader(rank=0, world=1)
    second.load_state_dict(first.state_dict())
    for (x, _, ticket), batch in zip(whole[stop:], second, strict=False):
        assert np.array_equal(batch["x"], x)
        assert str(batch.ticket) == ticket
        assert sorted(second.why(ticket, "x").table["rows"].tolist())
    mixed = penstock.mix([packs, packs.shuffle(seed=5)], stop=50).apply(penstock.transforms.Batches(6))
    assert {batch["x"].shape[1] for batch in mixed.loader()} <= {8, 16, 32}
