"""Statistics against NumPy and against what LeRobot wrote; merging in any order and partition."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.arrays import AnyArray
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.data import column_counters, summarize
from penstock.data.statistics import Statistics
from penstock.errors import ArgumentError, FormatError, PlanError, SpecError
from penstock.formats.memory import MemorySource


def dataset(lengths: list[int], seed: int = 0) -> penstock.EpisodeDataset:
    rng = np.random.default_rng(seed)
    n, e = sum(lengths), len(lengths)
    columns = {
        "observations/state": rng.normal(3, 2, (n + e, 3)).astype("f4"),
        "actions": rng.integers(-5, 300, n),
        "rewards": rng.normal(1e9, 1, n),
        "pixels": rng.integers(0, 256, (n, 16, 16, 3), dtype=np.uint8),
        "done": rng.random(n) < 0.1,
        "half": rng.normal(size=(n, 2)).astype("f2"),
        "tokens": Ragged.from_rows([np.arange(i % 4) for i in range(n)], "i4"),
        "task": Ragged.from_strings([f"task {i % 2}" for i in range(e)]),
    }
    made = penstock.from_arrays(columns, lengths, align={"task": "episode"})
    spec = Spec({**made.spec.fields, "task": replace(made.spec["task"], kind="text")})
    return penstock.EpisodeDataset(MemorySource(spec, columns, made.source.offsets))


def check(found: penstock.data.statistics.ColumnStatistics, rows: AnyArray) -> None:
    values = rows.astype(np.float64)
    finite = np.isfinite(values)
    shown = np.where(finite, values, np.nan)
    assert found.count.tolist() == finite.sum(axis=0).tolist()
    assert found.nans.tolist() == np.isnan(values).sum(axis=0).tolist()
    assert found.infinities.tolist() == np.isinf(values).sum(axis=0).tolist()
    np.testing.assert_array_equal(found.min, np.nanmin(shown, axis=0))
    np.testing.assert_array_equal(found.max, np.nanmax(shown, axis=0))
    np.testing.assert_allclose(found.mean, np.nanmean(shown, axis=0), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(found.std, np.nanstd(shown, axis=0), rtol=1e-8, atol=1e-12)
    for q in (0, 0.01, 0.3, 0.5, 0.99, 1):
        exact = np.nanquantile(shown, q, axis=0, method="inverted_cdf")
        assert np.all(abs(found.quantile(q) - exact) <= abs(exact) / 256 + 1e-38)


@pytest.mark.parametrize("threads", [0, 3])
def test_every_column_has_the_figures_of_numpy(threads: int) -> None:
    lengths = [1, 0, 2500, 7, 1024, 1025]
    data = dataset(lengths)
    found = penstock.statistics(data, threads=threads)
    episodes = list(data)
    for path in ("actions", "rewards", "half"):
        check(found[path], np.concatenate([e.columns[path] for e in episodes]))
    check(found["observations/state"], np.concatenate([e.columns["observations/state"] for e in episodes]))
    check(found["done"], np.concatenate([e.columns["done"] for e in episodes]).astype(int))
    check(found["tokens"], np.concatenate([e.columns["tokens"].values for e in episodes]))
    pixels = np.concatenate([e.columns["pixels"] for e in episodes]).reshape(-1, 3)
    assert found["pixels"].shape == (1, 1, 3)
    np.testing.assert_array_equal(found["pixels"].mean.ravel(), pixels.mean(axis=0))
    np.testing.assert_array_equal(
        found["pixels"].quantile([0.1, 0.5]).reshape(2, 3),
        np.quantile(pixels, [0.1, 0.5], axis=0, method="inverted_cdf"),
    )
    assert found.skipped == {"task": "it is text"}
    counts, edges = found["actions"].histogram(7)
    assert counts.sum() == sum(lengths)
    assert edges[[0, -1]].tolist() == [found["actions"].min, found["actions"].max]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 1100), min_size=1, max_size=6),
    st.integers(0, 99),
    st.randoms(use_true_random=False),
)
def test_no_partition_and_no_order_changes_a_bit(lengths: list[int], seed: int, random: object) -> None:
    data = dataset(lengths, seed).source
    whole = penstock.EpisodeDataset(data)
    numbers = list(range(len(whole)))
    random.shuffle(numbers)  # type: ignore[attr-defined]
    cut = len(numbers) // 2
    parts = [penstock.statistics(whole[part], threads=0) for part in (numbers[:cut], numbers[cut:]) if part]
    merged = parts[0]
    for part in parts[1:]:
        merged = part | merged
    assert merged == penstock.statistics(whole, threads=2)


def test_values_that_are_not_finite_are_counted_apart() -> None:
    values = np.array([[1.0, np.nan], [np.inf, np.nan], [-np.inf, np.nan], [3.0, np.nan]])
    found = penstock.statistics(penstock.from_arrays({"x": values}, lengths=[4]))["x"]
    assert found.count.tolist() == [2, 0]
    assert found.nans.tolist() == [0, 4]
    assert found.infinities.tolist() == [2, 0]
    assert found.mean[0] == 2
    assert found.std[0] == 1
    for figure in (found.mean, found.std, found.min, found.max, found.quantile(0.5)):
        assert math.isnan(figure[1])


def column(values: AnyArray) -> penstock.data.statistics.ColumnStatistics:
    data = penstock.from_arrays({"x": values}, lengths=[len(values)], align={"x": "step"})
    return penstock.statistics(data, threads=0)["x"]


@pytest.mark.parametrize("n", [1, 3, 10, 1000, 1025, 5000])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 123.456, 1e9 + 0.1, 7.7e-5, -5e-324, 1e-200, 1e150, 1.7e308])
def test_equal_values_have_a_deviation_of_zero_and_their_value_as_mean(n: int, value: float) -> None:
    found = column(np.full((n, 2), value))
    assert found.std.tolist() == [0, 0]
    assert found.mean.tolist() == [value, value]
    assert found.quantile([0, 0.5, 1]).tolist() == [[value] * 2] * 3
    counts, edges = found.histogram(3)
    assert counts[0].tolist() == [0, 0, n]
    assert edges[0].tolist() == [value] * 4
    assert found.why_no_histogram((0,)) == "constant"


@pytest.mark.parametrize(
    "values",
    [
        [0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2],
        [1.0, np.nextafter(1, 2)],
        1.7e9 + np.arange(3) * 2.4e-7,
        [0.0, 1e-323],
        [1e-200, 3e-200, 2e-200],
        [1.7e308, -1.7e308, 0.0],
        [1e150, 1.0, -2e150],
        1_732_752_000_000_000_000 + np.arange(20) * 1000,
        [2**62 + 12345, 2**62],
    ],
)
def test_values_of_any_size_and_distance_have_figures(values: AnyArray, tmp_path: Path) -> None:
    """Python's fractions are the reference; the deviation of values that differ by rounding is within its bounds."""
    given = np.asarray(values)
    found = column(given)
    exact = [Fraction(float(x)) for x in given]
    mean = sum(exact) / len(exact)
    assert (int(found.count), int(found.infinities)) == (len(exact), 0)
    assert (found.min, found.max) == (min(exact), max(exact))
    rounding = (max(exact) - min(exact)) * Fraction(2) ** -43 + abs(mean) * Fraction(2) ** -53 + Fraction(5e-324)
    assert abs(Fraction(float(found.mean)) - mean) <= rounding
    spread = float(max(exact) / 2 - min(exact) / 2)
    assert 0 < found.std <= spread
    if spread > 1e-8 * max(map(abs, given.astype(float).tolist())) and spread > 1e-150:
        scale = Fraction(spread)
        variance = sum(((x - mean) / scale) ** 2 for x in exact) / len(exact)
        assert float(found.std) / spread == pytest.approx(math.sqrt(variance), rel=1e-9)
    for bins in (1, 20, 1000):
        counts, edges = found.histogram(bins)
        assert counts.sum() == len(exact)
        assert (edges[0], edges[-1]) == (found.min, found.max)
        assert (np.diff(edges.astype(np.longdouble)) >= 0).all()
    statistics = penstock.Statistics({"x": found})
    statistics.save(tmp_path / "saved.json")
    assert Statistics.load(tmp_path / "saved.json") == statistics
    assert (found | found).std == pytest.approx(float(found.std), rel=0.5)


