"""`penstock info` against what lies there, counted without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli.info import bytes_at, render, space_text, summarise
from penstock.cli.show import BARS
from penstock.core.damage import collected_damage
from penstock.core.spec import Field, Spec
from penstock.data.located import locate
from penstock.formats.base.returns import returns_of
from tests.cli.conftest import Call


def test_json_agrees_with_the_episodes(call: Call, recording: Path) -> None:
    told = call("info", recording, "--json").json
    with penstock.open(recording) as data:
        episodes = list(data)
        spec = data.spec
    lengths, returns = [len(e) for e in episodes], [e.total_reward for e in episodes]
    assert (told["path"], told["format"]) == (str(recording), "columns")
    assert (told["episodes"], told["steps"]) == (4, sum(lengths))
    assert told["lengths"] == {"min": min(lengths), "mean": np.mean(lengths), "max": max(lengths)}
    assert told["returns"] == {"min": min(returns), "mean": np.mean(returns), "max": max(returns)}
    assert told["bytes"] == sum(p.stat().st_size for p in recording.rglob("*") if p.is_file())
    assert list(told["columns"]) == list(spec)
    assert told["columns"]["observations"] == {"dtype": "<f4", "shape": [4], "align": "boundary", "kind": "array"}
    assert told["action_space"] == {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}
    assert told["metadata"]["author"] == "me"


def test_unbounded_spaces_are_json(call: Call, recording: Path) -> None:
    low = call("info", recording, "--json").json["observation_space"]["low"]
    assert low[1] is None or low[1] < -1e30


def test_the_picture_for_people(call: Call, recording: Path) -> None:
    answer = call("info", recording)
    assert answer.code == 0
    for text in ("cartpole", "columns", "4 of", "observations", "boundary", "Discrete(2)", "author", "me"):
        assert text in answer.out
    assert any(bar in answer.out for bar in BARS)


def source_of(rewards: list[float], offsets: list[int], shape: tuple[int, ...] = ()) -> penstock.formats.MemorySource:
    spec = Spec({"rewards": Field(np.dtype("float64"), shape)})
    values = np.zeros((offsets[-1], *shape)) if shape else np.array(rewards, np.float64)
    return penstock.formats.MemorySource(spec, {"rewards": values}, np.array(offsets))


@pytest.mark.parametrize("format", ["columns", "minari", "webdataset", "zarr", "rlds"])
def test_the_layout_is_short(call: Call, recording: Path, tmp_path: Path, format: str) -> None:
    """A word or two, and no object of the reader, as it was for buffers in Zarr."""
    report = penstock.convert(recording, tmp_path / "copy", format=format, fill_missing=True)
    layout = call("info", report.out, "--json").json["layout"]
    assert layout is None or len(layout) < 20


def test_returns_are_summed_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.formats.base.returns.BLOCK", 3)
    returns = returns_of(source_of([1, 2, 3, 4, 5, 6, 7], [0, 2, 2, 6, 7]))
    assert returns is not None
    assert returns.tolist() == [3, 0, 18, 7]


def test_rewards_of_another_shape_have_no_returns() -> None:
    assert returns_of(source_of([], [0, 2], shape=(3,))) is None


def test_a_dataset_without_episodes(tmp_path: Path) -> None:
    source = source_of([], [0])
    summary = summarise(locate(tmp_path, format="columns"), source, np.diff(source.offsets), np.zeros(0))
    assert (summary["episodes"], summary["lengths"], summary["returns"]) == (0, None, None)
    assert render(summary, np.diff(source.offsets), np.zeros(0))


def test_bytes_of_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert bytes_at(tmp_path / "a") == bytes_at(tmp_path) == 5


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (penstock.spaces.Discrete(3), "Discrete(3)"),
        (penstock.spaces.MultiBinary((2, 2)), "MultiBinary([2, 2])"),
        (penstock.spaces.MultiDiscrete(np.array([2, 3])), "MultiDiscrete([2, 3])"),
        (penstock.spaces.Text(5), "Text(5 characters)"),
        (penstock.spaces.Box(np.zeros(2), np.ones(2), np.dtype("f4")), "Box(float32[2] in 0 .. 1)"),
        (
            penstock.spaces.Box(np.array([-4.8, -np.inf]), np.array([4.8, np.inf]), np.dtype("f8")),
            "Box(float64[2] in -4.8 .. 4.8, -inf .. inf)",
        ),
        (
            penstock.spaces.Box(np.arange(7.0), np.arange(7.0) + 1, np.dtype("f8")),
            "Box(float64[7] in 0 .. 7, which differ by element)",
        ),
        (penstock.spaces.Tuple((penstock.spaces.Discrete(2),)), "Tuple(Discrete(2))"),
    ],
)
def test_spaces_in_one_line(space: penstock.spaces.Space, text: str) -> None:
    assert space_text(space.to_json()) == text


def test_spaces_that_are_not_stored_take_no_line(call: Call, tmp_path: Path) -> None:
    penstock.convert(penstock.from_arrays({"rewards": np.zeros(3)}, lengths=[3]), tmp_path / "data")
    assert "observations from" not in call("info", tmp_path / "data").out


def test_metadata_are_json_and_long_ones_the_names_of_their_entries(call: Call, tmp_path: Path) -> None:
    about = {"tags": ["day", None, True], "statistics": {f"column {i}": {"mean": [0.1] * 9} for i in range(9)}}
    data = penstock.from_arrays({"rewards": np.zeros(3)}, lengths=[3], metadata=about)
    penstock.convert(data, tmp_path / "data")
    out = " ".join(call("info", tmp_path / "data").out.replace("│", " ").split())
    assert 'tags ["day", null, true]' in out
    assert "statistics 9 values, which --json shows: column 0, column 1," in out
    assert "mean" not in out.partition("statistics")[2]
    assert call("info", tmp_path / "data", "--json").json["metadata"]["statistics"] == about["statistics"]


def test_files_that_are_left_out_alike_are_one_row(call: Call, tmp_path: Path) -> None:
    for i in range(30):
        np.savez(tmp_path / f"{i}.npz", actions=np.zeros(3))
        (tmp_path / f"{i}.sha").write_text("0")
    (tmp_path / "penstock.toml").write_text('penstock_mapping = 1\nfiles = "{n}.npz"\n')
    with collected_damage():
        out = call("info", tmp_path).out
    assert "0.sha and 29 more" in out
    assert out.count(".sha") == 1


IMPORTED = """
import json, sys
from penstock.cli.main import main
try:
    main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
