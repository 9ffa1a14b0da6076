"""`penstock simulate`: constants of a storage, and a simulation."""

# pyright: basic

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import penstock
from tests.cli.conftest import Call


def test_a_storage_is_measured_and_simulated(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"x": np.zeros((20_000, 100), np.uint8)}
    data = penstock.from_arrays(columns, [2000] * 10, align={"x": "step"})
    penstock.convert(data, tmp_path / "data")
    call("simulate", "--measure", "data", "--output", "storage.json")
    told = call(
        *("simulate", "data", "--windows", "4", "--batch-size", "64", "--hosts", "1,4"),
        *("--block", "64,4", "--constants", "storage.json", "--picture", "plan.svg", "--json"),
    )
    figures = json.loads(told.out)["figures"]
    assert [(each["hosts"], each["order"]) for each in figures] == [(1, None), (4, None), (1, [64, 4]), (4, [64, 4])]
    assert (tmp_path / "plan.svg").read_text().rstrip().endswith("</svg>")
    assert "amplification" in call("simulate", "data", "--pack", "500", "--batch-size", "8", "--hosts", "1").out
    worked = call(
        *("simulate", "data", "--windows", "4", "--batch-size", "64", "--hosts", "1", "--block", "64,4"),
        *("--work", "0.25", "--threads", "1"),
    ).out
    assert "work of a thread for a sample: shuffle() 250 ms, shuffle(block=64, pool=4) 250 ms" in worked
    assert "takes 1 thread 16 s for a step of 0.1 s" in worked
    measured = call(
        "simulate", "data", "--windows", "4", "--hosts", "1", "--work", "measure", "--block", "64,4", "--json"
    )
    assert all(each["work"] > 0 for each in measured.json["figures"])
    for refused in (
        [],
        ["data", "--batch-size", "8", "--hosts", "a"],
        ["data", "--batch-size", "8", "--block", "3"],
        ["data", "--batch-size", "8", "--shares", "1,2"],
        ["data", "--batch-size", "8", "--windows", "2", "--pack", "3"],
        ["data", "--batch-size", "8", "--work", "x"],
        ["data", "--output", "a.json"],
        ["data", "--measure", "data"],
        ["--measure", "data", "--windows", "2"],
        ["--measure", "data", "--threads", "2"],
        ["--measure", "data", "--work", "measure"],
        ["--measure", "data", "--picture", "a.svg"],
        ["--measure", "data", "--block", "64,4"],
    ):
        answer = call("simulate", *refused)
        assert (answer.code, "expected" in answer.err) == (2, True), refused
