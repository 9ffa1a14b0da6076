"""`penstock plan`: the size of a plan, constants of a storage, and a simulation."""

# pyright: basic

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from tests.cli.conftest import Call


def test_a_plan_is_shown_measured_and_simulated(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = 20_000
    columns = {"x": np.zeros((steps, 100), np.uint8)}
    data = penstock.from_arrays(columns, [2000] * 10, align={"x": "step"})
    penstock.convert(data, tmp_path / "data")
    shown = json.loads(call("plan", "data", "--windows", "4", "--json").out)
    assert shown["samples"] == steps - 30
    assert shown["plan_bytes"] < 10_000
    call("plan", "--measure", "data", "--output", "storage.json")
    told = call(
        *("plan", "data", "--windows", "4", "--batch-size", "64", "--simulate", "--hosts", "1,4"),
        *("--block", "64,4", "--constants", "storage.json", "--picture", "plan.svg", "--json"),
    )
    figures = json.loads(told.out)["figures"]
    assert [(each["hosts"], each["order"]) for each in figures] == [(1, None), (4, None), (1, [64, 4]), (4, [64, 4])]
    assert (tmp_path / "plan.svg").read_text().rstrip().endswith("</svg>")
    assert (
        "amplification" in call("plan", "data", "--pack", "500", "--batch-size", "8", "--simulate", "--hosts", "1").out
    )
    assert "sample" in call("plan", "data", "data", "--shares", "3,1", "--windows", "2").out
    packed = call("plan", "data", "--pack", "500", "--cache", "plans", "--jobs", "1", "--json").json
    assert Path(packed["file"]).parent == tmp_path / "plans"
    again = data.sequences().pack(500, overlong="split", cache=tmp_path / "plans")
    assert packed["packs"] == len(again)
    assert call("plan", "data", "--cache", "plans").code == 2
    for wrong in (["--hosts", "a"], ["--block", "3"], ["--shares", "1,2"], ["--windows", "2", "--pack", "3"]):
        assert call("plan", "data", "--simulate", "--batch-size", "8", *wrong).code == 2
    for ignored in (
        ["data", "--picture", "a.svg"],
        ["data", "--block", "64,4"],
        ["data", "--output", "a.json"],
        ["data", "--measure", "data"],
        ["--measure", "data", "--windows", "2"],
        ["data", "--pack", "500", "--cache", "plans", "--simulate"],
        ["data", "--pack", "500", "--cache", "plans", "--windows", "2"],
        ["data", "data", "--shares", "a,b"],
    ):
        refused = call("plan", *ignored)
        assert (refused.code, "expected" in refused.err) == (2, True), ignored
    assert call("plan").code == 2
