"""Columns with times of their own, joined by a clock: against `pandas.merge_asof` and `numpy.interp`."""

# pyright: basic

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pandas as pd
import pytest
from PIL import Image

import penstock
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.errors import ArgumentError, DamageWarning, FormatError
from penstock.formats.base.source import Source
from penstock.formats.mapping import FORMAT
from penstock.formats.mapping.clocks import SECOND, SortedTimes, match
from penstock.formats.mapping.rules import EpisodeMapping, toml_of
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract

DIRECTIONS = {"last": "backward", "next": "forward", "nearest": "nearest"}


def opened(path: Path, **entries: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        return penstock.open(path, format="mapping", **entries)


@pytest.mark.parametrize("rule", list(DIRECTIONS))
def test_rows_are_those_of_merge_asof(rule: Any) -> None:
    """Random times with repeats, ties, none at all, and tolerances that are met exactly."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        times = np.sort(rng.integers(0, 60, rng.integers(0, 40))) * SECOND // 10
        steps = np.sort(rng.integers(0, 60, rng.integers(0, 40))) * SECOND // 10
        within = float(rng.choice([0.0, 0.1, 0.3, 100.0]))
        left, right = pd.DataFrame({"t": steps}), pd.DataFrame({"t": times, "row": np.arange(len(times))})
        tolerance = round(within * SECOND)
        expected = pd.merge_asof(left, right, on="t", direction=DIRECTIONS[rule], tolerance=tolerance)["row"]
        rows = match(SortedTimes.of(times), steps, rule, within)
        assert rows.low.tolist() == np.asarray(expected.fillna(-1), int).tolist(), (seed, within)
        anywhere = pd.merge_asof(left, right, on="t", direction=DIRECTIONS[rule])["row"]
        assert rows.stale == np.count_nonzero(anywhere.notna() & expected.isna())


@pytest.mark.parametrize("seed", range(4))
def test_files_of_several_rates_are_one_episode(seed: int, tmp_path: Path) -> None:
    """A CSV file, an archive and a table with their own times: each column by its own rule, as pandas joins them."""
    rng = np.random.default_rng(seed)
    pose = pd.DataFrame({"t": np.sort(rng.uniform(0, 5, 50)).round(3), "x": rng.normal(size=50)})
    force = pd.DataFrame({"stamp": np.sort(rng.integers(0, 5 * 10**9, 500)), "f": rng.normal(size=500)})
    text = pd.DataFrame({"ms": np.sort(rng.integers(0, 5000, 9)), "say": [f"{seed}-{i}" for i in range(9)]})
    pose.to_csv(tmp_path / "pose_7.csv", index=False)
    np.savez(tmp_path / "force_7.npz", stamp=force["stamp"], f=force["f"].to_numpy(np.float32))
    text.to_parquet(tmp_path / "text_7.parquet")
    stamp, ms = {"from": "stamp", "unit": "ns"}, {"from": "ms", "unit": "ms"}
    entries: dict[str, Any] = {
        "files": "pose_{n}.csv",
        "columns": {
            "observations": "x",
            "force": {"files": "force_{n}.npz", "from": "f", "times": stamp, "within": 0.05, "rule": "nearest"},
            "line": {"files": "force_{n}.npz", "from": "f", "times": stamp, "rule": "linear"},
            "say": {"files": "text_{n}.parquet", "from": "say", "times": ms, "within": 10},
        },
        "clock": {"reference": "observations", "within": 0.2, "times": "t"},
    }
    with opened(tmp_path, **entries) as data:
        episode = data[0]
        account = data.source.account
    t = (pose["t"] * 1e9).round().astype("int64")
    joined = pd.DataFrame({"t": t, "x": pose["x"]})
    tolerance = 50_000_000
    joined = pd.merge_asof(
        joined, force.rename(columns={"stamp": "t"}), on="t", direction="nearest", tolerance=tolerance
    )
    joined = pd.merge_asof(joined, text.assign(t=text["ms"] * 10**6), on="t")
    stamps = force["stamp"].to_numpy()
    joined["line"] = np.interp(t, stamps, force["f"].to_numpy(np.float32))
    after = np.searchsorted(stamps, t)
    between = (after > 0) & (after < len(stamps))
    near = np.zeros(len(t), bool)
    inner = after[between]
    wait = np.maximum(stamps[inner] - t[between], t[between] - stamps[inner - 1])
    near[between] = wait <= 200_000_000
    kept = joined[joined["f"].notna() & joined["say"].notna() & near]
    assert 0 < len(kept) < len(t)
    assert np.array_equal(episode.columns["observations"], kept["x"])
    assert np.array_equal(episode.columns["force"], kept["f"].astype(np.float32))
    assert np.allclose(episode.columns["line"], kept["line"], rtol=1e-6)
    assert episode.columns["say"].strings() == kept["say"].tolist()
    start = int(np.asarray(kept["t"])[0])
    assert np.allclose(episode.columns["timestamps"], (kept["t"] - start) / 1e9)
    assert episode.metadata["start_ns"] == start
    entry = next(entry for entry in account.left_out if entry.reason == "unused-rows")
    assert entry.count == len(t) - len(kept)
    assert entry.message.startswith(f"{len(t) - len(kept)} of {len(t)} steps dropped")
    for name, column in (("force", "f"), ("say", "say")):
        if n := np.count_nonzero(joined[column].isna()):
            assert f"{name} has no row near enough for {n} step" in entry.message
    mapping = EpisodeMapping.of(entries)
    (tmp_path / "penstock.toml").write_text(toml_of(mapping))
    assert EpisodeMapping.at(tmp_path / "penstock.toml") == mapping
    assert tomllib.loads(toml_of(mapping)) == {"penstock_mapping": 1, **entries}


def two_rates(path: Path) -> dict[str, Any]:
    """Steps at 0.0, 0.1, ... 1.9 s but none from 0.8 to 1.2 s, and a slower column that starts at 0.25 s."""
    t = np.arange(20) / 10
    t = t[(t < 0.75) | (t > 1.25)]
    slow = 0.25 + np.arange(4) / 2
    np.savez(path, a=np.arange(len(t)), t=t, b=np.arange(4), tb=slow, start=[0.5, 1.4], stop=[0.6, 1.7], empty=[9.0])
    columns = {"a": "a", "b": {"from": "b", "times": "tb"}}
    return {"columns": columns, "leave_out": ["empty"]}


def test_steps_without_a_row_are_masked_or_an_error(tmp_path: Path) -> None:
    entries = two_rates(tmp_path / "a.npz")
    clock = {"reference": "a", "times": "t", "within": 0.3}
    with opened(tmp_path / "a.npz", **entries, clock={**clock, "outside": "mask"}) as data:
        masked = data[0].columns
        note = next(entry for entry in data.source.account.left_out if entry.reason == "not-stored")
    valid = masked["valid/b"]
    assert set(masked) == {"a", "b", "valid/b", "timestamps"}
    assert masked["b"].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 0, 0, 3, 3]
    assert np.flatnonzero(~valid).tolist() == [0, 1, 2, 6, 7, 11, 12]
    assert note.count == 7
    with opened(tmp_path / "a.npz", **entries, clock=clock) as data:
        dropped = data[0].columns
        message = next(entry.message for entry in data.source.account.left_out if entry.reason == "unused-rows")
    assert dropped["a"].tolist() == masked["a"][valid].tolist()
    assert dropped["b"].tolist() == masked["b"][valid].tolist()
    assert "steps on both sides follow one another" in message
    with pytest.raises(
        FormatError, match=r"expected a row of 'b' within .* got none for \d steps; the first is at 0.0"
    ):
        opened(tmp_path / "a.npz", **entries, clock={**clock, "outside": "error"})


def test_gaps_starts_stops_and_ids_end_episodes(tmp_path: Path) -> None:
    two_rates(tmp_path / "a.npz")
    clock = {"reference": "a", "times": "t", "within": 5}

    def episodes(**more: Any) -> tuple[list[list[int]], Any]:
        id = {"id": "b"} if more.pop("by_id", False) else {}
        with opened(tmp_path / "a.npz", columns={"a": "a"}, clock={**clock, **more}, **id) as data:
            return [episode.columns["a"].tolist() for episode in data], data.source.account

    assert episodes(gap=0.3)[0] == [list(range(8)), list(range(8, 15))]
    assert episodes(gap=0.3)[1].ends == "episodes end before 0.3 seconds without a step"
    assert episodes(gap=0.7)[0] == [list(range(15))]
    assert episodes(starts="start")[0] == [[5, 6, 7, 8], [9, 10, 11, 12, 13, 14]]
    assert episodes(stops="stop")[0] == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]
    both, account = episodes(starts="start", stops="stop")
    assert both == [[5, 6], [9, 10, 11, 12]]
    assert account.ends == "episodes start at the times of `start` and stop at the times of `stop`"
    outside = next(entry for entry in account.left_out if "before a start" in entry.message)
    assert outside.count == 15 - 6
    nothing, account = episodes(starts="empty")
    assert nothing == []
    assert any(entry.reason == "no-steps" and entry.count == 1 for entry in account.left_out)


def test_an_id_of_another_rate_ends_episodes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.arange(6), t=np.arange(6.0), trial=[3, 3, 4], tt=[1.0, 2.0, 3.5])
    columns = {"a": "a"}
    clock = {"reference": "a", "times": "t", "within": 1}
    with pytest.raises(FormatError, match="expected 3 times, one for each row of the column 'id', got 6"):
        opened(tmp_path / "a.npz", columns=columns, id="trial", clock=clock)
    np.savez(tmp_path / "a.npz", a=np.arange(6), t=np.arange(6.0), trial=[3, 3, 4, 4, 3, 3])
    with opened(tmp_path / "a.npz", columns=columns, id="trial", clock=clock) as data:
        assert [episode.columns["a"].tolist() for episode in data] == [[0, 1], [2, 3], [4, 5]]


def test_steps_at_a_rate_over_the_time_that_all_columns_have(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    t, u = np.sort(rng.uniform(10, 20, 300)), np.sort(rng.uniform(11, 19, 100))
    np.savez(tmp_path / "a.npz", x=rng.normal(size=(300, 2)), t=t, y=rng.normal(size=100), u=u)
    columns = {"x": {"from": "x", "times": "t"}, "y": {"from": "y", "times": "u", "rule": "last"}}
    clock = {"reference": 30, "rule": "linear", "within": 5}
    with opened(tmp_path / "a.npz", columns=columns, clock=clock) as data:
        episode, archive = data[0], np.load(tmp_path / "a.npz")
        assert data.metadata["fps"] == 30
    first = np.rint(u[0] * 1e9)
    steps = (first + np.arange(len(episode)) * (1e9 / 30)) / 1e9
    assert steps[-1] <= u[-1] < steps[-1] + 1 / 30 + 1e-9
    assert np.allclose(episode.columns["timestamps"], np.arange(len(episode)) / 30, atol=1e-8)
    expected = [np.interp(steps, t, archive["x"][:, i]) for i in range(2)]
    assert np.allclose(episode.columns["x"], np.stack(expected, 1), atol=1e-6)
    assert np.array_equal(episode.columns["y"], archive["y"][np.searchsorted(u, steps + 1e-9, side="right") - 1])


def test_linear_is_for_floating_point_numbers(tmp_path: Path) -> None:
    t = np.arange(4.0)
    np.savez(tmp_path / "a.npz", x=t, t=t, n=np.arange(4), on=t > 1, image=np.zeros((4, 2, 2), np.float32))
    for name in ("n", "on", "image"):
        with pytest.raises(
            FormatError, match="expected floating-point numbers, or a row of them, for the rule `linear`"
        ):
            opened(tmp_path / "a.npz", columns={"x": "x", name: name}, clock=clock_of("x", rule="linear"))
    columns = {"x": {"from": "x", "dtype": "int32"}}
    with pytest.raises(FormatError, match="for the rule `linear`"):
        opened(tmp_path / "a.npz", columns=columns, clock=clock_of("x", rule="linear"))


def clock_of(reference: str | float, **more: Any) -> dict[str, Any]:
    return {"reference": reference, "times": "t", "within": 1, **more}


@pytest.mark.parametrize(
    ("times", "unit", "message"),
    [
        (np.arange(3), None, "expected the unit of times that are whole numbers"),
        (np.array([0.0, np.nan, 1.0]), None, "expected a time in each row, got nan in row 1"),
        (np.array([0, 1, 2**62]), "s", "expected a time in each row, got 4611686018427387904 in row 2"),
        (np.zeros((3, 2)), None, "expected one time in each row"),
        (np.array(["1", "x", "y"]), None, "expected times as numbers, or as text such as"),
        (np.array(["2026-01-01", "", "2026-01-02"]), None, "expected a time in each row, got none in row 1"),
        (np.arange(2.0), None, "expected 3 times, one for each row of the column 'x', got 2"),
    ],
)
def test_wrong_times_are_named(times: Any, unit: str | None, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), t=times)
    rule = {"from": "t", "unit": unit} if unit else "t"
    with pytest.raises(FormatError, match=message):
        opened(tmp_path / "a.npz", columns={"x": "x"}, clock={"reference": "x", "within": 1, "times": rule})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"clock": {"within": 1}}, "expected reference of the clock: a column, or steps a second"),
        ({"clock": {"reference": 0, "within": 1}}, "expected reference of the clock"),
        ({"clock": {"reference": "x"}}, "expected within of the clock: the seconds"),
        ({"clock": {"reference": "x", "within": -1}}, "expected within of the clock"),
        ({"clock": clock_of("x", rule="lst")}, "expected rule of the clock among"),
        ({"clock": clock_of("x", outside="skip")}, "expected outside of the clock among"),
        ({"clock": clock_of("x", gap=0)}, "expected gap of the clock"),
        ({"clock": clock_of("x", slop=0)}, "the table clock has no entry 'slop'"),
        ({"clock": 3}, "expected a table, as in clock ="),
        ({"clock": clock_of("x"), "lengths": [3]}, "expected gap, starts or stops in the clock, or id, got lengths"),
        ({"columns": {"x": {"from": "x", "rule": "first"}}}, "expected rule of the column 'x' among"),
        ({"columns": {"x": {"from": "x", "within": "1"}}}, "expected within of the column 'x'"),
        ({"columns": {"x": {"from": "x", "times": 3}}}, "expected the array with the times of the column 'x'"),
        ({"columns": {"x": {"from": "x", "times": {"from": "t", "unit": "m"}}}}, "expected unit of the times of"),
        ({"columns": {"x": {"from": "x", "times": "t"}}}, "expected a clock for the times of the column 'x'"),
    ],
)
def test_wrong_entries_of_clocks_are_named(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        EpisodeMapping.of(entries)


def test_a_column_without_times_and_a_wrong_reference_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), t=np.arange(3.0))
    with pytest.raises(FormatError, match="expected the times of the column 'x', as in times"):
        opened(tmp_path / "a.npz", columns={"x": "x"}, clock={"reference": "x", "within": 1})
    with pytest.raises(FormatError, match=r"expected the reference 'y' of the clock among the columns \['x'\]"):
        opened(tmp_path / "a.npz", columns={"x": "x"}, clock=clock_of("y"))
    with pytest.raises(FormatError, match="expected an array 'tt'; did you mean 't'"):
        opened(tmp_path / "a.npz", columns={"x": "x"}, clock={"reference": "x", "within": 1, "times": "tt"})


def test_images_with_a_table_of_times_and_dates_as_text(tmp_path: Path) -> None:
    """A folder of images, whose times are in a table next to it, joined to a table with dates."""
    (tmp_path / "cam_0").mkdir()
    for i in range(5):
        Image.fromarray(np.full((4, 4), i, np.uint8)).save(tmp_path / f"cam_0/{i}.png")
    start = np.datetime64("2026-02-03T04:05:06", "ns")
    stamps = [f"{start + np.timedelta64(500 * i, 'ms')}Z" for i in range(5)]
    (tmp_path / "cam_0.csv").write_text("stamp\n" + "\n".join(stamps) + "\n")
    t = (start.astype("int64") / 1e9 + 0.1) + np.arange(10) / 4
    np.savez(tmp_path / "robot_0.npz", u=np.arange(10), t=t)
    times = {"from": "stamp", "files": "cam_{n}.csv"}
    columns = {"actions": "u", "observations/camera": {"files": "cam_{n}/*.png", "times": times}}
    with opened(tmp_path, files="robot_{n}.npz", columns=columns, clock=clock_of("actions")) as data:
        assert data[0].columns["actions"].tolist() == list(range(10))
        assert data[0].columns["observations/camera"][:, 0, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        window = data.windows(3)[[4]]
        assert window["observations/camera"][0, :, 0, 0].tolist() == [2, 2, 3]


class TestJoined(SourceContract):
    """Rows in any order, each with the time of its step, and rows of other times that no step takes."""

    examples: ClassVar[Sequence[Example]] = (
        Example(
            "joined",
            Spec(
                {
                    "observations": Field(np.dtype("f4"), (2,)),
                    "actions": Field(np.dtype("i8")),
                    "words": Field(np.dtype("u1"), kind="text"),
                    "tokens": Field(np.dtype("i4"), kind="ragged"),
                    "timestamps": Field(np.dtype("f8")),
                }
            ),
            (3, 1, 7, 2),
        ),
    )

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        rng = np.random.default_rng(3)
        columns: dict[str, Any] = {}
        with h5py.File(path / "all.h5", "w") as file:
            for e, episode in enumerate(episodes):
                group = file.create_group(f"run_{e}")
                group.attrs.update(episode.metadata)
                for name, column in episode.columns.items():
                    times = np.concatenate([np.arange(len(episode)), np.arange(len(episode)) + 0.5])
                    order = rng.permutation(len(times)) if name != "actions" else np.arange(len(episode))
                    rows = order % len(episode)
                    group[f"times/{name}"] = times[order] + 10 * e
                    if not isinstance(column, Ragged):
                        chunks = (1, *column.shape[1:])
                        group.create_dataset(name, data=column[rows], chunks=chunks)
                    elif episode.spec[name].kind == "text":
                        group.create_dataset(name, data=column.take(rows).strings(), dtype=h5py.string_dtype())
                    else:
                        made = group.create_dataset(name, (len(rows),), h5py.vlen_dtype(column.dtype))
                        for i, row in enumerate(rows):
                            made[i] = column[int(row)]
                    columns[name] = {"from": name, "times": f"times/{name}"}
        clock = {"reference": "actions", "within": 0.25}
        return FORMAT.open(path / "all.h5", group="run_{i}", columns=columns, clock=clock)

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        """Each also has the time at which it starts."""
        starts = [entries["start_ns"] for entries in source.episode_metadata(range(len(episodes)))]
        assert starts == [10 * e * SECOND for e in range(len(episodes))]
