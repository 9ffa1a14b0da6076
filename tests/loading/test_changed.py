"""A mix that changes in mid-run: each part goes on with its next sample, and tickets from before stay explainable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.map_dataset import MapDataset, planned_samples
from penstock.errors import PlanError, StateError
from penstock.loading import Loader
from penstock.plan.batched import Batches

SIZES = {"a": 17, "b": 40, "c": 5, "d": 29}


def part(name: str, seed: int = 3) -> MapDataset:
    """Samples that say their part and number, in another order every epoch."""
    first = 1000 * sorted(SIZES).index(name)
    return penstock.from_arrays({"x": np.arange(SIZES[name]) + first}, [SIZES[name]]).steps().shuffle(seed)


def mixed(weights: Mapping[str, Any], stop: Any = "never", **options: Any) -> MapDataset:
    return penstock.mix({name: part(name) for name in weights}, weights, stop=stop, **options)


def taken(loader: Loader, batches: int) -> list[int]:
    """Samples of some batches, over as many epochs as they need."""
    rows: list[int] = []
    while batches:
        for batch in loader:
            rows += batch["x"].tolist()
            batches -= 1
            if not batches:
                break
    return rows


def stored(loader: Loader) -> dict[str, Any]:
    return json.loads(json.dumps(loader.state_dict()))


def check_parts(rows: list[int]) -> None:
    """Each part was read in its order from its first sample on, so none is lost or repeated within an epoch of it."""
    for name in SIZES:
        mine = [x for x in rows if x // 1000 == sorted(SIZES).index(name)]
        assert mine == planned_samples(part(name)).at(np.arange(len(mine)))["x"].tolist()


WEIGHTS = st.dictionaries(st.sampled_from(sorted(SIZES)), st.integers(1, 9), min_size=1)
STOPS = st.sampled_from(["never", "first_exhausted", "all_exhausted", "drain", 31])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(WEIGHTS, STOPS, st.integers(1, 9)), min_size=2, max_size=4), st.integers(1, 7))
def test_no_sample_is_lost_or_repeated_within_a_part(runs: list[Any], batch_size: int) -> None:
    rows: list[int] = []
    state: dict[str, Any] | None = None
    for weights, stop, batches in runs:
        loader = mixed(weights, stop).loader(batch_size, threads=0)
        if state is not None:
            loader.load_state_dict(state, changed="continue")
        rows += taken(loader, batches)
        state = stored(loader)
    check_parts(rows)


@settings(max_examples=20, deadline=None)
@given(WEIGHTS, WEIGHTS, st.integers(0, 8), st.integers(1, 4))
def test_a_changed_run_is_resumed_on_any_ranks(before: Any, after: Any, batches: int, world: int) -> None:
    first = mixed(before).loader(6, threads=0)
    rows = taken(first, 4)
    whole = mixed(after).loader(6, threads=0)
    whole.load_state_dict(stored(first), changed="continue")
    expected = taken(whole, batches + 3)
    stopped = mixed(after).loader(6, threads=0)
    stopped.load_state_dict(stored(first), changed="continue")
    found = taken(stopped, batches)
    ranks = [mixed(after).loader(6, rank=rank, world=world, threads=0) for rank in range(world)]
    for each in ranks:
        each.load_state_dict(stored(stopped))
    for parts in zip(*(iter(each) for each in ranks), range(3), strict=False):
        found += [x for batch in parts[:-1] for x in batch["x"].tolist()]
    assert found == expected
    check_parts(rows + found)


def test_the_new_weights_hold_from_the_seam_on() -> None:
    loader = mixed({"a": 1, "b": 9}).loader(10, threads=0)
    taken(loader, 3)
    later = mixed({"a": 1, "b": 1, "d": 2}).loader(40, threads=0)
    later.load_state_dict(stored(loader), changed="continue")
    batch = next(iter(later))
    assert np.bincount(batch["source"]).tolist() == [10, 10, 20]
    assert later.state_dict()["position"] == 40


def test_a_part_that_returns_goes_on() -> None:
    rows: list[int] = []
    state = None
    for weights in ({"a": 1, "b": 1}, {"b": 1}, {"c": 2, "b": 1}, {"a": 1, "c": 1}):
        loader = mixed(weights).loader(4, threads=0)
        if state is not None:
            loader.load_state_dict(state, changed="continue")
        rows += taken(loader, 3)
        state = stored(loader)
    check_parts(rows)
    assert [list(seam["parts"]) for seam in state["seams"]] == [["a", "b"], ["b"], ["c", "b"]]


def test_tickets_from_before_stay_explainable() -> None:
    first = mixed({"a": 1, "b": 3}, label="from").loader(8, threads=0)
    old = [next(iter(first)), next(iter(first))]
    second = mixed({"b": 1, "a": 1}).loader(8, threads=0)
    second.load_state_dict(stored(first), changed="continue")
    between = next(iter(second))
    third = mixed({"a": 5, "b": 1, "c": 1}).loader(8, threads=0)
    third.load_state_dict(stored(second), changed="continue")
    batches = [*old, between, next(iter(third))]
    resumed = mixed({"a": 5, "b": 1, "c": 1}).loader(8, threads=0)
    resumed.load_state_dict(stored(third))
    for loader in (third, resumed):
        for batch in batches:
            table = loader.why(batch.ticket).table
            names = loader.why(batch.ticket).parts
            firsts = [1000 * sorted(SIZES).index(names[source]) for source in table["source"].tolist()]
            assert (np.array(firsts) + table["first_row"]).tolist() == batch["x"].tolist()
    alone = mixed({"c": 1}).loader(8, threads=0)
    alone.load_state_dict(stored(third), changed="continue")
    with pytest.raises(StateError, match="expected a ticket of the plan"):
        alone.why(old[0].ticket)  # the parts of that mix are not in this one
    kept = mixed({"a": 0, "b": 0, "c": 1}).loader(8, threads=0)
    kept.load_state_dict(stored(third), changed="continue")
    assert kept.why(old[0].ticket).table["first_row"].tolist() == resumed.why(old[0].ticket).table["first_row"].tolist()


def test_mixes_below_other_columns_functions_and_epoch_lengths() -> None:
    def chain(weights: Mapping[str, Any], length: int) -> MapDataset:
        data = mixed(weights).with_epoch_length(length).select_columns("x")
        return data.map(lambda columns: {"x": columns["x"] + 1, "source": columns["source"]})

    first = chain({"a": 1, "b": 1}, 10).loader(5, threads=0)
    rows = taken(first, 5)
    second = chain({"a": 1, "b": 2}, 12).loader(5, threads=0)
    second.load_state_dict(stored(first), changed="continue")
    rows += taken(second, 6)
    check_parts([x - 1 for x in rows])


def test_an_unchanged_mix_is_resumed_as_ever() -> None:
    loader = mixed({"a": 1, "b": 2}).loader(7, threads=0)
    rows = taken(loader, 3)
    again = mixed({"a": 1, "b": 2}).loader(7, threads=0)
    again.load_state_dict(stored(loader), changed="continue")
    state = stored(again)
    assert "seams" not in state
    assert state == stored(loader)
    old = {name: value for name, value in state.items() if name != "mix"}  # as it was saved before counts were
    again.load_state_dict(old)
    check_parts(rows + taken(again, 2))


def test_a_loader_that_continued_one_mix_loads_other_states() -> None:
    first = mixed({"a": 1, "b": 2}).loader(7, threads=0)
    taken(first, 2)
    loader = mixed({"a": 1, "b": 1}).loader(7, threads=0)
    start = stored(loader)
    loader.load_state_dict(stored(first), changed="continue")
    rows = taken(loader, 2)
    later = stored(loader)
    loader.load_state_dict(start)
    assert taken(loader, 1)[0] == part("a")[0]["x"]
    loader.load_state_dict(stored(first), changed="continue")
    assert taken(loader, 2) == rows
    loader.load_state_dict(later)
    loader.skip((20, 25))
    assert stored(loader)["skipped"] == [[20, 5]]


@pytest.mark.parametrize("seed", range(8))
def test_skipped_samples_ahead_stay_skipped_in_another_mix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    stops: list[Any] = ["never", "first_exhausted", "all_exhausted", 31]
    old = mixed({"a": 3, "b": 1, "c": 2}, stops[rng.integers(4)] if seed % 2 else "never")
    loader = old.loader(4, threads=0)
    rows = taken(loader, int(rng.integers(1, 9)))
    given = loader.state_dict()["position"]
    ahead = np.unique(given + rng.integers(0, 40, 9))
    loader.skip((max(given - 3, 0), given + 1))  # of which one is ahead
    for position in ahead.tolist():
        loader.skip((position, position + 1))
    state = stored(loader)
    weights = {"a": 1, "b": 2, "c": 1, "d": 1}
    new = mixed(weights, stops[rng.integers(4)] if seed % 3 else "never")
    later = new.loader(5, threads=0)
    later.load_state_dict(state, changed="continue")
    if rng.random() < 0.5:
        again = new.loader(3, threads=0)
        again.load_state_dict(stored(later))
        later = again
    rows = taken(later, 30)
    plan: Any = old.plan
    parts, j = plan.picks(np.unique([given, *ahead.tolist()]))
    for number, name in enumerate(sorted(SIZES)):
        mine = [x for x in rows if x // 1000 == number]
        begin = int(plan.counts(given)[number]) if number < 3 else 0
        left_out = j[parts == number].tolist()
        order = [k for k in range(begin, begin + len(mine) + 20) if k not in left_out][: len(mine)]
        assert mine == planned_samples(part(name)).at(np.array(order, np.int64))["x"].tolist()


def test_skipped_samples_that_cannot_be_found_are_not_dropped_in_silence() -> None:
    loader = mixed({"a": 1, "b": 2}).loader(7, threads=0)
    taken(loader, 2)
    loader.skip((20, 25))
    state = stored(loader)
    with pytest.raises(StateError, match=r"that left weight 0, or clear state\['skipped'\]"):
        mixed({"b": 1}).loader(7).load_state_dict(state, changed="continue")
    mixed({"b": 1, "a": 0}).loader(7).load_state_dict(state, changed="continue")
    mixed({"b": 1}).loader(7).load_state_dict({**state, "skipped": []}, changed="continue")
    loader.skip((0, 3))
    mixed({"b": 1}).loader(7).load_state_dict({**stored(loader), "skipped": [[0, 3]]}, changed="continue")
    loader.skip((30, 1 << 40))
    with pytest.raises(StateError, match="at most 65,536 skipped samples"):
        mixed({"b": 1, "a": 1}).loader(7).load_state_dict(stored(loader), changed="continue")


@pytest.mark.parametrize("seed", range(2))
def test_weights_batch_sizes_and_pack_lengths_are_annealed_together_and_changed(seed: int) -> None:
    """Ramps of a mix and of its batches count from the change, and ramps of the packs in its parts go on."""
    lengths = np.random.default_rng(seed).integers(1, 4, 9000).tolist()
    packs = {
        name: penstock.from_arrays({"x": np.arange(sum(lengths)) + first}, lengths)
        .sequences()
        .shuffle(seed)
        .pack([(0, 4), (40, 8)], method="next_fit")
        for name, first in (("a", 0), ("b", 100_000))
    }
    runs: list[Any] = [
        ([(0, [3, 1]), (40, [1, 1])], [(0, 4), (24, 8)]),
        ([(0, [1, 3]), (30, [9, 1])], [(0, 8), (16, 16)]),
    ]
    given = dict.fromkeys(packs, 0)
    state: Any = None
    for weights, ramp in runs:
        mix = penstock.mix(packs, weights, stop="never")
        loader = mix.loader(batch_size=Batches(ramp, sort=False, window=1024), threads=0, prefetch=1)
        if state is not None:
            loader.load_state_dict(state, changed="continue")
        sources: list[int] = []
        for batch in loader:
            assert batch.n == next(n for begin, n in reversed(ramp) if begin <= batch.ticket.position)
            for row, source in zip(batch["x"], batch["source"].tolist(), strict=True):
                name = "ab"[source]
                wanted = planned_samples(packs[name]).at(np.array([given[name]]))["x"][0]
                assert row[: len(wanted)].tolist() == wanted[: len(row)].tolist()
                given[name] += 1
            sources += batch["source"].tolist()
            if len(sources) >= 80:
                break
        begin = weights[1][0]
        for stretch, (_, share) in zip((sources[:begin], sources[begin:]), weights, strict=True):
            assert abs(stretch.count(0) - len(stretch) * share[0] / sum(share)) <= 1
        state = stored(loader)
    table = loader.why(batch.ticket).table
    assert table["position"].max() < loader.state_dict()["position"]


def test_what_cannot_be_continued_is_refused() -> None:
    loader = mixed({"a": 1, "b": 2}).loader(7, threads=0)
    taken(loader, 2)
    state = stored(loader)
    with pytest.raises(StateError, match="give changed='continue' to go on with other weights"):
        mixed({"a": 1}).loader(7).load_state_dict(state)
    other = penstock.mix({"a": part("a", seed=9), "b": part("b")})
    with pytest.raises(StateError, match=r"part 'a' of the mix .* give it another name"):
        other.loader(7).load_state_dict(state, changed="continue")
    with pytest.raises(StateError, match="expected a mix to continue"):
        part("a").loader(7).load_state_dict(state, changed="continue")
    alone = part("a").loader(7)
    assert "mix" not in alone.state_dict()
    with pytest.raises(StateError, match="not one of a mix that could be continued"):
        mixed({"a": 1}).loader(7).load_state_dict(alone.state_dict(), changed="continue")
    steady = mixed({"a": 17}, stop=17).filter(lambda columns: columns["x"] >= 0)
    with pytest.raises(StateError, match=r"can be made again .* Take.* before they are mixed"):
        steady.loader(7).load_state_dict(state, changed="continue")
    with pytest.raises(PlanError, match="changed to be one of"):
        loader.load_state_dict(state, changed="yes")
    for wrong in ([], {"position": 0}, {**state["mix"], "course": 3}, {**state["mix"], "parts": {"a": ["x", 3, 1]}}):
        with pytest.raises(StateError):
            mixed({"a": 1}).loader(7).load_state_dict({**state, "mix": wrong}, changed="continue")
    with pytest.raises(StateError):
        loader.load_state_dict({**state, "seams": 3})
    assert stored(loader) == state


def test_passes_count_over_a_change_of_weights() -> None:
    """A part that may be read twice gives the rest of both passes after the change, and tickets stay explainable."""
    few, many = (penstock.from_arrays({"x": np.arange(n) + first}, [n]).steps() for n, first in ((10, 0), (500, 100)))
    parts = {"few": few, "many": many}
    loader = penstock.mix(parts, [1, 1], stop=100, max_repeats={"few": 2}).loader(batch_size=30)
    first = next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    later = penstock.mix(parts, [3, 1], stop=60, max_repeats={"few": 2}).loader(batch_size=30)
    later.load_state_dict(state, changed="continue")
    seen = np.concatenate([first["x"], *(batch["x"] for batch in later)])
    assert np.bincount(seen)[:10].tolist() == [2] * 10
    assert np.bincount(seen)[100:].max() == 1
    again = penstock.mix(parts, [3, 1], stop=60, max_repeats={"few": 2}).loader(batch_size=30)
    again.load_state_dict(later.state_dict())
    assert len(again.why(first.ticket)) == 30


ABOVE: dict[str, tuple[Any, int]] = {  # a transform above a mix of 30 samples an epoch, and batches of 5 to its end
    "shuffle": (lambda data: data.shuffle(7), 6),
    "blocks": (lambda data: data.shuffle(7, block=3, pool=2), 6),
    "sorted batches": (lambda data: data.apply(penstock.transforms.Batches(5, seed=2)), 6),
    "shuffled and numbered": (lambda data: data.shuffle(7).with_epoch_length(30).select_columns("x"), 6),
    "two epochs": (lambda data: data.shuffle(7).repeat(2), 12),
}


@pytest.mark.parametrize("name", ABOVE)
@pytest.mark.parametrize("epochs", [1, 2])
def test_orders_above_a_mix_are_continued_at_the_end_of_an_epoch(name: str, epochs: int) -> None:
    above, batches = ABOVE[name]

    def loader(weights: Mapping[str, Any]) -> Loader:
        data = above(mixed(weights, stop=30))
        return data.loader(None if "batches" in name else 5, threads=0)

    first = loader({"a": 1, "b": 2})
    rows = taken(first, epochs * batches)
    later = loader({"a": 2, "b": 1, "d": 3})
    later.load_state_dict(stored(first), changed="continue")
    rows += taken(later, batches)
    for part_name in "abd":
        mine = sorted(x for x in rows if x // 1000 == sorted(SIZES).index(part_name))
        assert mine == sorted(planned_samples(part(part_name)).at(np.arange(len(mine)))["x"].tolist())
    again = loader({"a": 2, "b": 1, "d": 3})
    again.load_state_dict(stored(later))
    assert stored(again) == stored(later)
    assert again.why(next(iter(again)).ticket).table["rows"].tolist() == [1] * 5
    midway = loader({"a": 1, "b": 2})
    taken(midway, epochs * batches - 1)
    end = epochs * batches * 5 if name != "two epochs" else epochs * 60
    with pytest.raises(StateError, match=rf"expected a state at the end of an epoch, such as {end}, got one at"):
        loader({"a": 1}).load_state_dict(stored(midway), changed="continue")
    resumed = loader({"a": 1, "b": 2})
    resumed.load_state_dict(stored(midway))  # the same mix goes on anywhere
    assert len(taken(resumed, 1)) == 5


def test_packs_of_a_mix_are_continued_at_the_end_of_an_epoch() -> None:
    def loader(weights: Mapping[str, int]) -> Loader:
        parts = {
            name: penstock.from_arrays({"x": np.arange(40) + first}, [1, 3, 2, 4] * 4).sequences()
            for name, first in (("a", 0), ("b", 1000))
        }
        mix = penstock.mix({name: parts[name] for name in weights}, weights, stop=8, label=None)
        return mix.pack(6, repack=True, fill=-1).loader(2, threads=0)

    first = loader({"a": 1, "b": 1})
    rows = [x for batch in first for x in batch["x"].ravel().tolist() if x >= 0]
    later = loader({"a": 3, "b": 1})
    later.load_state_dict(stored(first), changed="continue")
    rows += [x for batch in later for x in batch["x"].ravel().tolist() if x >= 0]
    assert sorted(rows) == [*range(24), *range(1000, 1014)]  # 4 + 6 and 4 + 2 sequences
    midway = loader({"a": 1, "b": 1})
    taken(midway, 1)
    with pytest.raises(StateError, match="a shuffle, pack or sorted batches above the mix"):
        later.load_state_dict(stored(midway), changed="continue")


@pytest.mark.parametrize(
    "ordered", [lambda data: data.apply(penstock.transforms.Batches(5, sort=False)), lambda data: data.repeat(1)]
)
def test_orders_that_keep_the_one_of_the_mix_are_continued_anywhere(ordered: Any) -> None:
    def loader(weights: Mapping[str, Any]) -> Loader:
        data = ordered(mixed(weights, stop=60))
        return data.loader(None if "sort=False" in repr(data) else 5, threads=0)

    first = loader({"a": 1, "b": 2})
    rows = taken(first, 3)
    later = loader({"a": 2, "b": 1})
    later.load_state_dict(stored(first), changed="continue")
    check_parts(rows + taken(later, 9))


def test_shards_of_a_mix_are_continued_together() -> None:
    def shards(weights: Mapping[str, Any]) -> list[Loader]:
        return [
            mixed(weights).with_epoch_length(90).shard(i, 3).loader(5, threads=0, rank=0, world=1) for i in range(3)
        ]

    first, later = shards({"a": 1, "b": 2}), shards({"a": 2, "b": 1, "c": 1})
    each = [taken(loader, 2) for loader in first]
    rows = [x for together in zip(*each, strict=True) for x in together]
    for loader, before in zip(later, first, strict=True):
        loader.load_state_dict(stored(before), changed="continue")
    each = [taken(loader, 4) for loader in later]
    check_parts(rows + [x for together in zip(*each, strict=True) for x in together])


def test_mixes_within_a_mix_change_too() -> None:
    def loader(inner: Mapping[str, Any], outer: tuple[int, int]) -> Loader:
        within = mixed(inner, label=None)
        return penstock.mix({"both": within, "d": part("d")}, outer, stop="never").loader(6, threads=0)

    rows: list[int] = []
    state = None
    steps = [({"a": 1, "b": 2}, (2, 1)), ({"a": 3, "b": 1}, (2, 1)), ({"a": 3, "b": 1, "c": 1}, (1, 1))]
    for inner, outer in [*steps, steps[0]]:
        current = loader(inner, outer)
        if state is not None:
            current.load_state_dict(state, changed="continue")
        rows += taken(current, 4)
        state = stored(current)
        again = loader(inner, outer)
        again.load_state_dict(state)
        assert stored(again) == state
    check_parts(rows)
    shuffled = penstock.mix({"both": mixed({"a": 1, "b": 2}, stop=30).shuffle(1), "d": part("d")}, [2, 1], stop="never")
    first = shuffled.loader(6, threads=0)
    taken(first, 2)
    changed = penstock.mix({"both": mixed({"a": 2, "b": 1}, stop=30).shuffle(1), "d": part("d")}, [2, 1], stop="never")
    with pytest.raises(StateError, match="got one at position 8: a shuffle"):
        changed.loader(6).load_state_dict(stored(first), changed="continue")
