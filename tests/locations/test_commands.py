"""Every command that takes a dataset takes a URL, and `--storage` options that no output shows."""

# pyright: basic

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import ELSEWHERE, all_commands, app
from tests.cli.conftest import without_rerun
from tests.fuzz.targets import targets
from tests.locations.server import Site, serving


def installed(name: str) -> bool:
    """Whether the distribution of a command is."""
    return find_spec(ELSEWHERE.get(name, "penstock").replace("-", "_")) is not None


PRIVATE = ["--storage", 'headers={"X-Key": "hidden"}']
WITHOUT_DATA = {
    "adopt",
    "record",
    "formats",
    "uses",
    "live",
    "top",
    "why",
    "warmup",
    "repair",
    "merge-curations",
    "work",
}
"""Commands that read no dataset by location: `live` watches a folder, `repair` and `adopt` write there."""

WRITES = {"map", "convert", "reshard", "merge", "split"}
ARGUMENTS = {
    "info": ["{url}/run"],
    "check": ["{url}/run"],
    "stats": ["{url}/run"],
    "convert": ["{url}/run", "{url}/copy", "--format", "webdataset"],
    "certificate": ["{url}/made", "{url}/run", "--verify"],
    "diff": ["{url}/run", "{url}/made"],
    "reshard": ["{url}/shards", "{url}/larger"],
    "index": ["{url}/shards"],
    "cache": ["{url}/run", "--column", "observations"],
    "plan": ["{url}/run", "--windows", "2"],
    "map": ["{url}/run", f"{__name__}:doubled", "{folder}/mapped"],
    "simulate": ["{url}/run", "--windows", "2", "--batch-size", "1", "--hosts", "1"],
    "merge": ["{url}/run", "{url}/made", "--out", "{folder}/both"],
    "split": ["{url}/run", "--share", "a=1", "--share", "b=1", "--out", "{folder}/parts"],
    "film": ["{url}/run", "--out", "{folder}/film.png"],
    "serve": ["{url}/run", "--no-browser"],
    "export": ["{url}/run", "--out", "{folder}/episode.rrd", "--overwrite"],
    "view": ["{url}/drive.zarr", "--out", "{folder}/scene.png"],
}


def doubled(episode: penstock.Episode) -> dict[str, Any]:
    """What `penstock map` calls."""
    return {"rewards": np.asarray(episode.rewards) * 2}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    pixels = np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), np.uint8)
    data = penstock.from_arrays(
        {"observations": pixels, "actions": np.arange(7), "rewards": np.arange(7.0)}, lengths=[3, 4]
    )
    penstock.convert(data, folder / "run", certificate=False)
    penstock.convert(folder / "run", folder / "made", format="webdataset")
    penstock.convert(data, folder / "shards", format="webdataset", certificate=False)
    objects = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    objects |= {f"drive.zarr/{name}".replace("/./", "/"): raw for name, raw in logs().items()}
    with serving(objects) as site:
        site.fault = lambda request: None if request.headers.get("X-Key") == "hidden" else 403
        yield site


def logs() -> dict[str, bytes]:
    if not installed("view"):
        return {}
    files = targets()["l5kit/zarr"].files()
    roots = {name.partition("/")[0] for name in files}
    assert len(roots) == 1, roots
    return {name.partition("/")[2]: raw for name, raw in files.items()}


def test_all_commands_are_here() -> None:
    listed = ARGUMENTS.keys() | WITHOUT_DATA
    assert {name for name in listed if installed(name)} == all_commands().keys()
    for name in filter(installed, ARGUMENTS):
        module, _, function = all_commands()[name][0].partition(":")
        command = getattr(__import__(module, fromlist=[function]), function)
        assert "storage" in inspect.signature(command).parameters


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if installed(name)])
def test_a_command_reads_a_url(name: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "serve":
        monkeypatch.setattr("penstock_studio.viewer.server.ViewerServer.run", lambda _: None)
    monkeypatch.setitem(sys.modules, "rerun", without_rerun())
    arguments = [name, *(one.format(url=site.url, folder=tmp_path) for one in ARGUMENTS[name])]
    refused = CliRunner().invoke(app, arguments)
    assert (refused.exit_code, "refuses access" in " ".join(refused.output.split())) == (2, True), refused.output
    for extra in ([],) if name in WRITES else ([], ["--json"]):
        answer = CliRunner().invoke(app, [*arguments, *PRIVATE, *extra])
        assert answer.exit_code == 0, answer.output
        assert answer.output
        assert "hidden" not in answer.output
        assert "mirror.penstock" not in answer.output
