"""`penstock plan`: the size of a plan."""

# pyright: basic

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from tests.cli.conftest import Call


def test_a_plan_is_shown(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = 20_000
    columns = {"x": np.zeros((steps, 100), np.uint8)}
    data = penstock.from_arrays(columns, [2000] * 10, align={"x": "step"})
    penstock.convert(data, tmp_path / "data")
    shown = json.loads(call("plan", "data", "--windows", "4", "--json").out)
    assert shown["samples"] == steps - 30
    assert shown["plan_bytes"] < 10_000
    assert "sample" in call("plan", "data", "data", "--shares", "3,1", "--windows", "2").out
    packed = call("plan", "data", "--pack", "500", "--cache", "plans", "--jobs", "1", "--json").json
    assert Path(packed["file"]).parent == tmp_path / "plans"
    again = data.sequences().pack(500, overlong="split", cache=tmp_path / "plans")
    assert packed["packs"] == len(again)
    for refused in (
        [],
        ["data", "--cache", "plans"],
        ["data", "--pack", "500", "--jobs", "1"],
        ["data", "--shares", "1,2"],
        ["data", "--windows", "2", "--pack", "3"],
        ["data", "--pack", "500", "--cache", "plans", "--windows", "2"],
        ["data", "data", "--shares", "a,b"],
        ["data", "--pack-option", "seed=1"],
        ["data", "--pack", "500", "--pack-option", "sead=1"],
        ["data", "--pack", "500", "--pack-option", "cache=plans"],
        ["data", "--pack", "500", "--pack-option", "method=best"],
        ["data", "--pack", "0:500,x"],
        ["data", "--pack", "0:500,100:200", "--cache", "plans"],
    ):
        answer = call("plan", *refused)
        assert (answer.code, "expected" in answer.err) == (2, True), refused


@pytest.mark.parametrize(
    ("length", "options"),
    [
        (70, {"overlong": "truncate_left", "max_sequences": 3, "fill": 1}),
        (70, {"method": "first_fit", "open_bins": 8, "flush": "block", "align": 4, "overlong": "drop"}),
        (64, {"method": "concat_split", "head": 2, "marks": ["lengths"], "positions": "continue"}),
        ({"x": 60, "y": 60}, {"overlong": "own_pack", "window": 16, "seed": 3}),
    ],
)
def test_pack_takes_the_options_of_the_library(
    call: Call, tmp_path: Path, length: Any, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 60, 300)
    columns = {name: np.zeros((lengths.sum(), 2), np.uint8) for name in "xy"}
    data = penstock.from_arrays(columns, lengths.tolist(), align={"x": "step", "y": "step"})
    penstock.convert(data, tmp_path / "data")
    text = ",".join(f"{name}={value}" for name, value in length.items()) if isinstance(length, dict) else str(length)
    given = [word for name, value in options.items() for word in ("--pack-option", f"{name}={json.dumps(value)}")]
    shown = call("plan", str(tmp_path / "data"), "--pack", text, *given, "--json").json
    packed = call(
        *("plan", str(tmp_path / "data"), "--pack", text, *given, "--jobs", "1"),
        *("--cache", str(tmp_path / "plans"), "--json"),
    ).json
    file = Path(packed["file"])
    before = file.stat().st_mtime_ns
    with penstock.open(tmp_path / "data") as stored:
        packs = stored.sequences().pack(length, **options, cache=tmp_path / "plans")
    assert len(packs) == packed["packs"] == shown["samples"]
    assert (list(file.parent.glob("*.pack")), file.stat().st_mtime_ns) == ([file], before), "the library found it"
