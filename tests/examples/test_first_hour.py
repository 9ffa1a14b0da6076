"""Five tasks of the first hour, by the commands that the pages name, on a folder as a person has it.

Train on a folder of own data, find and drop bad episodes, resume on another number of ranks, see which batches used an
episode, convert and share.
"""

# pyright: basic

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.damage import collected_damage
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture
from tests.formats.mapping.test_own_folders import runs

TRAIN = """
import penstock
def make_loader(rank=0, world=1):
    data = penstock.open({place!r})
    return data.windows(3, pad="repeat").shuffle(seed=0).loader(batch_size=6, rank=rank, world=world)
if __name__ == "__main__":
    raise SystemExit("a command ran the training")
"""


@pytest.fixture
def cleaned(call: Call, tmp_path: Path) -> Path:  # noqa: F811
    """The folder as a LeRobot dataset without its bad episode: `adopt`, `check`, and the command that it names."""
    folder = runs(tmp_path / "picks")
    with collected_damage():
        assert call("adopt", folder, "--yes").code == 0
        checked = call("check", folder, "--deep")
        mapping = (folder / "penstock.toml").read_text()
        assert checked.code == 0, "NaN is in no column of observations, actions or rewards yet"
        edited = mapping.replace("J = [", "observations = [").replace("[columns]", "rate = 20\n[columns]")
        (folder / "penstock.toml").write_text(edited)
        checked = call("check", folder, "--deep")
        assert checked.code == 1
        command = checked.out.splitlines()[-1].partition(": ")[2].replace("OUT", str(tmp_path / "clean"))
        assert "--where 'id != 0'" in command
        assert call(*shlex.split(command)[1:], "--format", "lerobot", "--option", "cameras=video").code == 0
    return tmp_path / "clean"


def test_five_tasks(call: Call, cleaned: Path, tmp_path: Path) -> None:  # noqa: F811
    data = penstock.open(cleaned)
    assert len(data) == 3
    assert next(iter((cleaned / "videos").rglob("*.mp4"))).stat().st_size > 0
    weights = np.zeros((2, 1))
    place = tmp_path / "train.py"
    place.write_text(TRAIN.format(place=str(cleaned)))
    make_loader = runpy.run_path(str(place), run_name="train")["make_loader"]
    given = [batch.ticket.position for batch in make_loader()]

    two = [make_loader(rank, 2) for rank in range(2)]
    for number, parts in enumerate(zip(*two, strict=True)):
        for part in parts:
            error = part["observations"] @ weights - part["actions"].reshape(*part["actions"].shape[:2], -1)
            weights -= 1e-3 * np.einsum("blo,bla->oa", part["observations"], error)
        if number == 0:
            break
    assert np.isfinite(weights).all()
    (tmp_path / "state.json").write_text(json.dumps(two[1].state_dict()))
    three = [make_loader(rank, 3) for rank in range(3)]
    for loader in three:
        loader.load_state_dict(json.loads((tmp_path / "state.json").read_text()))
    assert [parts[0].ticket.position for parts in zip(*three, strict=True)] == given[1:]

    answer = call("uses", f"{place}:make_loader", 1, "--state", tmp_path / "state.json")
    assert re.search(r"\d+ samples? in 1 batch(es)? given", " ".join(answer.out.split())), answer.out
    listed = call("uses", f"{place}:make_loader", 1, "--state", tmp_path / "state.json", "--json").json["samples"]
    why = call("why", listed[0]["ticket"], f"{place}:make_loader", "--json").json
    assert "1" in json.dumps(why)

    assert call("convert", cleaned, tmp_path / "shared", "--format", "webdataset", "--fill-missing").code == 0
    assert call("certificate", tmp_path / "shared", cleaned, "--verify").code == 0
    assert len(penstock.open(tmp_path / "shared")) == 3
