"""Pages of a loader: what it will serve, and the rows of a batch in their episodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import penstock
from browser.conftest import PATIENCE, Serve, broken_rules, no_wider_than_the_screen
from browser.test_pages import opened
from penstock_live.endpoint import MetricsEndpoint
from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import serving


@pytest.fixture(scope="session")
def planned(datasets: dict[str, Path]) -> Iterator[ViewerServer]:
    windows = {name: penstock.open(datasets[name]).windows(4, pad="zero") for name in ("kitchen", "clean")}
    parts = {name: each.select_columns("actions").shuffle(seed=1) for name, each in windows.items()}
    loader = penstock.mix(parts, [3, 1], stop="never").loader(batch_size=16, threads=1)
    with serving(datasets["video"], loader=loader, place="train.py:loader") as server:
        yield server


def test_a_plan_by_keyboard(page: Any, planned: ViewerServer) -> None:
    opened(page, planned)
    page.click("nav a:has-text('Plan')")
    page.wait_for_selector("h1:has-text('Plan')")
    page.wait_for_selector("#says:has-text('16 batches at positions 0 to 255')")
    page.wait_for_selector("td:has-text('75 %') >> nth=0")
    no_wider_than_the_screen(page)
    paths = page.locator("svg.cells path")
    expect(paths).to_have_count(2)  # two parts
    page.click("button:has-text('episode')")
    expect(paths.nth(2)).to_be_attached()
    page.keyboard.press("n")
    page.wait_for_selector("#says:has-text('256 to 511')")
    page.keyboard.press("p")
    page.wait_for_selector("#says:has-text('0 to 255')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#sample:has-text('batch 1, sample 0')")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Episode')")


def test_a_batch_in_its_episodes(page: Any, planned: ViewerServer) -> None:
    opened(page, planned, "#plan")
    page.locator("svg.cells").click(position={"x": 3, "y": 3})  # the first sample
    page.wait_for_selector("h1:has-text('Episode')")
    page.go_back()
    page.locator("svg.cells").hover(position={"x": 3, "y": 3})
    page.click("#sample a:has-text('batch')")
    page.wait_for_selector("h1:has-text('Batch')")
    page.wait_for_selector("#rows tbody tr")
    no_wider_than_the_screen(page)
    samples = sum(int(text) for text in page.locator("#rows tbody tr td:nth-child(4)").all_inner_texts())
    assert samples == 16
    page.click("#rows tbody a >> nth=0")
    page.wait_for_selector("h1:has-text('Episode')")
    opened(page, planned, "#ticket/12")
    page.wait_for_selector("[role=alert]:has-text('ticket')")


def test_coverage_and_the_uses_of_an_episode(page: Any, serve: Serve, datasets: dict[str, Path]) -> None:
    with penstock.open(datasets["kitchen"]) as data:
        loader = data.windows(16, stride=16).shuffle(seed=1).loader(batch_size=4, threads=0)
        page.goto(serve(loader=loader, place="train.py:loader").start)
        page.click("#count")
        page.wait_for_selector(f"#coverage:has-text('{loader.coverage().sentence}')")
        expect(page.locator("#coverage tbody tr")).to_have_count(1 + len(loader.coverage().reasons))
        page.fill("input[aria-label=episode]", "3")
        page.keyboard.press("Enter")
        uses = loader.uses(3)
        expect(page.locator("#uses tbody a")).to_have_text([str(ticket) for ticket in uses.tickets])
        no_wider_than_the_screen(page)
        page.wait_for_url("**episode=3*")
        page.reload()
        page.click("#uses tbody a >> nth=0")
        page.wait_for_selector("#rows td:has-text('3')")
        page.go_back()
        page.fill("input[aria-label=ticket]", str(uses.tickets[1]))
        page.keyboard.press("Enter")
        page.wait_for_selector(f".location:has-text('{uses.tickets[1]}')")
        opened_plan = page.url.split("#")[0] + "#plan?episode=99"
        page.goto(opened_plan)
        page.wait_for_selector("#uses [role=alert]:has-text('99')")


def test_a_loader_is_measured(page: Any, planned: ViewerServer) -> None:
    opened(page, planned, "#plan")
    page.click("#measure")
    page.wait_for_selector("#speed td:has-text('fetch')")
    no_wider_than_the_screen(page)


@pytest.fixture(scope="session")
def watched() -> Iterator[ViewerServer]:
    """A loader that is used until the test ends."""
    data = penstock.from_arrays({"x": np.zeros((20_000, 8))}, [1000] * 20).windows(8).shuffle(0)
    loader = data.loader(256, threads=1)
    ended = threading.Event()

    def train() -> None:
        while not ended.is_set():
            for _ in loader:
                if ended.wait(0.1):
                    return

    training = threading.Thread(target=train)
    next(iter(loader))  # compiles
    with MetricsEndpoint(lambda: loader.stats.snapshot) as endpoint, serving(live=str(endpoint.port)) as server:
        training.start()
        try:
            yield server
        finally:
            ended.set()
            training.join()


def test_a_running_loader(page: Any, watched: ViewerServer) -> None:
    page.goto(watched.start)
    page.wait_for_selector("#stages td:has-text('fetch')")
    page.wait_for_selector("#limit:has-text('consumer is the bottleneck')")  # it is much slower
    page.wait_for_selector("section h2:has-text('Memory')")
    no_wider_than_the_screen(page)
    page.keyboard.press("Space")
    page.wait_for_selector("#pause:has-text('Go on')")
    page.keyboard.press("Space")
    page.wait_for_selector("#pause:has-text('Pause')")


def test_a_running_loader_is_asked_each_second_until_the_page_is_left(page: Any, watched: ViewerServer) -> None:
    """The clock of the page stands still but for what the test adds."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "live/figures" in request.url else None)

    def pass_seconds(count: int) -> int:
        """Let seconds pass. Return how many requests were made since the start."""
        page.clock.run_for(1000 * count)
        page.evaluate("0")  # requests before it are listed now
        return len(asked)

    page.clock.install()
    page.goto(watched.start)
    last = time.monotonic() + PATIENCE / 1000
    while pass_seconds(1) < 4:  # the next second begins when an answer is drawn
        assert time.monotonic() < last
    page.wait_for_selector("#stages td:has-text('fetch')")
    page.keyboard.press("Space")
    page.wait_for_selector("#pause:has-text('Go on')")
    before = pass_seconds(0)
    assert pass_seconds(60) == before
    with page.expect_request("**/live/figures*"):
        page.keyboard.press("Space")
    page.wait_for_selector("#pause:has-text('Pause')")
    page.evaluate("location.hash = '#/'")
    page.wait_for_selector("h1:has-text('Datasets')")
    before = pass_seconds(0)
    assert pass_seconds(60) == before
    with page.expect_request("**/live/figures*"):
        page.go_back()
    page.wait_for_selector("h1:has-text('Live')")


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_no_page_of_a_loader_breaks_a_rule_of_axe(
    page: Any, planned: ViewerServer, watched: ViewerServer, serve: Serve, datasets: dict[str, Path]
) -> None:
    with penstock.open(datasets["kitchen"]) as data:
        loader = data.windows(16, stride=16).shuffle(seed=1).loader(batch_size=4, threads=0)
        address = serve(loader=loader, place="train.py:loader").address
        pages = {
            planned.address + "#plan": "td:has-text('75 %')",
            address + "#plan?episode=3": "#uses tbody a",
            f"{address}#ticket/{loader.uses(3).tickets[0]}": "#rows tbody tr",
            watched.start: "#limit:has-text('bottleneck')",
        }
        assert broken_rules(page, pages) == {}
