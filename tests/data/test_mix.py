"""Mixes: exact rates at every prefix, each dataset's own order, epochs, unions, and what differs is named."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.ragged import Ragged
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.data.mix import mix
from penstock.errors import PlanError, SpecError
from penstock.plan.mixed import ENDLESS, MixedPlan


def numbers(n: int, base: int = 0) -> MapDataset:
    return penstock.from_arrays({"x": np.arange(n) + base}, lengths=[n]).steps()


def three() -> dict[str, MapDataset]:
    return {"a": numbers(50).shuffle(1), "b": numbers(30, 100).shuffle(2), "c": numbers(40, 200).shuffle(3)}


def test_rates_are_exact_at_every_prefix():
    mixed = mix(three(), {"a": 0.5, "b": 0.3, "c": 0.2})
    source = mixed[:]["source"]
    for part, share in enumerate((0.5, 0.3, 0.2)):
        off = np.cumsum(source == part) - share * np.arange(1, len(source) + 1)
        assert np.abs(off).max() < 1
    assert len(mixed) == 100


def test_each_dataset_comes_in_its_own_order_and_nothing_twice_before_all_came():
    parts = three()
    mixed = mix(parts, [0.5, 0.3, 0.2])
    batch = planned_samples(mixed).at(np.arange(5 * len(mixed)))
    for number, part in enumerate(parts.values()):
        mine = batch["x"][batch["source"] == number]
        np.testing.assert_array_equal(mine, planned_samples(part).at(np.arange(len(mine)))["x"])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=1, max_size=6),
    st.sampled_from(["first_exhausted", "all_exhausted", "drain", 37]),
    st.integers(0, 3),
)
def test_every_stop_rule_ends_where_it_says(parts, stop, seed):
    sizes, weights = zip(*parts, strict=True)
    datasets = [numbers(n, 1000 * i).shuffle(seed) for i, n in enumerate(sizes)]
    mixed = mix(datasets, weights, stop=stop)
    counts = np.bincount(mixed[:]["source"], minlength=len(parts))
    if stop == "first_exhausted":
        assert np.all(counts <= sizes)
        following = mix(datasets, weights, stop=len(mixed) + 1)[-1]["source"]
        assert counts[following] == sizes[following]
    elif stop == "all_exhausted":
        assert np.all(counts >= sizes)
        assert np.any(counts == sizes)
    elif stop == "drain":
        assert counts.tolist() == list(sizes)
        assert len(set(mixed[:]["x"].tolist())) == sum(sizes)
        assert mixed.plan.steady
    else:
        assert len(mixed) == 37
    k = np.random.default_rng(seed).permutation(2 * len(mixed))
    np.testing.assert_array_equal(planned_samples(mixed).at(k)["x"], planned_samples(mixed).at(np.sort(k))["x"][k])


def test_a_mix_that_never_ends():
    endless = mix(three(), [1, 1, 1], stop="never")
    assert len(endless) == ENDLESS
    far = planned_samples(endless).at(np.array([10**15, 10**15 + 1, 10**15 + 2]))
    assert sorted(far["source"].tolist()) == [0, 1, 2]


def test_weights_that_change_on_the_way():
    mixed = mix([numbers(500), numbers(500)], [(0, [1, 0]), (100, [1, 3])], stop=300)
    source = mixed[:]["source"]
    assert not source[:100].any()
    later = np.cumsum(source[100:]) - 0.75 * np.arange(1, 201)
    assert np.abs(later).max() <= 1


def test_rates_of_steps_by_the_lengths_of_samples():
    """The unit matters: samples of 10, 40 and 80 steps."""
    parts = [penstock.from_arrays({"x": np.zeros(n * 60)}, [n] * 60).sequences() for n in (10, 40, 80)]
    by_steps = mix(parts, [0.5, 0.3, 0.2], unit="steps", stop=2000).plan
    by_samples = mix(parts, [0.5, 0.3, 0.2], stop=2000).plan

    def shares(plan: Any) -> list[float]:
        part, _ = plan.picks(np.arange(2000))
        rows = np.bincount(part, np.array([10, 40, 80])[part])
        return (rows / rows.sum()).round(3).tolist()

    assert shares(by_steps) == pytest.approx([0.5, 0.3, 0.2], abs=0.002)
    assert shares(by_samples) == pytest.approx([0.152, 0.364, 0.485], abs=0.002)


def test_the_seeds_case_filtered_and_packed():
    """Three datasets at 0.5/0.3/0.2, one filtered to a tenth and all packed: exact at random access, shuffled."""
    rng = np.random.default_rng(0)
    parts: dict[str, MapDataset] = {}
    for i, name in enumerate("abc"):
        lengths = rng.integers(1, 20, 3000)
        data = penstock.from_arrays({"x": np.full(lengths.sum(), i)}, lengths.tolist())
        kept = data.filter("id % 10 == 0") if name == "b" else data
        parts[name] = kept.sequences().pack(32, seed=i).shuffle(i)
    mixed = mix(parts, {"a": 0.5, "b": 0.3, "c": 0.2}).shuffle(7)
    assert len(mixed) == sum(np.bincount(mixed[:]["source"]))
    counts = np.bincount(mixed[:]["source"])
    assert np.all(np.abs(counts - len(mixed) * np.array([0.5, 0.3, 0.2])) < 1)
    k = rng.permutation(len(mixed))
    batch = planned_samples(mixed).at(k)
    used = batch["segment_ids"] > 0
    assert np.all((batch["x"] == batch["source"][:, None]) | ~used)
    assert np.all(used.any(axis=1))  # no pack is missing or empty
    assert model_of_sparse_mixing(300, [1, 10]) == pytest.approx([10 / 11, 1 / 11], abs=0.01)


def model_of_sparse_mixing(n: int, holes: list[int]) -> list[float]:
    """What mixing 1:1 gives where datasets keep holes (elements that are None) in their index, as the references do:
    picks that fall into a hole are lost. A model, for comparison; dataset i has an element at every holes[i]-th place.
    """
    picked = [sum(k % every == 0 for k in range(n)) for every in holes]
    return [count / sum(picked) for count in picked]


def test_a_mix_before_packing_and_a_mix_of_mixes():
    def windows(base: int) -> MapDataset:
        return penstock.from_arrays({"x": np.arange(90) + base}, [9] * 10).windows(4, stride=4, pad="zero")

    inner = mix([windows(0), windows(1000)], [1, 1])
    outer = mix({"two": inner, "one": windows(2000)}, [2, 1])
    assert set(outer[:]["source"].tolist()) == {0, 1}
    source = np.bincount(planned_samples(outer).at(np.arange(len(outer)))["x"][:, 0] // 1000)
    assert source.max() - source.min() <= 2
    packs = outer.pack(16, marks=("segment_ids", "positions", "sources"), max_sequences=16)
    batch = planned_samples(packs).at(np.arange(packs.plan.start(2)))
    used = batch["segment_ids"] > 0
    slot = batch["segment_ids"] - 1
    told = np.take_along_axis(batch["sources"], np.maximum(slot, 0), axis=1)
    assert np.array_equal((batch["x"] // 1000)[used], told[used])
    rows = [planned_samples(outer).at(np.arange(len(outer)) + e * len(outer)) for e in (0, 1)]
    wanted = sorted(np.concatenate([r["x"][r["mask"]] for r in rows]).tolist())
    assert sorted(batch["x"][used].tolist()) == wanted


def test_a_mix_is_a_plan_like_any_other():
    mixed = mix(three(), [0.5, 0.3, 0.2]).shuffle(5)
    again = pickle.loads(pickle.dumps(mixed))
    assert again.fingerprint == mixed.fingerprint
    assert np.array_equal(again[:]["x"], mixed[:]["x"])
    assert mix(three(), [0.5, 0.3, 0.2]).fingerprint != mix(three(), [0.5, 0.2, 0.3]).fingerprint
    assert mix(three(), [5, 3, 2]).fingerprint == mix(three(), ["1/2", "0.3", 0.2]).fingerprint
    assert isinstance(mix(three(), [1, 1, 1]).plan, MixedPlan)
    sizes = [len(mix(three(), None).select_columns("x")), len(mix([numbers(3)]))]
    assert sizes == [120, 3]


def test_outputs_that_some_lack_by_request():
    one = penstock.from_arrays({"x": np.arange(4), "y": np.arange(4.0) + 1}, lengths=[4]).steps()
    two = penstock.from_arrays({"x": np.arange(4) + 10, "t": Ragged.from_strings(list("abcd"))}, lengths=[4]).steps()
    with pytest.raises(
        PlanError, match=r"expected 'y' in every part of a mix, got none in \['1'\]; .*select_columns\('x'\)"
    ):
        mix([one, two], [1, 1])
    both = mix([one, two], [1, 1], union=True)[:]
    assert both["x"].tolist() == [0, 10, 1, 11, 2, 12, 3, 13]
    assert both["y"].tolist() == [1, 0, 2, 0, 3, 0, 4, 0]
    assert both["y_present"].tolist() == [True, False] * 4
    assert both["t"].strings() == ["", "a", "", "b", "", "c", "", "d"]
    assert both["t_present"].tolist() == [False, True] * 4
    wide, narrow = (penstock.from_arrays({"x": np.arange(8) + 1}, lengths=[8]).windows(n, stride=n) for n in (4, 2))
    with pytest.raises(PlanError, match=r"as wide in every part of a mix, got {'0': 4, '1': 2}"):
        mix([wide, narrow], [1, 1])
    both = mix([wide, narrow], [1, 1], union=True)[:4]["x"]
    assert both.tolist() == [[1, 2, 3, 4], [1, 2, 0, 0], [5, 6, 7, 8], [3, 4, 0, 0]]


def test_columns_of_other_types_are_named():
    two = penstock.from_arrays({"x": np.arange(4.0)}, lengths=[4]).steps()
    said = r"expected 'x' alike in every source, got int64 \(\) in source 0 and float64 \(\) in source 1; leave it out"
    for union in (False, True):
        with pytest.raises(SpecError, match=rf"{said}.*select_columns.*with_column.*rename=.*union=True"):
            mix([numbers(4), two], [1, 1], union=union)


def test_the_label_is_that_of_the_pick_for_samples_without_rows():
    """Empty episodes, and windows whose only range is padding, have no rows that would tell."""

    def parts(cut):
        lengths = [[2, 0, 3, 1], [3, 0, 0, 3]]
        return [
            cut(penstock.from_arrays({"x": np.arange(sum(n)) + 1 + 100 * i}, n)).map(
                lambda c, i=i: {"x": c["x"] * 0 + i, "w": np.full(c.n, i)}
            )
            for i, n in enumerate(lengths)
        ]

    ranges = {"x": (2, 4)}
    for cut in (lambda d: d.sequences(), lambda d: d.windows(1, pad="zero", columns=ranges)):
        mixed = mix(parts(cut), [1, 2], stop="all_exhausted")
        k = np.random.default_rng(0).permutation(3 * len(mixed))
        batch = planned_samples(mixed).at(k)
        assert batch["source"].tolist() == batch["w"].tolist() == mixed.plan.picks(k)[0].tolist()
        assert np.all(batch["x"] == batch["w"].reshape(-1, *[1] * (batch["x"].ndim - 1)))
        shuffled = mixed.shuffle(3)[:]
        assert shuffled["source"].tolist() == shuffled["w"].tolist()


def test_functions_in_mixes_of_mixes():
    def part(base):
        return numbers(6, base).map(lambda c: {"x": c["x"], "tens": c["x"] // 10})

    inner = mix([part(10), part(20)], [1, 1], label="inner").map(lambda c: {**c.flat, "last": c["inner"] + 1})
    middle = mix([inner.shuffle(1), part(30).map(lambda c: {**c.flat, "last": c["x"] * 0})], [2, 1], label=None)
    outer = mix({"m": middle, "d": part(40).map(lambda c: {**c.flat, "last": c["x"] * 0 + 9})}, [3, 1]).shuffle(4)
    batch = planned_samples(outer).at(np.arange(3 * len(outer)))
    assert set(batch) == {"x", "tens", "last", "source"}
    assert np.array_equal(batch["tens"], batch["x"] // 10)
    assert np.array_equal(batch["source"], batch["tens"] == 4)
    assert np.array_equal(batch["last"], np.array([0, 1, 2, 0, 9])[batch["tens"]])
    assert list(planned_samples(outer).at(np.zeros(0, np.int64))) == list(batch)


def test_an_output_is_present_in_samples_without_rows():
    one = penstock.from_arrays({"x": np.arange(3), "y": np.arange(3)}, [2, 0, 1]).sequences()
    two = penstock.from_arrays({"x": np.arange(3)}, [0, 2, 1]).sequences()
    both = mix([one, two], [1, 1], union=True)[:]
    assert both["y_present"].tolist() == [True, False] * 3


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("stop", ["all_exhausted", "first_exhausted", "drain", 7])
def test_nothing_comes_twice_before_all_of_its_dataset_came(stop: Any, shuffled: bool):
    sizes = [10, 4, 3]
    parts = [numbers(n, 100 * i) for i, n in enumerate(sizes)]
    mixed = mix([part.shuffle(i) for i, part in enumerate(parts)] if shuffled else parts, [2, 1, 1], stop=stop)
    seen = planned_samples(mixed).at(np.arange(9 * len(mixed)))
    for number, size in enumerate(sizes):
        mine = seen["x"][seen["source"] == number]
        assert len(mine) > 2 * size
        for lo in range(0, len(mine), size):
            assert len(set(mine[lo : lo + size].tolist())) == len(mine[lo : lo + size])


def test_an_epoch_goes_on_in_the_pass_that_the_one_before_began():
    mixed = mix([numbers(10), numbers(4, 100)], [2, 1], stop="all_exhausted")
    assert len(mixed) == 15
    batch = planned_samples(mixed).at(np.arange(60))
    assert batch["x"][batch["source"] == 1].tolist() == [100, 101, 102, 103] * 5
    assert not mixed.plan.steady
    loader = mixed.loader(7)
    for _ in range(2):
        taken = [batch["x"].tolist() for batch in loader]
    state = json.loads(json.dumps(loader.state_dict()))
    again = mix([numbers(10), numbers(4, 100)], [2, 1], stop="all_exhausted").loader(4)
    again.load_state_dict(state)
    assert [x for each in taken for x in each] == batch["x"][15:30].tolist()
    assert [x for each in again for x in each["x"].tolist()] == batch["x"][30:45].tolist()


def test_functions_of_a_dataset_see_its_samples_alone():
    def flip(columns, keys):
        return {"y": -columns["x"], "key": keys}

    mixed = mix([numbers(8).map(lambda c: {"y": c["x"] * 2, "key": c["x"]}), numbers(8, 100).map(flip, seed=3)], [1, 1])
    whole = mixed[:]
    assert whole["y"].tolist() == [v for i in range(8) for v in (2 * i, -100 - i)]
    k = np.array([5, 2, 9, 1])
    assert np.array_equal(planned_samples(mixed).at(k)["key"], whole["key"][k])
    bad = mix([numbers(8).map(lambda c: {"y": c["x"]}), numbers(8).map(lambda c: {"z": c["x"]})], [1, 1])
    with pytest.raises(SpecError, match=r"expected the functions of all datasets to give \['y'\], got \['z'\]"):
        bad[:4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mix([]), "at least one dataset"),
        (lambda: mix(three(), [1, 2]), "expected 3 weights, one for each of"),
        (lambda: mix(three(), {"a": 1, "b": 2}), r"a weight for each of \['a', 'b', 'c'\], got \['a', 'b'\]"),
        (lambda: mix(three(), [1, -1, 1]), "got -1 for source 1"),
        (lambda: mix(three(), [1, 1, 1], unit="bytes"), "got 'bytes'"),
        (lambda: mix(three(), [1, 1, 1], stop="soon"), "'soon'"),
        (lambda: mix([numbers(3), numbers(3)], label="x"), "no output named 'x'"),
        (
            lambda: mix([numbers(4).filter(lambda c: c["x"] > 9), numbers(4)], [1, 1]),
            "keeps none of 4 samples; give it weight 0",
        ),
    ],
)
def test_what_cannot_be_mixed_says_so(call: Any, message: str):
    with pytest.raises(PlanError, match=message):
        call()


def test_a_thousand_datasets():
    parts = [numbers(20, 100 * i) for i in range(1000)]
    mixed = mix(parts, list(range(1, 1001)), stop=5000)
    counts = np.bincount(mixed[:]["source"], minlength=1000)
    wanted = np.arange(1, 1001) / 500500 * 5000
    assert np.abs(counts - wanted).max() < 2


def test_shares_can_be_asked_for():
    report = mix(three(), [0.5, 0.3, 0.2]).plan.report()
    assert [part.samples for part in report.parts] == [50, 30, 20]
    assert [part.rows for part in report.parts] == [50, 30, 20]


def test_a_column_may_be_aligned_otherwise_in_another_dataset():
    steps = penstock.from_arrays({"x": np.arange(4)}, lengths=[2, 2]).steps()
    boundary = (
        penstock.from_arrays({"x": np.arange(6) + 100, "a": np.zeros(4)}, lengths=[2, 2]).steps().select_columns("x")
    )
    mixed = mix([steps, boundary], [1, 1])
    assert mixed[:]["x"].tolist() == [0, 100, 1, 101, 2, 103, 3, 104]
    loader = mixed.loader(8, threads=0)
    assert loader.why(next(iter(loader)).ticket).table["episode"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_ragged_columns_of_windows_through_functions_and_blocks():
    """A grid of ragged rows stays one where parts are joined again."""

    def part(base):
        words = Ragged.from_rows([[base + i] * (i % 3) for i in range(8)], "i8")
        return penstock.from_arrays({"x": np.arange(8), "words": words}, [3, 5]).windows(2)

    mixed = mix([part(10).map(lambda c: {**c.flat}), part(20)], [1, 1])
    words = mixed[:]["words"]
    assert words.shape == (len(mixed), 2)
    assert [row.tolist() for row in (words[1][0], words[1][1], words[2][1])] == [[], [21], [12, 12]]
    blocks = list(penstock.IterDataset.of(mixed, 3).rebatch(4))
    assert [block["words"].shape for block in blocks] == [(4, 2), (4, 2), (4, 2)]
    assert [v for block in blocks for v in block["words"].values.tolist()] == words.values.tolist()


def test_a_part_leaves_after_its_passes() -> None:
    parts = {"web": numbers(100, 0), "books": numbers(6, 100), "wiki": numbers(4, 200)}
    run = mix(parts, [2, 1, 1], stop=80, max_repeats={"books": 1.5, "wiki": 2})
    seen = run[:]["x"]
    assert np.bincount(seen)[100:106].tolist() == [2, 2, 2, 1, 1, 1]
    assert np.bincount(seen)[200:].tolist() == [2] * 4
    assert (seen < 100).sum() == 80 - 9 - 8
    assert planned_samples(run).at(np.array([79, 3]))["x"].tolist() == [seen[79], seen[3]]
    assert run.fingerprint != mix(parts, [2, 1, 1], stop=80).fingerprint
    every = mix(parts, [2, 1, 1], stop="drain", max_repeats=3)
    assert np.bincount(every[:]["x"])[np.r_[0:106, 200:204]].tolist() == [3] * 100 + [3] * 6 + [3] * 4


@pytest.mark.parametrize(
    ("repeats", "stop", "message"),
    [
        ({"other": 1}, 10, "some of"),
        ({"books": 0}, 10, "above 0"),
        ({"books": "two"}, 10, "above 0"),
        (2, 300, "at most 212 samples"),
        (2, "never", "at most 212 samples"),
        (2, "first_exhausted", "use stop='drain'"),
    ],
)
def test_limits_that_cannot_be_kept(repeats: Any, stop: Any, message: str) -> None:
    parts = {"web": numbers(100, 0), "books": numbers(6, 100)}
    with pytest.raises(PlanError, match=message):
        mix(parts, [1, 1], stop=stop, max_repeats=repeats)
