"""Review of episodes: queues, one key each, undo, two tabs, a server that is killed, agreement of two people."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import penstock
from browser.conftest import PATIENCE, Serve, no_wider_than_the_screen
from penstock.curation import EpisodeMarks
from penstock.data.curation import Curation

SCRIPT = """
import secrets, sys
from pathlib import Path
secrets.token_urlsafe = lambda n: sys.argv[4]
from penstock_studio.viewer.server import ViewerServer
server = ViewerServer([sys.argv[1]], curation=Path(sys.argv[2]), port=int(sys.argv[3]))
print(server.address, flush=True)
server.run()
"""


def decided(file: Path) -> dict[int, bool | None]:
    return {number: marks.excluded for number, marks in Curation.read(file).marks()}


def test_a_queue_by_keyboard(page: Any, serve: Serve, datasets: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "marks.json"
    address = serve(datasets["kitchen"], curation=file).address
    page.goto(address + "#/kitchen/review")
    page.wait_for_selector("#queues button:has-text('Least like')")
    no_wider_than_the_screen(page)
    page.click("#queues button:has-text('Least like')")
    queue = np.argsort(-penstock.check(datasets["kitchen"]).measures["novelty"]).tolist()
    for number, key in enumerate("dkd", 1):
        page.wait_for_selector(f"#reviewing:has-text('{number} of 5')")
        page.wait_for_selector(f"h1:has-text('Episode {queue[number - 1]}')")
        bar, heading, player = (page.locator(part).bounding_box() for part in ("#reviewing", "h1", ".player"))
        assert bar["y"] + bar["height"] <= heading["y"]  # the bar covers nothing, and the player stays below
        assert player["y"] + player["height"] <= page.viewport_size["height"]
        with page.expect_response("**/marks/*") as saved:
            page.keyboard.press(key)
        assert saved.value.ok
    no_wider_than_the_screen(page)
    assert decided(file) == dict(zip(queue, (True, False, True), strict=False))
    page.wait_for_selector("#reviewing:has-text('4 of 5')")
    # An episode that still loads is left; a key that follows decides on the one that is shown.
    page.route(f"**/episode/{queue[3]}", lambda _: None)  # no answer comes
    page.reload()
    page.wait_for_selector("#reviewing:has-text('4 of 5')")
    page.keyboard.press("p")
    page.wait_for_selector("#reviewing:has-text('3 of 5')")
    page.keyboard.press("k")
    page.wait_for_selector("#reviewing:has-text('4 of 5')")
    with page.expect_response("**/marks/*"):
        page.keyboard.press("u")
    page.wait_for_selector("#reviewing:has-text('3 of 5')")
    assert decided(file)[queue[2]] is True
    assert queue[3] not in decided(file)
    page.unroute(f"**/episode/{queue[3]}")
    page.click("#reviewing a:has-text('Review')")
    page.wait_for_selector("#progress:has-text('3 of 5 episodes reviewed, 2 left out')")
    expect(page.locator("#results pre").first).to_contain_text(str(file))
    with page.expect_download() as download:
        page.click("#results a:has-text('as a split')")
    split = json.loads(Path(download.value.path()).read_text())
    assert split == {"kept": sorted({0, 1, 2, 3, 4} - {queue[0], queue[2]}), "excluded": sorted([queue[0], queue[2]])}
    with penstock.open(datasets["kitchen"], curation=file) as data:
        assert data.table()["id"].tolist() == split["kept"]


@contextmanager
def started(data: Path, file: Path, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, which is killed at the end at the latest, and its address."""
    command = [sys.executable, "-c", SCRIPT, str(data), str(file), port, "one-and-the-same-token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_two_tabs_and_a_killed_server_lose_nothing(chromium: Any, datasets: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "marks.json"
    context = chromium.new_context()  # not that of `page`: requests fail here
    context.set_default_timeout(PATIENCE)
    tabs = [context.new_page(), context.new_page()]
    with started(datasets["clean"], file) as (process, address):
        for tab in tabs:
            tab.goto(address + "#/clean/2")
            tab.wait_for_selector("#marks")
        with tabs[0].expect_response("**/marks/2*"):
            tabs[0].keyboard.press("4")
        process.kill()
        process.wait()
        for tab, key in zip(tabs, "x5", strict=True):
            tab.keyboard.press(key)
            tab.wait_for_selector("#unsent:has-text('on the way')")
        tabs[1].close()  # what it could not send is sent by the other one
    with started(datasets["clean"], file, address.split(":")[2].split("/")[0]):
        tabs[0].wait_for_selector("#unsent", state="hidden")
        context.close()
    assert Curation.read(file)[2] == EpisodeMarks(rating=5, excluded=True)


@pytest.mark.parametrize("page", ["dark"], indirect=True)
def test_the_agreement_of_two_people(page: Any, serve: Serve, datasets: dict[str, Path], tmp_path: Path) -> None:
    with penstock.open(datasets["kitchen"]) as data:
        for name, votes in {"ann": (True, True, False, False), "ben": (True, False, False, False)}.items():
            with Curation.edit(tmp_path / f"{name}.json", data.source) as curation:
                for number, vote in enumerate(votes):
                    curation[number] = EpisodeMarks(excluded=vote)
    page.goto(serve(datasets["kitchen"], curation=tmp_path / "ann.json").address + "#/kitchen/review")
    page.set_input_files("input[type=file]", tmp_path / "ben.json")
    page.wait_for_selector("#agreement:has-text('3 episodes of 4 decided alike')")
    page.wait_for_selector("#agreement:has-text('kappa 0.50')")
    expect(page.locator("#agreement a")).to_have_text(["1"])
    (tmp_path / "other.json").write_text("[]")
    page.set_input_files("input[type=file]", tmp_path / "other.json")
    page.wait_for_selector("#agreement [role=alert]:has-text('a curation')")
