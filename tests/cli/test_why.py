"""`penstock why`: a ticket and where its loader is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import PlanError, StateError

TRAIN = """
import penstock
from neighbour import RECORDING

data = penstock.open(RECORDING)
loader = data.windows(4).shuffle(seed=0).loader(batch_size=8)
on_device = data.windows(4).shuffle(seed=0).loader(batch_size=8, output="torch")

def build():
    return data.steps().loader(batch_size=8)

class Trainer:
    loader = loader

number = 5
"""


@pytest.fixture
def train(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "neighbour.py").write_text(f"RECORDING = {str(recording)!r}\n")
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("train", "neighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path / "train.py"


def ticket(recording: Path) -> str:
    data = penstock.open(recording).windows(4).shuffle(seed=0)
    return str(next(iter(data.loader(batch_size=8))).ticket)


@pytest.mark.parametrize("name", ["loader", "on_device", "Trainer.loader"])
def test_the_rows_of_a_batch_as_json(call, train, recording, name):
    answer = call("why", ticket(recording), f"{train}:{name}", "--json")
    assert answer.code == 0
    told = answer.json
    assert (told["ticket"], told["position"], told["count"]) == (ticket(recording), 0, 8)
    assert told["sources"] == [str(recording)]
    data = penstock.open(recording)
    assert [row["position"] for row in told["rows"]] == list(range(8))
    for row in told["rows"]:
        assert row["rows"] == 4
        assert row["first_row"] == data.source.offsets[row["episode"]] + row["step"]


def test_the_rows_of_a_batch_as_a_table(call, train, recording):
    answer = call("why", ticket(recording), f"{train}:loader", "--column", "observations")
    assert answer.code == 0
    assert "rows of boundary" in answer.out
    assert "episode" in answer.out


def test_modules_and_functions_are_found_too(call, train, recording, monkeypatch):
    monkeypatch.syspath_prepend(str(train.parent))
    samples = penstock.open(recording).steps()
    mine = str(next(iter(samples.loader(batch_size=3))).ticket)
    answer = call("why", mine, "train:build", "--json")
    assert [row["first_row"] for row in answer.json["rows"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("{file}", "file.py:name"),
        ("{file}:", "file.py:name"),
        ("{file}:nothing", "no 'nothing' there"),
        ("{file}:number", "got int"),
        ("{file}:Trainer", "got Trainer"),
        ("missing.py:loader", "does not exist"),
        ("{wrong}:loader", "a mistake in line 2: "),
        ("missing_module:loader", "expected a module"),
    ],
)
def test_what_is_no_loader_is_told_in_one_line(call, train, recording, place, text):
    wrong = train.with_name("wrong.py")
    wrong.write_text("import penstock\nloader = [\n")
    answer = call("why", ticket(recording), place.format(file=train, wrong=wrong))
    assert answer.code == 2
    assert PlanError.__name__ in answer.err
    assert text in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("wrong", ["abc", "0" * 32])
def test_damaged_and_foreign_tickets(call, train, wrong):
    answer = call("why", wrong, f"{train}:loader")
    assert answer.code == 2
    assert StateError.__name__ in answer.err


def test_help_has_an_example(call):
    answer = call("why", "--help")
    assert answer.code == 0
    assert "penstock why 0000" in answer.out
    assert "train.py:make_loader" in answer.out  # a name that holds a loader would run the training of many files
    assert "__main__" in answer.out