def test_values_beyond_float32_have_bounded_quantiles() -> None:
    found = column(np.array([1e-42, 3e-42, 3.3e-40, 1e-39, 1.0, 1e39, 1e40, 1e200]))
    assert found.quantile(2 / 8) == pytest.approx(3e-42, abs=1e-40)
    assert found.quantile([0, 5 / 8, 1]).tolist() == [1e-42, 1.0, 1e200]
    assert found.quantile([6 / 8, 7 / 8]).tolist() == [2.0**128] * 2


@pytest.mark.parametrize("lengths", [[3, 1, 2500], [1024, 0, 5]])
def test_final_observations_count_on_request(lengths: list[int]) -> None:
    data = dataset(lengths)
    rows = [np.asarray(episode.columns["observations/state"]) for episode in data]
    check(penstock.statistics(data)["observations/state"], np.concatenate(rows))
    of_steps = penstock.statistics(data, final_observations=False)
    check(of_steps["observations/state"], np.concatenate([each[:-1] for each in rows]))
    assert of_steps["actions"] == penstock.statistics(data)["actions"]
    assert of_steps["observations/state"].count.tolist() == [data.total_steps] * 3
    with pytest.raises(ArgumentError, match="expected final_observations= with episodes"):
        penstock.statistics(data.steps(), final_observations=False)


