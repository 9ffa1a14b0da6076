"""`penstock split` and `penstock merge`."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import penstock
from tests.cli.conftest import Call
from tests.doctor.test_partition import N, episodes, index


def test_commands(call: Call, tmp_path: Path) -> None:
    penstock.convert(episodes(), tmp_path / "data", certificate=False)
    shares = ("--share", "train=0.75", "--share", "test=0.25")
    answer = call("split", tmp_path / "data", *shares, "--by", "room", "--out", tmp_path / "parts", "--json")
    assert answer.code == 0
    parts = [penstock.open(tmp_path / "parts" / name) for name in ("train", "test")]
    assert [len(part) for part in parts] == [each["episodes"] for each in answer.json["parts"]]
    call("split", tmp_path / "data", *shares, "--curations")
    chosen = [
        penstock.open(tmp_path / "data", curation=tmp_path / f"data.{name}.curation.json") for name in ("train", "test")
    ]
    assert [len(part) for part in chosen] == [30, 10]
    assert not index(chosen[0]) & index(chosen[1])
    merged = call(
        "merge", tmp_path / "parts" / "train", tmp_path / "parts" / "test", "--out", tmp_path / "both", "--json"
    )
    assert merged.json["episodes"] == N
    assert call("split", tmp_path / "data", *shares).code == 2


def test_curations_are_not_written_next_to_a_mirror_of_a_url(call: Call) -> None:
    answer = call("split", "http://127.0.0.1:9/run", "--share", "a=1", "--curations")
    assert answer.code == 2
    assert "expected a local dataset with --curations" in " ".join(answer.err.split())
