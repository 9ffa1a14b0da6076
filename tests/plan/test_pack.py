"""Packs as plans: what lies in them, through every method, and that they behave as any plan does."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.columns import Columns
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError
from penstock.plan import Episodes, Pack, Plan, Sequences, Shuffle, Steps, Windows, pack
from penstock.plan.packing.index import PackIndex
from penstock.plan.packing.recent import RECENT, RecentIndexes
from penstock.plan.packing.rule import Rule
from penstock.testing.examples import two_columns
from penstock.testing.plans import PlanContract, episodes_of

METHODS = ["best_fit_decreasing", "random_fit", "best_fit", "first_fit", "next_fit", "concat_split"]


class TestPack(PlanContract):
    same_samples = False  # companions change

    def episodes(self) -> Episodes:
        return episodes_of([3, 0, 8, 1, 5, 5, 5, 2, 2])

    def plan(self, episodes: Episodes) -> Plan:
        return Pack(10).reorder(Sequences().plan(episodes))

    def test_a_sample_lies_in_one_episode(self) -> None:
        """A pack lies in several."""


class TestPackOfGrowingLength(TestPack):
    def plan(self, episodes: Episodes) -> Plan:
        return Pack([(0, 8), (4, 9), (12, 16)], max_sequences=8).reorder(Shuffle(2).reorder(Sequences().plan(episodes)))


class TestPackOfShuffledWindows(TestPack):
    def plan(self, episodes: Episodes) -> Plan:
        windows = Windows(4, stride=2, pad="zero").plan(episodes)
        return Shuffle(3).reorder(Pack(10, method="best_fit", open_bins=3).reorder(Shuffle(1).reorder(windows)))


class TestPackOfEqualWindows(TestPack):
    def plan(self, episodes: Episodes) -> Plan:
        return Pack(10, align=4).reorder(Windows(3).plan(episodes))


class TestEveryEpochPlannedAnew(TestPack):
    def plan(self, episodes: Episodes) -> Plan:
        shuffled = Shuffle(1).reorder(Sequences().plan(episodes))
        return Pack(12, method="next_fit", repack=True, max_sequences=6).reorder(shuffled)

    def test_epochs_hold_the_same_samples(self) -> None:
        """Epochs have other packs, in unequal number, of the same rows."""
        plan = self.plan(self.episodes())
        counts = plan.sizes(np.arange(12))
        assert len(set(counts.tolist())) > 1
        assert [plan.start(e) for e in range(13)] == [0, *np.cumsum(counts).tolist()]
        for e in (0, 1, 7):
            rows = plan.resolve(np.arange(plan.start(e), plan.start(e + 1)))[1].rows()
            assert sorted(rows[rows >= 0].tolist()) == list(range(31))
        epoch, place = plan.locate(np.arange(plan.start(12)))
        assert np.array_equal(np.bincount(epoch), counts)
        assert np.array_equal(place, np.concatenate([np.arange(n) for n in counts]))


def tokens(lengths: list[int]) -> EpisodeDataset:
    """Documents: row `i` of all has the token `i + 1`."""
    return penstock.from_arrays({"tokens": np.arange(sum(lengths)) + 1}, lengths)


def sequences_of(batch: Columns, column: str = "tokens", prefix: str = "") -> list[tuple[int, ...]]:
    """Every sequence of every pack, by the marks of the batch; checks that marks and padding fit."""
    ids, positions, values = batch[f"{prefix}segment_ids"], batch[f"{prefix}positions"], batch[column]
    assert ids.dtype == positions.dtype == np.int32
    found: list[tuple[int, ...]] = []
    for row in range(batch.n):
        assert not positions[row][ids[row] == 0].any()
        held = ids[row][ids[row] > 0]
        assert np.all(np.diff(held) >= 0)
        for number in np.unique(held).tolist():
            mine = ids[row] == number
            found.append(tuple(values[row][mine].tolist()))
    return found


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.integers(1, 20),
    st.sampled_from(METHODS),
    st.sampled_from(["truncate_left", "truncate_right", "split", "drop", "own_pack"]),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_every_token_is_in_one_place(lengths, limit, method, overlong, align, epoch):
    plan = tokens(lengths).sequences().pack(limit, method=method, overlong=overlong, align=align, fill=-1)
    k = np.arange(plan.plan.start(epoch), plan.plan.start(epoch + 1))
    batch = planned_samples(plan).at(k)
    found = Counter(sequences_of(batch))
    first = np.cumsum(lengths) - lengths
    documents = [range(a + 1, a + n + 1) for a, n in zip(first.tolist(), lengths, strict=True) if n]
    if method != "concat_split":
        assert found == Counter(tuple(p) for d in documents for p in expected(d, limit, overlong))
    elif overlong in ("split", "own_pack"):
        assert sorted(t for each in found.elements() for t in each) == list(range(1, sum(lengths) + 1))
    used = batch["segment_ids"] > 0
    assert np.all(batch["tokens"][~used] == -1)
    starts = (batch["positions"] == 0) & used
    assert not np.any(np.nonzero(starts)[1] % align)
    report = plan.plan.report()
    assert (report.packs, report.lower_bound <= report.packs) == (len(k), True)
    assert report.rows[0] == used.sum()
    assert report.rows[0] + report.lost[0] == sum(lengths)


def expected(document: range, limit: int, overlong: str) -> list[range]:
    if len(document) <= limit or overlong == "own_pack":
        return [document]
    if overlong == "split":
        return [document[i : i + limit] for i in range(0, len(document), limit)]
    return {"truncate_left": [document[-limit:]], "truncate_right": [document[:limit]], "drop": []}[overlong]


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=80), st.sampled_from(METHODS), st.integers(0, 5))
def test_random_access_is_iteration(lengths, method, seed):
    packs = tokens(lengths).sequences().pack(32, method=method, seed=seed).shuffle(seed)
    k = np.random.default_rng(seed).integers(0, 3 * len(packs), 40)
    whole = planned_samples(packs).at(np.arange(3 * len(packs)))
    for name in whole:
        np.testing.assert_array_equal(whole[name][k], planned_samples(packs).at(k)[name])
    assert [r["tokens"].tolist() for r in packs] == whole["tokens"][: len(packs)].tolist()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("keep", ["memory", "recompute"])
def test_sequences_without_rows_are_in_no_pack(method, keep):
    lengths = [0, 2, 0, 3, 0, 0, 3, 0]
    marks = ("segment_ids", "positions", "lengths", "cu_seqlens")
    packs = tokens(lengths).sequences().pack(10, method=method, keep=keep, marks=marks)
    batch = packs[:]
    assert batch["segment_ids"].max(axis=1).tolist() == [3]
    assert sorted(batch["lengths"][0].tolist()) == [2, 3, 3]
    assert sorted(sequences_of(batch)) == [(1, 2), (3, 4, 5), (6, 7, 8)]
    report = packs.plan.report()
    assert (report.items, report.empty, report.pieces, report.most_sequences) == (8, 5, 3, 3)
    nothing = tokens([0, 0, 0]).sequences().pack(4, method=method, keep=keep)
    assert (len(nothing), nothing.plan.report().empty, nothing[:].n) == (0, 3, 0)
    few = tokens([0] * 40 + [4]).sequences().pack(4, method=method, keep=keep, max_sequences=2)
    assert few[:]["segment_ids"].tolist() == [[1, 1, 1, 1]]


def test_windows_of_padding_alone_are_in_no_pack():
    windows = tokens([3, 1]).windows(1, pad="zero", columns={"tokens": (1, 3)})
    packs = windows.pack(6)
    assert packs.plan.report().empty == 2
    assert sorted(sequences_of(packs[:])) == [(2, 3), (3,)]


def test_companions_change_and_the_number_of_packs_does_not():
    packs = tokens(np.random.default_rng(0).integers(1, 20, 400).tolist()).sequences().pack(40)
    epochs = [
        {tuple(row) for row in planned_samples(packs).at(np.arange(len(packs)) + e * len(packs))["tokens"]}
        for e in range(3)
    ]
    assert len(epochs[0] & epochs[1]) < len(packs) / 4
    assert len(epochs[1] & epochs[2]) < len(packs) / 4
    fixed = tokens([5, 3, 7, 1] * 20).sequences().pack(16, method="first_fit", open_bins=4)
    assert np.array_equal(fixed[:]["tokens"], planned_samples(fixed).at(np.arange(len(fixed)) + len(fixed))["tokens"])


def test_packs_do_not_come_by_length():
    lengths = np.random.default_rng(0).integers(1, 100, 3000).tolist()
    packs = tokens(lengths).sequences().pack(100, window=1024, marks=("lengths",))
    longest = packs[:]["lengths"].max(axis=1)
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.1
    again = planned_samples(packs).at(np.arange(len(packs)) + len(packs))["lengths"].max(axis=1)
    assert (again != longest).any()


def test_equal_windows_are_packed_by_arithmetic():
    windows = tokens([50] * 40).windows(3)
    packs = windows.pack(16)
    assert len(packs) == -(-len(windows) // 5)
    seen = sorted(sequences_of(packs[:]))
    assert seen == sorted(tuple(row) for row in windows[:]["tokens"].tolist())
    assert len(windows.pack(16, max_sequences=2)) == len(windows) // 2
    assert (packs[:]["tokens"] != planned_samples(packs).at(np.arange(len(packs)) + len(packs))["tokens"]).any()


def test_two_columns_have_ids_of_their_own_that_agree():
    lengths = [(3, 1), (0, 2), (2, 4), (5, 5), (1, 0)]
    packs = (
        EpisodeDataset(two_columns(lengths))
        .sequences()
        .pack({"inputs": 6, "targets": 8}, marks=("segment_ids", "positions", "lengths"), fill={"inputs": -1})
    )
    batch = packs[:]
    assert batch["inputs"].shape[1:] == (6,)
    assert batch["targets"].shape[1:] == (8,)
    for column, base in (("inputs", 1), ("targets", 1001)):
        pieces = sorted(sequences_of(batch, column, f"{column}_"))
        rows = [n for n in (pair[base > 1] for pair in lengths) if n]
        first = np.cumsum(rows) - rows + base
        assert pieces == [tuple(range(a, a + n)) for a, n in zip(first.tolist(), rows, strict=True)]
    names = [word for pack in batch["name"] for word in pack.strings() if word]
    assert sorted(names) == [f"r{i}" for i in range(5)]
    for i in range(batch.n):
        slots = [w.decode() for w in batch["name"][i].blobs()]
        for place, name in enumerate(slots):
            if name:
                number = int(name[1:])
                assert batch["inputs_lengths"][i, place] == lengths[number][0]
                assert batch["targets_lengths"][i, place] == lengths[number][1]
                assert batch["weight"][i, place] == number
    assert not (batch["inputs"][batch["inputs_segment_ids"] == 0] != -1).any()


def test_tables_of_sequences():
    packs = tokens([3, 4, 2]).sequences().pack(10, marks=("lengths", "cu_seqlens", "sources"))
    batch = packs[:]
    assert sorted(batch["lengths"][0].tolist()) == [2, 3, 4]
    assert batch["cu_seqlens"][0].tolist() == [0, *np.cumsum(batch["lengths"][0]).tolist()]
    assert batch["sources"].tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("positions", ["restart", "continue"])
def test_positions_of_parts(positions):
    batch = tokens([7]).sequences().pack(4, overlong="split", positions=positions)[:]
    pairs = zip(batch["tokens"], batch["positions"].tolist(), strict=True)
    rows = {tuple(row[row > 0].tolist()): place for row, place in pairs}
    assert rows[1, 2, 3, 4] == [0, 1, 2, 3]
    assert rows[5, 6, 7][:3] == ([0, 1, 2] if positions == "restart" else [4, 5, 6])


def test_a_head_row_stands_before_what_continues_and_no_token_is_lost():
    packs = tokens([6, 5]).sequences().pack(4, method="concat_split", head=-7, positions="continue")
    batch = packs[:]
    assert batch["tokens"].tolist() == [[1, 2, 3, 4], [-7, 5, 6, 7], [-7, 8, 9, 10], [-7, 11, 0, 0]]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch["positions"].tolist() == [[0, 1, 2, 3], [3, 4, 5, 0], [0, 1, 2, 3], [3, 4, 0, 0]]
    restarted = tokens([6, 5]).sequences().pack(4, method="concat_split", head=-7)[:]
    assert restarted["positions"].tolist()[1:] == [[0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 0, 0]]


def test_padding_of_windows_is_left_out():
    windows = tokens([5, 3]).windows(4, past=1, pad="repeat", stride=3)
    packs = windows.pack(8, method="next_fit")
    batch = packs[:]
    rows, mask = windows[:]["tokens"], windows[:]["mask"]
    assert sequences_of(batch) == [tuple(row[real].tolist()) for row, real in zip(rows, mask, strict=True)]
    assert "mask" not in batch


def test_plans_are_kept_by_fingerprint(tmp_path):
    lengths = np.random.default_rng(0).integers(1, 20, 300).tolist()
    packs = tokens(lengths).sequences().pack(32, cache=tmp_path)
    rows = packs[:]["tokens"].tolist()
    (saved,) = tmp_path.iterdir()
    assert saved.name.startswith(packs.plan.fingerprint)
    again = tokens(lengths).sequences().pack(32, cache=tmp_path)
    assert again[:]["tokens"].tolist() == rows == tokens(lengths).sequences().pack(32)[:]["tokens"].tolist()
    assert again.fingerprint == tokens(lengths).sequences().pack(32, keep="recompute").fingerprint


def test_every_way_to_keep_a_plan_gives_the_same_packs():
    lengths = np.random.default_rng(1).integers(1, 30, 2000).tolist()
    k = np.random.default_rng(2).integers(0, 900, 200)
    data = tokens(lengths).sequences()
    kept, planned = (
        planned_samples(data.pack(40, window=256, keep=keep)).at(k)["tokens"] for keep in ("memory", "recompute")
    )
    np.testing.assert_array_equal(kept, planned)


def test_packs_can_be_pickled():
    packs = tokens([3, 4, 2, 9, 5]).sequences().pack(10, fill=-1).shuffle(1)
    again = pickle.loads(pickle.dumps(packs))
    assert again.fingerprint == packs.fingerprint
    assert np.array_equal(again[:]["tokens"], packs[:]["tokens"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: d.sequences().pack(3), "3"),
        (lambda d: d.sequences().pack(0), r"length as a number of at least 1, .* got 0"),
        (lambda d: d.sequences().pack({"token": 8}), r"length for columns among \['tokens'\], got 'token'"),
        (lambda d: d.sequences().pack(8).pack(8), "packs; pack once"),
        (lambda d: d.sequences().pack(8, marks=("mask",)), r"marks among .* got \['mask'\]"),
        (lambda d: d.sequences().pack(8, method="worst_fit"), "'worst_fit'"),
        (lambda d: d.sequences().pack(8, positions="go on"), "'go on'"),
        (lambda d: d.sequences().map(lambda c: c).pack(8), "map the packs instead"),
        (lambda d: d.sequences().pack(8, repack=True, marks=("lengths",)), "expected max_sequences"),
        (lambda d: d.sequences().pack(2, repack=True, overlong="own_pack"), "one width"),
    ],
)
def test_what_cannot_be_packed_says_so(make: Any, message: str):
    with pytest.raises(PlanError, match=message):
        len(make(tokens([5, 2, 4])))


def test_columns_of_one_axis_need_one_limit():
    data = penstock.from_arrays({"x": np.zeros(5), "y": np.zeros(5)}, lengths=[5])
    with pytest.raises(PlanError, match=r"one length for \['x', 'y'\]"):
        data.sequences().pack({"x": 4, "y": 8})
    with pytest.raises(PlanError, match=r"a length for every column, got none for \['y'\]"):
        data.sequences().pack({"x": 8})
    assert list(data.sequences().select_columns("x").pack({"x": 8})[:]) == ["x", "segment_ids", "positions"]


def test_steps_are_packed_too():
    packs: MapDataset = tokens([5, 4]).steps().pack(4)
    assert isinstance(packs.plan, Plan)
    assert len(packs) == 3
    assert sorted(t for each in sequences_of(packs[:]) for t in each) == list(range(1, 10))
    assert Steps().plan(episodes_of([3])).even == (1, 1, 1)


@pytest.mark.parametrize("window", [1, 3, 100])
def test_windows_may_be_of_any_size(window: int):
    packs = tokens([5, 2, 4, 1, 3]).sequences().pack(8, window=window)
    assert sorted(t for each in sequences_of(packs[:]) for t in each) == list(range(1, 16))


def test_a_known_epoch_spares_those_before_it(monkeypatch: pytest.MonkeyPatch):
    lengths = np.random.default_rng(0).integers(1, 20, 300).tolist()
    whole = packed_anew(lengths)
    epoch, begin = 50, whole.plan.start(50)
    k = np.arange(begin, begin + 5)
    expected = planned_samples(whole).at(k)["tokens"]
    planned: list[int] = []

    class CountedIndex(PackIndex):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            planned.append(len(planned))
            super().__init__(*arguments, **options)

    monkeypatch.setattr(pack, "PackIndex", CountedIndex)
    fresh = packed_anew(lengths)
    fresh.plan.set_epoch_start(epoch, begin)
    np.testing.assert_array_equal(planned_samples(fresh).at(k)["tokens"], expected)
    assert len(planned) < epoch // 2  # the first one says how long an epoch is, and the next is always planned ahead
    assert fresh.plan.start(epoch) == begin
    with pytest.raises(PlanError, match="expected a position within 100000 epochs"):
        fresh.plan.locate(np.array([1 << 60]))


def test_an_epoch_begins_where_its_neighbours_allow():
    plan = packed_anew(np.random.default_rng(0).integers(1, 20, 300).tolist()).plan
    starts = [plan.start(epoch) for epoch in range(7)]
    for start in (starts[2], starts[4]):
        with pytest.raises(StateError, match=rf"expected epoch 3 to begin within {starts[3]}:{starts[3] + 1}, got"):
            plan.set_epoch_start(3, start)
    plan.set_epoch_start(3, starts[3])


def test_an_epoch_is_planned_once_while_it_is_among_the_last():
    planned: list[int] = []

    def make(epoch: int) -> PackIndex:
        planned.append(epoch)
        return PackIndex(np.full(4, epoch + 1), Rule(8))

    plans = RecentIndexes(make, ahead=False)
    first = plans.of(0)
    for epoch in range(RECENT):
        assert plans.of(0) is first
        plans.of(epoch)
    assert planned == list(range(RECENT))
    plans.of(RECENT)
    assert plans.of(0) is first  # it was asked for later than the others
    plans.of(1)
    assert planned == [*range(RECENT + 1), 1]


def packed_anew(lengths: list[int]) -> MapDataset:
    return tokens(lengths).sequences().shuffle(1).pack(32, repack=True).shuffle(2)


def test_what_needs_epochs_of_one_length_says_so():
    packs = packed_anew([3, 5, 7])
    assert packs.plan.uneven
    with pytest.raises(PlanError, match="give the loader a rank instead"):
        packs.shard(0, 2)
    with pytest.raises(PlanError, match="at most 1000 epochs"):
        packs.repeat(1 << 40)
    assert len(packs.repeat(3)) == packs.plan.start(3)


def test_what_was_selected_away_has_no_spans():
    data = EpisodeDataset(two_columns([(3, 1), (4, 2), (2, 4)])).sequences().select_columns("inputs").pack(8)
    read = {read.view for read in data.plan.reads}
    for number, (view, selection) in enumerate(
        zip(data.plan.views, planned_samples(data).resolve(np.arange(len(data))), strict=True)
    ):
        assert len(selection.destination) == 0 or number in read
        assert selection.shape == (len(data), len(view.steps))
    assert list(data[:]) == ["inputs", "segment_ids", "positions"]


def test_an_epoch_may_have_no_packs():
    """Of three sequences, two without rows, one is in each epoch: every third has a pack."""
    packs = tokens([0, 0, 3]).sequences().with_epoch_length(1).pack(4)
    assert (len(packs), packs.plan.empty) == (0, False)
    assert packs.plan.sizes(np.arange(6)).tolist() == [0, 0, 1, 0, 0, 1]
    loader = packs.loader(2)
    epochs = [[batch["tokens"].tolist() for batch in loader] for _ in range(2)]
    assert epochs == [[[[1, 2, 3, 0]]]] * 2
    assert [block["tokens"].tolist() for block in penstock.IterDataset.of(packs, 2, epochs=4)] == [[[1, 2, 3, 0]]]
    nothing = tokens([0, 0]).sequences().with_epoch_length(1).pack(4)
    assert nothing.plan.empty
    with pytest.raises(PlanError, match="got an empty one"):
        planned_samples(nothing).at(np.zeros(1, np.int64))


def test_whole_blocks_of_epochs_of_unequal_lengths():
    """An epoch that is too short for a block is left out, and the next one looked at."""
    packs = tokens([1, 13, 8, 1, 4, 5, 1, 4, 9, 2, 3, 7]).sequences().shuffle(1).shard(0, 2).pack(13)
    sizes = packs.plan.sizes(np.arange(30)).tolist()
    most = max(sizes)
    assert min(sizes) < most
    blocks = list(penstock.IterDataset.of(packs, most, epochs=30, drop_last=True))
    assert [block.n for block in blocks] == [most] * sizes.count(most)
    loader = packs.loader(most, drop_last=True)
    given = [batch.n for _ in range(3) for batch in loader]
    assert given == [most] * 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_ramp_packs_ranges_of_samples_into_rows_of_their_length(method: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, 40)
    rows = int(lengths.sum())
    below = penstock.from_arrays({"x": np.arange(rows)}, lengths.tolist()).sequences().shuffle(seed=seed)
    ramp = [(0, 8), (25, 24), (60, 12)]
    packs = below.pack(ramp, method)
    start = packs.plan.start
    stage_of = np.searchsorted([25, 60], np.arange(120), side="right")
    for epoch in range(3):
        k = np.arange(start(epoch), start(epoch + 1))
        batch = planned_samples(packs).at(k)
        real = batch["segment_ids"] > 0
        assert sorted(batch["x"][real].tolist()) == list(range(rows))
        width = packs.plan.extents(k)[0]
        assert not real[np.arange(24) >= width[:, None]].any()
        wanted = [planned_samples(below).at(np.array([i])) for i in range(40 * epoch, 40 * epoch + 40)]
        stages = {x: stage_of[40 * epoch + i] for i, one in enumerate(wanted) for x in one["x"][one["mask"]].tolist()}
        found = [
            {stages[x] for x in row[ids > 0].tolist()}
            for row, ids in zip(batch["x"], batch["segment_ids"], strict=True)
        ]
        assert all(len(each) == 1 for each in found)
        numbers = [each.pop() for each in found]
        assert numbers == sorted(numbers)
        assert width.tolist() == [ramp[number][1] for number in numbers]
    report = packs.plan.report(0)
    assert (report.rows, report.packs, report.items) == ((rows,), len(packs), 40)
    assert report.efficiency[0] == rows / packs.plan.extents(np.arange(len(packs)))[0].sum()
    assert report.lower_bound <= report.packs


def test_a_ramp_of_equal_windows_is_planned_by_arithmetic(tmp_path: Any) -> None:
    windows = penstock.from_arrays({"x": np.arange(44)}, [44]).windows(4, stride=4)
    packs = windows.pack([(0, 8), (5, 12)])
    assert [packs.plan.extents(np.array([k]))[0].item() for k in range(5)] == [8, 8, 8, 12, 12]
    assert len(packs) == 5
    assert packs.plan.start(2) == 9  # the second epoch has rows of 12 alone
    stored = windows.pack([(0, 8), (5, 12)], "next_fit", overlong="split", cache=str(tmp_path), repack=True)
    again = windows.pack([(0, 8), (5, 12)], "next_fit", overlong="split", cache=str(tmp_path), repack=True)
    assert stored[:]["x"].tolist() == again[:]["x"].tolist()
    plan = pickle.loads(pickle.dumps(packs.plan))
    assert [one.rows().tolist() for one in plan.resolve(np.arange(9))] == [
        one.rows().tolist() for one in packs.plan.resolve(np.arange(9))
    ]


def test_a_ramp_that_becomes_too_short_for_all_samples_is_an_error() -> None:
    data = penstock.from_arrays({"x": np.zeros(12)}, lengths=[4, 8]).sequences()
    packed = data.pack([(0, 12), (2, 3)], overlong="drop")
    loader = packed.loader(1, threads=0)
    assert [batch["x"].shape for batch in loader] == [(1, 12)]
    with pytest.raises(PlanError, match=r"expected samples in one of 100 epochs from epoch \d on, .*; a ramp may have"):
        list(loader)


def test_a_ramp_of_one_length_is_that_length() -> None:
    below = penstock.from_arrays({"x": np.arange(9)}, [4, 3, 2]).sequences()
    assert below.pack([(0, 6)]).fingerprint == below.pack(6).fingerprint
    assert below.pack([(0, 6), (2, 9)]).fingerprint != below.pack([(0, 6), (1, 9)]).fingerprint
    for wrong in ([], [(1, 6)], [(0, 6), (0, 8)], [(0, 0)], "6", 2.5):
        with pytest.raises(PlanError, match="expected length as a number of at least 1, or pairs"):
            below.pack(wrong)
    with pytest.raises(PlanError, match=r"lengths of 0 to \[2\], got \[3\]"):
        len(below.pack([(0, 6), (1, 2)]))
    with pytest.raises(PlanError, match="own_pack"):
        below.pack([(0, 6), (1, 2)], overlong="own_pack")


@pytest.mark.parametrize("which", ["fill", "head"])
@pytest.mark.parametrize(
    ("dtype", "bad", "good"),
    [
        ("u1", [-1, 256, 0.5, np.nan], [255, 3.0]),
        ("i2", [1 << 15, 1e9, 1 << 80], [-(1 << 15)]),
        ("?", [-1, 2, np.nan], [1, True]),
        ("f2", [1e9, 70_000, 1 << 2000], [np.inf, np.nan, -0.1]),
    ],
)
def test_values_that_a_dtype_cannot_hold_are_refused_at_the_call(which, dtype, bad, good):
    data = penstock.from_arrays({"x": np.zeros(8, dtype), "wide": np.zeros(8)}, lengths=[3, 5]).sequences()
    method = {"method": "concat_split"} if which == "head" else {}
    for value in bad:
        for given_ in (value, {"x": value}):
            with pytest.raises(PlanError, match=f"that x, {np.dtype(dtype)}, can hold"):
                data.pack(6, **{which: given_}, **method)
    for value in good:
        data.pack(6, **{which: value}, **method)[:]
