"""`penstock stats` against the library, and its picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.data.statistics import Statistics
from tests.cli.conftest import Call


def test_the_table_has_the_figures(call: Call, recording: Path) -> None:
    answer = call("stats", recording)
    assert answer.code == 0
    found = penstock.statistics(penstock.open(recording))
    lines = {line.split()[0]: line.split() for line in answer.out.splitlines() if line.strip()}
    for i in range(4):
        column = found["observations"]
        figures = [column.mean[i], column.std[i], column.min[i], column.quantile(0.5)[i], column.max[i]]
        assert lines[f"observations[{i}]"][1:6] == [f"{figure:.3g}" for figure in figures]
    assert all(len(line) <= 100 for line in answer.out.splitlines())


@pytest.mark.parametrize("columns", [80, 30])
def test_narrow_terminals(call: Call, recording: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    answer = call("stats", recording)
    assert all(len(line) <= columns for line in answer.out.splitlines())
    assert "truncations" in answer.out


def test_json_and_the_file_are_the_statistics(call: Call, recording: Path, tmp_path: Path) -> None:
    data = penstock.open(recording)
    answer = call("stats", recording, "--json", "--column", "observations", "-o", tmp_path / "stats.json")
    expected = penstock.statistics(data, ["observations"])
    assert Statistics.from_json(answer.json) == expected == Statistics.load(tmp_path / "stats.json")
    part = call("stats", recording, "--json", "--episodes", "1:3", "--by", "seed").json
    assert Statistics.from_json(part) == penstock.statistics(data[[1, 2]], by="seed")
    assert len(part["groups"]) == 2


def test_the_picture_has_histograms(call: Call, recording: Path, tmp_path: Path) -> None:
    assert call("stats", recording, "--picture", tmp_path / "all.png", "--by", "seed").code == 0
    pixels = np.asarray(Image.open(tmp_path / "all.png").convert("RGB"))
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    assert call("stats", recording, "--picture", tmp_path / "all.txt").code == 2


def test_wide_columns_are_cut_and_text_is_named(call: Call, tmp_path: Path) -> None:
    columns = {"x": np.arange(60.0).reshape(3, 20), "y": np.array([1.0, np.nan, np.inf])}
    penstock.convert(penstock.from_arrays(columns, [3]), tmp_path / "wide")
    answer = call("stats", tmp_path / "wide")
    assert "x[7]" in answer.out
    assert "x[8]" not in answer.out
    assert "the first 8 elements of x; --all shows the others" in answer.out
    assert "left out: NaN, 1 in y" in answer.out
    assert "x[19]" in call("stats", tmp_path / "wide", "--all").out


def test_histograms_that_cannot_be_drawn_are_words(call: Call, tmp_path: Path) -> None:
    start = 1_732_752_000_000_000_000
    columns = {
        "rewards": np.array([0.1 + 0.2, 0.3] * 10),
        "still": np.full(20, 0.11),
        "start_ns": start + np.arange(20) * 1000,
        "huge": np.linspace(-1, 1, 20) * 1.7e308,
        "seed": np.full(20, 2**62 + 12345),
    }
    penstock.convert(penstock.from_arrays(columns, [10, 10]), tmp_path / "odd")
    answer = call("stats", tmp_path / "odd", "--picture", tmp_path / "odd.png")
    assert answer.code == 0
    lines = {line.split()[0]: line.rstrip() for line in answer.out.splitlines() if line.strip()}
    assert lines["rewards"].endswith("nearly constant")
    assert lines["start_ns"].endswith("nearly constant")
    assert lines["still"].split()[-1] == lines["seed"].split()[-1] == "constant"
    assert lines["huge"].endswith("too large to draw")


def test_final_observations_can_be_left_out(call: Call, recording: Path) -> None:
    data = penstock.open(recording)
    for options in ([], ["--jobs", "1"]):
        answer = call("stats", recording, "--no-final", "--json", *options)
        assert Statistics.from_json(answer.json) == penstock.statistics(data, final_observations=False)


def test_no_values_are_an_exit_code(call: Call, recording: Path) -> None:
    answer = call("stats", recording, "--where", "total_steps < 0")
    assert answer.code == 1
    assert "no columns of numbers with values" in answer.err
    assert call("stats", recording, "--column", "reward").code == 2
