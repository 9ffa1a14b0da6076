"""`penstock record` of tasks of benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from tests.cli.conftest import Call, call

__all__ = ["call"]


@pytest.mark.parametrize(("seed", "n_envs"), [(0, 1), (1, 2)])
def test_a_task_of_a_benchmark(call: Call, tmp_path: Path, seed: int, n_envs: int) -> None:
    out, writer = tmp_path / "data", ("--format", "webdataset", "--option", "layout=seed")
    set_to = ("--set", "env_cfg.toy_frame_stack=3")
    told = call(
        "record",
        "toy/reach",
        "-n",
        2,
        "-o",
        out,
        "--random",
        "--seed",
        seed,
        "--n-envs",
        n_envs,
        *writer,
        *set_to,
        "--json",
    )
    assert told.json["episodes"] >= 2
    with penstock.open(out) as data:
        assert data.metadata["color_space"] == "RGB"
        assert data.metadata["env_cfg"]["toy_frame_stack"] == 3
        assert data.spec["observations"].shape == (9, 32, 32)
        assert len(data) >= 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("toy/nothing",), "unknown task 'nothing'"),
        (("toi/reach",), "did you mean 'toy'?; benchmarks are"),
        (("toy/reach", "--set", "env_cfg.nothing=1"), "unknown key"),
    ],
)
def test_what_is_no_task_is_refused(call: Call, tmp_path: Path, arguments: tuple[str, ...], complaint: str) -> None:
    answer = call("record", *arguments, "-o", tmp_path / "data")
    assert (answer.code, complaint in " ".join(answer.err.replace("│", " ").split())) == (2, True), answer.err
    assert not (tmp_path / "data").exists()
