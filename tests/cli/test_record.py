"""`penstock record`, and what it recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.envs import recovery
from penstock.errors import DataError
from penstock.recording.rollout_spec import RolloutSpec
from tests.cli.conftest import Call


@pytest.mark.parametrize("format", ["columns", "minari"])
def test_what_is_told_lies_there(call: Call, tmp_path: Path, format: str) -> None:
    out = tmp_path / "data"
    told = call("record", "CartPole-v1", "-n", 3, "-o", out, "--format", format, "--seed", 0, "--json").json
    with penstock.open(out) as data:
        assert (told["episodes"], told["steps"], told["format"]) == (len(data), data.total_steps, format)
        assert told["lengths"]["max"] == max(len(episode) for episode in data)
        assert told["returns"]["mean"] == np.mean([episode.total_reward for episode in data])


def test_episodes_are_added_to_a_dataset(call: Call, tmp_path: Path) -> None:
    out, before = tmp_path / "data", []
    for format in (("--format", "webdataset"), ()):
        told = call("record", "CartPole-v1", "-n", 2, "-o", out, "--append", *format, "--seed", 0, "--json").json
        assert (told["format"], told["episodes"]) == ("webdataset", 2)
        with penstock.open(out) as data:
            lengths = [len(episode) for episode in data]
        assert lengths[: len(before)] == before
        before = lengths
    assert len(before) == 4
    assert "expected the observation space" in call("record", "MountainCar-v0", "-n", 1, "-o", out, "--append").err
    assert "--append" in call("record", "CartPole-v1", "-n", 1, "-o", out, "--append", "-O", "layout=npy").err


def test_the_same_seed_records_the_same(call: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert call("record", "CartPole-v1", "-n", 2, "-o", tmp_path / name, "--seed", 5).code == 0
    with penstock.open(tmp_path / "a") as a, penstock.open(tmp_path / "b") as b:
        for one, other in zip(a, b, strict=True):
            np.testing.assert_array_equal(one.observations, other.observations)
            np.testing.assert_array_equal(one.actions, other.actions)


def test_infos_that_come_and_go_are_columns(call: Call, tmp_path: Path) -> None:
    answer = call("record", "InvertedPendulum-v5", "-n", 1, "-o", tmp_path / "data", "--seed", 0, "--infos")
    assert answer.code == 0
    assert "1 episode, " in answer.out
    with penstock.open(tmp_path / "data") as data:
        assert "infos/reward_survive" in data.spec


def never_left(observation: object) -> int:
    return 1


def test_a_policy_by_name(call: Call, tmp_path: Path) -> None:
    policy = f"{never_left.__module__}:{never_left.__name__}"
    assert call("record", "CartPole-v1", "-n", 1, "-o", tmp_path / "data", "--policy", policy).code == 0
    with penstock.open(tmp_path / "data") as data:
        assert set(data[0].actions.tolist()) == {1}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("Nothing-v9", "-n", 1), "Nothing"),
        (("no_such_module:Env-v0", "-n", 1), "no_such_module"),
        (("CartPole-v1", "-n", 0), "--episodes"),
        (("CartPole-v1", "--policy", "expert"), "module:function"),
        (("CartPole-v1", "--format", "tapes"), "expected a format among"),
    ],
)
def test_usage_errors(call: Call, tmp_path: Path, arguments: tuple[object, ...], complaint: str) -> None:
    answer = call("record", *arguments, "-o", tmp_path / "data")
    assert answer.code == 2
    assert complaint in answer.err
    assert not (tmp_path / "data").exists()


def test_nothing_is_overwritten(call: Call, recording: Path) -> None:
    answer = call("record", "CartPole-v1", "-n", 1, "-o", recording)
    assert answer.code == 2
    assert answer.err.startswith("FileExistsError: ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("CartPole-v1", "--set", "env_cfg.toy_frame_stack=1"), "expected a benchmark"),
        (("--benchmark", "toy"), "--benchmark and --task"),
        (("CartPole-v1", "--random", "--policy", "a:b"), "expected one policy"),
        (("CartPole-v1", "--option", "colour=1"), "expected options of columns"),
    ],
)
def test_what_does_not_fit_is_refused(
    call: Call, tmp_path: Path, arguments: tuple[object, ...], complaint: str
) -> None:
    answer = call("record", *arguments, "-o", tmp_path / "data")
    assert (answer.code, complaint in " ".join(answer.err.replace("│", " ").split())) == (2, True), answer.err
    assert not (tmp_path / "data").exists()


def test_benchmarks_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "modules", tuple)
    with pytest.raises(DataError, match="pip install penstock-imitation brings benchmarks"):
        RolloutSpec("toy/reach").make()


def test_in_parts_and_as_an_array_job(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    how = ("record", "CartPole-v1", "-n", 7, "--seed", 4, "--infos")
    alone = call(*how, "-o", tmp_path / "alone", "--json").json
    parts = ("--job-episodes", 3, "--n-envs", 2)
    told = call(*how, "-o", tmp_path / "parts", *parts, "--runner", "threads", "--json").json
    assert told == {**alone, "path": str(tmp_path / "parts")}
    plan = tmp_path / "plan.json"
    assert "3 jobs" in call(*how, "-o", tmp_path / "array", *parts, "--plan", plan).out
    for index in (1, 0):
        assert call("work", plan, "--index", index, "--count", 2).code == 0
    assert "7 episodes" in call("work", plan, "--finish").out
    for name in ("parts", "array"):
        assert call("diff", tmp_path / "alone", tmp_path / name).code == 0
    with penstock.open(tmp_path / "alone") as data:
        assert [episode.metadata["number"] for episode in data] == list(range(7))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--append", "--jobs", 1), "expected a new dataset in parts"),
        (("--range-bytes", "1MB"), "expected --job-episodes"),
        (("--format", "minari", "--jobs", 1), "expected a recording in parts to be in columns"),
        (("--grow",), "expected --jobs, --runner or --plan"),
        (("--weights", "nothing"), "expected a policy as module:function for the weights"),
    ],
)
def test_parts_refuse(call: Call, tmp_path: Path, options: tuple[object, ...], complaint: str) -> None:
    answer = call("record", "CartPole-v1", "-o", tmp_path / "data", *options)
    assert (answer.code, complaint in answer.err) == (2, True), answer.err
    assert not (tmp_path / "data").exists()


def test_more_episodes_of_the_same_seed(call: Call, tmp_path: Path) -> None:
    how = ("record", "CartPole-v1", "--seed", 4)
    call(*how, "-n", 5, "-o", tmp_path / "one")
    call(*how, "-n", 2, "-o", tmp_path / "two")
    call(*how, "-n", 3, "--first", 2, "-o", tmp_path / "two", "--append")
    assert call("diff", tmp_path / "one", tmp_path / "two").code == 0
