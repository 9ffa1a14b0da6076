"""`penstock uses`: the batches of an episode, from the file of a loader and its saved state."""

from __future__ import annotations

import json
from pathlib import Path

import penstock

TRAIN = """
import penstock

loader = penstock.open({recording!r}).windows(4).shuffle(seed=0).loader(batch_size=8)
"""


def test_the_batches_of_an_episode(call, recording: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(recording=str(recording)))
    loader = penstock.open(recording).windows(4).shuffle(seed=0).loader(batch_size=8)
    seen = [batch.ticket for _, batch in zip(range(2), loader, strict=False)]
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    answer = call("uses", f"{tmp_path / 'train.py'}:loader", 0, "--state", tmp_path / "state.json", "--json")
    assert answer.code == 0
    told = answer.json["samples"]
    assert answer.json["position"] == 16
    assert {line["ticket"] for line in told if line["given"]} <= set(map(str, seen))
    uses = loader.uses(0)
    assert [line["position"] for line in told] == uses.table["position"].tolist()
    table = call("uses", f"{tmp_path / 'train.py'}:loader", 0)
    assert table.code == 0
    assert "0 samples in 0 batches given" in " ".join(table.out.split())


def test_a_damaged_state_is_told_in_one_line(call, recording: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN.format(recording=str(recording)))
    (tmp_path / "state.json").write_text("{")
    answer = call("uses", f"{tmp_path / 'train.py'}:loader", 0, "--state", tmp_path / "state.json")
    assert answer.code == 2
    assert "expected a state_dict as JSON" in answer.err
    assert "json.dump(loader.state_dict(), file) writes it" in answer.err
