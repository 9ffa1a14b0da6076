"""`penstock map`: what it prints, as an array job too, and what it says about functions that do not fit."""

# pyright: basic

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import penstock
from tests.cli.conftest import Call

CODE = """
import numpy as np

def norm(episode):
    return np.linalg.norm(episode.observations, axis=1)

def long(episode):
    return len(episode) > 15

class Goal:
    def __call__(self, episode, rng):
        return {"goal": rng.standard_normal(len(episode)), "success": len(episode) > 15}

value = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the working folder, which has another name in each test."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    name = f"functions_{os.getpid()}_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    return name


def test_a_column_is_added(call: Call, recording: Path, module: str) -> None:
    answer = call("map", recording, f"{module}:norm", "out", "--column", "norm")
    assert answer.code == 0
    assert "out (columns) converted: 4 episodes" in answer.out
    assert f"computed  norm  by {module}.norm, digest " in answer.out
    written = penstock.open("out")
    assert written.spec["norm"].align == "boundary"
    np.testing.assert_array_equal(written[2].columns["norm"], np.linalg.norm(written[2].observations, axis=1))
    proof = call("certificate", "out", recording, "--verify")
    assert f"function {module}.norm, digest " in proof.out
    assert "verified: nothing changed since" in proof.out


def test_episodes_are_left_out_and_said(call: Call, recording: Path, module: str) -> None:
    lengths = [len(each) for each in penstock.open(recording)]
    out = [e for e, length in enumerate(lengths) if length <= 15]
    assert 0 < len(out) < 4
    told = call("map", recording, f"{module}:long", "out.tar", "--json").json
    assert (told["episodes"], told["left_out"], told["format"]) == (4 - len(out), out, "webdataset")
    assert f"{len(out)} episode" in call("map", recording, f"{module}:long", "out2").out
    proof = call("certificate", "out.tar", recording, "--verify", "--json").json
    assert (proof["left_out"], proof["verified"]) == (out, True)
    for runner in ((), ("--runner", "threads")):
        assert call("certificate", "out2", recording, "--verify", *runner).code == 0


def test_it_is_an_array_job(call: Call, recording: Path, module: str, tmp_path: Path) -> None:
    """Each way prints the same, and so does the same command when it is called again."""
    command = ("map", recording, f"{module}:Goal", "--seed", "5", "--align", "success=episode", "--drop", "rewards")
    alone = call(*command, "alone").out.replace("alone", "out")
    plan = tmp_path / "map.json"
    assert "penstock work " in call(*command, "out", "--plan", plan, "--range-bytes", "1kB").out
    for index in (1, 0):
        assert call("work", plan, "--index", index, "--count", "2").code == 0
    assert call("work", plan, "--finish").out == alone
    again = call(*command, "out", "--runner", "threads", "--range-bytes", "1kB").out
    assert again == alone.replace("converted:", "was complete before:")
    with penstock.open("alone") as one, penstock.open("out") as other:
        assert one.source.fingerprint == other.source.fingerprint
        assert one.spec["success"].align == "episode"
        assert "rewards" not in one.spec


def test_what_does_not_fit_is_said(call: Call, recording: Path, module: str) -> None:
    for name, said in (
        ("nothing", "a function or class of episodes as module:name"),
        (f"{module}:value", "a function or class of episodes as module:name"),
        (f"{module}:norm", "column= names"),
    ):
        answer = call("map", recording, name, "out")
        assert (answer.code, said in " ".join(answer.err.split())) == (2, True), answer.err
    answer = call("map", recording, f"{module}:norm", "out", "--column", "x", "--overwrite", "--jobs", "2")
    assert "neither --overwrite nor --allow-empty in parts" in answer.err
    assert not Path("out").exists()
