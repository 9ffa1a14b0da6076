"""Pictures of plans: their lines are the rows that batches have, and their measures those of plain loops."""

# pyright: basic

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest

import penstock
from penstock.data.plan_figures import BatchGrid, batches_drawing, layout_drawing, mixing_drawing, shares_drawing
from penstock.errors import PlanError

LENGTHS = [3, 0, 7, 5, 0, 4, 9, 6]


def episodes(lengths=LENGTHS, first=0):
    """Values are the numbers of their rows, so that a batch says where it is from."""
    return penstock.from_arrays({"x": np.arange(first, first + sum(lengths))}, list(lengths))


PLANS = {
    "steps": lambda: episodes().steps().shuffle(seed=2),
    "padded windows": lambda: episodes().windows(4, past=1, pad="zero").shuffle(seed=1),
    "sequences": lambda: episodes().filter("total_steps > 0").sequences(),
    "packs": lambda: episodes().sequences().pack(12).shuffle(seed=1),
    "packs of a mix": lambda: penstock.mix(
        {"a": episodes().sequences(), "b": episodes(first=sum(LENGTHS)).sequences()}, [1, 1], stop="all_exhausted"
    ).pack(20),
}


@pytest.mark.parametrize("name", PLANS)
def test_lines_are_the_rows_of_the_batches(name):
    data = PLANS[name]()
    picture = data.show(3, batches=4)
    loader = data.loader(batch_size=3)
    assert picture.edges.tolist() == loader.show(4).edges.tolist()
    rows = picture.rows
    for number, batch in zip(range(len(picture.edges) - 1), loader, strict=False):
        lo, hi = picture.edges[number : number + 2].tolist()
        assert batch.n == hi - lo
        expected = np.full((batch.n, int(picture.widths[number])), -1)
        for i in np.flatnonzero((rows["sample"] >= lo) & (rows["sample"] < hi)).tolist():
            first = int(rows["first_row"][i]) + int(rows["source"][i]) * sum(LENGTHS)
            place, n = int(rows["place"][i]), int(rows["rows"][i])
            expected[rows["sample"][i] - lo, place : place + n] = np.arange(first, first + n)
        values = batch["x"].reshape(expected.shape)
        assert np.array_equal(values[expected >= 0], expected[expected >= 0])
        assert (expected >= 0).sum() == (batch["mask"].sum() if "mask" in batch else _real(batch, values))
    covered = sum(int(np.diff(picture.edges)[i]) * int(picture.widths[i]) for i in range(len(picture.widths)))
    assert picture.padding == pytest.approx(1 - int(rows["rows"].sum()) / covered)


def _real(batch, values):
    return (batch["segment_ids"] > 0).sum() if "segment_ids" in batch else values.size


def test_planned_batches_keep_their_sizes_and_widths():
    data = episodes([5, 1, 4, 2, 8, 3, 3]).sequences().shuffle(seed=1).apply(penstock.transforms.Batches(tokens=10))
    picture = data.show(batches=3)
    batches = list(data.loader())[:3]
    assert [batch["x"].shape for batch in batches] == [*zip(np.diff(picture.edges), picture.widths, strict=True)]
    with pytest.raises(PlanError, match="batches are planned"):
        data.show(4)


def test_a_loader_shows_what_comes_next_without_skipped_samples():
    loader = episodes().steps().loader(batch_size=8)
    next(iter(loader))
    loader.skip((10, 20))
    loader.load_state_dict(loader.state_dict())
    batch = next(iter(loader))
    assert loader.show(2).positions[0] == 26
    loader.load_state_dict({**loader.state_dict(), "position": 8})
    assert loader.show(1).rows["first_row"].tolist() == batch["x"].tolist()
    assert loader.show(2, position=0).positions.tolist() == [*range(10), *range(20, 26)]
    assert episodes().steps().loader(8, rank=1, world=2).show(1).positions.tolist() == list(range(8))
    for wrong in ({"batches": 0}, {"position": -1}):
        with pytest.raises(PlanError):
            loader.show(**wrong)
    with pytest.raises(PlanError, match="stream"):
        penstock.IterDataset.of(episodes().steps(), 4).loader().show()