def test_rows_in_place_and_copied_rows_have_the_same_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column store is counted where it is mapped; also copied, in small blocks, with tables that run full."""
    data = dataset([1, 700, 0, 2500, 30], seed=4)
    penstock.convert(data, tmp_path / "store")
    with penstock.open(tmp_path / "store") as stored:
        assert stored.source.view_array("rewards", 1, 5) is not None
        whole = penstock.statistics(stored, threads=2)
    assert whole == penstock.statistics(data, threads=0)
    monkeypatch.setattr(MemorySource, "view_array", lambda *_: None)
    monkeypatch.setattr(summarize, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(column_counters, "MOST_VALUES", 5000)
    monkeypatch.setattr(column_counters, "MOST_LEAVES", 3)
    assert whole == penstock.statistics(data, threads=3)


def test_both_zeros_are_one_extreme() -> None:
    for values in ([0.0, -0.0], [-0.0, 0.0]):
        found = penstock.statistics(penstock.from_arrays({"x": values}, lengths=[1, 1]))["x"]
        assert not np.signbit([found.min, found.max]).any()
        each, counts = found.buckets[0]
        assert (each.tolist(), counts.tolist()) == ([0.0], [2])


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize(("shape", "channel"), [((3, 16, 20), 0), ((16, 20, 4), 2), ((2, 3, 16, 16), 1)])
def test_bytes_of_pictures_are_counted_by_channel(threads: int, shape: tuple[int, ...], channel: int) -> None:
    """Channels before or behind the pixels, and stacks of pictures."""
    rows = np.random.default_rng(7).integers(0, 256, (40, *shape), np.uint8)
    found = penstock.statistics(penstock.from_arrays({"x": rows}, lengths=[10] * 4), threads=threads)["x"]
    assert found.shape == tuple(n if i == channel else 1 for i, n in enumerate(shape))
    planes = np.moveaxis(rows, channel + 1, 0).reshape(shape[channel], -1)
    np.testing.assert_allclose(found.mean.ravel(), planes.mean(axis=1), rtol=1e-14)
    assert [counts.sum() for _, counts in found.buckets] == [planes.shape[1]] * len(planes)


@pytest.mark.parametrize("shape", [(300,), (70, 70), (3, 40, 40), (40, 40, 3)])
def test_wide_rows(shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(1).normal(size=(50, *shape)).astype("f4")
    found = penstock.statistics(penstock.from_arrays({"x": rows}, lengths=[20, 30]))["x"]
    if shape == (300,):
        np.testing.assert_allclose(found.mean, rows.astype("f8").mean(axis=0), rtol=1e-12)
        assert len(found.buckets) == 1
        assert found.quantile(0.5).shape == (300,)
        assert abs(found.quantile(0.5)[0] - np.quantile(rows, 0.5)) < 0.01
    else:
        channels = {(70, 70): (0, 1, 2), (3, 40, 40): (0, 2, 3), (40, 40, 3): (0, 1, 2)}[shape]
        expected = rows.astype("f8").mean(axis=channels, keepdims=True)[0]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found.mean, expected, rtol=1e-12)


def test_groups_by_text_by_metadata_and_by_labels() -> None:
    data = dataset([3, 4, 5])
    by_task = penstock.statistics(data, ["actions"], by="task")
    assert sorted(by_task.groups) == ["task 0", "task 1"]
    assert by_task.groups["task 1"] == penstock.statistics(data[[1]], ["actions"])
    labels = penstock.statistics(data, ["actions"], by=["a", "b", "a"])
    assert labels.groups["a"] == penstock.statistics(data[[0, 2]], ["actions"])
    assert by_task["actions"] == labels["actions"]
    with pytest.raises(PlanError, match="'taks', which episode 0 lacks; did you mean 'task'"):
        penstock.statistics(data, by="taks")
    with pytest.raises(PlanError, match="a label for each of 3 episodes, got 1"):
        penstock.statistics(data, by=["a"])


def test_samples_count_as_often_as_they_are_drawn_and_without_padding() -> None:
    data = dataset([3, 4])
    windows = data.windows(3, stride=1, pad="zero", past=1).select_columns("actions")
    rows = windows[:]
    real = rows["actions"][rows["mask"]]
    found = penstock.statistics(windows.shuffle(seed=2))
    check(found["actions"], real)
    assert list(found) == ["actions"]
    drawn = penstock.statistics(windows, samples=2 * len(windows))
    assert drawn["actions"].count == 2 * len(real)
    with pytest.raises(PlanError, match="give the number to draw"):
        penstock.statistics(penstock.mix([windows, windows], stop="never"))
    packed = penstock.statistics(data.sequences().select_columns("actions").pack(16))
    assert packed["actions"] == penstock.statistics(data, ["actions"])["actions"]


def test_a_mix_counts_by_its_shares_and_its_sources() -> None:
    one, other = (penstock.from_arrays({"x": np.full(8, v)}, lengths=[8]).steps() for v in (1.0, 5.0))
    mixed = penstock.mix({"a": one, "b": other}, weights=[3, 1], stop="first_exhausted")
    found = penstock.statistics(mixed, samples=8)
    assert found["x"].mean == 2
    seen = penstock.statistics(mixed, samples=8, by="x")
    assert {label: int(group["x"].count) for label, group in seen.groups.items()} == {1.0: 6, 5.0: 2}


def test_mapped_samples() -> None:
    data = dataset([5]).steps().map(lambda c: {"double": c["actions"] * 2.0})
    check(penstock.statistics(data)["double"], data[:]["double"])


def test_saved_statistics_are_the_same(tmp_path: Path) -> None:
    found = penstock.statistics(dataset([4, 1100]), by="task")
    found.save(tmp_path / "stats.json")
    loaded = Statistics.load(tmp_path / "stats.json")
    assert loaded == found
    assert loaded.groups == found.groups
    assert loaded["rewards"].quantile(0.3) == found["rewards"].quantile(0.3)
    for text in ("[1]", "{", "{}", '{"penstock_statistics": 1}', '{"penstock_statistics": 1, "columns": {"x": {}}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FormatError):
            Statistics.load(tmp_path / "bad.json")


def test_wrong_arguments() -> None:
    data = dataset([2])
    with pytest.raises(SpecError, match="did you mean 'actions'"):
        penstock.statistics(data, ["action"])
    with pytest.raises(SpecError, match="got task: it is text"):
        penstock.statistics(data, ["task"])
    with pytest.raises(ArgumentError, match="with episodes"):
        penstock.statistics(data, samples=3)
    with pytest.raises(ArgumentError, match="got list"):
        penstock.statistics([])  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="within 0 and 1"):
        penstock.statistics(data)["actions"].quantile(2)
    with pytest.raises(KeyError, match="it is text"):
        penstock.statistics(data)["task"]
    with pytest.raises(SpecError, match="equal shapes"):
        penstock.statistics(data)["half"] | penstock.statistics(data)["actions"]
    assert list(penstock.statistics(data[[]])) == []


def test_figures_that_lerobot_wrote() -> None:
    """Its `stats.json` has the same counts, extremes, means and deviations; its quantiles are means over episodes."""
    golden = Path(__file__).parents[1] / "golden" / "statistics"
    stored = json.loads((golden / "lerobot_stats.json").read_text())
    columns = np.load(golden / "lerobot_columns.npz")
    lengths = columns["lengths"].tolist()
    found = penstock.statistics(
        penstock.from_arrays({k: columns[k] for k in columns.files if k != "lengths"}, lengths=lengths)
    )
    for path, column in found.items():
        for figure in ("min", "max", "mean", "std"):
            ours, theirs = np.ravel(getattr(column, figure)), np.array(stored[path][figure], np.float64)
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-7, err_msg=f"{path} {figure}")
        assert set(np.ravel(column.count)) == set(stored[path]["count"])