NOT_NEEDED = {
    *("av", "email", "fsspec", "gymnasium", "h5py", "http", "numba", "pandas", "PIL", "pyarrow", "pydantic", "ssl"),
    *("penstock.conversion", "penstock.loading", "penstock.plan", "penstock.recording", "penstock.replay"),
    *("importlib.metadata", "penstock.data.dataset", "penstock.formats.mapping", "penstock.locations.http"),
}
"""What most tasks need and `penstock info` of a local dataset does not: together it takes longer than all else."""


@pytest.mark.parametrize(
    ("data", "most"), [("columns", 480), ("minari/0.5.4/hdf5-nested-v0", 510), ("rlds/tfrecord/toy_arm", 490)]
)
def test_few_modules_are_imported(recording: Path, data: str, most: int) -> None:
    path = recording if data == "columns" else Path(__file__).parents[1] / "golden" / data
    done = subprocess.run([sys.executable, "-c", IMPORTED, "info", path], capture_output=True, text=True, check=True)
    imported = set(json.loads(done.stderr.splitlines()[-1]))
    assert imported & NOT_NEEDED == set()
    assert len(imported) < most


def test_help_imports_neither_arrays_nor_pydantic() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED, "--help"], capture_output=True, text=True, check=True)
    assert {"numpy", "pydantic", "penstock.data"}.isdisjoint(json.loads(done.stderr.splitlines()[-1]))