@pytest.mark.parametrize("seed", range(3))
def test_mixing_is_that_of_a_plain_loop(seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 30, 20).tolist()
    data = episodes(lengths).steps().shuffle(seed=seed, block=8, pool=2)
    mixing = data.show(16).mixing
    episode_of = np.repeat(np.arange(20), lengths)
    order = episode_of[data[:]["x"]].tolist()
    for lag, same in zip(mixing.lags, mixing.same, strict=True):
        assert same == pytest.approx(np.mean([a == b for a, b in zip(order, order[lag:], strict=False)]))
    n = len(order)
    pairs = sum(c * (c - 1) for c in Counter(order).values())
    assert mixing.chance == pytest.approx(pairs / (n * (n - 1)))
    groups = [order[i : i + 16] for i in range(0, n - 15, 16)]
    assert mixing.episodes == pytest.approx(np.mean([len(set(group)) for group in groups]))
    assert mixing.whole


def test_large_orders_are_sampled_and_judged():
    data = episodes([400] * 1000).steps()
    plain, blocks, full = (each.show(64).mixing for each in (data, data.shuffle(1, block=64, pool=8), data.shuffle(1)))
    for mixing in (plain, blocks, full):
        assert not mixing.whole
        assert mixing.chance == pytest.approx(1 / 1000, rel=0.05)
    assert plain.same[0] == pytest.approx(1 - 1 / 400, abs=1e-3)
    assert "shuffle() mixes all" in plain.sentence
    assert "as often as by chance" in blocks.sentence
    assert full.sentence.endswith("well mixed")
    assert full.episodes == pytest.approx(full.expected, rel=0.02)
    assert "nothing to mix" in episodes([50]).steps().show().mixing.sentence
    assert episodes([1]).steps().show().mixing is None


def test_shares_of_a_mix_follow_their_targets():
    a, b = episodes([10] * 50).windows(2).shuffle(1), episodes([10] * 50).windows(4).select_columns("x").shuffle(2)
    parts = {"a": a, "b": a}
    shares = penstock.mix(parts, [(0, [0.75, 0.25]), (20_000, [0.25, 0.75])], stop=40_000).show().shares
    assert shares.names == ("a", "b")
    np.testing.assert_allclose(shares.taken, shares.target, atol=0.01)
    assert shares.target[0].tolist() == [0.75, 0.25]
    assert shares.target[-1].tolist() == [0.25, 0.75]
    rows = penstock.mix({"short": a, "long": b}, [1, 1], stop="never", union=True).show().shares
    np.testing.assert_allclose(rows.samples, [0.5, 0.5], atol=0.01)
    np.testing.assert_allclose(rows.rows, [1 / 3, 2 / 3], atol=0.01)
    assert a.show().shares is None
    drained = penstock.mix({"a": a, "b": episodes([10] * 5).windows(2)}, [1, 1], stop="drain").show().shares
    assert drained.taken[0].tolist() == pytest.approx([0.5, 0.5], abs=0.2)
    assert drained.taken[-1].tolist() == [1, 0]


def test_what_cannot_be_shown():
    with pytest.raises(PlanError, match="samples"):
        episodes().windows(99).show()
    for wrong in ({"batch_size": 0}, {"batches": 0}, {"position": -1}):
        with pytest.raises(PlanError):
            episodes().steps().show(**wrong)


@pytest.mark.parametrize("name", PLANS)
def test_pictures_have_a_cell_for_each_sample(name):
    picture = PLANS[name]().show(3, batches=4)
    assert BatchGrid.of(picture).columns == 3
    for by in ("part", "episode"):
        drawn = batches_drawing(picture, by, 300).html
        assert drawn.count("z") == len(np.unique(picture.rows["sample"]))
        ET.fromstring(drawn)
        assert layout_drawing(picture, by, 300).html.count("z") == len(picture.rows["sample"])
    page = picture._repr_html_()
    assert "<script" not in page
    assert "style=" not in "".join(re.findall("<svg.*?</svg>", page))  # the viewer's policy refuses them
    for made in (mixing_drawing(picture), shares_drawing(picture)):
        if made is not None:
            ET.fromstring(made.html)


def test_large_batches_are_drawn_in_part():
    picture = episodes([1000] * 20).steps().show(5000, batches=4)
    assert BatchGrid.of(picture).columns == 256
    assert len(batches_drawing(picture, "episode", 300).html) < 100_000
