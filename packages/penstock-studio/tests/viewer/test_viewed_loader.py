"""The answers that the pages of a plan and of a batch get."""

# pyright: basic

from __future__ import annotations

import json
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli.loaders import find_plan
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.loading.loader import Loader
from penstock.loading.ticket import Ticket
from penstock_studio.commands.serve import _places
from penstock_studio.viewer.server import ViewerServer
from penstock_studio.viewer.viewed_loader import SourcePage, ViewedLoader
from viewer.test_server import ask, post

LENGTHS = [6, 0, 9, 4, 12]


@pytest.fixture
def loader() -> Loader:
    data = penstock.from_arrays({"x": np.arange(sum(LENGTHS))}, LENGTHS)
    return data.windows(3, pad="zero").shuffle(seed=3).loader(batch_size=5, threads=0)


@pytest.fixture
def viewed(loader: Loader) -> ViewedLoader:
    source = loader.dataset.sources[0]
    return ViewedLoader("train.py:loader", loader, [SourcePage("kitchen", source.offsets, "")])


def test_the_plan_names_the_rows_of_each_cell(viewed: ViewedLoader, loader: Loader) -> None:
    plan = json.loads(json.dumps(viewed.plan(batches=3)))
    assert (plan["grid"], plan["next"], plan["end"], plan["pages"]) == ([3, 5], 15, 31, ["kitchen"])
    rows = plan["rows"]
    offsets = loader.dataset.sources[0].offsets
    for number, batch in zip(range(3), loader, strict=False):
        assert plan["batches"][number]["ticket"] == str(batch.ticket)
        for i in [i for i, b in enumerate(rows["batch"]) if b == number]:
            first = offsets[rows["episode"][i]] + rows["step"][i]
            read = batch["x"][rows["column"][i]][rows["place"][i] : rows["place"][i] + rows["rows"][i]]
            assert read.tolist() == list(range(first, first + rows["rows"][i]))
    for drawing in plan["drawings"].values():
        ET.fromstring(drawing)
    last = viewed.plan(batches=99, position=25)
    assert [batch["samples"] for batch in last["batches"]] == [5, 1]
    assert loader.state_dict()["position"] == 15  # as the loop above left it
    with pytest.raises(PlanError):
        viewed.plan(position=-1)


def test_coverage_and_uses_are_those_of_the_loader(viewed: ViewedLoader, loader: Loader) -> None:
    next(iter(loader))
    covered, found = loader.coverage(), viewed.coverage()
    assert [line[1] for line in found["lines"]] == [covered.covered, *covered.counts.sum(axis=0)[1:].tolist()]
    assert (found["sentence"], found["unit"]) == (covered.sentence, "step")
    ET.fromstring(found["drawing"])
    uses = viewed.uses(2)
    assert [line[6] for line in uses["lines"]] == [str(ticket) for ticket in loader.uses(2).tickets]
    assert {line[5] for line in uses["lines"]} == {True, False}
    assert loader.state_dict()["position"] == 5
    with pytest.raises(PlanError):
        viewed.uses(99)


def test_a_ticket_lists_episodes_with_most_rows_first(viewed: ViewedLoader, loader: Loader) -> None:
    batch = next(iter(loader))
    found = viewed.ticket(str(batch.ticket))
    rows = [sum(span[1] for span in each["spans"]) for each in found["episodes"]]
    assert rows == sorted(rows, reverse=True)
    assert sum(rows) == batch["mask"].sum()
    for each in found["episodes"]:
        assert each["steps"] == LENGTHS[each["episode"]]
        assert each["page"] == "kitchen"
    assert sum(len(each["spans"]) for each in found["episodes"]) == found["lines"]
    without = ViewedLoader("here", loader, []).ticket(str(batch.ticket))
    assert {each["page"] for each in without["episodes"]} == {""}
    for wrong in ("0" * 32, "what"):
        with pytest.raises(StateError):
            viewed.ticket(wrong)


def test_a_measurement_says_what_would_help(viewed: ViewedLoader, loader: Loader) -> None:
    measured = viewed.measure()
    assert {row[0] for row in measured["stages"]} >= {"plan", "fetch"}
    assert sum(row[3] for row in measured["stages"]) == pytest.approx(1)
    assert measured["sentence"]
    assert loader.state_dict()["position"] == 0
    with viewed._measuring, pytest.raises(ArgumentError, match="one measurement"):
        viewed.measure()


def test_the_server_shows_the_sources_of_a_loader(tmp_path: Path) -> None:
    data = penstock.from_arrays({"x": np.arange(sum(LENGTHS))}, LENGTHS)
    stored = [str(penstock.convert(data.filter(f"total_steps > {n}"), tmp_path / f"d{n}").out) for n in (0, 5)]
    a, b = (penstock.open(path) for path in stored)
    loader = penstock.mix({"a": a.steps(), "b": b.steps()}, [1, 1], stop="drain").loader(batch_size=4, threads=0)
    ticket = next(iter(loader)).ticket
    with ViewerServer([stored[1]], loader=loader, place="train.py:loader", ticket=ticket) as server:
        assert server.start == f"{server.address}#ticket/{ticket}"
        assert [data.name for data in server.datasets] == ["d5", "d0"]  # the one that was open is not shown twice
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert json.loads(ask(server, "/pages")[2])["plan"]
            plan = json.loads(ask(server, "/loader/plan?batches=2&width=300")[2])
            assert (plan["parts"], plan["pages"]) == (["a", "b"], ["d0", "d5"])
            found = json.loads(ask(server, f"/loader/ticket/{ticket}")[2])
            assert {each["page"] for each in found["episodes"]} == {"d0", "d5"}
            assert ask(server, "/loader/ticket/12")[0] == 400
            assert ask(server, "/loader/plan?position=x")[0] == 400
            assert ask(server, "/loader/plan", token=None)[0] == 403
            assert post(server, "/loader/measure", b"{}", Origin="http://evil.example") == 403
        finally:
            server.stop()
            thread.join()
    assert len(a) == 4  # the datasets of the loader stay open
    stream = penstock.IterDataset.of(a.steps(), 2).loader()
    with ViewerServer([], loader=stream) as server:
        assert server.start.endswith("#plan")
        assert server.datasets == []


def test_what_a_command_may_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "naming.py").write_text(
        "import penstock\n"
        "data = penstock.from_arrays({'x': [1, 2, 3]}, lengths=[3]).steps()\n"
        "loader = data.loader(batch_size=2)\n"
        "planned = data.apply(penstock.transforms.Batches(size=2))\n"
        "def build():\n    return loader\n"
        "number = 5\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "naming", raising=False)
    place = f"{tmp_path}/naming.py"
    assert len(find_plan(f"{place}:data", 1)) == 3
    assert [len(find_plan(f"{place}:{name}")) for name in ("data", "loader", "planned", "build")] == [1, 2, 2, 2]
    with pytest.raises(PlanError, match="MapDataset"):
        find_plan(f"{place}:number")
    with pytest.raises(PlanError, match="batch size"):
        find_plan(f"{place}:loader", 4)
    digits = "0" * 32
    assert _places(["a", digits], with_loader=False) == (["a", digits], None)
    assert _places(["a", digits], with_loader=True) == (["a"], Ticket.parse(digits))
    monkeypatch.chdir(tmp_path)
    (tmp_path / digits).mkdir()
    assert _places([digits], with_loader=True) == ([digits], None)
